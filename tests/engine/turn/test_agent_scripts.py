"""The agent's scripts over a turn: one REPL, rebuilt when it is lost, released when the turn rests (03 §9.8, §19.1)."""

from __future__ import annotations

from collections.abc import Callable

from core.jsontext import JsonObject
from sandbox import Fault, Sandbox
from tests.support.engine import Bench, bench, call, do, in_fee, say, setting

__all__ = ["bench"]
Make = Callable[..., Bench]
SPEC = """
    settings: { timeoutMs: 1000 }
    states:
      work:
        triggers: { manual: }
        tools: { allow: [touch, archmax_workflow_fee] }
"""
FEE = "states: { start: { triggers: { manual: { requires: [n], returns: [fee] } } } }"


def run(code: str) -> JsonObject:
    return {**do(call("archmax_eval", code=code)), "when_workflow": "main"}


DONE = {**say("done"), "when_workflow": "main", "repeat": True}


async def test_what_a_script_leaves_outlives_a_suspension_and_ends_with_the_turn(bench: Make) -> None:
    """03 OP-19: rebuilt from its journals without calling anything again; never kept for another turn."""
    answers = [
        run("const first = await tools.touch({ n: 1 }); const chance = Math.random(); [first, chance]"),
        run(
            "const fee = JSON.parse(await tools.archmaxWorkflowFee({ n: 1 })).returns.fee; [first, chance, fee]"
        ),
        in_fee(do(setting(fee=3))),
        in_fee(say("three")),
        run("[first, chance, fee, await tools.touch({ n: 2 })]"),
        {**say("rest"), "when_workflow": "main"},
        run("[typeof first, typeof fee]"),
        DONE,
    ]
    b = bench({"main": SPEC, "fee": FEE}, answers)
    outcome = await b.send()
    one, two, three = (text.strip("[]").split(",") for text in b.results(outcome, "archmax_eval"))
    assert two == [*one, "3"] and three == [*two, '"touched 2"']
    assert b.touched == [1, 2]
    assert b.results(await b.send("again"), "archmax_eval")[-1] == '["undefined","undefined"]'


async def test_a_killed_script_takes_nothing_of_the_others_and_is_not_run_again(bench: Make) -> None:
    """03 §19.5: the next evaluation works, on what the earlier ones left; decision 0030."""
    killed: list[Fault] = []
    answers = [
        run("const kept = await tools.touch({ n: 1 }); kept"),
        run("globalThis.bad = await tools.touch({ n: 2 }); while (true);"),
        run("[kept, typeof bad]"),
        DONE,
    ]
    b = bench(
        {"main": SPEC, "fee": FEE}, answers, sandbox=Sandbox(spare_processes=1, on_killed=killed.append)
    )
    outcome = await b.send()
    assert b.results(outcome, "archmax_eval")[2] == '["touched 1","undefined"]'
    assert killed == [Fault.TIMEOUT]
    assert b.touched == [1, 2]
