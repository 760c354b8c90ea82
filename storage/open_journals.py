"""The journals a process has open: each for one thread at a time, those used longest ago closed first."""

from __future__ import annotations

import contextlib
import itertools
import resource
import threading
from collections import OrderedDict
from collections.abc import Generator, Sequence
from typing import Final

from storage.journal import Gone, Journal, Surroundings

JOURNAL: Final = "@journal"
#: Journals this process keeps open: beyond, each first use of one reads it whole.
_OPEN_JOURNALS = 1024


class NotInPlace(Exception):
    """It takes waiting, for the disk or for another thread."""


class NoJournal(Exception):
    """There is no journal, or not even its folder."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(problem)
        self.problem = problem


class OpenJournals:
    """Those of the store at `base`."""

    def __init__(self, base: str, around: Surroundings) -> None:
        self._base, self._around = base, around
        self._held: OrderedDict[str, Journal] = OrderedDict()
        self._guard = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Whoever uses one at this moment disposes of it. One that is opened later is not kept."""
        with self._guard:
            self._closed = True
            unused = [journal for journal in self._held.values() if not journal.users]
            self._held.clear()
        for journal in unused:
            journal.dispose()

    @contextlib.contextmanager
    def held(self, folder: str, *, create: bool, wait: bool, keep: bool) -> Generator[Journal]:
        """The journal of `folder`, for this thread alone. One that is `Gone` is forgotten. Raises: `NoJournal`."""
        spare: Sequence[Journal] = ()
        with self._guarded(wait):
            journal = self._held.get(folder)
            if journal is not None:
                journal.users += 1
                self._held.move_to_end(folder)
        if journal is None:
            try:
                opened = Journal(f"{self._base}/{folder}/{JOURNAL}", folder, self._around, create=create)
            except (FileNotFoundError, NotADirectoryError) as problem:
                raise NoJournal(problem) from problem
            with self._guarded(wait):
                journal = self._held.get(folder, opened)  # another thread may have been faster
                journal.users += 1
                if journal is opened and keep and not self._closed:
                    self._held[folder] = journal
                    spare = self._unused()
            if journal is not opened:
                opened.dispose()
        for other in spare:
            other.dispose()
        try:
            if not journal.lock.acquire(blocking=wait):
                raise NotInPlace
            try:
                yield journal
            finally:
                journal.lock.release()
        except Gone:
            with self._guard:
                if self._held.get(folder) is journal:
                    del self._held[folder]
            raise
        finally:
            with self._guard:
                journal.users -= 1
                done = not journal.users and self._held.get(folder) is not journal
            if done:
                journal.dispose()

    @contextlib.contextmanager
    def _guarded(self, wait: bool) -> Generator[None]:
        """Hold the list of journals, for a moment. Raises: `NotInPlace` without `wait` when another thread does."""
        if not self._guard.acquire(blocking=wait):
            raise NotInPlace
        try:
            yield
        finally:
            self._guard.release()

    def _unused(self) -> Sequence[Journal]:
        """Take out the journals that were used longest ago, as many as there are too many."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        room = _OPEN_JOURNALS if files == resource.RLIM_INFINITY else min(_OPEN_JOURNALS, files // 4)
        excess = len(self._held) - room
        if excess <= 0:
            return []
        unused = (name for name, one in self._held.items() if not one.users and not one.doubted)
        return [self._held.pop(name) for name in list(itertools.islice(unused, excess))]
