"""`agent.sessions`: what the store knows of every session, and the few things a host does to one between turns (05 §7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from core.jsontext import Json, JsonObject
from engine.host.driver import InlineDriver
from engine.host.session_folder import SessionFolder
from engine.host.stores import SessionStore
from engine.session.messages import to_langchain
from engine.session.outcome import summary_of
from engine.session.state import SessionState
from engine.turn.assembly import Assembly
from engine.workspace.seed import SeedPathError, seedable_problem
from engine.workspace.session_id import require_session_id
from storage.layout import INBOX, SessionKeys

#: the summaries of a listing (a name of its own: `list` is a method below)
Listing: TypeAlias = list[JsonObject]


class Sessions:
    """The sessions of one agent's store."""

    def __init__(
        self,
        assembly: Assembly,
        folder: SessionFolder,
        driver: InlineDriver,
        store: SessionStore | None,
        release: Callable[[str], None],
    ) -> None:
        """`store` says what may be asked of it; without one everything may. `release` frees what a session held."""
        self._assembly, self._folder, self._driver = assembly, folder, driver
        self._store, self._release = store, release

    async def list(self) -> Listing:
        """A summary per session; empty when the store cannot list. One that cannot be read is left out, never a failure."""
        found: Listing = []
        if self._store is not None and not self._store.can_list:
            return found
        async for session_id in self._folder.session_ids():
            try:
                state = await self._folder.load(session_id)
            except Exception:  # noqa: S112 - a damaged session must not hide the others
                continue
            if state is not None and state.turn > 0:
                found.append(self._summary(state))
        return found

    async def get(self, session_id: str) -> JsonObject | None:
        """The summary of a session, None when it has not run."""
        state = await self._folder.load(session_id)
        return None if state is None or state.turn == 0 else self._summary(state)

    def _summary(self, state: SessionState) -> JsonObject:
        summary = summary_of(state)
        if self._assembly.plain:  # its one state and its trigger are the runtime's own
            for name in ("workflowState", "state", "specHash", "variables"):
                summary.pop(name, None)
        return summary

    async def state(self, session_id: str) -> SessionState | None:
        return await self._folder.load(session_id)

    async def message_count(self, session_id: str) -> int:
        """The length of the transcript as `Outcome.messages` has it: a cursor for `messages_since`."""
        state = await self._folder.load(session_id)
        if state is None:
            return 0
        return sum(len(to_langchain(message)) for message in state.messages)

    async def delete(self, session_id: str, *, children: bool = False) -> bool:
        """Remove the session's folder; `children` removes its descendants too. False when there was none.

        Raises: `SessionStoreIdError`, `SessionStoreCapabilityError`, `SessionNotResumableError` while a turn runs.
        """
        session_id = require_session_id(session_id, self._assembly.mounts)
        if self._store is not None:
            self._store.require("delete")
        keys = SessionKeys(session_id)
        async with self._folder.hold(session_id):
            await self._folder.require_idle(session_id)
            store = self._folder.files.store
            # their numbers, before anything else: what is left would be taken for a dead turn of the next session
            numbers = [listed.key async for listed in store.list(keys.inbox_prefix)]
            if children:
                numbers += [listed.key async for listed in store.list(f"{INBOX}{keys.descendants}")]
            await store.delete(numbers)
            if self._store is not None and self._store.delete_session is not None:
                removed = await self._store.delete_session(session_id)
            else:
                doomed = [listed.key async for listed in store.list(keys.root)]
                if children:
                    doomed += [listed.key async for listed in store.list(keys.descendants)]
                await store.delete(doomed)
                removed = bool(doomed)
        self._release(session_id)
        return removed

    async def seed(self, session_id: str, files: Mapping[str, Json]) -> None:
        """Write input files before a turn: all paths are checked before any is written.

        Raises: `SessionStoreIdError`, `SeedPathError` naming every bad key, `SessionNotResumableError` while a turn runs.
        """
        known = await self._folder.head(require_session_id(session_id, self._assembly.mounts)) is not None
        session_id = require_session_id(session_id, self._assembly.mounts, new=not known)
        table = self._assembly.wiring.mount_table
        problems = [(path, problem) for path in files if (problem := seedable_problem(path, table))]
        if problems:
            raise SeedPathError(problems)
        await self._driver.seed(self._assembly, session_id, files)
