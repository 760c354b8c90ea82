"""Records, verdicts and results: what a case came to, and its JSON form (06 §9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from core.jsontext import JsonObject
from core.jsvalues import js_text
from engine.cases.document import ACTIONS, Step

RecordStatus: TypeAlias = Literal["passed", "failed", "not-executed"]


@dataclass(frozen=True, slots=True)
class Record:
    """What one assertion found. `step` counts from 0; `threshold` is a grade's bar."""

    kind: str
    status: RecordStatus
    step: int
    threshold: float | None = None
    score: float | None = None
    detail: str | None = None

    @property
    def failure(self) -> str:
        """The line a failed record contributes."""
        line = f"{self.kind}: {self.detail}" if self.detail else self.kind
        if self.threshold is not None and self.score is not None:
            line += f" (score {js_text(self.score)} < {js_text(self.threshold)})"
        return line

    def to_json(self) -> JsonObject:
        record: JsonObject = {"kind": self.kind, "status": self.status, "threshold": self.threshold}
        if self.score is not None:
            record["score"] = self.score
        if self.detail is not None:
            record["detail"] = self.detail
        record["step"] = self.step
        return record


@dataclass(frozen=True, slots=True)
class Verdict:
    status: Literal["passed", "failed", "skipped"]
    failures: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        return {"status": self.status, "failures": list(self.failures)}


@dataclass(frozen=True, slots=True)
class CaseResult:
    id: str
    verdict: Verdict
    title: str | None = None
    description: str | None = None
    session_id: str | None = None
    records: tuple[Record, ...] = ()
    skip_reason: str | None = None
    error: str | None = None

    def to_json(self) -> JsonObject:
        """Absent fields are left out."""
        result: JsonObject = {"id": self.id}
        for key, value in (
            ("title", self.title),
            ("description", self.description),
            ("sessionId", self.session_id),
        ):
            if value is not None:
                result[key] = value
        result["verdict"] = self.verdict.to_json()
        result["records"] = [record.to_json() for record in self.records]
        if self.skip_reason is not None:
            result["skipReason"] = self.skip_reason
        if self.error is not None:
            result["error"] = self.error
        return result


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """`discovered` counts files before the filter; `skipped` is `disabled` for a disabled workflow."""

    results: tuple[CaseResult, ...] = field(default=())
    discovered: int = 0
    skipped: Literal["disabled"] | None = None

    @property
    def exit_code(self) -> int:
        return max((exit_code_for_verdict(result.verdict) for result in self.results), default=0)

    def to_json(self) -> JsonObject:
        suite: JsonObject = {
            "results": [result.to_json() for result in self.results],
            "exitCode": self.exit_code,
            "discovered": self.discovered,
        }
        if self.skipped is not None:
            suite["skipped"] = self.skipped
        return suite


def reduce_verdict(records: Sequence[Record], *, errors: Sequence[str] = ()) -> Verdict:
    """Failed when any record failed or the case died; what was not executed contributes nothing.

    `errors` are what the case died of, or what failed it beside its records; they come first.
    """
    failures = (*errors, *(record.failure for record in records if record.status == "failed"))
    return Verdict("failed", failures) if failures else Verdict("passed")


def exit_code_for_verdict(verdict: Verdict) -> int:
    return 1 if verdict.status == "failed" else 0


def not_executed(steps: Sequence[Step], start: int) -> list[Record]:
    """One record for each assertion step from `start` on, under the bare step key."""
    return [
        Record(step.key, "not-executed", at, threshold=getattr(step, "at_least", None))
        for at, step in enumerate(steps)
        if at >= start and step.key not in ACTIONS
    ]


def skipped_result(case_id: str, title: str, description: str, reason: str) -> CaseResult:
    return CaseResult(case_id, Verdict("skipped"), title, description, skip_reason=reason)


def unparseable_result(case_id: str, problem: str) -> CaseResult:
    return CaseResult(case_id, Verdict("failed", (problem,)), error=problem)
