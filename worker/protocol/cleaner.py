"""The cleaner: removes what ended turns leave behind, in few requests (docs/protocol.md §6, "Tidy").

Log records and join markers may go at once, the inbox entry at last, and no sooner than `KEEP_MS` after this process saw
the turn over, by its own clock. What a process forgets when it dies is found again through the inbox entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from storage.limits import KEEP_MS, SEAL_MS
from storage.logstore import LogStore

#: keys of one pass; a store takes 1,000 in one request
_BATCH = 1_000


class Cleaner:
    def __init__(self, files: LogStore) -> None:
        self._files = files
        self._now: deque[str] = deque()
        self._later: deque[tuple[int, str]] = deque()

    def remove(self, keys: Iterable[str]) -> None:
        """At the next pass."""
        self._now.extend(keys)

    def remove_entry(self, key: str) -> None:
        """An inbox entry whose turn is over and whose other litter has been handed to `remove` before."""
        self._later.append((self._files.clock.monotonic_ms() + KEEP_MS, key))

    @property
    def waiting(self) -> int:
        """Keys not yet removed."""
        return len(self._now) + len(self._later)

    async def run_once(self) -> None:
        """Remove what may go now. Entries only after everything handed over before them is gone.

        Raises: `StoreUnavailable`; what was not removed waits for the next pass.
        """
        while self._now:
            batch = list(islice(self._now, _BATCH))
            await self._files.delete(batch)
            for _ in batch:
                self._now.popleft()
        due: list[str] = []
        now = self._files.clock.monotonic_ms()
        while self._later and self._later[0][0] <= now and len(due) < _BATCH:
            since, key = self._later.popleft()
            # After a freeze that long the key may be another life's. The inbox is listed anyway.
            if now - since < SEAL_MS // 2:
                due.append(key)
        try:
            await self._files.delete(due)
        except Exception:
            self._later.extendleft((now, key) for key in reversed(due))
            raise
