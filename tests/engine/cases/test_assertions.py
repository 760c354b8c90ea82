from __future__ import annotations

from typing import Any

import pytest

from engine.cases.assertions import evaluate
from engine.cases.document import STRUCTURAL, Assertion
from engine.cases.parse import parse_case_document
from engine.cases.regex import Regex, RegexStopped
from engine.cases.view import ActionOutcome, Called, CaseView, Noted, Said, entries_of, view_of
from engine.session.outcome import Outcome

COMPLETED = ActionOutcome("completed", state="done")
RAISED = ActionOutcome("failed", state="ask", raised=True, code="lost", reason="the parcel is gone")
PARKED = ActionOutcome("parked", "decision", "review")
TRAIL: tuple[dict[str, Any], ...] = (
    {"to": "ask", "kind": "trigger", "reason": "manual", "ts": 1},
    {"to": "ask", "kind": "sub-workflow", "workflow": "child", "ts": 2},
    {"to": "ask", "kind": "sub-workflow", "workflow": "child", "status": "error", "ts": 3},
    {"to": "refund", "kind": "agent", "reason": "late", "ts": 4},
    {"to": "refund", "kind": "trigger", "reason": "timer", "ts": 5},
)
CALLS = (
    Called("look", {"path": "a", "deep": {"n": 1, "m": 2}}, "completed", "ok"),
    Called("write_file", {"path": "x"}, "rejected", "no"),
    Called("write_file", {"path": "y"}, "failed", "no"),
    Called("archmax_advance", {"to": "refund"}, "completed"),
    Called("broken", None, "failed", "no", raw='{"a": '),
)
VIEW = CaseView(
    COMPLETED,
    reply="You get a REFUND.",
    entries=(Said("Let me look."), *CALLS, Noted("event", "secret note"), Said("You get a REFUND.")),
    trail=TRAIL,
    variables={
        "order": {"value": {"items": [{"sku": "a"}, {"sku": None}]}, "locked": True},
        "count": {"value": 1, "locked": False},
        "none": {"value": None, "locked": False},
    },
)


def assertion(text: str) -> Assertion:
    source = f"title: t\ndescription: d\nsteps:\n  - send: hi\n  - {text}\n"
    step: Any = parse_case_document("a.test.yaml", source, "").steps[1]
    return step


def outcome(text: str, view: CaseView) -> tuple[list[tuple[str, str]], str]:
    records = evaluate(assertion(text), view, 7)
    assert {record.step for record in records} == {7}
    assert {record.threshold for record in records} == {None}
    details = " | ".join(record.detail or "" for record in records)
    return [(record.kind, record.status) for record in records], details


def with_outcome(changed: ActionOutcome) -> CaseView:
    return CaseView(changed, trail=TRAIL)


FAILED = ActionOutcome("failed", state="ask", code="recursion-limit", reason="too long")
REJECTED = ActionOutcome("rejected", state="ask", reason="no returns")


