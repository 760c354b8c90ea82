"""Crashes: after any prefix of its committed records a turn goes on to its outcome, and repeats no committed call.

Each world is driven as a fleet drives it: the process dies right after the n-th commit, for every n, and the next one
folds the log and goes on (rulings 11, 13).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from core.jsontext import JsonObject
from engine.session.state import SessionState, fold
from engine.turn.ports import Stop, TurnFenced, TurnReleased
from tests.support.engine import Bench, advance_to, by_grader, call, do, fee, in_fee, in_main, say, setting
from tests.support.worlds import Crash, World

Make = Callable[..., Bench]
SPEC = """
    states:
      intake:
        triggers: { manual: }
        tools: { allow: [touch, archmax_workflow_fee, archmax_eval, write_file] }
        transitions: [{ to: check, description: go on }]
      check:
        type: code
        script: scripts/check.js
        tools: { allow: [touch, archmax_workflow_fee] }
        transitions: [{ to: judge }]
      judge:
        type: grader
        instructions: Judge.
        tools: { allow: [touch, archmax_workflow_fee] }
        transitions: [{ to: review, description: ask }, { to: intake, description: back }]
      review: { type: human, instructions: Look., transitions: [{ to: end, description: ok }] }
      end:
        tools: { allow: [touch] }
"""
FEE = """
    states:
      start:
        triggers: { manual: { requires: [n], returns: [fee] } }
        tools: { allow: [touch] }
