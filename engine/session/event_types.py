"""The shape of every event, field by field (03 §20). `docs/events.md` is written from here.

Events are made as plain JSON objects, because most of them are derived from the log in the hottest loop. These models are
for whoever reads them: `read_event` checks one and gives it its type.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

from core.jsontext import JsonObject

Level: TypeAlias = Literal["info", "warn", "error"]
Origin: TypeAlias = Literal["script", "code", "grader"]
RunStatus: TypeAlias = Literal["advanced", "raised", "completed", "failed"]


class Event(BaseModel):
    """The envelope of every event."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)

    level: Level = Field(description="`warn` for what an operator wants to notice")
    ts: int = Field(description="epoch milliseconds")
    seq: int = Field(ge=1, description="strictly increasing per handler")
    session_id: str | None = Field(None, description="absent at assembly time")
    sub_workflow_dispatch_id: str | None = Field(None, description="inside a child session")


class InterpreterEnabled(Event):
    """Assembly: some state has the sandbox."""

    type: Literal["interpreter-enabled"]


class SkillsLoaded(Event):
    """Assembly: the skill bundles found."""

    type: Literal["skills-loaded"]
    names: list[str]


class GraphTopology(Event):
    """Assembly: the state machine, one line per state."""

    type: Literal["graph-topology"]
    topology: str


class PromptShaping(Event):
    """Assembly: how prompts are cached, and which built-in tools no state is offered."""

    type: Literal["prompt-shaping"]
    cache: Literal["anthropic", "bedrock", "anthropic-compat", "unsupported", "off"]
    withheld: list[str]


class WarningEvent(Event):
    """Something that deserves attention and stopped nothing."""

    type: Literal["warning"]
    scope: str
    message: str


class WorkflowReset(Event):
    """A turn opened at a start state."""

    type: Literal["workflow-reset"]
    entry: str


class StateEnter(Event):
    """The session stands in a state."""

    type: Literal["state-enter"]
    state: str


class StateLeave(Event):
    """The session leaves a state; `next` is the same slug at completion or raise."""

    type: Literal["state-leave"]
    state: str
    next: str


class Advance(Event):
    """A move. A turn's opening comes from `__start__` and has no `callId`."""

    type: Literal["advance"]
    from_: str = Field(alias="from")
    to: str
    reason: str | None = None
    call_id: str | None = None


class StateErrorRouted(Event):
    """A state failed and its `on_error` took over."""

    type: Literal["state-error-routed"]
    state: str
    to: str
    reason: str


class Raised(Event):
    """The session failed on its own word."""

    type: Literal["raised"]
    state: str
    code: str
    reason: str
    call_id: str | None = None


class CodeStart(Event):
    """A code state begins; `script` is its path, never its source."""

    type: Literal["code-start"]
    state: str
    script: str


class CodeOutput(Event):
    """One console line of a code state."""

    type: Literal["code-output"]
    state: str
    line: str


class CodeResult(Event):
    """How a code state's run ended."""

    type: Literal["code-result"]
    state: str
    status: RunStatus
    duration_ms: int
    reason: str | None = None


class GraderStart(Event):
    """A grader state begins."""

    type: Literal["grader-start"]
    state: str


class GraderResult(Event):
    """How a grader's run ended."""

    type: Literal["grader-result"]
    state: str
    status: RunStatus
    duration_ms: int
    reason: str | None = None


class Parked(Event):
    """The session waits; `callId` only for `archmax_wait`."""

    type: Literal["parked"]
    state: str
    awaiting: Literal["decision", "input"]
    reason: str | None = None
    resume_at: str | None = Field(None, description="when a timer wakes it, RFC 3339")
    call_id: str | None = None


class Decided(Event):
    """A person took an edge of a human state."""

    type: Literal["decided"]
    state: str
    to: str
    by: str | None = Field(None, description="who, as the API knows them")


class Delivered(Event):
    """What a parked session waited for arrived; it goes on where it stood."""

    type: Literal["delivered"]
    state: str
    trigger: str
    to: str


