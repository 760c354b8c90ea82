"""`Agent`: one workflow, or none, and its sessions, driven in this process (05 §7, §12, §14)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import Json, JsonObject, dumps, loads
from engine.errors import (
    SessionNotAwaitingInputError,
    SessionNotParkedError,
    SessionNotResumableError,
    UnknownTriggerError,
)
from engine.governance.machine import Machine
from engine.host.artifacts import runtime_contract
from engine.host.driver import InlineDriver, TurnOptions
from engine.host.emit import emit_artifacts
from engine.host.resolve import Resolved, resolved, session_from_path
from engine.host.session_folder import Look, SessionFolder
from engine.host.sessions import Sessions
from engine.host.stores import SessionStore
from engine.session.messages import from_langchain
from engine.session.outcome import Outcome
from engine.spec.model import Trigger
from engine.turn.assembly import Assembly
from engine.turn.inputs import check_input, check_seeds
from engine.turn.recorder import EventStream
from engine.workspace.session_id import is_child_session_of, mint_session_id, require_session_id
from sandbox import Sandbox
from storage.local import HeldLocally

#: the session of a raw `invoke` that names none (05 §2)
DEFAULT_SESSION = "__default__"
#: marks this runtime's calls in a host's traces
TAG = "archmax"
#: sessions whose last known usage is kept beside the log
_REMEMBERED = 1000


@dataclass(frozen=True)
class ResolvedTrigger:
    """A declared trigger and the state it starts in."""

    trigger: Trigger
    start_state: str

    @property
    def id(self) -> str:
        return self.trigger.id


class Agent:
    """A workflow made ready, with its sessions. Safe for concurrent use; one turn per session at a time."""

    def __init__(
        self,
        assembly: Assembly,
        folder: SessionFolder,
        events: EventStream,
        *,
        session_path: str | None = None,
        options: TurnOptions = TurnOptions(),
        owns: Sandbox | None = None,
        store: SessionStore | None = None,
    ) -> None:
        """`owns`: the sandbox `close` ends; one that others share is theirs to end. `store`: what `folder` lies on."""
        self.assembly, self.folder = assembly, folder
        self._owns, self._store = owns, store
        self._events, self._session_path, self._options = events, session_path, options
        self._usage: OrderedDict[str, JsonObject] = OrderedDict()
        self.driver = InlineDriver(folder, events)
        self.sessions = Sessions(assembly, folder, self.driver, store, self._forget)

    async def close(self) -> None:
        """End what this agent alone uses. Its sessions stay."""
        if self._owns is not None:
            await self._owns.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @property
    def workflow(self) -> GovernedWorkflow | None:
        """The workflow that governs, None on a plain agent."""
        return None if self.assembly.plain else GovernedWorkflow(self)

    @property
    def runtime_contract(self) -> JsonObject:
        return runtime_contract(self.assembly.spec.runtime)

    @property
    def tool_mocks(self) -> bool:
        """Whether a case's mocks can be honoured: the loop itself asks for them."""
        return True

    def with_options(self, **changes: Any) -> Agent:
        """The same workflow and sessions with other turn options (clock, mocks, recursion limit, config)."""
        return self._again(self._events, replace(self._options, **changes))

    def with_config(self, config: RunnableConfig) -> Agent:
        """The same workflow and sessions; the config's tags, callbacks, metadata and recursion limit hold for every turn."""
        return self._again(self._events, self._configured(config))

    def _again(self, events: EventStream, options: TurnOptions) -> Agent:
        return Agent(
            self.assembly,
            self.folder,
            events,
            session_path=self._session_path,
            options=options,
            store=self._store,
        )

    def _configured(self, config: RunnableConfig | None) -> TurnOptions:
        options = self._options
        merged = merge_configs({"tags": [TAG]}, options.config, config)
        limit = (config or {}).get("recursion_limit", options.recursion_limit)
        return replace(options, config=merged, recursion_limit=limit)

    # -- turns ---------------------------------------------------------------------------------------------------

    async def send(
        self,
        session_id: str | None = None,
        *,
        message: str | None = None,
        trigger: Mapping[str, str] | str | None = None,
        variables: Mapping[str, Json] | None = None,
        session_path: str | None = None,
        decision: Mapping[str, str] | None = None,
        delivery: Mapping[str, Any] | None = None,
        history: list[Any] | None = None,
    ) -> Outcome:
        """The one entry a host needs: a message, a decision or a delivery, by what the session is (03 §2).

        Raises: the typed errors of 03 §2.2–2.3 before anything is written.
        """
        if decision is not None:
            return await self.decide(_given(session_id), decision["target"], decision.get("comment"))
        if delivery is not None:
            return await self.deliver(
                _given(session_id),
                _trigger_id(delivery.get("trigger")) or "",
                delivery.get("variables"),
                delivery.get("message"),
            )
        fired = _trigger_id(trigger)
        found, look = await self._resolve(fired, variables, session_id, session_path)
        body: JsonObject = {"kind": "message"}
        if message is not None:
            body["message"] = message
        if fired is not None:
            body["trigger"] = fired
        if variables:
            body["variables"] = dict(variables)
        if history:
            body["history"] = history
        return await self._turn(found.session_id, body, look=look)

    async def decide(
        self, session_id: str, target: str, comment: str | None = None, *, by: str | None = None
    ) -> Outcome:
        """Take a transition of the parked human state."""
        body: JsonObject = {"kind": "decision", "to": target}
        if comment:
            body["comment"] = comment
        if by:
            body["by"] = by
        return await self._turn(session_id, body)

    async def reply(self, session_id: str, message: str) -> Outcome:
        """A message to a session parked for a decision; the park stays."""
        return await self._turn(session_id, {"kind": "reply", "message": message})

    async def deliver(
        self,
        session_id: str,
        trigger: str,
        variables: Mapping[str, Json] | None = None,
        message: str | None = None,
    ) -> Outcome:
        """Resume a session parked by `archmax_wait`."""
        body: JsonObject = {"kind": "delivery", "trigger": trigger}
        if variables:
            body["variables"] = dict(variables)
        if message is not None:
            body["message"] = message
        return await self._turn(session_id, body)

    async def invoke(
        self, input: Mapping[str, Any], session_id: str | None = None, config: RunnableConfig | None = None
    ) -> Outcome:
        """Always a new turn: `{messages | message, trigger?, variables?}` (ruling 13).

        `config` carries tags, callbacks and `recursion_limit`; its `thread_id` names the session where `session_id` does not.
        Raises: what was thrown out of the turn, once that is stored as failed (03 OP-2); as `send` before it.
        """
        body: JsonObject = {"kind": "message", "raw": True}
        messages = list(input.get("messages") or ())
        if messages:
            *earlier, last = messages
            body["message"] = str(from_langchain([last])[0]["text"])
            if earlier:
                body["history"] = earlier
        elif input.get("message") is not None:
            body["message"] = input["message"]
        trigger = _trigger_id(input.get("trigger"))
        if trigger is not None:
            body["trigger"] = trigger
        if input.get("variables"):
            body["variables"] = dict(input["variables"])
        named = session_id or (config or {}).get("configurable", {}).get("thread_id")
        return await self._turn(named or DEFAULT_SESSION, body, options=self._configured(config))

    async def stream(
        self, input: Mapping[str, Any], session_id: str | None = None, config: RunnableConfig | None = None
    ) -> AsyncGenerator[JsonObject]:
        """The session's events as the turn runs; its outcome is the last item, `{"type": "outcome", …}`.

        The agent's own `on_event` is told as well. Closing the iterator cancels the turn. Raises: as `invoke`.
        """
        queue: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        agent = self._again(_Both(queue, self._events), self._options)

        async def run() -> None:
            try:
                outcome = await agent.invoke(input, session_id, config)
                queue.put_nowait({"type": "outcome", **outcome.to_json()})
            finally:
                queue.put_nowait(None)

        task = asyncio.create_task(run())
        try:
            while (event := await queue.get()) is not None:
                yield event
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _turn(
        self,
        session_id: str,
        body: JsonObject,
        *,
        look: Look | None = None,
        options: TurnOptions | None = None,
    ) -> Outcome:
        """`look`: the session as it was just read."""
        session_id = require_session_id(session_id, self.assembly.mounts)
        if look is None:
            look = await self.folder.look(session_id)
        if look.state is None:
            require_session_id(session_id, self.assembly.mounts, new=True)
        if body.get("raw"):
            trigger = body.get("trigger") or self.assembly.default_trigger
            if self.assembly.spec.trigger(trigger) is None:  # before anything runs (03 OP-14)
                raise UnknownTriggerError(trigger, self.assembly.spec.trigger_ids)
        else:
            check_input(
                self.assembly.spec,
                look.state,
                body,
                session_id=session_id,
                default_trigger=self.assembly.default_trigger,
            )
        # what will be stored is what is run: nothing that JSON cannot hold gets in
        stored: JsonObject = body if "history" in body else loads(dumps(body))
        try:
            outcome, _ = await self.driver.run(
                self.assembly, session_id, stored, options or self._configured(None), look
            )
        except SessionNotResumableError as busy:
            if isinstance(busy.__cause__, HeldLocally) and body["kind"] != "message":
                raise _lost_race(session_id, body["kind"]) from None
            raise
        if outcome.kind == "refused":  # another turn came between the check above and this one
            now = await self.folder.look(session_id)
            check_input(self.assembly.spec, now.state, body, session_id=session_id)
        if outcome.usage is not None:
            self._usage[session_id] = outcome.usage
            self._usage.move_to_end(session_id)
            if len(self._usage) > _REMEMBERED:
                self._usage.popitem(last=False)
        if self.assembly.plain:  # the one state is the runtime's own
            return replace(outcome, state=None, audit_trail=[], variables={})
        return outcome

    # -- where a firing goes -------------------------------------------------------------------------------------

    def resolve_trigger(self, trigger: Mapping[str, str] | str | None = None) -> ResolvedTrigger:
        """The trigger a firing means, the assembly's own by default. Raises: `UnknownTriggerError`."""
        spec = self.assembly.spec
        wanted = _trigger_id(trigger) or self.assembly.default_trigger
        declared, start = spec.trigger(wanted), spec.entry_state(wanted)
        if declared is None or start is None:
            raise UnknownTriggerError(wanted, spec.trigger_ids)
        return ResolvedTrigger(declared, start)

    async def resolve_session(
        self,
        *,
        trigger: Mapping[str, str] | str | None = None,
        variables: Mapping[str, Json] | None = None,
        session_id: str | None = None,
        session_path: str | None = None,
    ) -> Resolved:
        """Explicit id, the firing's path, the assembly's, the trigger's `session`, a minted one (05 §2.1).

        Raises: `UnknownSessionTriggerError`, `InvalidSessionPathError`, `SessionNotResumableError`, bad seeds and ids.
        """
        return (await self._resolve(trigger, variables, session_id, session_path))[0]

    async def _resolve(
        self,
        trigger: Mapping[str, str] | str | None,
        variables: Mapping[str, Json] | None,
        session_id: str | None,
        session_path: str | None,
    ) -> tuple[Resolved, Look]:
        """And the session as it was read for that."""
        spec = self.assembly.spec
        wanted = _trigger_id(trigger) or self.assembly.default_trigger
        values = dict(variables or {})
        check_seeds(values)
        native = False
        if session_id is None:
            session_id, path = session_from_path(
                spec, wanted, values, given=session_path, assembled=self._session_path
            )
            if session_id is None:
                native, session_id = True, mint_session_id()
                if path is not None:
                    self._warn(
                        "session-path",
                        f"session path {path!r} of trigger {wanted!r} found no id; the session gets one of its own",
                    )
        session_id = require_session_id(session_id, self.assembly.mounts)
        look = Look(None, (None,)) if native else await self.folder.look(session_id)
        state = look.state
        if state is not None and state.status == "running" and self.folder.holds(session_id):
            raise SessionNotResumableError(session_id, "running", "this process is running a turn of it")
        return resolved(spec, state, session_id, wanted, native=native), look

    def _warn(self, scope: str, message: str) -> None:
        self._events.emit({"type": "warning", "scope": scope, "message": message})

    # -- rest ----------------------------------------------------------------------------------------------------

    async def get_spec_snapshot(self, spec_hash: str) -> JsonObject | None:
        """The spec some turn ran under, as stored (05 §3). None when there is none of that hash."""
        found = await self.folder.get_spec(spec_hash)
        return None if found is None else loads(found)

    async def emit_run_artifacts(
        self, session_id: str, trajectory: Mapping[str, Any], trail: list[JsonObject] | None = None
    ) -> str | None:
        """Write the session's `artifacts/` (05 §16). Returns where they lie, or None when none could be written."""
        session_id = require_session_id(session_id, self.assembly.mounts)
        place = await emit_artifacts(
            self.assembly,
            self.folder,
            session_id,
            trajectory=trajectory,
            trail=trail,
            usage=self._usage.get(session_id),
            on_problem=lambda problem: self._warn("run-artifacts", problem),
        )
        root = self._store.lock_root if self._store is not None else None
        return place if place is None or root is None else str(root / place)

    async def dispose(self, session_id: str) -> None:
        """Free what the session and its children hold in this process; nothing stored is touched. May be repeated."""
        await self.driver.release(session_id)
        self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        for held in [
            known for known in self._usage if known == session_id or is_child_session_of(known, session_id)
        ]:
            del self._usage[held]


