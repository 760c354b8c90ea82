from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from archmax.cli.render import StateFlow, Style, event_line
from core.jsontext import JsonObject
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"


def draw(events: Sequence[JsonObject], *, verbose: bool = False, session_id: str | None = "s1") -> str:
    stream = io.StringIO()
    flow = StateFlow(stream, style=Style(), verbose=verbose, session_id=session_id)
    for number, event in enumerate(events, start=1):
        flow({"level": "info", "ts": 1_900_000_000_000 + number, "seq": number, "sessionId": "s1"} | event)
    return stream.getvalue()


SHOP: list[JsonObject] = [
    {"type": "interpreter-enabled"},
    {"type": "graph-topology", "topology": ["lookup -> refund"]},
    {"type": "warning", "scope": "spec", "message": "no standing guidance"},
    {"type": "workflow-reset", "entry": "lookup"},
    {"type": "advance", "from": "__start__", "to": "lookup"},
    {"type": "state-enter", "state": "lookup"},
    {"type": "agent-text-delta", "state": "lookup", "text": "Let me "},
    {"type": "agent-text", "state": "lookup", "text": "Let me look.\nOne moment.", "messageId": "m1"},
    {
        "type": "tool-called",
        "state": "lookup",
        "tool": "read_file",
        "callId": "c1",
        "args": {},
        "detail": "/orders.json",
    },
    {
        "type": "tool-result",
        "state": "lookup",
        "tool": "read_file",
        "callId": "c1",
        "status": "ok",
        "durationMs": 3,
        "output": "[]",
        "truncated": False,
    },
    {
        "type": "tool-called",
        "state": "lookup",
        "tool": "archmax_run",
        "callId": "c2",
        "args": {},
        "detail": "skills/a/scripts/find.js",
    },
    {
        "type": "tool-called",
        "state": "lookup",
        "tool": "grep",
        "callId": "c3",
        "args": {},
        "detail": "PX-77",
        "origin": "script",
    },
    {"type": "tool-blocked", "state": "lookup", "tool": "write_file", "reason": "no", "callId": "c4"},
    {"type": "variables-set", "state": "lookup", "names": ["late"], "locked": False, "callId": "c5"},
    {
        "type": "model-usage",
        "state": "lookup",
        "inputTokens": 10,
        "outputTokens": 2,
        "cacheReadTokens": 0,
        "cacheCreationTokens": 0,
    },
    {
        "type": "tool-called",
        "state": "lookup",
        "tool": "archmax_advance",
        "callId": "c6",
        "args": {"to": "check"},
    },
    {"type": "advance", "from": "lookup", "to": "check", "reason": "the parcel is late", "callId": "c6"},
    {"type": "state-leave", "state": "lookup", "next": "check"},
    {"type": "state-enter", "state": "check"},
    {"type": "code-start", "state": "check", "script": "scripts/check.js"},
    {"type": "code-output", "state": "check", "line": "nine days"},
    {"type": "code-result", "state": "check", "status": "advanced", "durationMs": 12},
    {"type": "advance", "from": "check", "to": "quality", "reason": "over a week"},
    {"type": "state-leave", "state": "check", "next": "quality"},
    {"type": "state-enter", "state": "quality"},
    {"type": "grader-start", "state": "quality"},
    {
        "type": "grader-result",
        "state": "quality",
        "status": "failed",
        "durationMs": 840,
        "reason": "it ran out of time",
    },
    {"type": "state-error-routed", "state": "quality", "to": "ship", "reason": "it ran out of time"},
    {"type": "state-leave", "state": "quality", "next": "ship"},
    {"type": "state-enter", "state": "ship"},
    {"type": "sub-workflow-start", "state": "ship", "workflow": "carrier", "dispatchId": "d1", "depth": 1},
    {"type": "state-enter", "state": "inner", "sessionId": "s1~1", "subWorkflowDispatchId": "d1"},
    {
        "type": "sub-workflow-start",
        "state": "inner",
        "workflow": "label",
        "dispatchId": "d2",
        "depth": 2,
        "sessionId": "s1~1",
        "subWorkflowDispatchId": "d1",
    },
    {
        "type": "sub-workflow-result",
        "state": "inner",
        "workflow": "label",
        "dispatchId": "d2",
        "status": "error",
        "durationMs": 5,
        "reason": "no printer",
        "sessionId": "s1~1",
        "subWorkflowDispatchId": "d1",
    },
    {
        "type": "sub-workflow-result",
        "state": "ship",
        "workflow": "carrier",
        "dispatchId": "d1",
        "status": "ok",
        "durationMs": 40,
    },
    {"type": "sub-workflow-start", "state": "ship", "workflow": "ask", "dispatchId": "d3", "depth": 1},
    {
        "type": "sub-workflow-result",
        "state": "ship",
        "workflow": "ask",
        "dispatchId": "d3",
        "status": "parked",
        "durationMs": 40,
    },
    {"type": "state-enter", "state": "other", "sessionId": "another"},
    {"type": "title-set", "title": "Late parcel", "state": "ship"},
    {"type": "state-leave", "state": "ship", "next": "ship"},
]

