from __future__ import annotations

import io
from pathlib import Path

import pytest

from archmax.cli.render import (
    DecisionContext,
    Hints,
    decision_context,
    report,
    session_detail,
    sessions_listing,
)
from archmax.cli.render.parks import context_lines
from archmax.cli.render.usage import UsageMeter, total_usage, usage_line
from core.jsontext import JsonObject
from engine.spec.model import State
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
PENDING: JsonObject = {
    "state": "review",
    "title": "Refund review",
    "seq": 1,
    "transitions": [
        {"to": "pay", "description": "When the parcel is lost.", "type": "approve"},
        {"to": "decline", "description": "When it arrived.", "type": "reject"},
        {"to": "lookup"},
    ],
    "evidence": ["scratchpad/case.md", "scratchpad/photo.png"],
    "createdAt": 1_900_000_000_000,
}
REVIEW = State(
    slug="review", type="human", instructions="Read the case.\nThen decide.", approvers=("ops", "ann")
)
CONTEXT = decision_context(PENDING, REVIEW)
HINTS = Hints("refund 7", ("--workflow", "shop"))


def parked(**more: object) -> JsonObject:
    return {
        "kind": "parked",
        "status": "awaiting_decision",
        "state": "review",
        "parkedChannel": "decision",
        "pending": PENDING,
        "reply": "I have handed this over.",
    } | more


def both(
    outcome: JsonObject, disposition: str, context: DecisionContext | None = None
) -> tuple[str, str, int]:
    """stdout, stderr and the exit code."""
    assert disposition in ("turn", "decide", "reply", "deliver")
    out, err = io.StringIO(), io.StringIO()
    code = report(outcome, HINTS, disposition=disposition, context=context).write(out, err)
    return out.getvalue(), err.getvalue(), code


INPUT: JsonObject = {
    "kind": "parked",
    "status": "awaiting_input",
    "state": "clarify",
    "parkedChannel": "input",
    "pending": {
        "state": "clarify",
        "reason": "the parcel number",
        "parkedAt": 1,
        "resumeAt": 1_936_170_000_000,
    },
    "reply": "",
}


def test_a_park_for_a_decision_shows_the_context_and_complete_command_lines():
    """07 §6: parked, decision."""
    out, err, code = both(parked(), "turn", CONTEXT)
    assert code == 0
    assert out == "I have handed this over.\n"
    assert_golden(GOLDEN / "park-decision.txt", err)


def test_a_park_that_said_nothing_prints_nothing_on_stdout():
    """07 §6: what the session said as it parked, if anything."""
    out, err, code = both(parked(reply=""), "turn", CONTEXT)
    assert (out, code) == ("", 0)
    assert "✔ message" not in err


def test_a_park_for_input_shows_reason_due_time_and_the_deliver_command():
    """07 §6: parked, input."""
    out, err, code = both(INPUT, "turn")
    assert (out, code) == ("", 0)
    assert_golden(GOLDEN / "park-input.txt", err)


def test_a_childs_decision_names_the_childs_workflow():
    """07 §6: the context is the child's, and the lines name its workflow."""
    context = decision_context(PENDING, REVIEW, workflow="carrier")
    assert context_lines(context)[0] == "  Workflow: carrier"


def test_a_transition_of_type_none_has_no_bracket():
    """07 §6."""
    assert context_lines(CONTEXT)[-3:] == [
        "  [approve] pay — When the parcel is lost.",
        "  [reject] decline — When it arrived.",
        "  lookup",
    ]


@pytest.mark.parametrize(
    ("disposition", "said", "announced"),
    [
        ("turn", "(no textual answer)", "✔ answer"),
        ("decide", "Session refund 7 resumed (state=paid).", "✔ decided"),
        ("deliver", "Session refund 7 resumed (state=paid).", "✔ delivered"),
    ],
)
def test_a_silent_completion_says_so(disposition: str, said: str, announced: str):
    """07 §6, §9."""
    out, err, code = both({"kind": "completed", "state": "paid", "reply": ""}, disposition)
    assert (out, err, code) == (said + "\n", announced + "\n", 0)
    out, _, _ = both({"kind": "completed", "state": "paid", "reply": "Paid."}, disposition)
    assert out == "Paid.\n"


def test_a_reply_keeps_the_session_parked_and_says_where():
    """07 §6, §9 reply."""
    out, err, code = both(parked(reply="Soon."), "reply", CONTEXT)
    assert (out, code) == ("Soon.\n", 0)
    assert err.startswith("✔ replied\n")
    assert "still parked at review" in err
    assert "nothing to say" in both(parked(reply=""), "reply")[0]