class ParkMessage(Event):
    """Words to or from a parked session."""

    type: Literal["park-message"]
    state: str
    direction: Literal["inbound", "outbound"]
    text: str


class AgentText(Event):
    """What the agent said, whole. `messageId` is the stored message's; a partial text belongs to none."""

    type: Literal["agent-text"]
    state: str
    text: str
    message_id: str | None = None
    partial: bool | None = None


class AgentTextDelta(Event):
    """A piece of a text as it is written. Live only: the log holds the whole text."""

    type: Literal["agent-text-delta"]
    state: str
    text: str
    message_id: str | None = None


class ToolCalled(Event):
    """An allowed call begins, controls included; `args` after substitution."""

    type: Literal["tool-called"]
    state: str
    tool: str
    call_id: str
    args: dict[str, Any]
    detail: str | None = None
    origin: Origin | None = Field(None, description="absent for the agent's own calls")


class ToolResult(Event):
    """An announced call settled; `output` is a preview of at most 4 KB."""

    type: Literal["tool-result"]
    state: str
    tool: str
    call_id: str
    status: Literal["ok", "error"]
    duration_ms: int
    output: str
    truncated: bool
    origin: Origin | None = None


class ToolBlocked(Event):
    """A call governance refused, instead of the pair."""

    type: Literal["tool-blocked"]
    state: str
    tool: str
    reason: str
    call_id: str | None = None
    args: dict[str, Any] | None = None
    origin: Origin | None = None


class VariablesSet(Event):
    """Variables were written: names, never values."""

    type: Literal["variables-set"]
    state: str | None = None
    names: list[str]
    locked: bool
    call_id: str | None = None


class TitleSet(Event):
    """The session's title: the one event with a value."""

    type: Literal["title-set"]
    title: str
    state: str | None = None
    call_id: str | None = None


class SubWorkflowStart(Event):
    """A delegation, refused ones too."""

    type: Literal["sub-workflow-start"]
    state: str
    workflow: str
    dispatch_id: str
    tool_call_id: str | None = None
    depth: int
    chain: list[str] | None = None


class SubWorkflowResult(Event):
    """What a delegation came to; `returns` are names."""

    type: Literal["sub-workflow-result"]
    state: str
    workflow: str
    dispatch_id: str
    tool_call_id: str | None = None
    status: Literal["ok", "error", "parked"]
    duration_ms: int
    reason: str | None = None
    returns: list[str] | None = None


class ModelUsage(Event):
    """What one model call used; no event when the provider reports nothing."""

    type: Literal["model-usage"]
    state: str | None = None
    input_tokens: int = Field(description="the total; the cache counts are a part of it")
    output_tokens: int
    cache_read_tokens: int
    cache_creation_tokens: int
    model: str | None = None
    cost_usd: float | None = Field(None, description="absent when nobody has a price for it")
    role: Literal["judge"] | None = Field(None, description="a case's judge, which belongs to no state")


AnyEvent: TypeAlias = Annotated[
    InterpreterEnabled
    | SkillsLoaded
    | GraphTopology
    | PromptShaping
    | WarningEvent
    | WorkflowReset
    | StateEnter
    | StateLeave
    | Advance
    | StateErrorRouted
    | Raised
    | CodeStart
    | CodeOutput
    | CodeResult
    | GraderStart
    | GraderResult
    | Parked
    | Decided
    | Delivered
    | ParkMessage
    | AgentText
    | AgentTextDelta
    | ToolCalled
    | ToolResult
    | ToolBlocked
    | VariablesSet
    | TitleSet
    | SubWorkflowStart
    | SubWorkflowResult
    | ModelUsage,
    Field(discriminator="type"),
]


@cache
def _adapter() -> TypeAdapter[Event]:
    return TypeAdapter(AnyEvent)


def read_event(event: JsonObject) -> Event:
    """The event, checked. Raises: `pydantic.ValidationError` for an unknown type, a missing or an unknown field."""
    return _adapter().validate_python(event)


def event_models() -> dict[str, type[Event]]:
    """Every model by its event's type, in the contract's order."""
    union = get_args(AnyEvent)[0]
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(union)}
