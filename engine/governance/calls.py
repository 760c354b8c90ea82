"""What is decided and what the decision is: a tool call and its verdict (contract 02 §1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from core.jsontext import Json

#: who makes the call: the session's model, code it runs, a grader's model, a code state's script
Origin: TypeAlias = Literal["agent", "script", "grader", "code"]
Decision: TypeAlias = Literal["allow", "block"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call, decided against `state`, the active one; for an automated state that state itself."""

    state: str
    tool: str
    args: Mapping[str, Json] = field(default_factory=dict)
    origin: Origin = "agent"
    #: made in a turn that may only answer in words
    reply_only: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`terminal`: trying again cannot help, the state fails. `warn`: the block is worth a warning event."""

    decision: Decision
    rule_id: str
    reason: str = ""
    terminal: bool = False
    warn: bool = False

    @property
    def allowed(self) -> bool:
        return self.decision == "allow"


@lru_cache(maxsize=64)
def allow(rule_id: str) -> Verdict:
    return Verdict("allow", rule_id)


def block(rule_id: str, reason: str, *, terminal: bool = False, warn: bool = True) -> Verdict:
    return Verdict("block", rule_id, reason, terminal, warn)
