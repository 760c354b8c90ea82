"""The inline driver: turns and their children run in this process, bounded by the assembly's concurrency (design: one
engine, two drivers).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from langchain_core.runnables import RunnableConfig

from core.jsontext import Json, JsonObject
from engine.host.session_folder import Look, SessionFolder
from engine.models.scope import ScriptPlay
from engine.session.outcome import Outcome
from engine.session.state import SessionState
from engine.spec.spec_hash import snapshot_bytes
from engine.turn.assembly import Assembly
from engine.turn.context import RECURSION_LIMIT, ToolMock, TurnContext
from engine.turn.loop import Suspended, advance, cancel
from engine.turn.ports import TurnLog
from engine.turn.recorder import EventStream, Recorder
from engine.turn.scripts import SessionScripts
from engine.workspace.router import Workspace
from engine.workspace.seed import seed_files
from engine.workspace.session_files import FoldedSessionFiles
from engine.workspace.session_id import child_session_id, is_child_session_of
from storage.objects import StoreUnavailable


@dataclass(frozen=True)
class TurnOptions:
    """What one turn may vary. `play` is shared by a root session and its children (ruling 20)."""

    recursion_limit: int = RECURSION_LIMIT
    config: RunnableConfig = field(default_factory=RunnableConfig)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    mock: ToolMock | None = None
    play: ScriptPlay | None = None


def turn_context(
    assembly: Assembly,
    state: SessionState,
    log: TurnLog,
    events: EventStream,
    options: TurnOptions = TurnOptions(),
) -> TurnContext:
    """Everything one turn needs, over one session's folded state."""
    rec = Recorder(state, log, events)
    files = session_files(state, log, rec)
    ctx = TurnContext(
        assembly=assembly,
        state=state,
        rec=rec,
        log=log,
        workspace=Workspace(files, assembly.wiring.mount_table),
        scripts=SessionScripts(assembly.wiring.sandbox),
        play=options.play if options.play is not None else ScriptPlay(state.script_used),
        config=options.config,
        recursion_limit=options.recursion_limit,
        clock=options.clock,
        mock=options.mock,
    )
    chain = assembly.wiring.options.middleware
    if chain is not None:
        from engine.turn.hooks import Hooks  # LangChain's agents are slow to import

        ctx.hooks = Hooks(chain, ctx)
    return ctx


def session_files(state: SessionState, log: TurnLog, rec: Recorder) -> FoldedSessionFiles:
    return FoldedSessionFiles.from_json(
        state.files, put_blob=log.put_blob, get_blob=log.get_blob, record=rec.add_change
    )


class InlineDriver:
    """Runs sessions of one folder in this process."""

    def __init__(self, folder: SessionFolder, events: EventStream) -> None:
        self.folder, self.events = folder, events
        self._active: dict[str, TurnContext] = {}

    async def run(
        self,
        assembly: Assembly,
        session_id: str,
        body: JsonObject,
        options: TurnOptions = TurnOptions(),
        look: Look | None = None,
    ) -> tuple[Outcome, JsonObject | None]:
        """One turn to its outcome, and what it answers its caller when it has one. The session is held meanwhile.

        `look`: the session as it was read just before.

        Raises: `SessionNotResumableError`; `asyncio.CancelledError` after the turn ended `turn-cancelled`; for a `raw`
            input what was thrown out of the turn, after that ended `turn-error` (03 OP-2).
        """
        async with self.folder.hold(session_id):
            state, log = await self.folder.open(session_id, assembly.spec.slug, look)
            if assembly.spec_hash and state.spec_hash != assembly.spec_hash:
                await self._keep_spec(assembly, session_id)
            if options.play is None:
                # every child below plays this session's copy of the script
                options = replace(options, play=ScriptPlay(await self._used(assembly, state)))
            ctx = self._active[session_id] = turn_context(assembly, state, log, self.events, options)
            try:
                result = await advance(ctx, body)
                while isinstance(result, Suspended):
                    try:
                        answers = await self._run_children(assembly, result.calls, options)
                    except asyncio.CancelledError:  # the children have ended; so must their caller
                        await asyncio.shield(cancel(ctx))
                        raise
                    result = await advance(ctx, body, answers=answers)
            finally:
                del self._active[session_id]
                if ctx.hooks is not None:
                    state.forget_rendering()
                self.folder.keep(state, log)
            if ctx.error is not None and body.get("raw"):
                raise ctx.error
            return result.outcome, ctx.answer

    async def _keep_spec(self, assembly: Assembly, session_id: str) -> None:
        """A snapshot that cannot be written is a warning, never the turn's failure (05 §3)."""
        try:
            await self.folder.put_spec(assembly.spec_hash, snapshot_bytes(assembly.spec.document))
        except StoreUnavailable as error:
            warning: JsonObject = {"type": "warning", "scope": "spec-snapshot", "message": str(error)}
            self.events.emit(warning, session_id=session_id)

    async def release(self, session_id: str) -> None:
        """End the REPLs of the session and its children; their journals rebuild what they held."""
        for held, ctx in list(self._active.items()):
            if held == session_id or is_child_session_of(held, session_id):
                await ctx.scripts.release()

    async def _used(self, assembly: Assembly, state: SessionState) -> set[int]:
        """The answers of a model script that a session and its children have used up, by their logs (ruling 20)."""
        used = set(state.script_used)
        if used or assembly.wiring.models.script is not None:
            for n in range(1, state.dispatch_count + 1):
                child = await self.folder.load(child_session_id(state.session_id, n))
                if child is not None:
                    used |= await self._used(assembly, child)
        return used

    async def seed(self, assembly: Assembly, session_id: str, files: Mapping[str, Json]) -> None:
        """Write input files before a turn; the log holds them like any file (05 §7)."""
        async with self.folder.hold(session_id):
            state, log = await self.folder.open(session_id, assembly.spec.slug)
            rec = Recorder(state, log, EventStream(None))
            try:
                await seed_files(session_files(state, log, rec), files, assembly.wiring.mount_table)
            finally:
                await rec.end({"kind": "seeded"})

    async def _run_children(
        self, assembly: Assembly, calls: Sequence[Mapping[str, Any]], options: TurnOptions
    ) -> list[JsonObject]:
        room = asyncio.Semaphore(assembly.bounds.max_concurrent)

        async def one(call: Mapping[str, Any]) -> JsonObject:
            async with room:
                return await self._run_child(assembly, call, options)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(call)) for call in calls]
        return [task.result() for task in tasks]

    async def _run_child(
        self, assembly: Assembly, call: Mapping[str, Any], options: TurnOptions
    ) -> JsonObject:
        try:
            child = assembly.child(call["workflow"])
            _, answer = await self.run(child, call["child"], call["input"], options)
        except Exception as error:
            return {
                "kind": "refused",
                "turn": call["n"],
                "reason": str(error),
                "code": getattr(error, "code", "turn-error"),
            }
        assert answer is not None
        return answer
