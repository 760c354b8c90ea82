"""The typed workflow document: what a `workflow.yaml` says after it has been read and found well-shaped.

Plain frozen data without behaviour beyond look-ups; order is declaration order everywhere, because it is
observable (contract 01 §2.9). Built by `engine.spec.loader`; never built from unchecked input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from core.jsontext import Json, JsonObject

StateType: TypeAlias = Literal["agent", "human", "grader", "code"]
EdgeType: TypeAlias = Literal["approve", "reject", "refine", "none"]
SignatureType: TypeAlias = Literal[
    "string", "integer", "number", "boolean", "date", "date-time", "object", "array", "file"
]
Access: TypeAlias = Literal["read", "read_write"]


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """One element of a tools list (02 §5). At most one of `args` and `paths` is given.

    `args` maps a dotted argument name to its globs; `paths` guards every path argument of the tool.
    """

    tool: str
    args: Mapping[str, tuple[str, ...]] | None = None
    paths: tuple[str, ...] | None = None
    connection: str | None = None
    source: str | None = None

    @property
    def guarded(self) -> bool:
        return self.args is not None or self.paths is not None


@dataclass(frozen=True, slots=True)
class MountGrant:
    """A mount named in an allow list; `access` is None when the entry is a bare name."""

    mount: str
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class SignatureEntry:
    name: str
    type: SignatureType | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Trigger:
    """A declared trigger. `message` is a dotted path, or False for firings that carry no words."""

    id: str
    session: str | None = None
    message: str | Literal[False] | None = None
    connection: str | None = None
    description: str | None = None
    requires: tuple[SignatureEntry, ...] = ()
    returns: tuple[SignatureEntry, ...] = ()
    #: keys the host reads (`schedule`) and keys nobody reads, as written
    host: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transition:
    to: str
    description: str | None = None
    type: EdgeType = "none"


@dataclass(frozen=True, slots=True)
class Budget:
    max_turns: int | None = None
    timeout_ms: int | None = None
    max_parks: int | None = None


@dataclass(frozen=True, slots=True)
class State:
    slug: str
    type: StateType = "agent"
    title: str | None = None
    summary: str | None = None
    instructions: str | None = None
    script: str | None = None
    triggers: Mapping[str, Trigger] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    locks: tuple[str, ...] = ()
    tools_allow: tuple[ToolEntry, ...] = ()
    tools_forbid: tuple[ToolEntry, ...] = ()
    skills_allow: tuple[str, ...] = ()
    skills_forbid: tuple[str, ...] = ()
    mounts_allow: tuple[MountGrant, ...] = ()
    mounts_forbid: tuple[str, ...] = ()
    model: str | None = None
    budget: Budget = Budget()
    on_error: str | None = None
    transitions: tuple[Transition, ...] = ()
    evidence: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()
    metadata: JsonObject | None = None

    @property
    def terminal(self) -> bool:
        """No way out: the session completes when the work here is done (01 §14)."""
        return not self.transitions

    @property
    def automated(self) -> bool:
        """Run by the runtime on entry, in place of the agent's next model call."""
        return self.type in ("grader", "code")

    def edge(self, to: str) -> Transition | None:
        """The edge taken by an advance to `to`: the first in order (01 §7.3)."""
        return next((edge for edge in self.transitions if edge.to == to), None)


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of the contract; None means the runtime's default. `max_ptc_calls` None with `ptc_unbounded`: no limit."""

    model: str | None = None
    timeout_ms: int = 15_000
    memory_limit_bytes: int | None = None
    max_ptc_calls: int | None = None
    ptc_unbounded: bool = False
    max_result_chars: int | None = None
    prompt_cache_enabled: bool | None = None
    prompt_cache_ttl: Literal["5m", "1h"] | None = None


@dataclass(frozen=True, slots=True)
class Judge:
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TestSettings:
    case_timeout_ms: int = 120_000
    judge: Judge | None = None

    __test__ = False  # not a pytest class


@dataclass(frozen=True, slots=True)
class RuntimeContract:
    """`source` tells whether the document declared any part of it."""

    engine: str = "archmax-harness"
    version: str = "3"
    source: Literal["declared", "defaulted"] = "defaulted"

    @property
    def name(self) -> str:
        return f"{self.engine}@{self.version}"


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole workflow document. `tools_allow_always` None means the twelve default tools (02 §4.1)."""

    slug: str
    states: Mapping[str, State]
    title: str | None = None
    instructions: str | None = None
    disabled: bool = False
    runtime: RuntimeContract = RuntimeContract()
    settings: Settings = Settings()
    tests: TestSettings = TestSettings()
    tools_allow_always: tuple[ToolEntry, ...] | None = None
    tools_forbid_always: tuple[ToolEntry, ...] = ()
    skills_allow_always: tuple[str, ...] = ()
    skills_forbid_always: tuple[str, ...] = ()
    skills_declared: bool = False
    mounts_allow_always: tuple[MountGrant, ...] = ()
    mounts_forbid_always: tuple[str, ...] = ()
    mounts_declared: bool = False
    metadata: JsonObject | None = None
    #: the parsed document, order kept: what the hash and the snapshot are made of
    document: JsonObject = field(default_factory=dict)

    def trigger(self, trigger_id: str) -> Trigger | None:
        return next(
            (state.triggers[trigger_id] for state in self.states.values() if trigger_id in state.triggers),
            None,
        )

    def entry_state(self, trigger_id: str) -> str | None:
        """The state whose `triggers` names the id."""
        return next((slug for slug, state in self.states.items() if trigger_id in state.triggers), None)

    @property
    def trigger_ids(self) -> tuple[str, ...]:
        return tuple(trigger for state in self.states.values() for trigger in state.triggers)