@pytest.mark.parametrize(
    ("text", "view", "passes", "words"),
    [
        ("succeeded: true", VIEW, True, []),
        ("succeeded: true", with_outcome(PARKED), False, ["parked", "decision", "review"]),
        ("succeeded: true", with_outcome(RAISED), False, ["raised", "lost", "the parcel is gone"]),
        ("succeeded: true", with_outcome(FAILED), False, ["recursion-limit", "too long"]),
        ("succeeded: true", with_outcome(REJECTED), False, ["rejected", "no returns"]),
        ("parked: true", with_outcome(PARKED), True, []),
        ("parked: {}", with_outcome(PARKED), True, []),
        ("parked: decision", with_outcome(PARKED), True, []),
        ("parked: input", with_outcome(PARKED), False, ["input", "decision"]),
        ("parked: { channel: decision, state: review }", with_outcome(PARKED), True, []),
        ("parked: { state: other }", with_outcome(PARKED), False, ["other", "review"]),
        ("parked: true", VIEW, False, ["completed"]),
        ("raised: true", with_outcome(RAISED), True, []),
        ("raised: lost", with_outcome(RAISED), True, []),
        ("raised: los", with_outcome(RAISED), False, ["'los'", "'lost'"]),
        ("raised: { reason: the parcel is gone }", with_outcome(RAISED), True, []),
        ("raised: { reason: gone }", with_outcome(RAISED), False, ["gone"]),
        ("raised: { reason: /GONE/i }", with_outcome(RAISED), True, []),
        ("raised: { code: lost, reason: /here/ }", with_outcome(RAISED), False, ["/here/"]),
        ("raised: true", VIEW, False, ["nothing was raised"]),
        ("raised: true", with_outcome(FAILED), False, ["nothing was raised", "recursion-limit"]),
        ("reachedState: refund", VIEW, True, []),
        ("reachedState: ask", VIEW, False, ["'ask'", "refund"]),
        ("trail: { to: ask, count: 3 }", VIEW, True, []),
        ("trail: { to: ask, kind: trigger, count: 1 }", VIEW, True, []),
        ("trail: { kind: agent, reason: late, count: 1 }", VIEW, True, []),
        ("trail: { kind: human, count: 0 }", VIEW, True, []),
        ("trail: { kind: trigger, count: 1 }", VIEW, False, ["expected 1", "found 2"]),
        ("trail: { reason: /late/, count: 1 }", VIEW, False, ["found 0"]),
        ("noTraversal: true", VIEW, False, ["refund (agent)"]),
        ("noTraversal: true", CaseView(COMPLETED), True, []),
        ("noTraversal: true", CaseView(COMPLETED, trail=TRAIL[:1]), True, []),
        ("noTraversal: true", CaseView(COMPLETED, trail=TRAIL[:2]), False, ["sub-workflow"]),
        ("triggerArrival: manual", VIEW, True, []),
        ("triggerArrival: timer", VIEW, True, []),
        ("triggerArrival: late", VIEW, False, ["manual", "timer"]),
        ("calledTool: { name: look }", VIEW, True, []),
        ("calledTool: { name: archmax_advance, input: { to: refund } }", VIEW, True, []),
        ("calledTool: { name: look, input: { deep: { n: 1 } } }", VIEW, True, []),
        ("calledTool: { name: look, input: { path: /^a$/ } }", VIEW, True, []),
        (
            "calledTool: { name: look, input: { path: b } }",
            VIEW,
            False,
            ["look", "was not called with", '"a"'],
        ),
        ("calledTool: { name: write_file }", VIEW, True, []),
        ("calledTool: { name: broken }", VIEW, True, []),
        ("calledTool: { name: broken, input: {} }", VIEW, False, ["broken"]),
        ("calledTool: { name: none }", VIEW, False, ["none"]),
        ("notCalledTool: { name: none }", VIEW, True, []),
        ("notCalledTool: { name: look, input: { path: b } }", VIEW, True, []),
        ("notCalledTool: { name: look }", VIEW, False, ["look was called"]),
        ("blockedTool: { name: write_file }", VIEW, True, []),
        ("blockedTool: { name: write_file, input: { path: x } }", VIEW, True, []),
        ("blockedTool: { name: write_file, input: { path: y } }", VIEW, False, ["write_file", "failed"]),
        ("blockedTool: { name: look }", VIEW, False, ["look", "completed"]),
        ("ranWorkflow: { workflow: child }", VIEW, True, []),
        ("ranWorkflow: { workflow: child, status: error, count: 1 }", VIEW, True, []),
        ("ranWorkflow: { workflow: child, count: 1 }", VIEW, True, []),
        ("ranWorkflow: { workflow: child, count: 2 }", VIEW, False, ["expected 2", "found 1"]),
        ("ranWorkflow: { workflow: child, count: 0 }", VIEW, False, ["expected 0", "found 1"]),
        ("ranWorkflow: { workflow: other }", VIEW, False, ["at least 1", "found 0"]),
        ("ranWorkflow: { workflow: other, count: 0 }", VIEW, True, []),
        ("usedNoTools: true", VIEW, False, ["look", "archmax_advance"]),
        ("usedNoTools: true", CaseView(COMPLETED, entries=(Said("x"), Noted("event", "y"))), True, []),
    ],
)
def test_an_assertion_passes_or_says_what_it_missed(
    text: str, view: CaseView, passes: bool, words: list[str]
) -> None:
    """06 §6."""
    records, details = outcome(text, view)
    assert records == [(text.partition(":")[0], "passed" if passes else "failed")]
    assert [word for word in words if word not in details] == []
    assert passes or details


