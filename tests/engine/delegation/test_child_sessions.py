"""The child session: identity, what crosses, its opening message, its answer (04 §4.2, §5, §6, §11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.delegation.opening_message import opening_message
from engine.errors import ChildSessionError
from engine.workspace.directory_backend import DirectoryBackend
from tests.support.engine import Bench, call, do, fee, in_fee, in_main, say, setting

Make = Callable[..., Bench]
MAIN = """
    tools: { allow_always: [archmax_workflow_fee, touch], forbid_always: [stamp] }
    states:
      intake:
        triggers: { manual: }
        on_error: rescue
      rescue:
"""
FEE = """
    tools: { allow_always: [touch, stamp] }
    states:
      start:
        triggers: { manual: { requires: [n], returns: [fee, { name: days, type: integer }, waived] } }
        instructions: CHILD WORK
        budget: { maxTurns: 3 }
        transitions: [{ to: end, description: done }]
      end:
"""
PLAIN = "states:\n  start:\n    triggers: { manual: }\n"


async def test_children_are_numbered_in_message_order_across_turns(bench: Make) -> None:
    """04 §5.1, OP-3."""
    two = do(fee(n="a"), fee(n="b"))
    b = bench(
        {"main": MAIN, "fee": FEE},
        [
            in_main(two),
            in_main(say("x")),
            in_main(do(fee(n="c"))),
            in_main(say("y")),
            in_fee({**say("ok"), "repeat": True}),
        ],
    )
    await b.send()
    await b.send("more")
    assert {(await b.state(f"s1~{n}")).values["n"] for n in (1, 2, 3)} == {"a", "b", "c"}
    assert (await b.state("s1~3")).values["n"] == "c"
    summaries = {s["sessionId"]: s.get("parentSessionId") for s in await b.agent.sessions.list()}
    assert summaries == {"s1": None, "s1~1": "s1", "s1~2": "s1", "s1~3": "s1"}


async def test_a_child_holds_its_arguments_and_its_trigger_and_nothing_else(bench: Make) -> None:
    """04 §5.2, §5.3: locked, a title unlocked; the assembly's variables and trigger are not applied."""
    b = bench(
        {"main": MAIN, "fee": FEE},
        [
            in_main(do(setting(secret=1, title="Caller"))),
            in_main(do(fee(n=1, title=" Theirs ", extra=[2]))),
            in_fee(say("ok")),
            in_main(say("done")),
        ],
        variables={"host": 1},
    )
    await b.send()
    held = {name: v.to_json() for name, v in (await b.state("s1~1")).variables.items()}
    assert held == {
        "n": {"value": 1, "locked": True},
        "extra": {"value": [2], "locked": True},
        "title": {"value": "Theirs", "locked": False},
        "trigger": {"value": "manual", "locked": True},
    }


async def test_a_childs_transcript_begins_with_the_opening_note_alone(bench: Make) -> None:
    """04 §5.4: human role, marked; no caller prose; no naming step in its prompt (§5.6)."""
    b = bench(
        {"main": MAIN, "fee": FEE},
        [in_main(do(fee(n='a "b"'), text="CALLER WORDS")), in_fee(say("ok")), in_main(say("done"))],
    )
    await b.send("PERSON WORDS")
    seen = next(s for s in b.seen if s.workflow == "fee")
    assert [m.type for m in seen.messages] == ["system", "human"]
    assert seen.messages[1].additional_kwargs["archmax"]["note"] == "opening"
    assert '- n: "a \\"b\\""' in seen.text and "archmax_get_variables" not in seen.text
    whole = seen.system + seen.text
    assert "CALLER WORDS" not in whole and "PERSON WORDS" not in whole
    assert "Name the session first" not in seen.system and "note naming the rest" in seen.system
    caller = b.seen[0]
    assert "Name the session first" in caller.system and "ends rejected" not in caller.system


