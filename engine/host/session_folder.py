"""Sessions on an object store, as one process of the library or the command reads and drives them.

The same objects as the fleet's (`storage.local`), one process at a time by a file lock where the store is a directory. A
turn of a local process that died is settled `failed`, `turn-error`; one in a fleet's hands is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from engine.errors import SessionNotResumableError
from engine.session.outcome import outcome_of
from engine.session.state import RECORD_VERSION, SessionState
from engine.session.state_cache import HistoryKey, StateCache
from engine.turn.ports import Stop
from storage.keys import decode_segment, encode_segment
from storage.local import (
    LOCAL,
    FileHolds,
    HeldByFleet,
    HeldLocally,
    Holds,
    LocalSession,
    ProcessHolds,
    SessionDeleted,
)
from storage.logstore import LogStore
from storage.objects import ObjectStore
from storage.records import Head
from storage.sessionlog import HeadMoved, OpenLog, SessionLog

WORKER_LOST = "worker lost"


class LocalTurnLog:
    """One locally driven turn (the `TurnLog` port)."""

    def __init__(self, local: LocalSession, log: OpenLog) -> None:
        self._local, self._log = local, log
        self.session_id, self.turn = log.session, log.turn
        self.ended = False

    @property
    def next_key(self) -> HistoryKey:
        """What the session's state is the history of once this turn has ended."""
        return self._log.session, self._log.head.life, self._log.turn + 1

    async def commit(self, record: JsonObject) -> None:
        await self._log.commit(record)

    async def end(self, record: JsonObject, outcome: JsonObject) -> None:
        ended = await self._log.end(record, outcome)
        self.ended = True
        await self._local.close(self._log, ended)

    async def suspend(self, record: JsonObject, calls: Sequence[JsonObject], width: int) -> None:
        # the driver of this very process runs the children: an ordinary step, the fold knows it waits
        await self._log.commit(record)

    async def put_blob(self, body: bytes) -> str:
        return await self._log.put_blob(body)

    async def get_blob(self, name: str) -> bytes | None:
        return await self._log.get_blob(name)

    def stop(self) -> Stop | None:
        return None

    async def interrupted(self) -> Stop:
        await asyncio.Event().wait()
        raise AssertionError


@dataclass(frozen=True)
class Look:
    """A session as it was read before a turn of it: its state, None when it has not run, and its head if at rest."""

    state: SessionState | None
    found: tuple[Head | None] | tuple[()] = ()


