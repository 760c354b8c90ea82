"""The trail: one step for each thing that moved the session, in commit order, and none for anything else (03 §8)."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.engine import Bench, advance_to, by_grader, call, do, in_fee, say, setting

Make = Callable[..., Bench]
SPEC = """
    states:
      work:
        triggers: { manual: }
        tools: { allow: [archmax_workflow_fee] }
        transitions: [{ to: check, description: go on }]
        on_error: mend
      check: { type: code, script: scripts/check.js, transitions: [{ to: judge }] }
      judge: { type: grader, instructions: Judge., transitions: [{ to: review, description: ask }] }
      review: { type: human, instructions: Look., transitions: [{ to: work, description: again, type: refine }] }
      mend:
"""
FEE = "states: { start: { triggers: { manual: { requires: [n], returns: [fee] } } } }"
CHECK = "export default ({ tools }) => tools.archmax_advance({ to: 'judge', reason: 'sound' });"


SCRIPT = [
    {**answer, "when_workflow": "main"} if "when_workflow" not in answer else answer
    for answer in (
        do(call("archmax_workflow_fee", n=1)),
        in_fee(do(setting(fee=3))),
        in_fee(say("three")),
        do(advance_to("nowhere")),  # refused: no step
        do(advance_to("check", "counted")),
        by_grader(do(advance_to("review", "please look"))),
        say("a person decides"),
        do(call("archmax_reset", reason="from the start")),
        do(call("archmax_wait", reason="for the mail"), text="waiting"),  # parks: no step
        do(call("archmax_workflow_fee", n=2)),
        in_fee(do(call("archmax_raise", code="no-fee", reason="nobody knows"))),
        say("I give up"),
        do(call("archmax_raise", code="broken", reason="for good")),  # no step either
        say("and another turn"),  # completes: no step beyond the one that opened it
    )
]


async def test_every_kind_of_step_is_there_in_commit_order_and_nothing_else(bench: Make) -> None:
    b = bench({"main": SPEC, "fee": FEE}, SCRIPT, files={"workflows/main/scripts/check.js": CHECK})
    assert (await b.send()).state == "review"
    assert (await b.decide("work", "once more")).parked_channel == "input"
    assert (await b.deliver("ping")).kind == "failed"
    outcome = await b.send("again")
    assert outcome.kind == "completed"
    steps = [{key: value for key, value in step.items() if key != "ts"} for step in outcome.audit_trail]
    failed = steps[8]["reason"]
    assert steps == [
        {"to": "work", "kind": "trigger", "reason": "manual"},
        {"to": "work", "kind": "sub-workflow", "workflow": "fee", "status": "ok"},
        {"to": "check", "kind": "agent", "reason": "counted"},
        {"to": "judge", "kind": "code", "reason": "sound"},
        {"to": "review", "kind": "grader", "reason": "please look"},
        {"to": "work", "kind": "human", "reason": "once more"},
        {"to": "work", "kind": "reset", "reason": "from the start"},
        {"to": "work", "kind": "trigger", "reason": "ping"},
        {"to": "work", "kind": "sub-workflow", "workflow": "fee", "status": "error", "reason": failed},
        {"to": "mend", "kind": "on_error", "reason": steps[9]["reason"]},
        {"to": "mend", "kind": "trigger", "reason": "manual"},
    ]
    assert "nobody knows" in failed and "nobody knows" in steps[9]["reason"]
    stamps = [step["ts"] for step in outcome.audit_trail]
    assert all(isinstance(ts, int) for ts in stamps) and stamps == sorted(stamps)


async def test_a_decision_without_a_comment_has_no_reason(bench: Make) -> None:
    spec = SPEC.replace("to: check, description: go on", "to: review, description: go on")
    b = bench({"main": spec, "fee": FEE}, [do(advance_to("review")), say("look"), say("done")],
              files={"workflows/main/scripts/check.js": CHECK})  # fmt: skip
    await b.send()
    outcome = await b.decide("work")
    assert next(step for step in outcome.audit_trail if step["kind"] == "human").keys() == {
        "to",
        "kind",
        "ts",
    }
