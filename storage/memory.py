"""The object store in memory: for one process, gone with it. Tests and `archmax test` run on it."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable

from storage.keys import check_key, check_prefix, content_etag
from storage.objects import ListedObject, StoredObject

#: Objects looked at in one step of a listing, as on S3.
PAGE = 1000


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore:
    """`now_ms` is the store's own clock, epoch milliseconds: what `modified_ms` shows."""

    def __init__(self, *, now_ms: Callable[[], int] = _wall_clock_ms) -> None:
        self._objects: dict[str, StoredObject] = {}
        # Kept in key order. An insertion moves pointers, 20 us among 100,000 keys: cheaper than sorting per listing.
        self._keys: list[str] = []
        self._now_ms = now_ms
        #: operations served, by name (`list` counts pages)
        self.requests: Counter[str] = Counter()

    async def get(self, key: str) -> StoredObject | None:
        check_key(key)
        self.requests["get"] += 1
        return self._objects.get(key)

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        check_key(key)
        if if_absent and if_match is not None:
            raise ValueError("a write takes one condition: if_absent or if_match")
        self.requests["put"] += 1
        current = self._objects.get(key)
        if if_absent and current is not None:
            return None
        if if_match is not None and (current is None or current.etag != if_match):
            return None
        if current is None:
            insort(self._keys, key)
        stored = StoredObject(body, content_etag(body), self._now_ms())
        self._objects[key] = stored
        return stored.etag

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        check_prefix(prefix)
        last = check_prefix(after or "")
        while True:
            self.requests["list"] += 1
            start = max(bisect_left(self._keys, prefix), bisect_right(self._keys, last) if last else 0)
            page = [key for key in self._keys[start : start + PAGE] if key.startswith(prefix)]
            for key in page:
                # A listed object may be deleted while the listing is consumed; it is left out then.
                if (stored := self._objects.get(key)) is not None:
                    yield ListedObject(key, len(stored.body), stored.modified_ms)
            if len(page) < PAGE:
                return
            last = page[-1]

    async def delete(self, keys: Iterable[str]) -> None:
        wanted = [check_key(key) for key in keys]
        for start in range(0, len(wanted), PAGE):
            self.requests["delete"] += 1
            for key in wanted[start : start + PAGE]:
                if self._objects.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]

    async def close(self) -> None:
        """Nothing to release; the objects stay until the store is forgotten."""
