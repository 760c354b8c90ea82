"""`archmax_advance`: its checks in order, its events in order, one move per message (03 §9.1, OP-12)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    title: Loans
    states:
      intake:
        triggers: { manual: }
        instructions: Take it in.
        requires: [card_no]
        tools: { allow: [touch, write_file] }
        transitions:
          - { to: work, description: go on }
          - { to: review, description: ask }
      work:
        instructions: Work.
        transitions: [{ to: end, description: finish }]
      end:
        instructions: Close.
      review:
        type: human
        title: Second look
        instructions: Look.
        evidence: [scratchpad/declared.md]
        transitions:
          - { to: work, description: fine, type: approve }
          - { to: intake, description: not fine, type: refine }
"""
SET = setting(card_no="c1")
MOVE_EVENTS = ("tool-called", "advance", "tool-result", "state-leave", "state-enter", "parked")


async def test_a_move_tells_its_events_in_the_contracts_order(bench: Make) -> None:
    """03 §9.1: tool-called, advance, tool-result, state-leave, state-enter."""
    b = bench(SPEC, [do(SET), do(advance_to("work")), say("done")])
    outcome = await b.send()
    assert outcome.kind == "completed"
    kinds = b.kinds(*MOVE_EVENTS)
    assert kinds[:2] == ["advance", "state-enter"]
    assert kinds[4:] == ["tool-called", "advance", "tool-result", "state-leave", "state-enter", "state-leave"]
    moved = b.of("advance")[1]
    assert (moved["from"], moved["to"], moved["reason"]) == ("intake", "work", "ready")
    assert moved["callId"] == b.of("tool-called", tool="archmax_advance")[0]["callId"]
    assert b.of("state-leave")[0]["next"] == "work"
    assert b.steps(outcome) == [("trigger", "intake"), ("agent", "work")]


async def test_a_move_into_a_human_state_parks_last(bench: Make) -> None:
    """03 §9.1: … state-enter, and `parked` for a human target, without a call id."""
    b = bench(SPEC, [do(SET, advance_to("review")), say("over to you")])
    outcome = await b.send()
    assert outcome.status == "awaiting_decision"
    assert b.kinds(*MOVE_EVENTS)[-6:] == list(MOVE_EVENTS)
    assert "callId" not in b.one("parked")
    assert b.one("parked")["awaiting"] == "decision"


async def test_the_answer_names_the_new_state(bench: Make) -> None:
    """03 §9.1."""
    b = bench(SPEC, [do(SET, advance_to("work")), say("done")])
    assert "'work'" in b.results(await b.send(), "archmax_advance")[0]


REFUSED: list[tuple[dict[str, object], str, bool]] = [
    ({"to": "work", "reason": " "}, "reason", True),
    ({"reason": "x"}, "`to`", True),
    ({"to": "work", "reason": "x", "evidence": "a.md"}, "evidence", True),
    ({"to": "work", "reason": "x", "evidence": ["scratchpad/a.md"]}, "human", False),
    ({"to": "review", "reason": "x", "evidence": [f"scratchpad/{n}.md" for n in range(21)]}, "20", False),
    ({"to": "review", "reason": "x", "evidence": ["../up.md"]}, "../up.md", False),
    ({"to": "review", "reason": "x", "evidence": [""]}, "''", False),
    ({"to": "review", "reason": "x", "evidence": ["/"]}, "'/'", False),
    ({"to": "review", "reason": "x", "evidence": ["checkpoints/head"]}, "checkpoints/head", False),
    ({"to": "review", "reason": "x", "evidence": ["workflows/main/workflow.yaml"]}, "workflows/main", False),
]


@pytest.mark.parametrize(("args", "names", "error"), REFUSED)
async def test_a_refused_move_leaves_the_position_and_says_why(
    bench: Make, args: dict[str, object], names: str, error: bool
) -> None:
    """03 §6, §9.1: bad arguments are an error message; evidence, requires and edge read as an ordinary answer."""
    b = bench(SPEC, [do(SET), do(call("archmax_advance", **args)), say("stopped")])
    outcome = await b.send()
    message = next(m for m in outcome.transcript if m.get("tool") == "archmax_advance")
    assert names in message["text"]
    assert message["status"] == ("error" if error else "ok")
    assert message["text"].startswith("Error:" if error else "archmax_advance rejected: ")
    assert b.one("tool-result", tool="archmax_advance")["status"] == "error"
    assert outcome.state == "intake"
    assert b.steps(outcome) == [("trigger", "intake")]