def test_each_reply_token_has_its_record_and_is_tested_against_all_messages() -> None:
    """06 §6 reply: joined by one line break, notes excluded, case-sensitive."""
    text = (
        'reply: { includes: [look, "look.\\nYou", refund, "/refund/i", "/^You/m"], excludes: [secret, look] }'
    )
    records, details = outcome(text, VIEW)
    assert records == [
        ("reply.includes", "passed"),
        ("reply.includes", "passed"),
        ("reply.includes", "failed"),
        ("reply.includes", "passed"),
        ("reply.includes", "passed"),
        ("reply.excludes", "passed"),
        ("reply.excludes", "failed"),
    ]
    assert '"refund"' in details and '"look"' in details


@pytest.mark.parametrize(
    ("text", "statuses", "words"),
    [
        ("{ expect: { count: 1.0 } }", ["passed"], []),
        ("{ expect: { count: true } }", ["failed"], ["true", "1"]),
        ("{ expect: { none: null } }", ["passed"], []),
        ("{ expect: { gone: 1 } }", ["failed"], ["gone is not set"]),
        ("{ expect: { gone: 1 }, locked: { gone: true } }", ["failed"], ["not set"]),
        ("{ expect: { order: a }, path: { order: items.0.sku } }", ["passed"], []),
        ("{ expect: { order: null }, path: { order: items.-1.sku } }", ["passed"], []),
        ("{ expect: { order: null }, path: { order: items.2 } }", ["failed"], ["order", "items.2"]),
        (
            "{ expect: { order: { items: [] } }, path: { order: '' } }",
            ["failed"],
            ["expected", '"items":[]', "sku"],
        ),
        ("{ expect: { order: a, count: 2 }, path: { order: items.0.sku } }", ["passed", "failed"], ["count"]),
        ("{ expect: { count: 1 }, locked: { count: false } }", ["passed", "passed"], []),
        ("{ expect: { count: 1 }, locked: { count: true } }", ["passed", "failed"], ["count is not locked"]),
        ("{ expect: { count: 2 }, locked: { count: false } }", ["failed", "passed"], []),
        ("{ expect: {} }", [], []),
    ],
)
def test_each_expected_variable_has_its_record_and_a_second_for_its_lock(
    text: str, statuses: list[str], words: list[str]
) -> None:
    """06 §6 variables."""
    records = evaluate(assertion(f"variables: {text}"), VIEW, 0)
    assert [(record.kind, record.status) for record in records] == [
        ("variables", status) for status in statuses
    ]
    details = " | ".join(record.detail or "" for record in records)
    assert [word for word in words if word not in details] == []


def test_the_structural_assertions_are_the_contracts() -> None:
    """06 §6, §6.1."""
    assert {
        "succeeded",
        "parked",
        "raised",
        "reachedState",
        "trail",
        "noTraversal",
        "triggerArrival",
    } == STRUCTURAL


