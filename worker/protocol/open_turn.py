"""The open turn: what the protocol hands the engine, and takes back (docs/protocol.md §3, §5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from storage.records import EndedTurn, Head, InboxEntry, LogObject
from storage.sessionlog import OpenLog
from worker.ports import Lease, Stop
from worker.protocol.fleet import Fleet

#: how often the stored input is read again for a cancel whose hint was lost
LOOK_MS = 10_000


class TurnMisuse(ArchmaxError):
    """The runner broke its promise: one `end` or one `suspend`, and nothing after it."""

    code: ClassVar[str] = "turn-misuse"


class OpenTurn:
    """One claimed turn. Every method that writes raises `TurnFenced` when another has taken over."""

    def __init__(
        self,
        fleet: Fleet,
        lease: Lease,
        log: OpenLog,
        *,
        joined: list[JsonObject] | None,
        told: bool = False,
        cancel: str | None,
    ) -> None:
        #: the answers of a suspension that resumes now, in call order: `{session, n, outcome}` each. The next commit is
        #: the join; an end or a suspension before it joins without a record of the engine's. `told`: a worker that died
        #: joined like that, so the engine has not seen the answers and the log has.
        self.joined = joined
        self.ended: EndedTurn | None = None
        self.suspended: LogObject | None = None
        self._log = log
        self._fleet = fleet
        self._lease = lease
        self._unjoined = None if told else joined
        self._cancel = log.entry.cancel or cancel
        self._looked_ms = fleet.clock.monotonic_ms()

    @property
    def session_id(self) -> str:
        return self._log.session

    @property
    def life(self) -> str:
        return self._log.head.life

    @property
    def turn(self) -> int:
        return self._log.turn

    @property
    def fence(self) -> int:
        return self._log.fence

    @property
    def position(self) -> int:
        """Objects committed under this fence."""
        return self._log.position

    @property
    def workflow(self) -> str:
        return self._log.head.workflow

    @property
    def entry(self) -> InboxEntry:
        """The accepted input: kind, input, parent, …"""
        return self._log.entry

    @property
    def attempts(self) -> int:
        """Which attempt at the next step this is, from 1."""
        return self._log.attempts

    @property
    def spent_ms(self) -> int:
        """The turn's active time so far, over all workers that had it."""
        return self._log.spent_ms

    @property
    def records(self) -> list[JsonObject]:
        """The engine's records of this turn so far, over all fences."""
        return self._log.records

    @property
    def history_key(self) -> tuple[str, str, int]:
        """Names what `history` returns: the records of turns before this one never change within a life."""
        return self.session_id, self.life, self.turn

    @property
    def head(self) -> Head:
        return self._log.head

    async def history(self) -> list[JsonObject]:
        """All records of the session's earlier turns, in order."""
        return await self._log.history()

    async def commit(self, record: JsonObject) -> None:
        """Durable when it returns."""
        self._check_open()
        if self._unjoined is not None:
            o = await self._log.join(record, self._unjoined)
            self._unjoined = None
        else:
            o = await self._log.commit(record)
        await self._fleet.notices.committed(self.session_id, self.turn, o)
        await self._look_for_cancel()

    async def end(
        self, record: JsonObject | None, outcome: JsonObject, dues: Sequence[JsonObject] = ()
    ) -> None:
        """The turn's outcome, with its last record. `dues`: see `worker.protocol.dues`."""
        self._check_open()
        await self._join_silently()
        self.ended = await self._log.end(record, outcome, dues)

    async def suspend(self, record: JsonObject, calls: Sequence[JsonObject], width: int) -> None:
        """Let go of the turn until its children have ended.

        A call is `{child, n, workflow, kind, input}`: the child's session id and the number of its turn there. `width`
        of them run at a time.
        """
        self._check_open()
        await self._join_silently()
        self.suspended = await self._log.suspend(record, calls, max(1, width))
        await self._fleet.notices.committed(self.session_id, self.turn, self.suspended)

    async def put_blob(self, body: bytes) -> str:
        return await self._log.put_blob(body)

    async def get_blob(self, name: str) -> bytes | None:
        return await self._log.get_blob(name)

    def stop(self) -> str | None:
        """Asked between steps: a `Stop` or the text of a cancel's reason; None to go on."""
        if self._cancel is None:
            self._cancel = self._lease.cancelled(self.turn)
        if self._cancel is not None:
            return self._cancel
        if self._fleet.draining():
            return Stop.DRAIN
        # A step that starts after a freeze may be one that a successor has committed meanwhile.
        if self._lease.lost() or self._lease.froze_since(self._log.proven_ms):
            return Stop.LEASE_LOST
        return None

    def _check_open(self) -> None:
        if self.ended is not None or self.suspended is not None:
            raise TurnMisuse(f"turn {self.session_id}.{self.turn} was already ended or suspended")

    async def _join_silently(self) -> None:
        if self._unjoined is not None:
            await self._log.join(None, self._unjoined)
            self._unjoined = None

    async def _look_for_cancel(self) -> None:
        now = self._fleet.clock.monotonic_ms()
        if self._cancel is not None or now - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now
        entry = await self._log.log.entry(self.turn)
        if entry is not None and entry.id == self.entry.id:
            self._cancel = entry.cancel
