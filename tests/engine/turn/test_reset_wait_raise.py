"""`archmax_reset`, `archmax_wait`, `archmax_raise` (03 §9.2–9.4)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from engine.turn.until import resume_at
from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    states:
      intake:
        triggers: { manual: , mail: }
        tools: { allow: [touch] }
        transitions: [{ to: work, description: go on }]
      work:
        title: Working
        budget: { maxParks: 2 }
        on_error: rescue
        transitions: [{ to: intake, description: again }]
      rescue:
        instructions: Tidy up.
"""
WAIT = call("archmax_wait", reason="the mail")
NOW = datetime(2031, 5, 10, 14, 30, tzinfo=UTC)


async def test_a_reset_goes_to_the_entry_state_and_keeps_variables(bench: Make) -> None:
    """03 §9.2: a `reset` step; variables, files and messages stay."""
    reset = call("archmax_reset", reason="start over")
    b = bench(SPEC, [do(setting(a=1), advance_to("work")), do(reset), say("done")])
    outcome = await b.send()
    assert outcome.state == "intake"
    assert b.steps(outcome)[-1] == ("reset", "intake")
    assert outcome.audit_trail[-1]["reason"] == "start over"
    assert b.values(outcome) == {"a": 1}


async def test_a_reset_into_a_human_entry_parks_and_into_a_code_entry_runs_it(bench: Make) -> None:
    """03 §9.2."""
    spec = """
        states:
          gate: { type: human, instructions: Look., triggers: { manual: }, transitions: [{ to: work, description: y }] }
          work: { transitions: [{ to: work, description: again }] }
    """
    b = bench(spec, [say("hello"), do(call("archmax_reset", reason="r")), say("again")])
    await b.send()
    outcome = await b.decide("work")
    assert (outcome.kind, outcome.state) == ("parked", "gate")
    assert outcome.pending is not None and outcome.pending["seq"] == 2


async def test_a_wait_parks_with_its_events_and_record(bench: Make) -> None:
    """03 §9.3, §10.3: tool-called, tool-result, parked with the call id; no trail step; the position stays."""
    wait = call("archmax_wait", reason="the mail", until="2031-05-09T10:00:00+02:00")
    b = bench(SPEC, [do(advance_to("work")), do(wait, text="I wait for the mail.")])
    outcome = await b.send()
    assert (outcome.kind, outcome.status, outcome.state) == ("parked", "awaiting_input", "work")
    parked = b.one("parked")
    assert parked["callId"] == b.one("tool-called", tool="archmax_wait")["callId"]
    assert (parked["awaiting"], parked["reason"]) == ("input", "the mail")
    assert parked["resumeAt"] == "2031-05-09T08:00:00.000Z"
    assert b.kinds()[-3:] == ["tool-called", "tool-result", "parked"]
    assert b.steps(outcome)[-1] == ("agent", "work")
    assert outcome.pending is not None
    assert set(outcome.pending) == {"state", "title", "reason", "parkedAt", "resumeAt"}


@pytest.mark.parametrize(
    "until", ["soon", "0s", "-1d", "1w", "1.5h", "2031-02-30", "10:00", 5, "2031-05-09T25:00Z"]
)
async def test_an_unknown_until_is_refused_naming_the_forms_and_nothing_parks(
    bench: Make, until: object
) -> None:
    """03 §9.3."""
    b = bench(SPEC, [do(call("archmax_wait", reason="r", until=until)), say("then not")])
    outcome = await b.send()
    assert outcome.kind == "completed"
    assert "ISO-8601" in b.results(outcome)[0] and "ms|s|m|h|d" in b.results(outcome)[0]


@pytest.mark.parametrize(
    ("until", "at"),
    [
        ("90s", "2031-05-10T14:31:30.000Z"),
        ("1500ms", "2031-05-10T14:30:01.500Z"),
        ("2d", "2031-05-12T14:30:00.000Z"),
        ("2031-05-11", "2031-05-11T00:00:00.000Z"),
        ("2031-05-11T08:15", "2031-05-11T08:15:00.000Z"),
        ("2031-05-11T08:15:30.25-01:30", "2031-05-11T09:45:30.250Z"),
        ("2001-01-01T00:00:00Z", "2001-01-01T00:00:00.000Z"),
        ("99999999999999d", None),
        ("2031-05-11T08:15:30+2", None),
    ],
)
def test_until_becomes_an_absolute_utc_instant(until: str, at: str | None) -> None:
    """03 §9.3: relative and absolute forms; the past means due now; what overflows is refused."""
    assert resume_at(until, NOW) == at


