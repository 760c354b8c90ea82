"""What the fleet's service refuses with, besides the protocol's and the contract's own errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from core.errors import ArchmaxError
from engine.spec.signatures import ValueIssue


class SessionUnknown(ArchmaxError):
    """No such session, or none the caller may see (404)."""

    code: ClassVar[str] = "session-unknown"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    def __str__(self) -> str:
        return f"there is no session {self.session!r}"


class WorkflowUnknown(ArchmaxError):
    """No such workflow, or none the caller may see (404)."""

    code: ClassVar[str] = "workflow-unknown"

    def __init__(self, workflow: str) -> None:
        super().__init__(workflow)
        self.workflow = workflow

    def __str__(self) -> str:
        return f"there is no workflow {self.workflow!r}"


class WorkflowMismatch(ArchmaxError):
    """The session belongs to another workflow (409)."""

    code: ClassVar[str] = "workflow-mismatch"

    def __init__(self, session: str, workflow: str) -> None:
        super().__init__(session, workflow)
        self.session, self.workflow = session, workflow

    def __str__(self) -> str:
        return f"session {self.session!r} belongs to another workflow than {self.workflow!r}"


class SignatureRefused(ArchmaxError):
    """The variables do not satisfy the trigger's `requires` (422). Nothing was written."""

    code: ClassVar[str] = "signature"

    def __init__(self, trigger: str, issues: Sequence[ValueIssue]) -> None:
        super().__init__(trigger, tuple(issues))
        self.trigger, self.issues = trigger, tuple(issues)

    def __str__(self) -> str:
        ordered = sorted(self.issues, key=lambda issue: issue.kind != "missing")
        return f"Refusing to start: trigger '{self.trigger}' {'; '.join(issue.message for issue in ordered)}."


class WebhookRefused(ArchmaxError):
    """A webhook that cannot be (422)."""

    code: ClassVar[str] = "webhook"

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"this webhook cannot be: {self.problem}"


class IndexUnavailable(ArchmaxError):
    """Redis does not answer, and lists run on its index (503)."""

    code: ClassVar[str] = "index-unavailable"
    retryable: ClassVar[bool] = True

    def __str__(self) -> str:
        return "the session index is not reachable"


class CursorInvalid(ArchmaxError):
    """A cursor that no list gave out (422)."""

    code: ClassVar[str] = "cursor"

    def __str__(self) -> str:
        return "this cursor was not given out by this list"
