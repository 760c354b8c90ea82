"""Children that park: presented one at a time, resolved through the parent (04 §9)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import InvalidDecisionTargetError
from tests.support.engine import Bench, advance_to, call, do, in_main, say, setting
from tests.support.worlds import Crash, World

Make = Callable[..., Bench]
MAIN = """
    tools: { allow_always: [archmax_workflow_ask, touch] }
    states:
      intake:
        triggers: { manual: }
        on_error: rescue
        budget: { maxParks: 1 }
        transitions: [{ to: next, description: go on }]
      next:
      rescue:
"""
ASK = """
    states:
      start:
        triggers: { manual: { requires: [q], returns: [answer] } }
        transitions: [{ to: gate, description: ask }]
      gate:
        type: human
        title: A question
        instructions: Look.
        transitions:
          - { to: good, description: fine, type: approve }
          - { to: start, description: again, type: refine }
          - { to: bad, description: no, type: reject }
      good:
      bad:
"""


def ask(q: str) -> dict[str, Any]:
    return call("archmax_workflow_ask", q=q)


CHILD: list[dict[str, Any]] = [
    {**do(advance_to("gate")), "when_workflow": "ask", "when_state": "start", "repeat": True},
    {**say("the child asks"), "when_workflow": "ask", "when_state": "gate", "repeat": True},
    {**do(setting(answer="yes")), "when_workflow": "ask", "when_state": "good", "after_tool": None},
    {
        **do(call("archmax_raise", code="no", reason="refused")),
        "when_workflow": "ask",
        "when_state": "bad",
        "repeat": True,
    },
    {**say("the child is done"), "when_workflow": "ask", "when_state": "good", "repeat": True},
]
for _answer in CHILD:
    if _answer.get("after_tool", "") is None:
        del _answer["after_tool"]


def made(bench: Make, *answers: dict[str, Any]) -> Bench:
    return bench({"main": MAIN, "ask": ASK}, [*[in_main(a) for a in answers], *CHILD])


async def test_a_parked_child_parks_its_caller(bench: Make) -> None:
    """04 §9.1: parked event, answered call, the child's record under the parent's seq, one handoff call."""
    b = made(bench, do(ask("a"), call("touch", n=1)), say("A question is open."))
    outcome = await b.send()
    assert (outcome.kind, outcome.status, outcome.parked_channel) == (
        "parked",
        "awaiting_decision",
        "decision",
    )
    assert b.touched == [1]
    assert (await b.state()).position == "intake"
    assert b.steps(outcome) == [("trigger", "intake")]
    assert outcome.pending is not None
    assert (outcome.pending["state"], outcome.pending["title"], outcome.pending["seq"]) == (
        "gate",
        "A question",
        1,
    )
    assert b.one("sub-workflow-result")["status"] == "parked"
    parked = b.one("parked", session="s1")
    assert "callId" not in parked and parked["state"] == "gate"
    assert outcome.delegation is not None
    assert outcome.delegation | {"toolCallId": 0} == {
        "workflow": "ask", "sessionId": "s1~1", "identity": 1, "dispatchId": "s1~1", "toolCallId": 0, "state": "intake",
    }  # fmt: skip
    answer = next(m for m in outcome.transcript if m["role"] == "tool" and "ask" in m["tool"])
    assert "'gate'" in answer["text"] and "person" in answer["text"] and answer["status"] == "ok"
    assert outcome.reply == "A question is open."


async def test_a_decision_on_the_parent_goes_to_the_child_alone(bench: Make) -> None:
    """04 §9.2, OP-6: the note carries the answer of §6; trail `ok`; the calling state goes on in a fresh call."""
    b = made(bench, do(ask("a")), say("open"), say("All settled."))
    await b.send()
    b.clear()
    outcome = await b.decide("good", "take it")
    assert (outcome.kind, outcome.state, outcome.reply) == ("completed", "intake", "All settled.")
    kind, text = b.notes(outcome)[-1]
    assert kind == "sub-workflow" and text.startswith("[sub-workflow: ask] ")
    assert json.loads(text.removeprefix("[sub-workflow: ask] ")) == {
        "message": "the child is done",
        "returns": {"answer": "yes"},
    }
    assert b.steps(outcome)[-1] == ("sub-workflow", "intake") and outcome.audit_trail[-1]["status"] == "ok"
    assert outcome.delegation is None and not b.of("decided", session="s1")
    assert b.one("decided", session="s1~1")["to"] == "good"
    child = await b.state("s1~1")
    assert child.trail[-1]["kind"] == "human" and child.trail[-1]["reason"] == "take it"
    assert (await b.state()).pending_delegations == []


async def test_an_invalid_target_is_refused_and_both_stay_parked(bench: Make) -> None:
    """04 §9.2: its targets are the child's transitions."""
    b = made(bench, do(ask("a")), say("open"))
    await b.send()
    with pytest.raises(InvalidDecisionTargetError):
        await b.decide("next")
    assert (await b.state()).status == (await b.state("s1~1")).status == "awaiting_decision"