"""
CHECK = """export default async function ({ tools }) {
  await tools.touch({ n: 10 });
  const fees = await Promise.all([1, 2].map((n) => tools.archmax_workflow_fee({ n })));
  await tools.touch({ n: 11 });
  await tools.archmax_advance({ to: 'judge', reason: fees.map((f) => JSON.parse(f).returns.fee).join() });
}"""


SCRIPT = [
    in_main(do(call("touch", n=1), call("touch", n=2), call("touch", n=-3), setting(a=1), text="On it.")),
    in_main(do(call("write_file", file_path="scratchpad/x.md", content="x"), fee(n="7"), call("touch", n=4), fee(n="8"))),
    in_main(do(call("archmax_eval", code="await tools.touch({ n: 5 }); (await tools.archmaxWorkflowFee({ n: 9 })).length"))),
    in_main(do(call("touch", n=6), advance_to("check"))),
    by_grader(do(call("touch", n=20), fee(n="30"))),
    by_grader(do(advance_to("review", evidence=["scratchpad/x.md"]))),
    in_main(say("Please look.")),
    in_main(do(call("touch", n=40))),
    in_main(say("Done.")),
    in_fee(do(call("touch", n=100), setting(fee=3))),
    in_fee(say("It is 3.")),
]  # fmt: skip


def world(bench: Make, like: World | None = None) -> World:
    sandbox = None if like is None else like.bench.sandbox
    files = {"workflows/main/scripts/check.js": CHECK}
    return World(bench({"main": SPEC, "fee": FEE}, SCRIPT, files=files, sandbox=sandbox))


async def both_turns(w: World) -> list[JsonObject]:
    first = await w.turn({"kind": "message", "message": "go"})
    return [first, await w.turn({"kind": "decision", "to": "end"}, turn=2)]


#: every committed call runs once; the five children of `main` touch 100 once each
EXPECTED = sorted([1, 2, -3, 4, 5, 6, 10, 11, 20, 40, *[100] * 6])


async def test_a_run_without_a_crash_is_the_measure(bench: Make) -> None:
    """The world itself: two turns, six children, every kind of caller."""
    w = world(bench)
    first, second = await both_turns(w)
    assert (first["kind"], first["state"], second["kind"], second["state"]) == (
        "parked",
        "review",
        "completed",
        "end",
    )
    assert sorted(w.bench.touched) == EXPECTED
    assert w.state().dispatch_count == 6
    assert set(w.records) == {"s1", *(f"s1~{n}" for n in range(1, 7))}


def shape(state: SessionState) -> Any:
    """What a crash must not change: transcript, trail, variables, position."""
    return (
        [(m["role"], m["text"], [c["name"] for c in m.get("calls", ())]) for m in state.messages],
        [(step["kind"], step["to"], step.get("reason")) for step in state.trail],
        state.values,
        state.position,
        state.status,
        state.dispatch_count,
        sorted(state.files),
    )


@pytest.mark.parametrize("part", range(2))
async def test_a_crash_after_any_commit_changes_nothing(bench: Make, part: int) -> None:
    """Rulings 11, 13: same transcript, trail, variables; a committed call is never made again."""
    measure = world(bench)
    outcomes = await both_turns(measure)
    total = sum(len(records) for records in measure.records.values())
    assert total > 40
    for left in range(1 + part, total + 1, 2):
        w = world(bench, measure)
        w.crash = Crash(left)
        assert [o["kind"] for o in await both_turns(w)] == [o["kind"] for o in outcomes], f"crash at {left}"
        assert shape(w.state()) == shape(measure.state()), f"crash at {left}"
        again = sorted(w.bench.touched)
        assert set(again) == set(EXPECTED)
        committed = results_committed(w)
        assert len(committed) == len(set(committed)), f"crash at {left}: a committed call was made again"
        assert len(again) - len(EXPECTED) <= 2, f"crash at {left}: {again}"
        told = [
            (c["t"], c["id"]) for r in w.records["s1"] for c in r["changes"] if c["t"] in ("called", "result")
        ]
        assert len(told) == len(set(told)), f"crash at {left}: a call was told twice"


def results_committed(w: World) -> list[tuple[str, str]]:
    return [
        (session, str(change["id"]))
        for session, records in w.records.items()
        for record in records
        for change in record["changes"]
        if change["t"] == "result" and change["tool"] == "touch"
    ]


async def test_folding_from_scratch_and_folding_twice_give_one_state(bench: Make) -> None:
    """Ruling 13: the state is the fold; a record met twice (same commit) changes nothing."""
    w = world(bench)
    await both_turns(w)
    for session, records in w.records.items():
        workflow = "main" if session == "s1" else "fee"
        numbered = [((1, 1, number), record) for number, record in enumerate(records, 1)]
        once = fold(session, workflow, numbered)
        assert once == fold(session, workflow, [entry for entry in numbered for _ in range(2)])
        late = fold(session, workflow, numbered)
        assert not late.apply_record(records[0], (1, 1, 1)) and late == once


@pytest.mark.parametrize("left", [1, 2, 3, 4])
async def test_calls_a_dead_turn_left_open_are_answered_before_the_next_model_call(
    bench: Make, left: int
) -> None:
    """03 §13.4: the next turn opens over a transcript a provider accepts (the watched model checks it)."""
    answers: Sequence[JsonObject] = [
        do(call("touch", n=1), call("touch", n=2), call("touch", n=3)),
        {**say("later"), "repeat": True},
    ]
    b = bench(
        SPEC.replace(", archmax_workflow_fee", ""), answers, files={"workflows/main/scripts/check.js": CHECK}
    )
    w = World(b)
    w.crash = Crash(left)
    with contextlib.suppress(TurnFenced):  # the crash; the last commit may be the turn's end
        await w._attempt(b.agent.assembly, "s1", 1, {"kind": "message", "message": "go"})
    w.crash = Crash()
    outcome = await w.turn({"kind": "message", "message": "again"}, turn=2)
    assert outcome["kind"] == "completed"
    assert w.state().unanswered == []
    results = [m for m in w.state().messages if m["role"] == "tool"]
    assert len(results) == 3


async def test_a_state_gone_from_the_spec_under_a_running_turn_fails_it_by_name(bench: Make) -> None:
    """Ruling 5: whoever takes the turn over guesses nothing."""
    files = {"workflows/main/scripts/check.js": CHECK}
    w = World(bench({"main": SPEC, "fee": FEE}, SCRIPT, files=files))
    w.crash = Crash(2)
    with pytest.raises(TurnFenced):
        await w._attempt(w.bench.agent.assembly, "s1", 1, {"kind": "message", "message": "go"})
    edited = SPEC.replace("intake", "reception")
    w.bench, w.crash = bench({"main": edited, "fee": FEE}, SCRIPT, files=files), Crash()
    outcome = await w.turn({"kind": "message", "message": "go"})
    assert (outcome["kind"], outcome["exit"]["code"]) == ("failed", "turn-error")
    assert "'intake'" in outcome["exit"]["reason"]


@pytest.mark.parametrize(("stop", "error"), [(Stop.DRAIN, TurnReleased), (Stop.LOST, TurnFenced)])
async def test_a_turn_whose_process_leaves_writes_nothing_more(
    bench: Make, stop: Stop, error: type[Exception]
) -> None:
    """Ruling 11: another one goes on from the last commit."""
    b = bench(SPEC.replace(", archmax_workflow_fee", ""), [do(call("touch", n=1)), say("done")],
              files={"workflows/main/scripts/check.js": CHECK})  # fmt: skip
    w = World(b)

    def leave(event: JsonObject) -> None:
        if event["type"] == "tool-result":
            w.stop = stop

    b.watch(leave)
    with pytest.raises(error):
        await w._attempt(b.agent.assembly, "s1", 1, {"kind": "message", "message": "go"})
    left = len(w.records["s1"])
    w.stop = None
    assert (await w.turn({"kind": "message", "message": "go"}))["kind"] == "completed"
    assert left < len(w.records["s1"]) and b.touched == [1]


async def test_a_call_announced_before_a_crash_is_not_announced_again(bench: Make) -> None:
    """03 §20: it runs again, for it has no result, and settles once."""
    runs: list[int] = []
    hang = asyncio.Event()

    async def slow() -> str:
        """Hangs the first time."""
        runs.append(1)
        if len(runs) == 1:
            await hang.wait()
        return "slow"

    spec = "states: { intake: { triggers: { manual: }, tools: { allow: [touch, slow] } } }"
    tools = [StructuredTool.from_function(coroutine=slow, name="slow")]
    w = World(bench(spec, [do(call("slow"), call("touch", n=1)), say("done")], tools=tools))
    w.crash = Crash(2)
    assert (await w.turn({"kind": "message", "message": "go"}))["kind"] == "completed"
    assert (len(runs), w.bench.touched) == (2, [1])
    told = [c["id"] for r in w.records["s1"] for c in r["changes"] if c["t"] == "called"]
    assert len(told) == len(set(told)) == 2