class GovernedWorkflow:
    """`agent.workflow`: the workflow an agent is governed by, and the ways into its sessions (05 §14)."""

    def __init__(self, agent: Agent) -> None:
        self.name = agent.assembly.spec.slug
        self.machine: Machine = agent.assembly.machine
        self.resolve_trigger = agent.resolve_trigger
        self.resolve_session = agent.resolve_session
        self.send, self.decide = agent.send, agent.decide
        self.reply, self.deliver = agent.reply, agent.deliver

    def __repr__(self) -> str:
        return f"GovernedWorkflow({self.name!r})"


class _Both(EventStream):
    """A stream of its own that tells another one too: each handler has its own sequence."""

    def __init__(self, queue: asyncio.Queue[JsonObject | None], other: EventStream) -> None:
        super().__init__(queue.put_nowait)
        self._other = other

    @override
    def emit(
        self,
        event: JsonObject,
        *,
        session_id: str | None = None,
        dispatch_id: str | None = None,
        recorded: bool = True,
    ) -> None:
        super().emit(event, session_id=session_id, dispatch_id=dispatch_id, recorded=recorded)
        self._other.emit(event, session_id=session_id, dispatch_id=dispatch_id, recorded=recorded)


def _lost_race(session_id: str, kind: str) -> ArchmaxError:
    """What a resume is told that found another turn at work: the park it meant is taken (05 §8)."""
    error = SessionNotAwaitingInputError if kind == "delivery" else SessionNotParkedError
    return error(session_id, "running")


def _given(session_id: str | None) -> str:
    if session_id is None:
        raise ValueError("a decision or delivery needs the id of its session")
    return session_id


def _trigger_id(given: Mapping[str, str] | str | None) -> str | None:
    return given.get("id") if isinstance(given, Mapping) else given