def test_the_opening_message_shows_small_values_and_names_the_rest() -> None:
    """04 §5.4, OP-12: 200 per value, 1,000 together, in name order; later values that fit are shown."""
    text = opening_message(
        {
            "b": "x" * 198,
            "a": "x" * 199,
            "c": True,
            "d": 4.0,
            "e": [1],
            "f": None,
            "g": float("nan"),
            "h": 1.5,
        }
    )
    lines = text.split("\n")
    assert [line.split(":")[0] for line in lines[1:-1]] == ["- b", "- c", "- d", "- h"]
    assert "- c: true" in lines and "- d: 4" in lines and "- h: 1.5" in lines
    assert all(name in lines[-1] for name in ("a", "e", "f", "g")) and "archmax_get_variables" in lines[-1]
    assert opening_message({}).count("\n") == 0 and "Inputs" not in opening_message({})
    many = opening_message({f"v{n}": "x" * 148 for n in range(8)} | {"w": 1})
    assert many.count("- v") == 6 and "- w: 1" in many and "v6, v7" in many
    hostile = opening_message({"x": "a\n## b\u2028- c\r\u2029"})
    assert len(hostile.splitlines()) == 2


async def test_the_answer_is_message_and_declared_returns_with_the_fixed_note(bench: Make) -> None:
    """04 §6: declaration order; unset names are left out and named; null is set; other variables stay below."""
    b = bench(
        {"main": MAIN, "fee": FEE},
        [
            in_main(do(fee(n=1))),
            in_fee(do(setting(waived=None, fee="2", other=1))),
            in_fee(say("It is 2.")),
            in_main(say("done")),
        ],
    )
    outcome = await b.send()
    text = b.results(outcome, "archmax_workflow_fee")[0]
    assert list(json.loads(text)["returns"]) == ["fee", "waived", "note"]
    assert json.loads(text) == {
        "message": "It is 2.",
        "returns": {
            "fee": "2",
            "waived": None,
            "note": "Not all return variables were set by the sub-workflow: 'days' was not set.",
        },
    }
    assert b.values(outcome) == {}
    result = b.one("sub-workflow-result")
    assert result["status"] == "ok" and sorted(result["returns"]) == ["fee", "waived"]
    step = outcome.audit_trail[-1]
    assert (step["kind"], step["to"], step["workflow"], step["status"]) == (
        "sub-workflow",
        "intake",
        "fee",
        "ok",
    )


async def test_all_returns_unset_leave_only_the_note(bench: Make) -> None:
    """04 §6; a child that said nothing gets the placeholder; it also completes in a state that is not terminal (OP-14)."""
    b = bench(
        {"main": MAIN, "fee": FEE},
        [in_main(do(fee(n=1))), in_fee({**say(""), "repeat": True}), in_main(say("done"))],
    )
    outcome = await b.send()
    answer = json.loads(b.results(outcome, "archmax_workflow_fee")[0])
    assert answer["returns"] == {
        "note": "Not all return variables were set by the sub-workflow: 'fee', 'days', 'waived' were not set."
    }
    assert "without a message" in answer["message"]


async def test_without_returns_the_answer_is_the_closing_message(bench: Make) -> None:
    """04 §6."""
    b = bench(
        {"main": MAIN, "fee": PLAIN}, [in_main(do(fee(), text="")), in_fee(say("One.")), in_main(say("done"))]
    )
    assert b.results(await b.send()) == ["One."]