class SessionFolder:
    """Every session of one store."""

    def __init__(self, store: ObjectStore, *, lock_root: Path | None = None) -> None:
        self.files = LogStore(store)
        self._holds: Holds = ProcessHolds() if lock_root is None else FileHolds(lock_root / ".locks")
        self._held: set[str] = set()
        self._states = StateCache()
        self._specs: set[str] = set()

    # -- reading -------------------------------------------------------------------------------------------------

    async def head(self, session_id: str) -> Head | None:
        head = await SessionLog(self.files, session_id).head()
        return None if head is None or head.deleted else head

    async def load(self, session_id: str) -> SessionState | None:
        """The session's state as of its last ended turn, plus what its open turn has committed. None: it has not run."""
        log = SessionLog(self.files, session_id)
        head = await log.head()
        if head is None or head.deleted:
            return None
        return await fold_session(log, head)

    async def look(self, session_id: str) -> Look:
        """As `load`, for a look before anything else runs: the next turn may change the state it returns."""
        log = SessionLog(self.files, session_id)
        head = await log.head()
        if head is None:
            return Look(None, (None,))
        if head.deleted:
            return Look(None)
        if await log.over(head) is None:
            return Look(await fold_session(log, head))
        # nothing is waited for from here on: another task's turn may take the state that is kept
        held = self._states.get((session_id, head.life, head.turn + 1))
        return Look(held if held is not None else await fold_session(log, head), (head,))

    async def session_ids(self) -> AsyncIterator[str]:
        """Every session with a head, in key order."""
        last: str | None = None
        async for listed in self.files.store.list(""):
            segment, _, rest = listed.key.partition("/")
            if segment.startswith("_") or segment == last or not rest.startswith("checkpoints/"):
                continue
            last = segment
            session_id = decode_segment(segment)
            if session_id is None:  # a shortened id: its head says it in full
                head = await self.files.store.get(f"{segment}/checkpoints/head")
                session_id = Head.read("", head.body, head.etag, head.modified_ms).session if head else None
            if session_id is not None:
                yield session_id

    async def put_spec(self, spec_hash: str, body: bytes) -> None:
        """Keep the document a turn runs under, unless it is there (05 §3). Asked of the store once."""
        if spec_hash not in self._specs:
            await self.files.store.put(f"_specs/{spec_hash}.json", body, if_absent=True)
            self._specs.add(spec_hash)

    async def get_spec(self, spec_hash: str) -> bytes | None:
        found = await self.files.store.get(f"_specs/{encode_segment(spec_hash)}.json")
        return found.body if found is not None else None

    # -- driving -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def hold(self, session_id: str) -> AsyncGenerator[None]:
        """One writer per session, refused at once. Raises: `SessionNotResumableError`."""
        try:
            async with self._holds.hold(session_id):
                self._held.add(session_id)
                try:
                    yield
                finally:
                    self._held.discard(session_id)
        except HeldLocally as refused:
            raise SessionNotResumableError(session_id, "running", str(refused)) from refused

    def holds(self, session_id: str) -> bool:
        """Whether this process is at work on the session."""
        return session_id in self._held

    async def require_idle(self, session_id: str) -> None:
        """For the one who holds it. Raises: `SessionNotResumableError` while a fleet has a turn of it, or has accepted one."""
        log = SessionLog(self.files, session_id)
        head = await log.head()
        if head is not None and head.deleted:
            return
        if head is not None and head.by != LOCAL and await log.over(head) is None:
            raise SessionNotResumableError(session_id, "running", "its turn is in a fleet's hands")
        prefix, last = log.keys.inbox_prefix, 0 if head is None else head.turn
        for listed in await self.files.listing(prefix):
            n = int(listed.key.removeprefix(prefix))
            entry = await log.entry(n) if n > last else None
            if entry is not None and entry.kind != LOCAL:
                raise SessionNotResumableError(session_id, "running", "a fleet has accepted a turn of it")

    async def open(
        self, session_id: str, workflow: str, look: Look | None = None
    ) -> tuple[SessionState, LocalTurnLog]:
        """Claim the session's next turn; the caller holds it and may have looked. Raises: `SessionNotResumableError`."""
        local = LocalSession(self.files, session_id, found=() if look is None else look.found)
        try:
            while True:
                if not local.at_rest:
                    await self._settle_dead(local, workflow)
                try:
                    state = await self._history(local, workflow)
                except HeadMoved:
                    if look is None:
                        raise
                    look, local = None, LocalSession(self.files, session_id)  # what was seen is gone
                    continue
                opened = await local.open(workflow, time.time_ns() // 1_000_000)
                if opened is not None:
                    return state, LocalTurnLog(local, opened)
        except (HeldByFleet, SessionDeleted) as refused:
            raise SessionNotResumableError(session_id, "running", str(refused)) from None

    async def _history(self, local: LocalSession, workflow: str) -> SessionState:
        """The state the session's next turn begins with."""
        key = local.history_key
        state = None if key is None else self._states.take(key)
        if state is None:
            state = SessionState(local.session, workflow)
            for record in await local.history():
                state.apply_record(record)
        return state

    def keep(self, state: SessionState, log: LocalTurnLog) -> None:
        """Remember the state an ended turn left, for the session's next one. The caller changes it no more."""
        if log.ended:
            self._states.put(log.next_key, state)

    async def _settle_dead(self, local: LocalSession, workflow: str) -> None:
        """End a turn whose local process died; one a fleet holds is not ours to touch (ruling 11)."""
        dead = await local.dead_turn()
        if dead is None:
            return
        state = SessionState(local.session, workflow)
        for record in [*await dead.history(), *dead.records]:
            state.apply_record(record)
        record = lost_record(state, dead.turn)
        await LocalTurnLog(local, dead).end(record, outcome_of(state).to_json())


def lost_record(
    state: SessionState, turn: int, *, code: str = "turn-error", reason: str = WORKER_LOST
) -> JsonObject:
    """Fold and return the record that ends a turn whose process is gone."""
    changes: list[JsonObject] = []
    if state.turn < turn:
        changes.append({"t": "resume", "turn": turn, "disposition": "turn"})
    changes.append({"t": "fail", "code": code, "reason": reason})
    for change in changes:
        state.apply(change)
    return {"v": RECORD_VERSION, "at": time.time_ns() // 1_000_000, "changes": changes}


def refused_record(state: SessionState, turn: int, refusal: ArchmaxError) -> JsonObject:
    """Fold and return the record of a turn that is refused before it opens: the session stays as it was."""
    problem: JsonObject = {"code": refusal.code, "message": str(refusal)}
    change: JsonObject = {"t": "refuse", "turn": turn, "disposition": "turn", "problem": problem}
    state.apply(change)
    return {"v": RECORD_VERSION, "at": time.time_ns() // 1_000_000, "changes": [change]}


async def fold_session(log: SessionLog, head: Head) -> SessionState:
    """Fold every record the head leads to, the open turn's included."""
    state = SessionState(log.session, head.workflow)
    for record in await log.history(head):
        state.apply_record(record)
    ended = await log.over(head)
    records: Sequence[Any] = (
        ended.records
        if ended is not None
        else [o.record for o in (await log.read_chain(head)).objects if o.record is not None]
    )
    for record in records:
        state.apply_record(record)
    return state
