from __future__ import annotations

import io
from pathlib import Path

from archmax.cli.render import Style, TestView, case_verdict_line, counts_line
from core.jsontext import JsonObject
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
LATE: JsonObject = {
    "id": "refunds/late",
    "title": "Late parcel is refunded at once",
    "sessionId": "t1",
    "verdict": {"status": "passed", "failures": []},
    "records": [
        {"kind": "reachedState", "status": "passed", "threshold": None, "step": 1},
        {"kind": "grade.closedQA", "status": "passed", "threshold": 0.7, "score": 0.9, "step": 2},
    ],
}
NONE: JsonObject = {
    "id": "refunds/none",
    "title": "No parcel, no refund",
    "sessionId": "t2",
    "verdict": {
        "status": "failed",
        "failures": ["reachedState: declined", "grade.closedQA: polite: too curt (score 0.4 < 0.7)"],
    },
    "records": [
        {
            "kind": "grade.closedQA",
            "status": "failed",
            "threshold": 0.7,
            "score": 0.4,
            "detail": "too curt",
            "step": 1,
        },
        {"kind": "reachedState", "status": "failed", "threshold": None, "detail": "declined", "step": 2},
        *({"kind": "reply", "status": "not-executed", "threshold": None, "step": n} for n in (3, 4, 5)),
    ],
}
BULK: JsonObject = {
    "id": "imports/bulk",
    "title": "Bulk import",
    "verdict": {"status": "skipped", "failures": []},
    "records": [],
    "skipReason": "fixture pending",
}


def event(session_id: str, seq: int, **fields: object) -> JsonObject:
    return {"level": "info", "ts": seq, "seq": seq, "sessionId": session_id} | fields


def usage(session_id: str, tokens: int) -> JsonObject:
    return event(
        session_id, 9, type="model-usage", state="a", inputTokens=tokens, outputTokens=1, costUsd=0.01
    )


def test_a_suite_is_drawn_case_by_case_with_its_summary():
    """07 §7."""
    stream = io.StringIO()
    view = TestView(stream, style=Style())
    view.on_case_start("workflows/shop/tests/refunds/late.test.yaml", "t1")
    view.on_event(event("t1", 1, type="state-enter", state="lookup"))
    view.on_event(event("elsewhere", 1, type="state-enter", state="not-this-one"))
    view.on_event(usage("elsewhere", 1_000_000))
    view.on_event(usage("t1", 1200))
    view.on_event(usage("t1~1", 300) | {"subWorkflowDispatchId": "d"})
    view.on_event(event("t1", 2, type="state-leave", state="lookup", next="lookup"))
    view.on_case_result(LATE)
    view.on_case_start("workflows/shop/tests/refunds/none.test.yaml", "t2")
    view.on_event(event("t2", 1, type="state-enter", state="lookup"))
    view.on_event(usage("t2", 500))
    view.on_case_result(NONE)
    view.on_case_result(BULK)
    view.finish([LATE, NONE, BULK])
    assert_golden(GOLDEN / "suite.txt", stream.getvalue())
    assert counts_line([LATE, NONE, BULK]) == "1 passed, 1 failed, 1 skipped"


def test_when_all_passed_the_summary_is_one_line():
    """07 §7."""
    stream = io.StringIO()
    TestView(stream, style=Style()).finish([LATE, LATE])
    assert stream.getvalue() == "\n◆ summary  2 passed, 0 failed, 0 skipped\n✔ all 2 cases passed\n"


def test_a_case_that_does_not_parse_has_a_verdict_without_a_title():
    """06 §9."""
    broken: JsonObject = {
        "id": "a",
        "verdict": {"status": "failed", "failures": ["a: YAML\nline 2"]},
        "records": [],
    }
    assert case_verdict_line(broken) == "✖ a\n      ✖ a: YAML line 2"


def test_one_assertion_that_was_not_executed_is_singular():
    result = NONE | {"records": [{"kind": "reply", "status": "not-executed", "threshold": None, "step": 1}]}
    assert "○ 1 assertion not executed" in case_verdict_line(result)


def test_no_cases_at_all_count_as_none():
    """07 §7."""
    assert counts_line([]) == "0 passed, 0 failed, 0 skipped"