async def test_a_message_is_answered_by_the_parent_and_never_handed_down(bench: Make) -> None:
    """04 §9.2: a reply-only call of the parent; the same record."""
    b = made(bench, do(ask("a")), say("open"), say("The parent speaks."))
    first = await b.send()
    outcome = await b.reply("what is it?")
    assert outcome.reply == "The parent speaks." and outcome.pending == first.pending
    assert len((await b.state("s1~1")).trail) == 2


async def test_a_child_that_parks_again_is_presented_again(bench: Make) -> None:
    """04 §9.2: at once, under the next seq."""
    b = made(bench, do(ask("a")), say("open"), say("open again"), say("done"))
    await b.send()
    outcome = await b.decide("start")
    assert (outcome.kind, outcome.reply) == ("parked", "open again")
    assert outcome.pending is not None and outcome.pending["seq"] == 2
    assert (await b.decide("good")).kind == "completed"
    assert (await b.state()).dispatch_count == 1


async def test_a_child_that_fails_after_a_decision_routes_unless_recovered(bench: Make) -> None:
    """04 §9.2, OP-7: `[error]` note, trail `error`, an outstanding failure with its arguments."""
    b = made(bench, do(ask("a")), say("open"), say("stop"), say("tidied"))
    await b.send()
    outcome = await b.decide("bad")
    assert outcome.state == "rescue"
    kinds = [kind for kind, _ in b.notes(outcome)]
    assert kinds == ["error", "error"] and b.notes(outcome)[0][1].startswith("[error]")
    reason = b.one("state-error-routed")["reason"]
    assert "'no'" in reason and '"a"' in reason
    steps = [s for s in outcome.audit_trail if s["kind"] == "sub-workflow"]
    assert [s["status"] for s in steps] == ["error"]


async def test_three_children_are_presented_one_at_a_time_and_finished_siblings_stay(bench: Make) -> None:
    """04 §9.1, §9.2, ruling 22: the second re-parks, the third fails and is recovered by a later call."""
    b = made(
        bench,
        do(ask("a"), call("touch", n=1), ask("b"), ask("c")),
        say("one"), say("two"), say("two again"), say("three"),
        do(call("touch", n=2)), say("stop"), say("tidied"),
    )  # fmt: skip
    b.agent.assembly.wiring.models  # noqa: B018 - the bench keeps one model for parent and children
    first = await b.send()
    assert first.delegation is not None and first.delegation["identity"] == 1
    assert [p["identity"] for p in (await b.state()).pending_delegations] == [1, 2, 3]
    second = await b.decide("good")
    assert second.delegation is not None and second.delegation["identity"] == 2
    assert second.kind == "parked"
    again = await b.decide("start")
    assert again.delegation is not None and again.delegation["identity"] == 2
    third = await b.decide("good")
    assert third.delegation is not None and third.delegation["identity"] == 3
    assert third.pending is not None and third.pending["seq"] == 4
    last = await b.decide("bad")
    assert last.state == "rescue" and b.touched == [1, 2]
    assert len(b.of("sub-workflow-start")) == 3
    statuses = [s["status"] for s in last.audit_trail if s["kind"] == "sub-workflow"]
    assert statuses == ["ok", "ok", "error"]