async def test_the_wait_beyond_max_parks_is_refused_and_fails_the_state_when_the_agent_stops(
    bench: Make,
) -> None:
    """03 §9.3, §13.2, §13.3: counted per open turn, not restarted by a delivery, a move or a reset."""
    moves = [do(advance_to("intake")), do(advance_to("work"))]
    b = bench(
        SPEC,
        [
            do(advance_to("work")),
            do(WAIT, text="a"),
            *moves,
            do(WAIT, text="b"),
            do(WAIT),
            say("c"),
            say("tidied"),
        ],
    )
    await b.send()
    assert (await b.deliver()).kind == "parked"
    outcome = await b.deliver()
    assert (outcome.kind, outcome.state) == ("completed", "rescue")
    refusal = [m for m in outcome.transcript if m.get("tool") == "archmax_wait"][-1]
    assert refusal["status"] == "error"
    reason = b.one("state-error-routed")["reason"]
    assert "'work'" in reason and "2" in reason
    assert b.steps(outcome)[-1] == ("on_error", "rescue")


async def test_an_exhausted_wait_is_forgotten_once_the_session_moves(bench: Make) -> None:
    """03 §13.2: a committed rejection is cleared, unrouted, by a landed move."""
    b = bench(
        SPEC.replace("maxParks: 2", "maxParks: 1"),
        [do(advance_to("work")), do(WAIT, text="a"), do(WAIT), do(advance_to("intake")), say("done")],
    )
    await b.send()
    outcome = await b.deliver()
    assert (outcome.kind, outcome.state) == ("completed", "intake")


async def test_a_new_turn_restarts_the_count_of_waits(bench: Make) -> None:
    """03 §13.3, ruling 15."""
    answers = [do(advance_to("work")), do(WAIT, text="a"), say("ok"), do(WAIT, text="b"), say("ok2")]
    b = bench(SPEC.replace("maxParks: 2", "maxParks: 1"), answers)
    await b.send()
    assert (await b.deliver()).kind == "completed"
    assert (await b.send("next")).kind == "parked"


async def test_a_raise_alone_fails_the_session_and_ends_the_turn(bench: Make) -> None:
    """03 §9.4: exit record, `raised`, `state-leave`, the answer; no route, no trail step, no further model call."""
    spec = SPEC.replace("      intake:\n", "      intake:\n        on_error: rescue\n")
    b = bench(spec, [do(call("archmax_raise", code=" no-mail ", reason=" gone "))])
    outcome = await b.send()
    assert (outcome.kind, outcome.status, outcome.state) == ("failed", "failed", "intake")
    assert outcome.exit == {"success": False, "code": "no-mail", "reason": "gone"}
    assert b.kinds()[-4:] == ["tool-called", "raised", "state-leave", "tool-result"]
    raised = b.one("raised")
    assert raised["callId"] == b.one("tool-called")["callId"] and raised["level"] == "warn"
    assert b.one("state-leave")["next"] == "intake"
    assert b.steps(outcome) == [("trigger", "intake")]
    assert len(b.seen) == 1


async def test_a_raise_beside_other_calls_is_refused_and_may_be_made_again_alone(bench: Make) -> None:
    """03 §9.4."""
    stop = call("archmax_raise", code="x", reason="y")
    b = bench(SPEC, [do(call("touch", n=1), stop), do(stop)])
    outcome = await b.send()
    assert b.touched == [1]
    assert outcome.kind == "failed"
    assert "alone" in b.results(outcome, "archmax_raise")[0]


@pytest.mark.parametrize(
    ("code", "reason", "field"),
    [
        ("", "r", "code"),
        ("a\nb", "r", "code"),
        ("x" * 65, "r", "code"),
        ("ok", " ", "reason"),
        (7, "r", "code"),
    ],
)
async def test_a_bad_raise_is_refused_naming_the_field(
    bench: Make, code: object, reason: str, field: str
) -> None:
    """03 §9.4."""
    b = bench(SPEC, [do(call("archmax_raise", code=code, reason=reason)), say("no")])
    outcome = await b.send()
    assert outcome.kind == "completed"
    assert f"`{field}`" in b.results(outcome)[0]


async def test_a_message_after_a_raise_opens_a_turn_at_the_position(bench: Make) -> None:
    """03 §2.2, §13.4."""
    b = bench(
        SPEC, [do(advance_to("work")), do(call("archmax_raise", code="x", reason="y")), say("better now")]
    )
    await b.send()
    outcome = await b.send("again")
    assert (outcome.kind, outcome.state) == ("completed", "work")
    assert (await b.state()).raised is None
