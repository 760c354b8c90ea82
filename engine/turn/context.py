"""One turn's context: the assembly, the folded state, the recorder, and what a step leaves for the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from core.jsontext import JsonObject
from core.paths import canonical
from engine.governance.kernel import ToolCall, decide
from engine.governance.zones import Zone, classify, in_authoring_plane
from engine.models.scope import ScriptPlay
from engine.session.messages import to_langchain
from engine.session.state import SessionState
from engine.spec.model import State
from engine.turn.ports import TurnLog
from engine.turn.recorder import Recorder
from engine.turn.tools import Tool
from engine.workspace.effects import reaches_outside
from engine.workspace.router import Workspace

if TYPE_CHECKING:
    from engine.delegation.calls import ChildCall
    from engine.turn.assembly import Assembly
    from engine.turn.hooks import Hooks
    from engine.turn.scripts import SessionScripts

RECURSION_LIMIT = 400
#: what a mock answers a call with; None when none matches
ToolMock = Callable[[str, Mapping[str, Any]], "MockResult | None"]


@dataclass(frozen=True)
class MockResult:
    """A case's stand-in for one call's result, as written."""

    value: Any


@dataclass
class TurnContext:
    assembly: Assembly
    state: SessionState
    rec: Recorder
    log: TurnLog
    workspace: Workspace
    scripts: SessionScripts
    play: ScriptPlay
    config: RunnableConfig = field(default_factory=RunnableConfig)
    recursion_limit: int = RECURSION_LIMIT
    #: what prompts say the time is; records keep the real one
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    mock: ToolMock | None = None
    #: the host's middleware at work on this turn; None when it has none
    hooks: Hooks | None = None
    #: children the step in progress asks for; the loop turns them into one suspension
    deferred: list[ChildCall] = field(default_factory=list)
    #: set by a serviced move: where to go once the call is answered, and what to tell then
    next_position: str | None = None
    after_answer: Callable[[], None] | None = None
    #: text streamed by the model call in flight, by message id
    streamed: dict[str, list[str]] = field(default_factory=dict)
    #: what a settled child's turn tells its caller
    answer: JsonObject | None = None
    #: what was thrown out of the turn in this process
    error: Exception | None = None
    _script_calls: int = 0
    _visit: tuple[int, float] = (-1, 0.0)

    @property
    def current(self) -> State:
        """The active state. Only asked while the position is one the spec declares."""
        return self.assembly.spec.states[self.state.position or ""]

    @property
    def top_level(self) -> bool:
        return self.state.origin is None

    @property
    def chain(self) -> tuple[str, ...]:
        """Workflows from the root to this one."""
        return (*((self.state.origin or {}).get("chain") or ()), self.assembly.spec.slug)

    def script_call_id(self) -> str:
        """A new id for a script's call; calls on their way at the same time get different ones."""
        self._script_calls = max(self._script_calls, self.state.script_calls) + 1
        return f"ptc:{self._script_calls}"

    def tell_partial(self) -> None:
        """What was streamed of a message that will never be committed, once per message (03 §13.4)."""
        for pieces in self.streamed.values():
            self.rec.event("agent-text", state=self.state.position, text="".join(pieces), partial=True)
        self.streamed.clear()

    def visit_seconds(self) -> float:
        """Active wall clock of this visit in this process: it restarts on every entry and turn (01 §10)."""
        if self._visit[0] != self.state.visits:
            self._visit = (self.state.visits, time.monotonic())
        return time.monotonic() - self._visit[1]

    def remaining_ms(self, state: State) -> float | None:
        """What is left of `budget.timeoutMs` in this visit, or None when it is unbounded."""
        limit = state.budget.timeout_ms
        return None if limit is None else limit - self.visit_seconds() * 1000

    def transcript(self) -> list[BaseMessage]:
        """The messages a provider is sent; everything before the open batch is rendered once in a state's life."""
        s = self.state
        settled = s.batch.at if s.batch is not None else len(s.messages)
        for message in s.messages[s.rendered_upto : settled]:
            s.rendered.extend(to_langchain(message))
        s.rendered_upto = max(s.rendered_upto, settled)
        tail = [rendered for message in s.messages[s.rendered_upto :] for rendered in to_langchain(message)]
        return [*s.rendered, *tail]

    def evidence_problem(self, written: str) -> str | None:
        """Why a path cannot be attached as evidence: it must be one the agent itself may read (03 §9.1)."""
        path = canonical(written)
        zone = classify(written, self.assembly.mounts)
        if zone == Zone.ESCAPES:
            return "leaves the workspace"
        if zone == Zone.ROOT:
            return "is the workspace itself, not a file"
        if zone == Zone.RUN_INTERNAL:
            return "is in an area of the runtime"
        if in_authoring_plane(path.text) and self.assembly.mounts.mount_of(path.text) is None:
            return "is no path of the workspace"
        verdict = decide(
            self.assembly.machine,
            ToolCall(
                state=self.current.slug, tool="read_file", args={"file_path": path.text}, origin="agent"
            ),
            variables=self.state.values,
        )
        if verdict.decision == "block" and verdict.rule_id.startswith(("skill.", "mount.", "zone.")):
            return f"cannot be read here: {verdict.reason}"
        return None

    def reaches_outside(self, tool: Tool, args: Mapping[str, Any]) -> bool:
        """Whether a call's effect lies beyond the session's fold: host tools, and file tools on a writable mount."""
        return tool.outside(args) or reaches_outside(tool.name, args, self.assembly.mounts)

    def hand_down(self, body: Mapping[str, Any], disposition: str) -> None:
        """A decision or delivery for the child whose park this session presents (04 §9.2)."""
        from engine.delegation.calls import resume_call  # the delegation room imports this module

        self.deferred.append(resume_call(self, body, disposition))


def idempotency_key(ctx: TurnContext, position: str) -> str:
    """`S/t/position`: the same under every fence and in every process."""
    return f"{ctx.log.session_id}/{ctx.log.turn}/{position}"


def plain(value: Any) -> JsonObject:
    return dict(value) if isinstance(value, Mapping) else {}