def test_a_regex_that_takes_too_long_fails_its_record() -> None:
    """Everything from a document is hostile."""

    class Slow:
        def problems(self, regexes: Any) -> list[str | None]:
            return [None for _ in regexes]

        def search(self, regex: Regex, text: str) -> bool:
            raise RegexStopped(str(regex))

    for text in ('reply: { excludes: ["/a/"] }', "calledTool: { name: look, input: { path: /a/ } }"):
        (record,) = evaluate(assertion(text), VIEW, 0, engine=Slow())
        assert record.status == "failed"
        assert "takes too long" in (record.detail or "")


TRANSCRIPT: list[dict[str, Any]] = [
    {"role": "assistant", "id": "s", "text": "seeded", "seeded": True},
    {"role": "user", "id": "u", "text": "hi"},
    {
        "role": "assistant",
        "id": "a",
        "text": "Looking.",
        "calls": [
            {"id": "1", "name": "look", "args": {"path": "${{p}}"}},
            {"id": "2", "name": "look", "raw": "{", "fault": "no"},
            {"id": "3", "name": "drop", "args": {}},
            {"id": "4", "name": "late", "args": {}},
        ],
    },
    {"role": "tool", "id": "1", "tool": "look", "text": "found", "status": "ok"},
    {"role": "tool", "id": "2", "tool": "look", "text": "no JSON", "status": "error"},
    {"role": "tool", "id": "3", "tool": "drop", "text": "not allowed", "status": "error", "blocked": True},
    {"role": "note", "id": "n", "kind": "decision", "text": "[decision] yes"},
    {"role": "assistant", "id": "b", "text": "  "},
    {"role": "assistant", "id": "c", "text": "Done."},
]


def test_the_view_holds_messages_calls_and_notes_in_order() -> None:
    """06 §5: arguments as written, statuses, no seeded or blank text."""
    assert entries_of(TRANSCRIPT) == (
        Said("Looking."),
        Called("look", {"path": "${{p}}"}, "completed", "found"),
        Called("look", None, "failed", "no JSON", "{"),
        Called("drop", {}, "rejected", "not allowed"),
        Called("late", {}, "pending"),
        Noted("decision", "[decision] yes"),
        Said("Done."),
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": "completed"}, ActionOutcome("completed", state="ask")),
        (
            {"kind": "parked", "parked_channel": "input"},
            ActionOutcome("parked", "input", "ask"),
        ),
        (
            {"kind": "failed", "exit": {"success": False, "code": "lost", "reason": "gone"}, "raised": True},
            ActionOutcome("failed", state="ask", raised=True, code="lost", reason="gone"),
        ),
        (
            {"kind": "failed", "exit": {"success": False, "code": "turn-error", "reason": "bug"}},
            ActionOutcome("failed", state="ask", raised=False, code="turn-error", reason="bug"),
        ),
        ({"kind": "rejected", "rejected": "no"}, ActionOutcome("rejected", state="ask", reason="no")),
    ],
)
def test_an_outcome_becomes_what_assertions_see(fields: dict[str, Any], expected: ActionOutcome) -> None:
    """06 §5; 03 §4.4."""
    settled = Outcome(
        disposition="turn",
        status=None,
        session_id="s",
        turn=1,
        state="ask",
        reply="Done.",
        audit_trail=[dict(TRAIL[0])],
        variables={"a": {"value": 1, "locked": True}},
        _folded=TRANSCRIPT,
        **fields,
    )
    view = view_of(settled)
    assert view.outcome == expected
    assert view.messages == ["Looking.", "Done."]
    assert [call.name for call in view.calls] == ["look", "look", "drop", "late"]
    assert (view.reply, view.trail, view.variables) == ("Done.", (TRAIL[0],), settled.variables)


def test_a_refused_turn_has_no_view() -> None:
    """06 §3: the error a host would get kills the case."""
    refused = Outcome("refused", "turn", None, "s", 1, None, "", problem={"code": "session-not-parked"})
    with pytest.raises(ValueError, match="session-not-parked"):
        view_of(refused)
