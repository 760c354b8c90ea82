from __future__ import annotations

from engine.cases.document import Grade, Reply, Send, Succeeded
from engine.cases.verdict import (
    CaseResult,
    Record,
    SuiteResult,
    Verdict,
    exit_code_for_verdict,
    not_executed,
    reduce_verdict,
    skipped_result,
    unparseable_result,
)

PASSED = Record("succeeded", "passed", 1)
FAILED = Record("reachedState", "failed", 2, detail="'x' was not reached")
BARE = Record("usedNoTools", "failed", 3)
LOW = Record("grade.closedQA", "failed", 4, threshold=0.7, score=0.4, detail="kind? — no")
HIGH = Record("grade.closedQA", "passed", 4, threshold=0.7, score=1, detail="kind? — yes")
LEFT = Record("reply", "not-executed", 5)


def test_a_verdict_is_failed_when_any_record_failed() -> None:
    """06 §9."""
    assert reduce_verdict([PASSED, HIGH, LEFT]) == Verdict("passed")
    assert reduce_verdict([]) == Verdict("passed")
    assert reduce_verdict([PASSED, FAILED, BARE, LOW, LEFT]) == Verdict(
        "failed",
        (
            "reachedState: 'x' was not reached",
            "usedNoTools",
            "grade.closedQA: kind? — no (score 0.4 < 0.7)",
        ),
    )


def test_what_a_case_died_of_comes_first() -> None:
    """06 §6.2."""
    assert reduce_verdict([FAILED], errors=["boom"]).failures == ("boom", "reachedState: 'x' was not reached")
    assert reduce_verdict([], errors=["boom"]).status == "failed"


def test_a_record_in_json_keeps_a_null_threshold_and_omits_what_is_absent() -> None:
    """06 §9."""
    assert PASSED.to_json() == {"kind": "succeeded", "status": "passed", "threshold": None, "step": 1}
    assert LOW.to_json() == {
        "kind": "grade.closedQA",
        "status": "failed",
        "threshold": 0.7,
        "score": 0.4,
        "detail": "kind? — no",
        "step": 4,
    }


def test_steps_not_executed_have_one_record_each_under_their_bare_key() -> None:
    """06 §9."""
    steps = (Send("a"), Succeeded(), Send("b"), Reply(("x", "y")), Grade("kind?", 0.5))
    assert not_executed(steps, 1) == [
        Record("succeeded", "not-executed", 1),
        Record("reply", "not-executed", 3),
        Record("grade", "not-executed", 4, threshold=0.5),
    ]
    assert not_executed(steps, 2)[0].step == 3


def test_results_in_json_have_camel_case_names_and_omit_absent_fields() -> None:
    """06 §9."""
    result = CaseResult("a/b", reduce_verdict([FAILED]), "T", "D", "s-1", (FAILED,), error="boom")
    assert result.to_json() == {
        "id": "a/b",
        "title": "T",
        "description": "D",
        "sessionId": "s-1",
        "verdict": {"status": "failed", "failures": ["reachedState: 'x' was not reached"]},
        "records": [FAILED.to_json()],
        "error": "boom",
    }
    assert skipped_result("a", "T", "D", "later").to_json() == {
        "id": "a",
        "title": "T",
        "description": "D",
        "verdict": {"status": "skipped", "failures": []},
        "records": [],
        "skipReason": "later",
    }
    assert unparseable_result("a", "no case").to_json() == {
        "id": "a",
        "verdict": {"status": "failed", "failures": ["no case"]},
        "records": [],
        "error": "no case",
    }


def test_a_suite_exits_with_1_when_any_verdict_is_failed() -> None:
    """06 §9, §11."""
    passed = CaseResult("a", Verdict("passed"))
    failed = CaseResult("b", Verdict("failed", ("x",)))
    skipped = skipped_result("c", "T", "D", "later")
    assert SuiteResult((passed, skipped), 3).to_json()["exitCode"] == 0
    suite = SuiteResult((passed, failed, skipped), 5).to_json()
    assert (suite["exitCode"], suite["discovered"], len(suite["results"])) == (1, 5, 3)
    assert "skipped" not in suite
    assert SuiteResult(skipped="disabled").to_json() == {
        "results": [],
        "exitCode": 0,
        "discovered": 0,
        "skipped": "disabled",
    }
    assert [exit_code_for_verdict(result.verdict) for result in (passed, failed, skipped)] == [0, 1, 0]