async def test_requires_is_checked_before_the_edge_and_after_the_evidence(bench: Make) -> None:
    """03 §9.1: checks 3, 4 and 5 in this order."""
    nowhere, evidence = advance_to("nowhere"), advance_to("work", evidence=["scratchpad/a.md"])
    b = bench(SPEC, [do(evidence), do(nowhere), do(SET), do(nowhere), say("stopped")])
    first, second, third = b.results(await b.send(), "archmax_advance")
    assert "human state" in first
    assert "'card_no'" in second and "archmax_set_variables" in second
    assert "work" in third and "review" in third


async def test_evidence_is_declared_first_then_attached_without_doubles(bench: Make) -> None:
    """03 §9.1, §10.2."""
    paths = ["scratchpad/b.md", "./scratchpad/declared.md", "scratchpad/b.md", "large_tool_results/x"]
    b = bench(SPEC, [do(SET, advance_to("review", evidence=paths)), say("look")])
    outcome = await b.send()
    assert outcome.pending is not None
    assert outcome.pending["evidence"] == [
        "scratchpad/declared.md",
        "scratchpad/b.md",
        "large_tool_results/x",
    ]


async def test_the_decision_record_has_the_contracts_keys(bench: Make) -> None:
    """03 §10.2: title, seq from 1, transitions with their labels; no instructions."""
    b = bench(SPEC, [do(SET, advance_to("review")), say("look")])
    record = (await b.send()).pending
    assert record is not None
    assert set(record) == {"state", "title", "seq", "transitions", "evidence", "createdAt"}
    assert (record["state"], record["title"], record["seq"]) == ("review", "Second look", 1)
    assert record["transitions"] == [
        {"to": "work", "description": "fine", "type": "approve"},
        {"to": "intake", "description": "not fine", "type": "refine"},
    ]


async def test_only_the_first_move_of_a_message_lands(bench: Make) -> None:
    """03 §9.1, OP-12: advance, reset and wait claim the message; the others are refused naming where it landed."""
    message = do(
        SET,
        advance_to("work"),
        advance_to("review"),
        call("archmax_reset", reason="back"),
        call("archmax_wait", reason="later"),
    )
    b = bench(SPEC, [message, say("done")])
    outcome = await b.send()
    assert outcome.state == "work"
    refused = [m for m in outcome.transcript if m["role"] == "tool"][2:]
    assert all("'work'" in m["text"] for m in refused)
    assert [m["status"] for m in refused] == ["ok", "error", "error"]
    assert len(b.of("advance")) == 2


async def test_a_refused_move_leaves_a_sibling_free_to_try(bench: Make) -> None:
    """03 §9.1: only a move that landed claims."""
    b = bench(SPEC, [do(SET, advance_to("nowhere"), advance_to("work")), say("done")])
    assert (await b.send()).state == "work"


@pytest.mark.parametrize("first", ["wait", "advance"])
async def test_a_wait_and_a_move_in_one_message_are_serviced_in_call_order(bench: Make, first: str) -> None:
    """03 OP-12."""
    wait, move = call("archmax_wait", reason="mail"), advance_to("work")
    calls = [wait, move] if first == "wait" else [move, wait]
    b = bench(SPEC, [do(SET, *calls, text="hm"), say("done", optional=True)])
    outcome = await b.send()
    if first == "wait":
        assert (outcome.kind, outcome.state) == ("parked", "intake")
        assert b.results(outcome, "archmax_advance")[0].startswith("archmax_advance rejected:")
    else:
        assert (outcome.kind, outcome.state) == ("completed", "work")


async def test_siblings_of_a_move_are_governed_by_the_state_they_were_written_in(bench: Make) -> None:
    """03 §9.1: `touch` is the intake's tool; it runs although it stands after the move."""
    b = bench(SPEC, [do(SET, advance_to("work"), call("touch", n=1)), do(call("touch", n=2)), say("done")])
    outcome = await b.send()
    assert b.touched == [1]
    assert b.one("tool-blocked")["state"] == "work"
    assert b.results(outcome, "touch")[0] == "touched 1"


async def test_a_terminal_state_offers_no_move(bench: Make) -> None:
    """03 §6."""
    b = bench(SPEC, [do(SET, advance_to("work")), do(advance_to("end")), do(advance_to("work")), say("done")])
    outcome = await b.send()
    assert outcome.state == "end"
    assert "archmax_advance" not in b.seen[-1].tools
    assert {"archmax_reset", "archmax_wait", "archmax_raise"} <= set(b.seen[-1].tools)
    assert "terminal" in b.results(outcome, "archmax_advance")[-1]