async def test_a_failed_sibling_stays_outstanding_while_another_is_parked(bench: Make) -> None:
    """04 §8.4, §9: presenting a child's park clears nothing, and its success is no later call's; decision 0122."""
    fail = {
        **do(call("archmax_raise", code="x", reason="y")),
        "when_workflow": "ask",
        "when_contains": '"fail"',
    }
    b = bench(
        {"main": MAIN, "ask": ASK},
        [
            fail,
            *[in_main(a) for a in (do(ask("fail"), ask("a")), say("open"), say("stop"), say("tidied"))],
            *CHILD,
        ],
    )
    assert (await b.send()).kind == "parked"
    outcome = await b.decide("good")
    assert outcome.state == "rescue" and '"fail"' in b.one("state-error-routed")["reason"]


async def test_a_move_beside_a_call_whose_child_parked_is_refused(bench: Make) -> None:
    """04 §9.1: the position stays the calling state."""
    b = made(bench, do(ask("a"), advance_to("next")), say("open"), say("done"))
    outcome = await b.send()
    assert (outcome.kind, (await b.state()).position) == ("parked", "intake")
    assert "waits" in b.results(outcome, "archmax_advance")[0]
    assert (await b.decide("good")).state == "intake"


async def test_a_new_turn_abandons_a_parked_child(bench: Make) -> None:
    """04 §9.2, 03 §3.3: it stays in the store."""
    b = made(bench, do(ask("a")), say("open"), say("something else"))
    await b.send()
    outcome = await b.agent.invoke({"message": "never mind"}, "s1")
    assert outcome.kind == "completed" and outcome.delegation is None
    assert (await b.state()).pending_delegations == []
    assert (await b.state("s1~1")).status == "awaiting_decision"


async def test_a_grandchilds_decision_is_taken_on_the_root(bench: Make) -> None:
    """04 §9.2: each level hands the decision to the child it waits on; the answers come up the same way."""
    middle = """
        states:
          start:
            triggers: { manual: { returns: [answer] } }
            tools: { allow: [archmax_workflow_ask] }
    """
    mid = {"when_workflow": "mid"}
    b = bench(
        {"main": MAIN.replace("archmax_workflow_ask", "archmax_workflow_mid"), "mid": middle, "ask": ASK},
        [
            in_main(do(call("archmax_workflow_mid"))), in_main(say("open")), in_main(say("all done")),
            {**do(ask("a")), **mid}, {**say("mid waits"), **mid}, {**do(setting(answer="mine")), **mid}, {**say("mid is done"), **mid},
            *CHILD,
        ],
    )  # fmt: skip
    parked = await b.send()
    assert (parked.kind, parked.status) == ("parked", "awaiting_decision")
    assert parked.pending is not None and parked.pending["title"] == "A question"
    with pytest.raises(InvalidDecisionTargetError):
        await b.decide("next")
    outcome = await b.decide("good", "yes")
    assert (outcome.kind, outcome.reply) == ("completed", "all done")
    assert '"answer":"mine"' in b.notes(outcome)[-1][1].replace('": ', '":')
    assert (await b.state("s1~1~1")).trail[-1]["kind"] == "human"
    assert {(await b.state(s)).status for s in ("s1", "s1~1", "s1~1~1")} == {"completed"}


WAITS = """
    states:
      start:
        triggers: { manual: { requires: [q] } }
"""


async def test_a_waiting_child_takes_the_delivery_and_the_parent_keeps_its_own(bench: Make) -> None:
    """04 §9.2, OP-11: the delivery seeds and triggers the child; maxParks does not count it."""
    wait = do(
        call("archmax_wait", reason="the mail", until="2031-01-01"), text="I wait.", when_workflow="ask"
    )
    b = bench(
        {"main": MAIN, "ask": WAITS},
        [in_main(do(ask("a"))), wait, in_main(say("waiting")), say("child done", when_workflow="ask"),
         in_main(do(call("archmax_wait", reason="mine"), text="now I")), in_main(say("done"))],
    )  # fmt: skip
    outcome = await b.send()
    assert (outcome.status, outcome.parked_channel) == ("awaiting_input", "input")
    assert outcome.pending is not None and outcome.pending["resumeAt"] == "2031-01-01T00:00:00.000Z"
    assert outcome.delegation is not None and outcome.delegation["identity"] == 1
    outcome = await b.deliver("mail-in", {"letter": "x"})
    assert (outcome.kind, outcome.parked_channel, outcome.delegation) == ("parked", "input", None)
    assert "letter" not in outcome.variables and outcome.variables["trigger"]["value"] == "manual"
    child = await b.state("s1~1")
    assert child.values == {"q": "a", "letter": "x", "trigger": "mail-in"}
    assert (await b.deliver()).kind == "completed"


