"""`Agent`: one workflow and its sessions, driven in this process (05 §7, §12, §14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

from langchain_core.runnables import RunnableConfig

from core.jsontext import Json, JsonObject, dumps, loads
from engine.errors import InvalidSessionPathError, UnknownTriggerError
from engine.host.driver import InlineDriver, TurnOptions
from engine.host.session_folder import SessionFolder
from engine.session.messages import from_langchain
from engine.session.outcome import Outcome, summary_of
from engine.session.state import SessionState
from engine.spec.paths import parse_dotted_path, resolve_path
from engine.turn.assembly import Assembly
from engine.turn.inputs import check_input, check_seeds, disposition_of
from engine.turn.recorder import EventStream
from engine.workspace.seed import seedable_problem
from engine.workspace.session_id import mint_session_id, require_session_id
from sandbox import Sandbox
from storage.layout import SessionKeys

#: the summaries of a listing (a name of its own: `list` is a method below)
Listing: TypeAlias = list[JsonObject]


@dataclass(frozen=True)
class Resolved:
    """Where a firing goes. `native`: the id was minted here."""

    session_id: str
    disposition: str
    native: bool
    start_state: str | None = None
    state: str | None = None


class Sessions:
    """`agent.sessions`: what the store knows (05 §7)."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._folder = agent.folder

    async def list(self) -> Listing:
        """A summary per session; one that cannot be read is left out, never a failure."""
        found: Listing = []
        async for session_id in self._folder.session_ids():
            try:
                state = await self._folder.load(session_id)
            except Exception:  # noqa: S112 - a damaged session must not hide the others
                continue
            if state is not None and state.turn > 0:
                found.append(summary_of(state))
        return found

    async def get(self, session_id: str) -> JsonObject | None:
        state = await self._folder.load(session_id)
        return None if state is None or state.turn == 0 else summary_of(state)

    async def state(self, session_id: str) -> SessionState | None:
        return await self._folder.load(session_id)

    async def message_count(self, session_id: str) -> int:
        state = await self._folder.load(session_id)
        return 0 if state is None else len(state.messages)

    async def delete(self, session_id: str, *, children: bool = False) -> bool:
        """Remove the session's folder; `children` removes its descendants too. False when there was none."""
        require_session_id(session_id, self._agent.assembly.mounts)
        keys = SessionKeys(session_id)
        async with self._folder.hold(session_id):
            store = self._folder.files.store
            doomed = [listed.key async for listed in store.list(keys.root)]
            if children:
                doomed += [listed.key async for listed in store.list(keys.descendants)]
            await store.delete(doomed)
        return bool(doomed)

    async def seed(self, session_id: str, files: Mapping[str, Json]) -> None:
        """Write input files before a turn: all paths are checked before any is written."""
        agent = self._agent
        require_session_id(session_id, agent.assembly.mounts)
        for path in files:
            problem = seedable_problem(path, agent.assembly.wiring.mount_table)
            if problem is not None:
                raise ValueError(f"{path!r} cannot be seeded: {problem}")
        await agent.driver.seed(agent.assembly, session_id, files)


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
    ) -> None:
        """`owns`: the sandbox `close` ends; one that others share is theirs to end."""
        self.assembly, self.folder = assembly, folder
        self._owns = owns
        self._events, self._session_path, self._options = events, session_path, options
        self.driver = InlineDriver(folder, events)
        self.sessions = Sessions(self)

    async def close(self) -> None:
        """End what this agent alone uses. Its sessions stay."""
        if self._owns is not None:
            await self._owns.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @property
    def workflow(self) -> str:
        return self.assembly.spec.slug

    @property
    def runtime_contract(self) -> JsonObject:
        runtime = self.assembly.spec.runtime
        return {"engine": runtime.engine, "version": runtime.version, "source": runtime.source}

    @property
    def tool_mocks(self) -> bool:
        """Whether a case's mocks can be honoured."""
        return True

    def with_options(self, **changes: Any) -> Agent:
        """The same workflow and sessions with other turn options (clock, mocks, recursion limit, config)."""
        return Agent(
            self.assembly,
            self.folder,
            self._events,
            session_path=self._session_path,
            options=replace(self._options, **changes),
        )

    # -- turns ---------------------------------------------------------------------------------------------------

    async def send(
        self,
        session_id: str | None = None,
        *,
        message: str | None = None,
        trigger: str | None = None,
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
            wanted = delivery.get("trigger")
            name = wanted.get("id") if isinstance(wanted, Mapping) else wanted
            return await self.deliver(
                _given(session_id), str(name or ""), delivery.get("variables"), delivery.get("message")
            )
        resolved = await self.resolve_session(
            trigger=trigger, variables=variables, session_id=session_id, session_path=session_path
        )
        body: JsonObject = {"kind": "message"}
        if message is not None:
            body["message"] = message
        if trigger is not None:
            body["trigger"] = trigger
        if variables:
            body["variables"] = dict(variables)
        if history:
            body["history"] = history
        return await self._turn(resolved.session_id, body, new=resolved.native)

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
        """Always a new turn: `{messages | message, trigger?, variables?}` (ruling 13)."""
        body: JsonObject = {"kind": "message", "raw": True}
        messages = list(input.get("messages") or ())
        if messages:
            *earlier, last = messages
            body["message"] = _text_of(last)
            if earlier:
                body["history"] = earlier
        elif input.get("message") is not None:
            body["message"] = input["message"]
        trigger = input.get("trigger")
        if trigger is not None:
            body["trigger"] = trigger.get("id") if isinstance(trigger, Mapping) else trigger
        if input.get("variables"):
            body["variables"] = dict(input["variables"])
        options = self._options
        if config:
            options = replace(
                options, config=config, recursion_limit=config.get("recursion_limit", options.recursion_limit)
            )
        return await self._turn(session_id or "__default__", body, options=options)

    async def _turn(
        self, session_id: str, body: JsonObject, *, new: bool = False, options: TurnOptions | None = None
    ) -> Outcome:
        session_id = require_session_id(session_id, self.assembly.mounts)
        state = None if new else await self.folder.load(session_id)
        if state is None:
            require_session_id(session_id, self.assembly.mounts, new=True)
        if body.get("raw"):
            trigger = body.get("trigger") or self.assembly.default_trigger
            if self.assembly.spec.trigger(trigger) is None:  # before anything runs (03 OP-14)
                raise UnknownTriggerError(trigger, self.assembly.spec.trigger_ids)
        else:
            check_input(
                self.assembly.spec,
                state,
                body,
                session_id=session_id,
                default_trigger=self.assembly.default_trigger,
            )
        # what will be stored is what is run: nothing that JSON cannot hold gets in
        stored: JsonObject = body if "history" in body else loads(dumps(body))
        outcome, _ = await self.driver.run(self.assembly, session_id, stored, options or self._options)
        return outcome

    # -- where a firing goes -------------------------------------------------------------------------------------

    async def resolve_session(
        self,
        *,
        trigger: str | None = None,
        variables: Mapping[str, Json] | None = None,
        session_id: str | None = None,
        session_path: str | None = None,
    ) -> Resolved:
        """Explicit id, the firing's path, the assembly's, the trigger's `session`, a minted one (05 §2.1)."""
        spec = self.assembly.spec
        wanted = trigger or self.assembly.default_trigger
        values = dict(variables or {})
        check_seeds(values)
        native = False
        if session_id is None:
            session_id, native = self._from_path(wanted, values, session_path)
        session_id = require_session_id(session_id, self.assembly.mounts)
        state = None if native else await self.folder.load(session_id)
        disposition = disposition_of(state, {"kind": "message"})
        parked = (state.pending_decision or state.pending_input) if state is not None else None
        retained = state.position if state is not None and state.position in spec.states else None
        return Resolved(
            session_id=session_id,
            disposition={"deliver": "resume", "reply": "reply"}.get(disposition, "turn"),
            native=native,
            start_state=retained or spec.entry_state(wanted),
            state=parked.get("state") if parked else None,
        )

    def _from_path(self, trigger: str, values: Mapping[str, Json], given: str | None) -> tuple[str, bool]:
        declared = self.assembly.spec.trigger(trigger)
        for path in (given, self._session_path):
            if path is not None and parse_dotted_path(path) is None:
                raise InvalidSessionPathError(
                    path, "a dotted path over the firing's variables, without ${{…}}"
                )
        path = given or self._session_path or (declared.session if declared is not None else None)
        if path is None:
            return mint_session_id(), True
        found = resolve_path(path, values)
        if isinstance(found, str) and found.strip():
            return found, False
        if (
            isinstance(found, int | float)
            and not isinstance(found, bool)
            and found == found
            and abs(found) != float("inf")
        ):
            return str(int(found)) if float(found).is_integer() else repr(found), False
        self._events.emit(
            {
                "type": "warning",
                "scope": "session-path",
                "message": f"session path {path!r} of trigger {trigger!r} found no id; the session gets one of its own",
            }
        )
        return mint_session_id(), True

    # -- rest ----------------------------------------------------------------------------------------------------

    async def get_spec_snapshot(self, spec_hash: str) -> JsonObject | None:
        found = await self.folder.get_spec(spec_hash)
        return None if found is None else loads(found)

    async def stream(
        self, input: Mapping[str, Any], session_id: str | None = None
    ) -> AsyncIterator[JsonObject]:
        """The session's events as the turn runs; its outcome is the last item, `{"type": "outcome", …}`."""
        queue: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        agent = Agent(
            self.assembly,
            self.folder,
            EventStream(queue.put_nowait),
            session_path=self._session_path,
            options=self._options,
        )

        async def run() -> None:
            try:
                outcome = await agent.invoke(input, session_id)
                queue.put_nowait({"type": "outcome", **outcome.to_json()})
            finally:
                queue.put_nowait(None)

        task = asyncio.create_task(run())
        try:
            while (event := await queue.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()


def _given(session_id: str | None) -> str:
    if session_id is None:
        raise ValueError("a decision or delivery needs the id of its session")
    return session_id


def _text_of(message: Any) -> str:
    return str(from_langchain([message])[0]["text"])