@pytest.mark.parametrize(
    ("answers", "kind", "parts"),
    [
        (
            [do(call("archmax_raise", code="no-card", reason="unknown card"))],
            "raised",
            ["no-card", "unknown card", "'start'"],
        ),
        ([do(call("archmax_raise", code="recursion-limit", reason="mine"))], "raised", ["recursion-limit"]),
        ([{"error": "model down"}], "error", ["model down"]),
        (
            [do(call("touch", n=1)), do(call("touch", n=1)), do(call("touch", n=1))],
            "rejected",
            ["maxTurns", "'start'"],
        ),
        (
            [{**do(call("archmax_get_variables"), call("archmax_reset", reason="r")), "repeat": True}],
            "budget",
            ["limit"],
        ),
    ],
)
async def test_a_failed_child_is_a_tool_error_of_its_kind(
    bench: Make, answers: list[dict[str, Any]], kind: str, parts: list[str]
) -> None:
    """04 §4.2, OP-13: workflow, state and reason; for a raise the child's code; the failure routes in the end."""
    b = bench(
        {"main": MAIN, "fee": FEE},
        [in_main(do(fee(n=1))), *[in_fee(a) for a in answers], in_main(say("done")), in_main(say("tidied"))],
        recursion_limit=12,
    )
    outcome = await b.send()
    message = next(m for m in outcome.transcript if m["role"] == "tool")
    assert message["status"] == "error" and "blocked" not in message
    for part in ("'fee'", f"({kind})", *parts):
        assert part in message["text"]
    assert (
        outcome.state == "rescue" and "(called with {" in b.one("state-error-routed", session="s1")["reason"]
    )
    result = b.one("sub-workflow-result")
    assert result["status"] == "error" and result["reason"] == message["text"]
    step = next(s for s in outcome.audit_trail if s["kind"] == "sub-workflow")
    assert step["status"] == "error" and step["reason"] == message["text"]


async def test_a_mistyped_return_is_refused_at_the_childs_write(bench: Make) -> None:
    """04 §4.2, 03 §9.6."""
    b = bench(
        {"main": MAIN, "fee": FEE},
        [in_main(do(fee(n=1))), in_fee(do(setting(days="2"))), in_fee(say("ok")), in_main(say("done"))],
    )
    await b.send()
    assert "days" not in (await b.state("s1~1")).values


async def test_an_argument_that_is_a_mistyped_return_fails_invalid_return(bench: Make) -> None:
    """04 §4.2, 03 §4.3: a locked seed of a wrong kind; the child is rejected."""
    b = bench(
        {"main": MAIN, "fee": FEE},
        [in_main(do(fee(n=1, days="x"))), in_fee(say("ok")), in_main(say("done")), in_main(say("tidied"))],
    )
    outcome = await b.send()
    assert "(invalid-return)" in b.results(outcome)[0] and "days" in b.results(outcome)[0]
    assert (await b.state("s1~1")).status == "rejected"


async def test_workflow_wide_denials_of_the_caller_bind_the_child(bench: Make) -> None:
    """04 §5.5: the block names the workflow that declared it; allow lists are not inherited."""
    b = bench(
        {"main": MAIN, "fee": FEE},
        [
            in_main(do(fee(n=1))),
            in_fee(do(call("stamp", name="x"), call("touch", n=1))),
            in_fee(say("ok")),
            in_main(say("done")),
        ],
    )
    await b.send()
    blocked = b.one("tool-blocked")
    assert blocked["sessionId"] == "s1~1" and "main" in blocked["reason"]
    assert b.touched == [1]
    assert "stamp" not in next(s for s in b.seen if s.workflow == "fee").tools


