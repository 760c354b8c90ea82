"""Outcomes: which fields each kind carries (03 §4.4, 05 §12)."""

from __future__ import annotations

from collections.abc import Callable

from langchain_core.messages import BaseMessage

from tests.support.engine import Bench, advance_to, call, do, say

Make = Callable[..., Bench]
SPEC = """
    states:
      work:
        triggers: { manual: { returns: [verdict] } }
        transitions: [{ to: review, description: ready }]
      review:
        type: human
        instructions: Look.
        transitions: [{ to: done, description: fine, type: approve }]
      done:
"""


async def test_a_park_names_its_channel_and_record_and_has_no_exit(bench: Make) -> None:
    """05 §12.1: `parked`: channel, pending; neither exit nor rejection."""
    b = bench(SPEC, [do(advance_to("review")), say("please look")])
    outcome = await b.send()
    assert (outcome.kind, outcome.status, outcome.state) == ("parked", "awaiting_decision", "review")
    assert outcome.parked_channel == "decision"
    assert outcome.pending is not None
    assert outcome.pending["transitions"] == [{"to": "done", "description": "fine", "type": "approve"}]
    assert (outcome.exit, outcome.rejected, outcome.delegation) == (None, None, None)
    assert outcome.reparked
    assert not outcome.success
    assert outcome.to_json()["parkedChannel"] == "decision"


async def test_an_unmet_return_is_a_rejection_with_its_reason_and_no_exit(bench: Make) -> None:
    """05 §12.1: `rejected` says why; a host that reads "not rejected" as success is wrong (03 §4.4)."""
    b = bench(SPEC, [do(advance_to("review")), say("please look"), say("all done")])
    await b.send()
    outcome = await b.decide("done")
    assert (outcome.kind, outcome.disposition, outcome.status) == ("rejected", "decide", "rejected")
    assert outcome.rejected is not None
    assert "'verdict'" in outcome.rejected
    assert outcome.exit is None


async def test_a_raise_is_a_failure_with_the_agents_own_code(bench: Make) -> None:
    """05 §12.1: `failed`: `exit` with success false, code and reason."""
    b = bench(SPEC, [do(call("archmax_raise", code="no-stock", reason="nothing left"))])
    outcome = await b.send()
    assert outcome.kind == "failed"
    assert outcome.exit == {"success": False, "code": "no-stock", "reason": "nothing left"}
    assert outcome.state == "work"


async def test_a_completion_carries_transcript_trail_variables_and_usage(bench: Make) -> None:
    """05 §12.1: messages, audit_trail and variables are whole; returns are read by name from variables."""
    b = bench(
        SPEC,
        [
            do(call("archmax_set_variables", variables={"verdict": 4})),
            do(advance_to("review")),
            say("please look"),
            say("all done"),
        ],
    )
    await b.send()
    outcome = await b.decide("done")
    assert (outcome.kind, outcome.exit) == ("completed", {"success": True})
    assert outcome.variables["verdict"] == {"value": 4, "locked": False}
    assert [step["kind"] for step in outcome.audit_trail] == ["trigger", "agent", "human"]
    assert outcome.reply == "all done"
    assert all(isinstance(message, BaseMessage) for message in outcome.messages)
    assert outcome.messages[0].type == "human"
    assert outcome.usage is not None
    assert outcome.usage["outputTokens"] > 0
