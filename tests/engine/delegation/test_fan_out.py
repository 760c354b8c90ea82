"""Delegation from scripts, code states and graders; concurrency and cancellation (04 §1, §7)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine.delegation.calls import Bounds
from tests.support.engine import Bench, advance_to, call, do, say

Make = Callable[..., Bench]
MAIN = """
    settings: { maxPtcCalls: null, timeoutMs: 20000 }
    tools: { allow_always: [archmax_workflow_fee, archmax_eval, touch] }
    states:
      intake:
        triggers: { manual: }
        transitions: [{ to: code, description: c }]
      code: { type: code, script: scripts/c.js, on_error: rescue, transitions: [{ to: end }] }
      end:
      rescue:
"""
#: a child without a model: it answers its argument
FEE = """
    states:
      start: { type: code, script: scripts/f.js, triggers: { manual: { requires: [n], returns: [fee] } } }
"""
F = """export default async ({ variables, tools }) => {
  if (variables.n < 0) throw new Error('negative');
  await tools.archmax_set_variables({ variables: { fee: variables.n * 2 } });
}"""


def made(bench: Make, script: str, *answers: dict[str, Any], **more: Any) -> Bench:
    files = {"workflows/main/scripts/c.js": script, "workflows/fee/scripts/f.js": F}
    return bench({"main": MAIN, "fee": FEE}, list(answers), files=files, **more)


def running(b: Bench) -> int:
    """The most children that ran at once, read off the events."""
    live, most = set(), 0
    for event in b.events:
        child = event.get("sessionId", "")
        if "~" not in child:
            continue
        if event["type"] == "workflow-reset":
            live.add(child)
            most = max(most, len(live))
        if event["type"] == "code-result":
            live.discard(child)
    return most


async def test_two_hundred_calls_of_a_code_state_run_each_child_once(bench: Make) -> None:
    """04 §7: `Promise.all` fans out; at most four at once; results in the order of the calls."""
    code = """export default async ({ tools }) => {
      const fees = await Promise.all(Array.from({ length: 200 }, (_, n) => tools.archmaxWorkflowFee({ n })));
      const sum = fees.map((text) => JSON.parse(text).returns.fee).reduce((a, b) => a + b, 0);
      const order = fees.every((text, n) => JSON.parse(text).returns.fee === 2 * n);
      await tools.archmax_advance({ to: 'end', reason: `${sum} ${order}` });
    }"""
    b = made(bench, code, do(advance_to("code")), say("done"))
    outcome = await b.send()
    assert (
        next(s for s in outcome.audit_trail if s["kind"] == "code")["reason"] == f"{2 * sum(range(200))} true"
    )
    started = Counter(e["sessionId"] for e in b.of("workflow-reset") if e["sessionId"] != "s1")
    assert len(started) == 200 and set(started.values()) == {1}
    assert len(b.of("sub-workflow-start")) == len(b.of("sub-workflow-result", status="ok")) == 200
    ids = [e["callId"] for e in b.of("tool-called", tool="archmax_workflow_fee")]
    assert len(set(ids)) == 200 and (await b.state()).dispatch_count == 200
    assert running(b) <= 4


@pytest.mark.parametrize("limit", [1, 3])
async def test_at_most_max_concurrent_children_run_at_once(bench: Make, limit: int) -> None:
    """04 §7: the excess waits and never fails."""
    calls = [call("archmax_workflow_fee", n=n) for n in range(6)]
    b = made(bench, "", do(*calls), say("done"), bounds=Bounds(max_concurrent=limit))
    outcome = await b.send()
    assert outcome.kind == "completed" and running(b) <= limit
    assert [json.loads(text)["returns"]["fee"] for text in b.results(outcome)] == [0, 2, 4, 6, 8, 10]


async def test_calls_of_one_message_fail_independently(bench: Make) -> None:
    """04 §4.2, §7."""
    b = made(bench, "", do(*[call("archmax_workflow_fee", n=n) for n in (1, -1, 2)]), say("done"))
    outcome = await b.send()
    texts = b.results(outcome)
    assert (
        json.loads(texts[0])["returns"] == {"fee": 2} and "(rejected)" in texts[1] and "negative" in texts[1]
    )
    assert json.loads(texts[2])["returns"] == {"fee": 4}


async def test_a_scripts_tools_object_has_the_delegation_tool_in_both_spellings(bench: Make) -> None:
    """04 §1; the events carry `ptc:<n>`; `allSettled` keeps the successes."""
    code = """
      const settled = await Promise.allSettled([
        tools["archmax_workflow_fee"]({ n: 1 }), tools.archmaxWorkflowFee({ n: -1 }), tools.archmaxWorkflowFee({}),
      ]);
      settled.map((s) => s.status + ' ' + (s.reason ? s.reason.name : '')).join()
    """
    b = made(bench, "", do(call("archmax_eval", code=code)), say("done"))
    outcome = await b.send()
    assert outcome.kind == "completed"
    assert "fulfilled ,rejected SubWorkflowError,rejected PtcGovernanceError" in b.results(outcome)[0]
    events = b.of("tool-called", origin="script") + b.of("tool-blocked", origin="script")
    assert sorted(e["callId"] for e in events) == ["ptc:1", "ptc:2", "ptc:3"]
    for start in b.of("sub-workflow-start"):
        result = b.one("sub-workflow-result", dispatchId=start["dispatchId"])
        assert result["toolCallId"] == start["toolCallId"] and start["toolCallId"].startswith("ptc:")


async def test_references_in_a_scripts_call_are_plain_text(bench: Make) -> None:
    """04 §3.1, OP-2, ruling 2."""
    code = "try { await tools.archmaxWorkflowFee({ n: '$${{nothing}}' }) } catch (e) { e.message }"
    b = made(bench, "", do(call("archmax_eval", code=code)), say("done"))
    await b.send()
    assert (await b.state("s1~1")).values["n"] == "${{nothing}}"


async def test_a_graders_delegation_answers_the_grader(bench: Make) -> None:
    """04 §1, §8: under its own call id; a trail step, nothing recorded as outstanding."""
    spec = MAIN.replace("{ type: code, script: scripts/c.js, on_error: rescue, transitions: [{ to: end }] }",
                        "{ type: grader, instructions: J, transitions: [{ to: end, description: e }] }")  # fmt: skip
    graded = [
        do(call("archmax_workflow_fee", n="${{n}}"), call("archmax_workflow_fee", n=-1)),
        do(advance_to("end")),
    ]
    files = {"workflows/fee/scripts/f.js": F}
    answers = [
        do(call("archmax_set_variables", variables={"n": 4}), advance_to("code")),
        *[{**g, "role": "grader"} for g in graded],
        say("done"),
    ]
    b = bench({"main": spec, "fee": FEE}, answers, files=files)
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("completed", "end")
    seen = [s for s in b.seen if s.role == "grader"][1]
    assert '"fee":8' in seen.text.replace('": ', '":') and "(rejected)" in seen.text
    for start in b.of("sub-workflow-start"):
        result = b.one("sub-workflow-result", dispatchId=start["dispatchId"])
        assert result["toolCallId"] == start["toolCallId"]
        assert b.one("tool-called", callId=start["toolCallId"])["origin"] == "grader"
    assert [s["status"] for s in outcome.audit_trail if s["kind"] == "sub-workflow"] == ["ok", "error"]


async def test_cancelling_the_caller_cancels_its_children_and_starts_no_queued_one(bench: Make) -> None:
    """04 §7: running children and the caller end `failed` / `turn-cancelled`."""
    slow = "states:\n  start:\n    triggers: { manual: { requires: [n] } }\n"
    calls = do(*[call("archmax_workflow_fee", n=n) for n in range(3)], when_workflow="main")
    hang = {**say("late"), "delay_ms": 20000, "when_workflow": "fee", "repeat": True}
    started = asyncio.Event()
    seen: list[str] = []

    def watch(event: dict[str, Any]) -> None:
        if event["type"] == "state-enter" and "~" in event["sessionId"]:
            seen.append(event["sessionId"])
            if len(seen) == 2:
                started.set()

    b = bench({"main": MAIN, "fee": slow}, [calls, hang, {**say("fresh"), "when_workflow": "main"}],
              files={"workflows/main/scripts/c.js": ""}, bounds=Bounds(max_concurrent=2), on_event=watch)  # fmt: skip
    turn = asyncio.create_task(b.send())
    await started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    for session in ("s1", "s1~1", "s1~2"):
        state = await b.state(session)
        assert state.exit is not None and state.exit["code"] == "turn-cancelled", session
    assert await b.agent.sessions.get("s1~3") is None
    outcome = await b.send("again")
    assert (outcome.kind, outcome.reply) == ("completed", "fresh")
    assert len([m for m in outcome.transcript if m["role"] == "tool"]) == 3
