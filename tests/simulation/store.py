"""An object store with faults, in virtual time. The server is one; each process talks to it through its own client."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from storage.keys import check_key
from storage.objects import ListedObject, StoredObject, StoreUnavailable
from tests.simulation.faults import Faults
from tests.simulation.scheduler import Process, Request, Scheduler, Task

#: the store's own clock at virtual time 0, epoch milliseconds
EPOCH = 1_700_000_000_000


class Server:
    """The objects. `watch_put` and `watch_delete` see every change right after it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.objects: dict[str, StoredObject] = {}
        self.keys: list[str] = []
        self.watch_put: Callable[[str, StoredObject | None, bytes], None] = lambda key, old, new: None
        self.watch_get: Callable[[Task | None, str], None] = lambda reader, key: None
        self.watch_delete: Callable[[str, StoredObject], None] = lambda key, old: None
        #: bodies whose sender was not told what became of them
        self.unclear: set[bytes] = set()

    def put(self, key: str, body: bytes, if_absent: bool, if_match: str | None) -> str | None:
        current = self.objects.get(key)
        if if_absent and current is not None:
            return None
        if if_match is not None and (current is None or current.etag != if_match):
            return None
        if current is None:
            insort(self.keys, key)
        etag = hashlib.sha1(body).hexdigest()
        self.objects[key] = StoredObject(body, etag, EPOCH + self.scheduler.now)
        self.watch_put(key, current, body)
        return etag

    def below(self, prefix: str, after: str | None = None) -> Iterator[str]:
        for index in range(bisect_left(self.keys, max(prefix, after or "")), len(self.keys)):
            key = self.keys[index]
            if not key.startswith(prefix):
                return
            if after is None or key > after:
                yield key

    def listing(self, prefix: str, after: str | None) -> list[ListedObject]:
        found: list[ListedObject] = []
        for key in self.below(prefix, after):
            stored = self.objects[key]
            found.append(ListedObject(key, len(stored.body), stored.modified_ms))
        return found

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            old = self.objects.pop(key, None)
            if old is not None:
                del self.keys[bisect_left(self.keys, key)]
                self.watch_delete(key, old)


class Client:
    """The store as one process sees it."""

    def __init__(self, server: Server, process: Process, faults: Callable[[], Faults]) -> None:
        self._server = server
        self._process = process
        self._faults = faults
        self.requests: Counter[str] = Counter()

    async def get(self, key: str) -> StoredObject | None:
        check_key(key)
        reader = self._server.scheduler.current

        def look() -> StoredObject | None:
            self._server.watch_get(reader, key)
            return self._server.objects.get(key)

        return await self._ask("get", key, look)

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        check_key(key)
        server, faults, chance = self._server, self._faults(), self._server.scheduler.random

        def once() -> str | None:
            return server.put(key, body, if_absent, if_match)

        def twice() -> str | None:
            once()
            return once()

        if chance.random() < faults.late:
            server.unclear.add(body)
            there, back = self._latency(), self._latency()
            late = there + chance.choice((50, 1_000, 15_000))
            return await Request(once, there, back, self._unavailable("put", key), late=late)
        if chance.random() < faults.doubled:
            server.unclear.add(body)
            return await self._ask("put", key, twice)
        return await self._ask("put", key, once, body)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        for item in await self._ask("list", prefix, lambda: self._server.listing(prefix, after)):
            yield item

    async def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        await self._ask("delete", wanted[0], lambda: self._server.delete(wanted))

    async def close(self) -> None:
        return None

    async def _ask(self, kind: str, key: str, act: Callable[[], Any], body: bytes | None = None) -> Any:
        self.requests[kind] += 1
        faults, chance = self._faults(), self._server.scheduler.random
        there, back = self._latency(), self._latency()
        dice = chance.random()
        if dice < faults.refused:
            return await Request(None, there, back, self._unavailable(kind, key))
        if dice < faults.refused + faults.lost_reply:
            if body is not None:
                self._server.unclear.add(body)
                if chance.random() < faults.stunned:
                    awake = self._server.scheduler.now + chance.choice((3_000, 30_000, 200_000))
                    self._process.freeze(awake)
            return await Request(act, there, back, self._unavailable(kind, key))
        return await Request(act, there, back)

    def _latency(self) -> int:
        chance = self._server.scheduler.random.random
        return int(1 + chance() * self._faults().latency) * (50 if chance() < 0.01 else 1)

    def _unavailable(self, kind: str, key: str) -> StoreUnavailable:
        return StoreUnavailable(kind, key, "simulated")