@pytest.mark.parametrize(("disposition", "announced"), [("decide", "✔ decided"), ("deliver", "✔ delivered")])
def test_a_session_that_parks_again_is_one_line_on_stdout_and_a_hint_on_stderr(
    disposition: str, announced: str
):
    """07 §9: parked again."""
    out, err, code = both(INPUT, disposition)
    assert (out, code) == ("Session refund 7 parked again (state=clarify).\n", 0)
    assert err.startswith(f"{announced}\n⚠ awaiting input\n")
    assert "archmax deliver 'refund 7'" in err


def test_rejected_and_failed_turns_exit_1_and_keep_their_last_words():
    """07 §6: rejected, failed."""
    out, err, code = both(
        {"kind": "rejected", "state": "ask", "reply": "Sorry.", "rejected": "no order"}, "turn"
    )
    assert (out, code) == ("Sorry.\n", 1)
    assert err == "✖ rejected\n  session  refund 7\n  state    ask\n  reason   no order\n"
    end: JsonObject = {"success": False, "code": "recursion-limit", "reason": "400 steps"}
    out, err, code = both({"kind": "failed", "state": "ask", "reply": "", "exit": end}, "deliver")
    assert (out, code) == ("", 1)
    assert (
        err
        == "✖ failed\n  session  refund 7\n  state    ask\n  code     recursion-limit\n  reason   400 steps\n"
    )


SUMMARIES: list[JsonObject] = [
    {
        "sessionId": "refund-7",
        "status": "awaiting_decision",
        "classification": "open",
        "workflowState": "review",
        "state": "review",
        "variables": {
            "trigger": {"value": "manual", "locked": True},
            "parcel_id": {"value": {"a": [1]}, "locked": False},
        },
    },
    {
        "sessionId": "mail-12",
        "status": "awaiting_input",
        "classification": "open",
        "workflowState": "clarify",
        "state": "clarify",
        "waitReason": "the parcel number",
        "resumeAt": "2031-05-10T09:00:00.000Z",
        "variables": {"trigger": {"value": "mail", "locked": True}},
        "specHash": "ab12",
    },
    {
        "sessionId": "old-1~2",
        "status": "failed",
        "classification": "finished",
        "workflowState": "done",
        "exit": {"success": False, "code": "lost", "reason": "nobody knows"},
        "parentSessionId": "old-1",
    },
]


def test_sessions_are_listed_one_row_each_with_what_they_wait_for():
    """07 §9."""
    listing = sessions_listing(SUMMARIES, {"refund-7": CONTEXT})
    assert_golden(GOLDEN / "sessions.txt", listing + "\n")
    assert "manual" not in listing, "variable names only"


def test_no_sessions_is_said():
    """07 §9."""
    assert sessions_listing([]) == "No durable sessions found."


def test_one_session_is_shown_in_full():
    """07 §9."""
    shown = [
        session_detail(SUMMARIES[0], CONTEXT),
        session_detail(SUMMARIES[1]),
        session_detail(SUMMARIES[2]),
    ]
    assert_golden(GOLDEN / "session-detail.txt", "\n\n".join(shown) + "\n")


def test_the_usage_footer_separates_thousands_and_leaves_out_what_is_not_known():
    """07 §10."""
    usage = {
        "inputTokens": 20369,
        "outputTokens": 287,
        "cacheReadTokens": 18000,
        "cacheCreationTokens": 900,
        "costUsd": 0.0123,
    }
    assert usage_line(usage) == "tokens     in 20,369 · out 287 · cache r 18,000/w 900 · $0.0123"
    assert (
        usage_line({"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 0}) == "tokens     in 1 · out 2"
    )
    assert usage_line(None) is None
    assert usage_line({}) is None


def test_usage_adds_up_over_events_and_stays_absent_when_none_reported_any():
    """07 §10: never zeros."""
    meter = UsageMeter()
    meter({"type": "agent-text", "text": "x"})
    assert meter.total is None
    meter({"type": "model-usage", "inputTokens": 5, "outputTokens": 1, "costUsd": 0.5})
    meter({"type": "model-usage", "inputTokens": 7, "outputTokens": 1})
    assert meter.total == {"inputTokens": 12, "outputTokens": 2, "costUsd": 0.5}
    assert total_usage([None, None]) is None
