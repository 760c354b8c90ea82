"""What keeps a case or a suite from running. What an assertion finds is a record, never one of these."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from core.errors import ArchmaxError


class CaseTargetError(ArchmaxError):
    """A target that cannot run a workflow's cases: it is governed by none, or by another one (06 §13)."""

    code: ClassVar[str] = "case-target"

    def __init__(self, workflow: str, governed_by: str | None) -> None:
        super().__init__(workflow, governed_by)
        self.workflow, self.governed_by = workflow, governed_by

    @override
    def __str__(self) -> str:
        what = "no workflow governs it" if self.governed_by is None else f"it runs {self.governed_by!r}"
        return f"cases of workflow {self.workflow!r} need an agent governed by it, and {what}"


class CaseStartError(ArchmaxError):
    """A start condition that was refused; the case dies before its first step (06 §7)."""

    code: ClassVar[str] = "case-start"


class SuiteRefusedError(ArchmaxError):
    """A suite that is refused before discovery (06 §1)."""

    code: ClassVar[str] = "suite-refused"
