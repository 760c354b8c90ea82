"""The object store in a directory, safe among any number of processes of one machine.

* A session's checkpoints, which are small and many, are records of one journal (`storage.journal`), written without a
  lock. Every other object is a file:
* It is written whole under `@tmp/`, then appears under its key in one step: by `link`, which refuses an existing
  name (create if absent), or by `rename` (replace). Readers never see a part of a body.
* What depends on the object that is there (replace, delete) holds one of a few lock files under `@locks/`.
* `fsync=True` (the default): a write that was answered survives a power cut, its folders included. Removals are not
  forced to disk: one that comes back is removed again by whoever tidies.
* Folders come with the first object in them and go with the last. Names outside the key alphabet are not ours and
  never listed, so people's files may lie beside the objects.

All work is done in a few threads, but for small objects that are in memory: they are read in place, in a tenth of
the time that the way to a thread and back takes. Paths are texts: `pathlib` costs more than most of the system calls here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import heapq
import itertools
import os
import re
import stat
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from core.ids import fresh_id
from storage.filelock import exclusive, waited
from storage.journal import Busy, Gone, Journal, Surroundings
from storage.keys import check_key, check_prefix, content_etag, encode_segment, is_segment
from storage.objects import InvalidKey, ListedObject, StoreConfigurationError, StoredObject, StoreUnavailable
from storage.open_journals import NoJournal, NotInPlace, OpenJournals

T = TypeVar("T")

#: Outside the alphabet of keys, so no object ever lies there.
_TEMPORARY = "@tmp"
_LOCKS = "@locks"
#: The objects of `<any>/checkpoints/` and one folder further down share a journal.
_JOURNALED = re.compile(r"([^/]+/checkpoints)/([^/]+(?:/[^/]+)?)")
_JOURNAL_FOLDER = re.compile(r"[^/]+/checkpoints/")
#: How long a writer waits for a journal that another process has begun to replace.
_REPLACED_SECONDS = 20.0
_REPLACED_PAUSE_SECONDS = 0.005
_LOCK_STRIPES = 64
_PAGE = 1000
_INLINE_BYTES = 64 * 1024
#: A temporary file is linked within moments; one this old was left by a crash.
_ABANDONED_SECONDS = 3600
#: Folders this process knows to be on disk. Forgotten when there are more.
_REMEMBERED_FOLDERS = 10_000
#: How often a write may find its folder just removed before something else is wrong.
_FOLDER_TRIES = 100
_THREADS = 4

#: The file system says no, and will say so again.
_CONFIGURATION = {
    errno.EACCES: "permission denied",
    errno.EPERM: "the file system refuses this (it must support hard links)",
    errno.ENOTDIR: "the root, or a folder above it, is a file",
    errno.EROFS: "the file system is read-only",
    errno.EOPNOTSUPP: "the file system does not support hard links",
    errno.EMLINK: "the file system does not support hard links",
}


class DirectoryStore:
    """Objects under `root`, which is created by the first write."""

    def __init__(self, root: str | os.PathLike[str], *, fsync: bool = True) -> None:
        self.root = Path(root).absolute()
        self._base = str(self.root)
        self._fsync = fsync
        self._durable: set[str] = set()
        self._swept = False
        self._around = Surroundings(fsync, self._sync_folders, self._write_temporary)
        self._journals = OpenJournals(self._base, self._around)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="directory-store")
        #: operations served, by name (`list` counts pages)
        self.requests: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"DirectoryStore({str(self.root)!r})"

    async def get(self, key: str) -> StoredObject | None:
        path = self._path(key)
        self.requests["get"] += 1
        small = self._translated("get", key, lambda: self._get(key, path, in_place=True))
        if small is not _NOT_IN_PLACE:
            return small
        return await self._recorded("get", key, lambda: self._get(key, path))

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        path = self._path(key)
        if if_absent and if_match is not None:
            raise ValueError("a write takes one condition: if_absent or if_match")
        self.requests["put"] += 1
        if journaled := _JOURNALED.fullmatch(key):
            folder, name = journaled.groups()
            return await self._recorded(
                "put",
                key,
                lambda: self._in_journal(
                    folder,
                    lambda journal: journal.put(name, body, if_absent=if_absent, if_match=if_match),
                    create=key if if_match is None else None,
                ),
            )
        if if_absent:
            return await self._recorded("put", key, lambda: self._create(key, path, body))
        return await self._recorded("put", key, lambda: self._replace(key, path, body, if_match))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        check_prefix(prefix)
        recorded = _JOURNAL_FOLDER.match(prefix)
        top = recorded[0] if recorded else prefix[: prefix.rfind("/") + 1]
        found = self._walk(top, prefix, check_prefix(after or ""))
        while True:
            self.requests["list"] += 1
            page = await self._in_thread("list", prefix, lambda: list(itertools.islice(found, _PAGE)))
            for item in page:
                yield item
            if len(page) < _PAGE:
                return

    async def delete(self, keys: Iterable[str]) -> None:
        paths = {key: self._path(key) for key in keys}
        if paths:
            self.requests["delete"] += 1
            await self._recorded("delete", next(iter(paths)), lambda: self._remove(paths))

    async def close(self) -> None:
        self._pool.shutdown(wait=False)
        self._journals.close()

    def exclusive(self, name: str) -> AbstractAsyncContextManager[None]:
        """Hold `name` (any text, such as a session id) among all processes on this directory.

        Raises: `storage.filelock.LockHeld` at once, on entering.
        """
        return exclusive(self.root / _LOCKS / "held" / encode_segment(name))

    # Where things are

    def _path(self, key: str) -> str:
        return f"{self._base}/{check_key(key)}"

    def _lock(self, stripe: int) -> str:
        return f"{self._base}/{_LOCKS}/{stripe:02}"

    def _get(self, key: str, path: str, *, in_place: bool = False) -> StoredObject | None:
        """`in_place`: `_NOT_IN_PLACE` unless it is small and in memory."""
        if not (journaled := _JOURNALED.fullmatch(key)):
            return self._read(path, in_place=in_place)
        folder, name = journaled.groups()
        if not in_place:
            return self._in_journal(folder, lambda journal: journal.get(name))
        try:
            return self._in_journal(folder, lambda journal: _get_in_place(journal, name), wait=False)
        except NotInPlace:
            return _NOT_IN_PLACE

    def _get_above(self, key: str, start: int) -> StoredObject | None:
        """The recorded object that `key`, whose checkpoints' folder ends at `start`, would lie below."""
        parts = key[start:].split("/")
        above = (key[:start] + "/".join(parts[:depth]) for depth in (1, 2))
        return next((found for name in above if (found := self._get(name, ""))), None)

    def _read(self, path: str, *, in_place: bool = False) -> StoredObject | None:
        """As `_read`. Raises: `NotADirectoryError` where the root is a file, so that it does not pass for empty."""
        try:
            return _read(path, in_place=in_place)
        except NotADirectoryError:
            self._require_root()
            return None

    # Journals

    async def _recorded(self, operation: str, key: str, work: Callable[[], T]) -> T:
        """As `_in_thread`. Waits, in no thread, for a journal that another process is replacing."""
        deadline = time.monotonic() + _REPLACED_SECONDS
        while True:
            try:
                return await self._in_thread(operation, key, work)
            except Busy:
                if time.monotonic() > deadline:
                    problem = "another process has begun to replace its journal"
                    raise StoreUnavailable(operation, key, problem) from None
                await asyncio.sleep(_REPLACED_PAUSE_SECONDS)

    def _in_journal(
        self,
        folder: str,
        work: Callable[[Journal], T],
        *,
        create: str | None = None,
        wait: bool = True,
        keep: bool = True,
    ) -> T | None:
        """What `work` returns of the journal of `folder`; None if there is none and it is not made for the key `create`.

        `keep`: leave it open for the next one. Raises: `NotInPlace` without `wait` when something would have to be waited for.
        """
        for _ in range(_FOLDER_TRIES):
            try:
                with self._journals.held(folder, create=create is not None, wait=wait, keep=keep) as journal:
                    return work(journal)
            except Gone:
                continue
            except NoJournal as missing:
                if create is None:
                    if isinstance(missing.problem, NotADirectoryError):
                        self._require_root()
                    return None
                if isinstance(missing.problem, NotADirectoryError):
                    self._require_root()
                    raise InvalidKey(create, "lies below an object") from missing
                whole = f"{self._base}/{folder}"
                self._forget_folders(whole)
                _make_folder(create, whole)
        raise StoreUnavailable("put", folder, "its journal is replaced again and again")

    def _require_root(self) -> None:
        """Raises: `NotADirectoryError` where the root is a file."""
        if os.path.exists(self._base) and not os.path.isdir(self._base):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self._base)

    def _forget_folders(self, folder: str) -> None:
        """Something removed `folder`, so those above it may have been made anew as well."""
        while len(folder) >= len(self._base):
            self._durable.discard(folder)
            folder = os.path.dirname(folder)

    # What runs in a thread

    def _create(self, key: str, path: str, body: bytes) -> str | None:
        temporary = self._write_temporary(body)
        try:
            self._appear(key, path, lambda: os.link(temporary, path))
        except FileExistsError:
            if os.path.isdir(path):
                raise InvalidKey(key, "is the folder of other objects") from None
            return None
        finally:
            _unlink(temporary)
        return content_etag(body)

    def _replace(self, key: str, path: str, body: bytes, if_match: str | None) -> str | None:
        temporary = self._write_temporary(body)
        try:
            with waited(self._lock(_stripe(key))):
                if if_match is not None:
                    current = self._read(path)
                    if current is None or current.etag != if_match:
                        return None
                self._appear(key, path, lambda: os.rename(temporary, path))
        except IsADirectoryError:
            raise InvalidKey(key, "is the folder of other objects") from None
        finally:
            _unlink(temporary)
        return content_etag(body)

    def _appear(self, key: str, path: str, step: Callable[[], None]) -> None:
        """Do `step`, which makes the file `path` appear; make its folder first if it is not there."""
        folder = os.path.dirname(path)
        for _ in range(_FOLDER_TRIES):
            try:
                step()
                break
            except FileNotFoundError:  # no folder yet, or it went with the last object of another's delete
                self._forget_folders(folder)
                if (journaled := _JOURNAL_FOLDER.match(key)) and self._get_above(key, journaled.end()):
                    raise InvalidKey(key, "lies below an object") from None
                _make_folder(key, folder)
            except NotADirectoryError as error:
                raise InvalidKey(key, "lies below an object") from error
        else:
            raise StoreUnavailable("put", key, "its folder is removed again and again")
        if self._fsync:
            self._sync_folders(folder)

    def _sync_folders(self, folder: str) -> None:
        """Force the entry in `folder` to disk, and each folder above it that this process has not seen there."""
        _sync(folder)
        if folder in self._durable:
            return
        if len(self._durable) >= _REMEMBERED_FOLDERS:
            self._durable.clear()
        while folder not in self._durable:
            above = os.path.dirname(folder)
            with contextlib.suppress(PermissionError):  # what holds the root may be another user's
                _sync(above)
            self._durable.add(folder)
            if folder == self._base:
                return
            folder = above

    def _write_temporary(self, body: bytes) -> str:
        folder = f"{self._base}/{_TEMPORARY}"
        if not self._swept:
            self._swept = True
            _remove_abandoned(folder)
        path = f"{folder}/{fresh_id(32)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            descriptor = os.open(path, flags, 0o666)
        try:
            rest = memoryview(body)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self._fsync:
                os.fsync(descriptor)
        except BaseException:
            _unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path

    def _remove(self, paths: dict[str, str]) -> None:
        if not os.path.isdir(self._base):
            return
        by_stripe: dict[int, list[str]] = {}
        by_journal: dict[str, list[str]] = {}
        for key, path in paths.items():
            if journaled := _JOURNALED.fullmatch(key):
                by_journal.setdefault(journaled[1], []).append(journaled[2])
                continue
            by_stripe.setdefault(_stripe(key), []).append(path)
        folders: set[str] = set()
        for folder, names in by_journal.items():
            self._in_journal(folder, functools.partial(Journal.delete, names=names))
            folders.add(f"{self._base}/{folder}")
        for stripe, removals in by_stripe.items():
            with waited(self._lock(stripe)):
                for path in removals:
                    with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                        os.unlink(path)
                        folders.add(os.path.dirname(path))
        # Only now: asking after each file whether its folder is empty costs the folder's length each time.
        for folder in folders:
            self._prune(folder)

    def _prune(self, folder: str) -> None:
        """Remove `folder` and those above it that are empty; a write that needs one makes it again."""
        while folder != self._base:
            try:
                os.rmdir(folder)
            except OSError:
                return
            self._durable.discard(folder)
            folder = os.path.dirname(folder)

    def _walk(self, folder: str, prefix: str, after: str) -> Iterator[ListedObject]:
        """Objects below `folder` ("" or ending in `/`) in key order; holds the names of one folder per level."""
        files = self._walk_files(folder, prefix, after)
        if not _JOURNAL_FOLDER.fullmatch(folder):
            yield from files
            return
        # Not kept open: whoever lists all sessions would push out those in use.
        try:
            recorded = self._in_journal(folder[:-1], Journal.listed, keep=False) or []
        except Busy:  # a listing that breaks is gone on with behind its last key
            raise StoreUnavailable("list", prefix, "a journal is being replaced") from None
        shown = (item for item in recorded if item.key.startswith(prefix) and item.key > after)
        others = (item for item in files if not _JOURNALED.fullmatch(item.key))
        yield from heapq.merge(others, shown, key=lambda item: item.key)

    def _walk_files(self, folder: str, prefix: str, after: str) -> Iterator[ListedObject]:
        entries: list[tuple[str, os.DirEntry[str]]] = []
        try:
            with os.scandir(self.root / folder) as scan:
                for entry in scan:
                    if is_segment(entry.name):
                        is_folder = entry.is_dir(follow_symlinks=False)
                        entries.append((f"{folder}{entry.name}{'/' if is_folder else ''}", entry))
        except FileNotFoundError:
            return
        except NotADirectoryError:
            self._require_root()
            return
        # With its slash a folder sorts where its objects do: `a-b` < `a/x` < `a0`.
        entries.sort(key=lambda pair: pair[0])
        for key, entry in entries:
            if key.endswith("/"):
                if not (key.startswith(prefix) or prefix.startswith(key)):
                    continue
                if key > after or after.startswith(key):
                    yield from self._walk(key, prefix, after)
            elif key.startswith(prefix) and key > after and entry.is_file(follow_symlinks=False):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # deleted meanwhile
                    continue
                yield ListedObject(key, status.st_size, status.st_mtime_ns // 1_000_000)

    # How it gets there

    async def _in_thread(self, operation: str, key: str, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._translated, operation, key, work)

    def _translated(self, operation: str, key: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            if error.errno in _CONFIGURATION:
                reason = f"{operation} {key!r}: {_CONFIGURATION[error.errno]}"
                raise StoreConfigurationError(str(self.root), reason) from error
            raise StoreUnavailable(operation, key, error.strerror or type(error).__name__) from error


#: Stands for a file that is too big to be read in place, or not in memory.
_NOT_IN_PLACE = StoredObject(b"", "", -1)
#: Read what is in memory and nothing else; 0 where the system cannot be asked that.
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


def _get_in_place(journal: Journal, name: str) -> StoredObject | None:
    if journal.doubted:
        raise NotInPlace
    return journal.get(name, _in_place)


def _in_place(descriptor: int, size: int, offset: int) -> bytes:
    """As `os.pread`. Raises: `NotInPlace` for what is big or not in memory."""
    body = _in_memory(descriptor, size, offset)
    if body is None:
        raise NotInPlace
    return body


def _read(path: str, *, in_place: bool = False) -> StoredObject | None:
    """The file as an object, None if there is none. `in_place`: `_NOT_IN_PLACE` unless it is small and in memory."""
    try:
        # Neither a symbolic link nor a pipe is anybody's object, and a pipe must not make us wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        body = _in_memory(descriptor, status.st_size) if in_place else _all_of(descriptor, status.st_size)
    finally:
        os.close(descriptor)
    if body is None:
        return _NOT_IN_PLACE
    return StoredObject(body, content_etag(body), status.st_mtime_ns // 1_000_000)


def _all_of(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(descriptor, max(size, 1) + 1):
        parts.append(part)
    return b"".join(parts)


def _in_memory(descriptor: int, size: int, offset: int = 0) -> bytes | None:
    if not _NOWAIT or size > _INLINE_BYTES:
        return None
    buffer = bytearray(size)
    try:
        read = os.preadv(descriptor, [buffer], offset, _NOWAIT)
    except OSError:  # not in memory, or a file system that cannot tell
        return None
    return bytes(buffer) if read == size else None


def _make_folder(key: str, folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileNotFoundError, FileExistsError, NotADirectoryError) as error:
        # Either an object stands in the way, or a folder went between two looks: then the caller tries once more.
        if any(above.is_file() for above in (Path(folder), *Path(folder).parents)):
            raise InvalidKey(key, "lies below an object") from error


def _stripe(key: str) -> int:
    return zlib.crc32(key.encode("ascii")) % _LOCK_STRIPES


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _remove_abandoned(folder: str) -> None:
    """Remove what crashed writers left."""
    oldest = time.time() - _ABANDONED_SECONDS
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as scan:
        for entry in scan:
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    _unlink(entry.path)
