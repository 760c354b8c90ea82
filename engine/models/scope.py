"""Under which role, workflow and state a model call runs, and which script answers are used up.

A chat model is shared by sessions, states and roles, so what belongs to one call cannot live in it. It travels in a
context variable rather than in the call's keyword arguments, because those would be sent to a provider, and because
it must pass through whatever a host wraps around a model (bindings, fallbacks, middleware).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Role: TypeAlias = Literal["agent", "grader", "judge"]


class ScriptPlay:
    """One copy of a script being played: which of its answers are used.

    In one process a root session and its children share a play (ruling 20); in the fleet every session has its own,
    rebuilt from the indexes its log holds. Nothing here is the truth: the log is.
    """

    def __init__(self, used: Iterable[int] = ()) -> None:
        self.used: set[int] = set(used)
        #: one line per request nothing fitted; a case fails on any, also when the turn recovered (09 §2)
        self.exhausted: list[str] = []


@dataclass(slots=True)
class CallScope:
    """One model call. `taken` collects the indexes it used up, in order, failed attempts included."""

    role: Role
    workflow: str = ""
    state: str = ""
    play: ScriptPlay = field(default_factory=ScriptPlay)
    taken: list[int] = field(default_factory=list)


#: the scope of the model call being made in this context, if anyone said
current_scope: ContextVar[CallScope | None] = ContextVar("archmax_model_call", default=None)