PARKS: list[JsonObject] = [
    {"type": "state-enter", "state": "review"},
    {"type": "parked", "state": "review", "sessionId": "s1", "awaiting": "decision"},
    {
        "type": "park-message",
        "state": "review",
        "sessionId": "s1",
        "direction": "inbound",
        "text": "Any news?\nAnn",
    },
    {"type": "agent-text", "state": "review", "text": "Not yet.", "messageId": "m2"},
    {
        "type": "park-message",
        "state": "review",
        "sessionId": "s1",
        "direction": "outbound",
        "text": "Not yet.",
    },
    {"type": "decided", "state": "review", "to": "clarify", "sessionId": "s1"},
    {"type": "state-leave", "state": "review", "next": "clarify"},
    {"type": "state-enter", "state": "clarify"},
    {
        "type": "parked",
        "state": "clarify",
        "sessionId": "s1",
        "awaiting": "input",
        "reason": "the parcel number",
        "resumeAt": "2031-05-10T09:00:00.000Z",
    },
    {"type": "delivered", "state": "clarify", "trigger": "mail", "to": "clarify", "sessionId": "s1"},
    {"type": "parked", "state": "clarify", "sessionId": "s1", "awaiting": "input", "reason": "a day"},
    {
        "type": "tool-called",
        "state": "clarify",
        "tool": "archmax_raise",
        "callId": "r1",
        "args": {"code": ""},
        "detail": "",
    },
    {
        "type": "tool-result",
        "state": "clarify",
        "tool": "archmax_raise",
        "callId": "r1",
        "status": "error",
        "durationMs": 0,
        "output": "no code",
        "truncated": False,
    },
    {
        "type": "tool-called",
        "state": "clarify",
        "tool": "archmax_raise",
        "callId": "r2",
        "args": {"code": "lost"},
    },
    {
        "type": "raised",
        "state": "clarify",
        "sessionId": "s1",
        "code": "lost",
        "reason": "nobody knows",
        "callId": "r2",
    },
    {
        "type": "tool-result",
        "state": "clarify",
        "tool": "archmax_raise",
        "callId": "r2",
        "status": "ok",
        "durationMs": 0,
        "output": "",
        "truncated": False,
    },
    {"type": "state-leave", "state": "clarify", "next": "clarify"},
]


def test_a_whole_turn_is_drawn_line_by_line():
    """07 §11: every row of the table that a running session can show."""
    assert_golden(GOLDEN / "flow-shop.txt", draw(SHOP))


def test_parks_messages_decisions_deliveries_and_raises_are_drawn():
    """07 §11."""
    assert_golden(GOLDEN / "flow-parks.txt", draw(PARKS))


def test_verbose_adds_a_raw_line_before_the_drawn_one_hidden_kinds_included():
    """07 §11."""
    verbose = draw(SHOP, verbose=True)
    assert_golden(GOLDEN / "flow-verbose.txt", verbose)
    drawn = [line for line in verbose.split("\n") if not line.startswith("· ")]
    assert drawn == draw(SHOP).split("\n")
    own = [event for event in SHOP if event.get("sessionId") != "another"]
    assert sum(line.startswith("· ") for line in verbose.split("\n")) == len(own)


def test_a_move_of_a_state_onto_itself_is_no_completion():
    """07 §11: `→ done` is for a completion."""
    drawn = draw(
        [
            {"type": "state-enter", "state": "draft"},
            {"type": "advance", "from": "draft", "to": "draft", "reason": "again"},
            {"type": "state-leave", "state": "draft", "next": "draft"},
            {"type": "state-enter", "state": "draft"},
            {"type": "state-leave", "state": "draft", "next": "draft"},
        ]
    )
    assert [line for line in drawn.split("\n") if line.startswith("✔")] == [
        "✔ draft → draft",
        "✔ draft → done",
    ]


def test_a_raised_and_a_failed_automated_state_say_why():
    """07 §11."""
    raised = {
        "type": "code-result",
        "state": "a",
        "status": "raised",
        "durationMs": 1,
        "reason": "bad: no id",
    }
    assert event_line(raised) == "    ✖ code raised (1ms) bad: no id"
    completed = {"type": "grader-result", "state": "a", "status": "completed", "durationMs": 3.4}
    assert event_line(completed) == "    ✔ grader completed (3ms)"


@pytest.mark.parametrize(
    "kind",
    [
        "agent-text-delta",
        "tool-result",
        "model-usage",
        "variables-set",
        "title-set",
        "skills-loaded",
        "unheard-of",
    ],
)
def test_telemetry_and_unknown_kinds_are_not_drawn(kind: str):
    """07 §11."""
    assert event_line({"type": kind, "state": "a", "text": "x"}) is None


def test_what_a_model_writes_cannot_drive_the_terminal():
    """Control characters and reordering marks are replaced wherever text is drawn."""
    drawn = draw(
        [{"type": "agent-text", "state": "a", "text": "\x1b]0;pwned\x07\x9b31m\u202egnp\r\nnext\ttab"}]
    )
    assert drawn == "    │ \ufffd]0;pwned\ufffd\ufffd31m\ufffdgnp\n    │ next\ttab\n"
    drawn = draw(
        [{"type": "tool-called", "state": "a", "tool": "x\ny", "callId": "c", "detail": "a\nb" * 100}]
    )
    assert drawn.count("\n") == 1
    assert len(drawn) < 130


def test_colour_is_only_paint():
    """07 §5: icons stay without it."""
    event: JsonObject = {"type": "state-leave", "state": "a", "next": "b"}
    assert event_line(event, style=Style(colour=True)) == "\x1b[32m✔\x1b[0m a → b"
    assert event_line(event) == "✔ a → b"
