"""Reading: what became of a turn, and where a session stands (docs/protocol.md §11). Nothing here writes.

A reader derives everything from the objects, in an order in which they cannot mislead it: the head first, then what it
names. Where the head turns out to be old it is read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from core.jsontext import JsonObject
from storage.records import EndedTurn, Head, InboxEntry
from storage.sessionlog import Chain, HeadMoved, SessionLog
from worker.protocol.errors import SessionGone, TurnUnknown
from worker.protocol.fleet import Fleet

T = TypeVar("T")

#: reads of a head that keeps moving
_LOOKS = 20


class TurnStatus(StrEnum):
    QUEUED = "queued"  #: accepted; its turn has not come
    RUNNING = "running"  #: opened and not over
    SUSPENDED = "suspended"  #: its children are at work
    ENDED = "ended"  #: over; `end` says how
    GONE = "gone"  #: its session was deleted


@dataclass(frozen=True, slots=True)
class TurnView:
    """`entry` is there until two minutes after the end; `end` once the turn is over; `records` so far, while it is open."""

    session: str
    turn: int
    status: TurnStatus
    entry: InboxEntry | None = None
    end: EndedTurn | None = None
    records: tuple[JsonObject, ...] = ()
    fence: int = 0


@dataclass(frozen=True, slots=True)
class SessionView:
    """Where a session stands. `status` is its newest opened turn's; None before the first is opened."""

    session: str
    head: Head | None
    status: TurnStatus | None
    end: EndedTurn | None

    @property
    def deleted(self) -> bool:
        return self.head is not None and self.head.deleted


async def read_turn(fleet: Fleet, session: str, n: int) -> TurnView:
    """Raises: `TurnUnknown`."""
    log = fleet.log(session)
    return await _steady(lambda: _turn(log, n))


async def read_session_head(fleet: Fleet, session: str) -> SessionView:
    """Where `session` stands now, at the cost of two or three reads."""
    log = fleet.log(session)

    async def look() -> SessionView:
        head = await log.head()
        if head is None:
            return SessionView(session, None, None, None)
        if head.deleted:
            return SessionView(session, head, TurnStatus.GONE, None)
        end = await log.over(head)
        if end is not None:
            return SessionView(session, head, TurnStatus.ENDED, end)
        chain = await log.read_chain(head)
        return SessionView(session, head, _open_status(chain), None)

    return await _steady(look)


async def read_history(fleet: Fleet, session: str) -> tuple[Head | None, list[JsonObject]]:
    """All records of a session up to now, those of an open turn included. Raises: `SessionGone`."""
    log = fleet.log(session)

    async def look() -> tuple[Head | None, list[JsonObject]]:
        head = await log.head()
        if head is None:
            return None, []
        if head.deleted:
            raise SessionGone(session)
        records = await log.history(head)
        end = await log.over(head)
        if end is not None:
            return head, [*records, *end.records]
        chain = await log.read_chain(head)
        return head, [*records, *(o.record for o in chain.objects if o.record is not None)]

    return await _steady(look)


async def pending(fleet: Fleet, session: str) -> list[int]:
    """Numbers accepted and not yet opened, in order."""
    log = fleet.log(session)
    head = await log.head()
    after = log.keys.inbox(head.turn) if head is not None else None
    listed = await fleet.files.listing(log.keys.inbox_prefix, after=after)
    return [int(item.key.removeprefix(log.keys.inbox_prefix)) for item in listed]


async def _turn(log: SessionLog, n: int) -> TurnView:
    head = await log.head()
    if head is not None and head.deleted:
        return TurnView(log.session, n, TurnStatus.GONE)
    if head is None or n > head.turn:
        entry = await log.entry(n)
        if entry is not None:
            return TurnView(log.session, n, TurnStatus.QUEUED, entry)
        again = await log.head()
        if again != head:
            raise HeadMoved(log.session)
        raise TurnUnknown(log.session, n)
    if n < 1:
        raise TurnUnknown(log.session, n)
    end = await log.ended(head, n)
    if end is not None:
        return TurnView(log.session, n, TurnStatus.ENDED, end=end, records=end.records, fence=end.fence)
    chain = await log.read_chain(head)
    records = tuple(o.record for o in chain.objects if o.record is not None)
    entry = await log.entry(n)
    return TurnView(log.session, n, _open_status(chain), entry, records=records, fence=head.fence)


def _open_status(chain: Chain) -> TurnStatus:
    return TurnStatus.SUSPENDED if chain.suspension is not None else TurnStatus.RUNNING


async def _steady(look: Callable[[], Awaitable[T]]) -> T:
    """Look again where the head moved under the reader."""
    for _ in range(_LOOKS - 1):
        try:
            return await look()
        except HeadMoved:
            continue
    return await look()
