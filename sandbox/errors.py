"""Errors of the room itself. A failing script is no error but a `Result`."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from core.errors import ArchmaxError


class SandboxUnavailableError(ArchmaxError):
    """No sandbox process can be started or reached here; says why."""

    code: ClassVar[str] = "sandbox-unavailable"
    retryable: ClassVar[bool] = True

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    @override
    def __str__(self) -> str:
        return f"the script sandbox is not available: {self.problem}"


class MalformedRegexError(ArchmaxError):
    """A pattern or its flags are no ECMAScript regular expression (06 §4.1)."""

    code: ClassVar[str] = "malformed-regex"

    def __init__(self, pattern: str, flags: str, problem: str) -> None:
        super().__init__(pattern, flags, problem)
        self.pattern, self.flags, self.problem = pattern, flags, problem

    @override
    def __str__(self) -> str:
        return f"malformed regex /{self.pattern}/{self.flags}: {self.problem}"


class RegexTimeoutError(ArchmaxError):
    """A regular expression did not finish on a text within its time."""

    code: ClassVar[str] = "regex-timeout"

    def __init__(self, pattern: str, flags: str, timeout_ms: int) -> None:
        super().__init__(pattern, flags, timeout_ms)
        self.pattern, self.flags, self.timeout_ms = pattern, flags, timeout_ms

    @override
    def __str__(self) -> str:
        return f"regex /{self.pattern}/{self.flags} did not finish within {self.timeout_ms} ms"
