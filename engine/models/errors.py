"""What can go wrong with models.

ModelConfigurationError      nothing can be built (engine.errors)
└── ModelScriptError         a script that cannot be played: file, line, problem
ModelCallError               a call that gave no answer, whoever the provider is; `kind` says why
ScriptedError                what a script's `error:` raises, shaped like a provider's error
ScriptExhausted              no answer of the script fits the request
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from typing_extensions import override

from core.errors import ArchmaxError
from engine.errors import ModelConfigurationError


class ModelScriptError(ModelConfigurationError):
    """A model script that is missing or malformed. `line` counts from 1; None when there is no file to point into."""

    code: ClassVar[str] = "model-script"

    def __init__(self, file: str, line: int | None, problem: str) -> None:
        ArchmaxError.__init__(self, file, line, problem)
        self.file, self.line, self.problem = file, line, problem

    @override
    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.problem}" if self.line else f"{self.file}: {self.problem}"


class ScriptedError(ArchmaxError):
    """The error a script's answer asked for. With a status it reads like a provider's answer of that status."""

    code: ClassVar[str] = "scripted-error"

    def __init__(self, text: str, status_code: int | None = None) -> None:
        super().__init__(text, status_code)
        self.text, self.status_code = text, status_code

    @override
    def __str__(self) -> str:
        return self.text


class ScriptExhausted(ArchmaxError):
    """No unused answer of the script fits the request (09 §2). `refused` is the error answer the request ends with."""

    code: ClassVar[str] = "script-exhausted"

    def __init__(self, role: str, workflow: str, state: str, refused: str = "") -> None:
        super().__init__(role, workflow, state, refused)
        self.role, self.workflow, self.state, self.refused = role, workflow, state, refused

    @override
    def __str__(self) -> str:
        after = f", after a call was answered with {self.refused!r}" if self.refused else ""
        return (
            f"script exhausted: no answer is left for role {self.role!r} of workflow {self.workflow!r} "
            f"in state {self.state!r}{after}"
        )


class CallFailure(StrEnum):
    """Why a model call gave no answer."""

    TIMEOUT = "timeout"  #: no answer within the call's time
    RATE_LIMITED = "rate-limited"  #: the provider said "too many requests", to the last attempt
    UNAVAILABLE = "unavailable"  #: the provider failed (status 5xx)
    UNREACHABLE = "unreachable"  #: no connection, or it was cut
    REFUSED = "refused"  #: the provider refuses this request (status 4xx)
    DENIED = "denied"  #: key missing, wrong, or without permission
    UNREADABLE = "unreadable"  #: the answer is no chat completion
    EXHAUSTED = "script-exhausted"  #: the script has no answer for this request
    FAILED = "failed"  #: anything else the model raised


class ModelCallError(ArchmaxError):
    """A model call that failed for good, retries included.

    `problem` is one line without keys or credentials. `used` lists the script's answers the attempts used up.
    """

    code: ClassVar[str] = "model-call"

    def __init__(self, kind: CallFailure, problem: str, used: Sequence[int] = ()) -> None:
        super().__init__(kind, problem, tuple(used))
        self.kind, self.problem, self.used = CallFailure(kind), problem, tuple(used)

    @override
    def __str__(self) -> str:
        return self.problem