async def test_denials_add_up_down_the_chain_and_bind_scripts_and_files(bench: Make, tmp_path: Path) -> None:
    """04 §5.5: of every ancestor, its tools, skills and mounts; in automated states and in `file` checks too."""
    root = """
        tools: { allow_always: [archmax_workflow_mid, archmax_workflow_fee], forbid_always: [stamp] }
        mounts: { allow_always: [ledger] }
        states:
          intake: { triggers: { manual: }, on_error: rescue }
          rescue:
    """
    middle = """
        tools: { allow_always: [archmax_workflow_fee, write_file], forbid_always: [touch] }
        mounts: { allow_always: [ledger], forbid_always: [ledger] }
        states:
          start: { triggers: { manual: { returns: [said] } } }
    """
    last = """
        tools: { allow_always: [stamp, touch, read_file] }
        mounts: { allow_always: [ledger] }
        states:
          start:
            type: code
            script: scripts/try.js
            triggers: { manual: { requires: [{ name: sheet, type: file }], returns: [said] } }
    """
    code = """export default async ({ tools }) => {
      const said = [];
      for (const attempt of [() => tools.stamp({ name: 'x' }), () => tools.touch({ n: 1 }),
                             () => tools.read_file({ file_path: 'ledger/prices.txt' })])
        try { await attempt(); said.push('allowed') } catch (error) { said.push(error.message) }
      await tools.archmax_set_variables({ variables: { said } });
    }"""
    (tmp_path / "prices.txt").write_text("1")
    given = call("archmax_workflow_fee", sheet="ledger/prices.txt")
    b = bench(
        {"main": root, "mid": middle, "fee": last},
        [
            in_main(do(given, call("archmax_workflow_mid"))),
            {**do(given), "when_workflow": "mid"},
            {**do(call("write_file", file_path="scratchpad/s.md", content="x")), "when_workflow": "mid"},
            {**do(call("archmax_workflow_fee", sheet="scratchpad/s.md")), "when_workflow": "mid"},
            {**say("mid is done"), "when_workflow": "mid", "repeat": True},
            in_main(say("done")),
        ],
        files={"workflows/fee/scripts/try.js": code},
        mounts={"/ledger/": {"backend": DirectoryBackend(tmp_path), "governed": True}},
    )
    outcome = await b.send()
    direct = json.loads(b.results(outcome)[0])["returns"]["said"]
    assert direct == ["not a function", "allowed", "allowed"]
    refused = b.one("tool-blocked", session="s1~2", tool="archmax_workflow_fee")
    assert "(invalid-param)" in refused["reason"] and "ledger/prices.txt" in refused["reason"]
    below = (await b.state("s1~2~1")).values["said"]
    assert below[:2] == ["not a function", "not a function"]
    assert "'mid'" in below[2] and "'ledger'" in below[2]


async def test_a_childs_events_carry_its_ids_and_its_usage_is_its_own(bench: Make) -> None:
    """04 §11."""
    b = bench({"main": MAIN, "fee": FEE}, [in_main(do(fee(n=1))), in_fee(say("ok")), in_main(say("done"))])
    outcome = await b.send()
    start = b.one("sub-workflow-start")
    assert (start["sessionId"], start["depth"], start["workflow"]) == (
        "s1",
        1,
        "fee",
    ) and "chain" not in start
    own = [e for e in b.events if e.get("sessionId") == "s1~1"]
    assert own and all(e["subWorkflowDispatchId"] == start["dispatchId"] for e in own)
    assert all("subWorkflowDispatchId" not in e for e in b.events if e.get("sessionId") == "s1")
    assert b.kinds("tool-called", "sub-workflow-start", "sub-workflow-result", "tool-result") == [
        "tool-called", "sub-workflow-start", "sub-workflow-result", "tool-result",
    ]  # fmt: skip
    assert outcome.usage is not None
    assert outcome.usage["inputTokens"] == sum(e["inputTokens"] for e in b.of("model-usage", session="s1"))


async def test_a_child_waiting_for_its_caller_cannot_be_addressed(bench: Make) -> None:
    """04 OP-10: refused naming the parent; reading it is allowed."""
    asks = "states:\n  start:\n    triggers: { manual: }\n    transitions: [{ to: gate, description: ask }]\n  gate:\n    type: human\n    instructions: Look.\n    transitions: [{ to: end, description: ok }]\n  end:\n"
    move = do(call("archmax_advance", to="gate", reason="r"))
    b = bench(
        {"main": MAIN, "fee": asks},
        [in_main(do(fee())), in_fee(move), in_fee(say("look")), in_main(say("waiting"))],
    )
    assert (await b.send()).kind == "parked"
    for attempt in (
        b.decide("end", session="s1~1"),
        b.reply("hi", session="s1~1"),
        b.send("hi", session="s1~1"),
    ):
        with pytest.raises(ChildSessionError, match="s1"):
            await attempt
    assert (await b.state("s1~1")).status == "awaiting_decision"