@pytest.mark.parametrize("caller", ["script", "code", "grader"])
async def test_a_park_of_a_script_code_state_or_grader_fails_the_call(bench: Make, caller: str) -> None:
    """04 §9.3, ruling 6: `parked`; the child stays suspended in its own session."""
    spec = """
        tools: { allow_always: [archmax_workflow_ask, archmax_eval] }
        states:
          intake: { triggers: { manual: }, transitions: [{ to: code, description: c }, { to: judge, description: g }] }
          code: { type: code, script: scripts/c.js, on_error: rescue, transitions: [{ to: rescue }] }
          judge: { type: grader, instructions: J, on_error: rescue, transitions: [{ to: rescue, description: r }] }
          rescue:
    """
    eval_ = call(
        "archmax_eval", code="try { await tools.archmaxWorkflowAsk({ q: 'a' }) } catch (e) { e.message }"
    )
    code = "export default async ({ tools }) => { await tools.archmaxWorkflowAsk({ q: 'a' }) }"
    first = {"script": eval_, "code": advance_to("code"), "grader": advance_to("judge")}[caller]
    graded = (
        [{**do(ask("a")), "role": "grader"}, {**say("cannot"), "role": "grader"}]
        if caller == "grader"
        else []
    )
    b = bench(
        {"main": spec, "ask": ASK},
        [in_main(do(first)), *graded, in_main(say("done")), *CHILD],
        files={"workflows/main/scripts/c.js": code},
    )
    outcome = await b.send()
    assert outcome.kind == "completed"
    assert (await b.state("s1~1")).status == "awaiting_decision"
    said = {
        "script": lambda: b.results(outcome)[0],
        "code": lambda: b.one("code-result")["reason"],
        "grader": lambda: next(s for s in b.seen if s.role == "grader" and "parked" in s.text).text,
    }[caller]()
    assert "(parked)" in said
    assert b.one("sub-workflow-result")["status"] == "error"
    assert [s["status"] for s in outcome.audit_trail if s["kind"] == "sub-workflow"] == ["error"]


async def test_a_crash_while_a_parked_child_is_resumed_changes_nothing(bench: Make) -> None:
    """04 §9.2, ruling 13: after any commit of the deciding turn, in the parent or in the child."""
    answers = [do(ask("a"), ask("b")), say("open"), say("next one"), say("done")]
    turns: list[dict[str, Any]] = [
        {"kind": "message", "message": "go"}, {"kind": "decision", "to": "good"}, {"kind": "decision", "to": "bad"},
    ]  # fmt: skip
    measure = World(made(bench, *answers, say("tidied")))
    for number, body in enumerate(turns, 1):
        await measure.turn(body, turn=number)
    total = sum(len(records) for records in measure.records.values())
    for left in range(1, total + 1):
        w = World(made(bench, *answers, say("tidied")))
        w.crash = Crash(left)
        outcome: dict[str, Any] = {}
        for number, body in enumerate(turns, 1):
            outcome = await w.turn(body, turn=number)
        assert (outcome["kind"], outcome["state"]) == ("completed", "rescue"), f"crash at {left}"
        assert [m["text"] for m in w.state().messages if m["role"] == "note"] == [
            m["text"] for m in measure.state().messages if m["role"] == "note"
        ]


async def test_a_spent_timeout_does_not_hide_a_parked_child(bench: Make) -> None:
    """04 §9.1: the park is presented first; decision 0122."""
    spec = MAIN.replace("maxParks: 1", "timeoutMs: 150")
    slow = {**CHILD[0], "delay_ms": 300}
    answers = [in_main(do(ask("a"))), in_main(say("open")), in_main(say("done"))]
    b = bench({"main": spec, "ask": ASK}, [*answers, slow, *CHILD[1:]])
    outcome = await b.send()
    assert (outcome.kind, (await b.state()).position) == ("parked", "intake")
