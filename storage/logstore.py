"""Conditional writes with three answers, and reads that ride out a short outage (docs/protocol.md §1).

A write is stored, refused, or *unknown*: its reply was lost, or a client's silent retry met its own first attempt. The
answer to unknown is to read the key again and look for the write's own id. Whoever learns that way that the write is
there must prove, before going on, that it still holds the turn: `Landed.lost` says so.
"""

from __future__ import annotations

import asyncio
import sys
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from core import jsontext
from core.ids import fresh_id
from storage.objects import EtagAfterLoss, ListedObject, ObjectStore, StoredObject, StoreUnavailable
from storage.records import EndedTurn, LogObject

T = TypeVar("T")

#: tries of one operation, and the first pause between them in seconds (doubled each time)
TRIES = 5
PAUSE_SECONDS = 0.05
#: requests one gathering keeps in flight
_IN_FLIGHT = 32


class StoreClock(Protocol):
    """The process's own clock. It counts while the machine is suspended, and only differences mean anything."""

    def monotonic_ms(self) -> int: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The kernel's boot clock where there is one."""

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Gather(Protocol):
    """Runs jobs, at once if it can, and returns their results in order."""

    async def __call__(self, jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]: ...


async def gather_bounded(jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """On the running event loop, a bounded number at a time. The first error ends the rest."""
    if len(jobs) == 1:
        return [await jobs[0]()]
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def one(job: Callable[[], Awaitable[T]]) -> T:
        async with room:
            return await job()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(job)) for job in jobs]
    except BaseExceptionGroup as failures:
        # Callers tell errors apart by their class, as if they had asked one after the other.
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


@dataclass(frozen=True, slots=True)
class Landed:
    """The write is there. `lost`: a reply was lost on the way, so others may have acted on it already."""

    etag: str
    lost: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another write is there; None where the object is gone."""

    found: StoredObject | None


def held_bytes(thing: object) -> int:
    """About what a value read from JSON, or a record of such values, takes in memory. Names of fields are shared."""
    total = 0
    rest: list[Any] = [thing]
    for one in rest:  # grows while it is gone through
        total += sys.getsizeof(one)
        kind = type(one)
        if kind is dict:
            rest += one.values()
        elif kind is list or kind is tuple:
            rest += one
        elif kind is not str and kind is not int:
            rest += [getattr(one, name) for name in getattr(kind, "__slots__", ())]
    return total


class Recent(Generic[T]):
    """Immutable things by the key they were read from, so a hit is never stale. Bounded in the memory they take."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._held: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def get(self, key: str) -> T | None:
        held = self._held.get(key)
        if held is None:
            return None
        self._held.move_to_end(key)
        return held[1]

    def drop(self, key: str) -> int:
        """Forget it. Returns: the bytes it took; 0 when it was not held."""
        size, _ = self._held.pop(key, (0, None))
        self._bytes -= size
        return size

    def put(self, key: str, thing: T, size: int = 0) -> None:
        """`size`: what it takes, where that is known already."""
        if key in self._held:
            return
        size = size or held_bytes(thing)
        if size > self._max_bytes:
            return
        self._held[key] = (size, thing)
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, (dropped, _) = self._held.popitem(last=False)
            self._bytes -= dropped


class LogStore:
    """An object store as the protocol uses it, with what a process shares among its sessions."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: StoreClock | None = None,
        new_id: Callable[[], str] = fresh_id,
        gather: Gather = gather_bounded,
        cache_bytes: int = 24 * 1024 * 1024,
    ) -> None:
        self.store = store
        self.clock: StoreClock = clock or SystemClock()
        self.new_id = new_id
        self.gather = gather
        #: ended turns by the `end/` or `seg/` object they are in
        self.ends: Recent[tuple[EndedTurn, ...]] = Recent(cache_bytes)
        #: suspensions by the log object that holds them
        self.suspensions: Recent[LogObject] = Recent(cache_bytes // 4)

    async def read(self, key: str) -> StoredObject | None:
        """Raises: `StoreUnavailable` after several tries."""
        pause = PAUSE_SECONDS
        for _ in range(TRIES - 1):
            try:
                return await self.store.get(key)
            except StoreUnavailable:
                await self.clock.sleep(pause)
                pause *= 2
        return await self.store.get(key)

    async def create(
        self, key: str, body: bytes, w: str, *, mine: Callable[[bytes], bool] | None = None
    ) -> Landed | Conflict:
        """Write `key` if it is absent. `mine` tells an own earlier write; by default its `w` does.

        Raises: `StoreUnavailable` when the outcome stays unknown; the write may still land later.
        """
        return await self._write(key, body, None, mine or (lambda found: _write_id(found) == w))

    async def replace(self, key: str, body: bytes, w: str, etag: str) -> Landed | Conflict:
        """Write `key` if it is still at `etag`. Raises: as `create`."""
        return await self._write(key, body, etag, lambda found: _write_id(found) == w)

    async def _write(
        self, key: str, body: bytes, etag: str | None, mine: Callable[[bytes], bool]
    ) -> Landed | Conflict:
        lost = False
        pause = PAUSE_SECONDS
        problem = StoreUnavailable("put", key, "no clear answer")
        for attempt in range(TRIES):
            if attempt:
                await self.clock.sleep(pause)
                pause *= 2
            try:
                stored = await self.store.put(key, body, if_absent=etag is None, if_match=etag)
                if stored is not None:
                    return Landed(stored, lost or isinstance(stored, EtagAfterLoss))
            except StoreUnavailable as lost_reply:
                problem = lost_reply
            # Unknown, or refused: by another's write or by my own one, whose reply a client's retry swallowed.
            lost = True
            try:
                found = await self.store.get(key)
            except StoreUnavailable as lost_reply:
                problem = lost_reply
                continue
            if found is None:
                if etag is None:
                    continue
                return Conflict(None)
            if mine(found.body):
                return Landed(found.etag, lost=True)
            if found.etag != etag:
                return Conflict(found)
        raise problem

    async def listing(
        self, prefix: str, *, after: str | None = None, until: str | None = None
    ) -> list[ListedObject]:
        """All objects below `prefix`, behind `after` and before `until`. One that breaks goes on behind its last key."""
        listed: list[ListedObject] = []
        for attempt in range(TRIES):
            try:
                async for item in self.store.list(prefix, after=listed[-1].key if listed else after):
                    if until is not None and item.key >= until:
                        return listed
                    listed.append(item)
                return listed
            except StoreUnavailable:
                if attempt == TRIES - 1:
                    raise
                await self.clock.sleep(PAUSE_SECONDS * 2**attempt)
        return listed

    async def delete(self, keys: Iterable[str]) -> None:
        """Raises: `StoreUnavailable` after several tries; some keys may be gone then."""
        wanted = list(dict.fromkeys(keys))
        if not wanted:
            return
        for attempt in range(TRIES):
            try:
                await self.store.delete(wanted)
                return
            except StoreUnavailable:
                if attempt == TRIES - 1:
                    raise
                await self.clock.sleep(PAUSE_SECONDS * 2**attempt)


def _write_id(body: bytes) -> str | None:
    """The `w` of a body, whatever its format; None when it has none."""
    try:
        value = jsontext.loads(body if body[:1] == b"{" else zlib.decompress(body))
    except (ValueError, zlib.error):
        return None
    w = value.get("w") if isinstance(value, dict) else None
    return w if isinstance(w, str) else None
