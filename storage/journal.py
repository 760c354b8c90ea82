"""Many small objects in one file: an append-only journal that any number of processes write without a lock.

One file per object costs an inode, two forced writes and a rename each; a record at the end of a file that is there
costs one forced write. The journal is a sequence of records, and what it holds is what replaying them in order gives:

* The kernel orders appends (`O_APPEND`), so whether a create or a replacement held its condition is decided by its place
  in the file, the same for whoever reads it. Nobody waits for anybody; a process frozen in the middle of a write holds up none.
* A record that a full disk or a power cut tore is skipped: each begins with a mark that only this file has and ends
  in a checksum. A file whose first record is torn never held anything.
* A file grown mostly superfluous is *closed* by a last record, after which nothing counts, and replaced by one with
  what it held then. Only this step takes a lock, and whoever finds a closed file whose replacement did not come does it.

A `Journal` belongs to one process; all its calls come from threads that hold its `lock`, as do reads in place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import struct
import threading
import time
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from core.errors import ArchmaxError
from storage.keys import content_etag
from storage.objects import InvalidKey, ListedObject, StoreConfigurationError, StoredObject, StoreUnavailable

#: the first bytes of every record, before the file's own mark: no text in UTF-8 has them
_MAGIC: Final = b"\xffAXJ"
_NONCE_BYTES: Final = 8
#: how a file may begin: as a journal, or with as much of a first record as a crash may leave, and another behind it
_FIRST: Final = re.compile(
    rb"\0|" + b"|".join(_MAGIC[:cut] + rb"(?:\Z|\0|%s)" % _MAGIC for cut in range(1, 4)) + b"|" + _MAGIC
)
#: mark, kind, length of the name, length of the body, milliseconds
_FIELDS: Final = struct.Struct("<12sBHIQ")
_CHECKSUM: Final = struct.Struct("<I")
_HEADER_BYTES: Final = _FIELDS.size + _CHECKSUM.size
#: a file is replaced once so much of it, and more than half, is superfluous
_SUPERFLUOUS_BYTES: Final = 64 * 1024
#: a write, which somebody waits for, leaves that to the next delete until there is so many times as much
_PATIENCE: Final = 8


class Kind(IntEnum):
    #: the object exists from here, whatever was there
    PUT = 1
    #: as `PUT`, unless the object exists
    CREATE = 2
    #: as `PUT`, if the object has the etag that stands behind its name
    MATCH = 3
    #: the names in the body, a line each, exist no more
    DELETE = 4
    #: nothing behind this counts
    CLOSED = 5


class Read(Protocol):
    """`size` bytes of a file from `offset` on; fewer at its end."""

    def __call__(self, descriptor: int, size: int, offset: int, /) -> bytes: ...


class Gone(Exception):
    """The file was closed and replaced, or removed: open it again."""


class Busy(Exception):
    """Another process is about to replace the closed file. Ask again in a moment, holding nothing meanwhile."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where an object's body lies."""

    offset: int
    size: int
    modified_ms: int
    etag: str
    #: bytes of its whole record
    length: int


@dataclass(frozen=True, slots=True)
class _Record:
    kind: int
    name: str
    body: bytes
    modified_ms: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a journal needs of the store it is part of."""

    fsync: bool
    #: forces the entry of a file in this folder to disk
    sync_folder: Callable[[str], None]
    #: writes a whole file beside the objects, forced to disk if all is, and names it
    temporary: Callable[[bytes], str]


class Journal:
    """The objects of the file at `path`. Names are keys below the journal's folder.

    Every method raises `Gone` when the caller has to open the file again, or `Busy` when it has to wait.
    """

    def __init__(self, path: str, folder: str, around: Surroundings, *, create: bool) -> None:
        """`folder`: the key its objects lie below. Raises: `FileNotFoundError`, with `create` too if its folder is missing."""
        self._descriptor = _open(path, create)
        self._path = path
        self._folder = folder
        self._around = around
        self.lock = threading.Lock()
        #: calls that use it now; the store's business
        self.users = 0
        self._entries: dict[str, _Entry] = {}
        #: how many names lie below each first segment
        self._below: Counter[str] = Counter()
        self._mark = b""
        #: replayed so far
        self._offset = 0
        self._live_bytes = 0
        self._closed = False
        self._placed = False
        #: a record is there that could not be forced to disk: nothing may rest on it, so the file has to go
        self.doubted = False

        # A store that nobody closed leaves no file open either.
        self._finalizer = weakref.finalize(self, _close, self._descriptor)

    def dispose(self) -> None:
        """May be repeated."""
        self._finalizer()

    # Reading

    def get(self, name: str, read: Read = os.pread) -> StoredObject | None:
        """Raises: what `read` does."""
        self._settle_doubt()
        self._catch_up(read)
        self._require_current()
        entry = self._entries.get(name)
        if entry is None:
            return None
        return StoredObject(self._body(name, entry, read), entry.etag, entry.modified_ms)

    def listed(self) -> list[ListedObject]:
        """All objects, in key order."""
        self._settle_doubt()
        self._catch_up()
        self._require_current()
        return [
            ListedObject(f"{self._folder}/{name}", entry.size, entry.modified_ms)
            for name, entry in sorted(self._entries.items())
        ]

    # Writing

    def put(
        self, name: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        """The etag once the object is durable; None when the condition does not hold."""
        self._settle_doubt()
        self._catch_up()
        self._require_open()
        current = self._entries.get(name)
        if if_absent and current is not None:
            return None
        if if_match is not None and (current is None or current.etag != if_match):
            return None
        if current is None:
            self._require_place(name)
        if if_absent:
            kind, label = Kind.CREATE, name
        elif if_match is not None:
            kind, label = Kind.MATCH, f"{name}\n{if_match}"
        else:
            kind, label = Kind.PUT, name
        start = self._append(kind, label, body)
        if self._around.fsync:
            self._sync()
        landed = self._entries.get(name)
        if landed is None or landed.offset - start != _HEADER_BYTES + len(label):
            return None
        self._tidy(_PATIENCE * _SUPERFLUOUS_BYTES)
        return landed.etag

    def delete(self, names: Iterable[str]) -> None:
        """Not forced to disk: an object that comes back is removed again by whoever tidies."""
        self._settle_doubt()
        self._catch_up()
        self._require_open()
        there = [name for name in names if name in self._entries]
        if there:
            self._append(Kind.DELETE, "", "\n".join(there).encode("ascii"))
        self._tidy(_SUPERFLUOUS_BYTES)

    def _tidy(self, spare_bytes: int) -> None:
        """Replace the file if that is worth while. What was asked for is done, so a failure is left to the next one."""
        superfluous = self._offset - self._live_bytes
        if not self._entries or superfluous > max(spare_bytes, self._live_bytes):
            with contextlib.suppress(OSError, ArchmaxError, Gone):
                self._replace()

    # Replaying

    def _catch_up(self, read: Read = os.pread) -> None:
        """Replay what others have appended."""
        status = os.fstat(self._descriptor)
        if not status.st_nlink:
            raise Gone
        if status.st_size > self._offset and not self._closed:
            self._replay(read(self._descriptor, status.st_size - self._offset, self._offset))

    def _replay(self, data: bytes, *, complete: bool = False) -> None:
        """Apply the records of `data`, the bytes from `_offset` on.

        A record that is not whole may still be being written, unless a whole one follows it or all is `complete`.
        """
        base, position = self._offset, 0
        if not base and not _FIRST.match(data):
            raise StoreConfigurationError(self._path, "not a journal, or one of a newer release")
        while position < len(data) and not self._closed:
            record = self._record(data, position, base)
            if record is None:
                # Only records of this file have its mark: a body that imitates one cannot know it.
                position = data.find(self._mark, position + 1) if self._mark else -1
                if position < 0:
                    break
                continue
            self._apply(record)
            position = record.end - base
            self._offset = record.end
        if complete and not self._closed:
            self._offset = base + len(data)

    def _record(self, data: bytes, position: int, base: int) -> _Record | None:
        """The whole record at `position`, or None."""
        if len(data) - position < _HEADER_BYTES:
            return None
        mark, kind, name_length, body_length, modified_ms = _FIELDS.unpack_from(data, position)
        if self._mark:
            if mark != self._mark:
                return None
        elif not mark.startswith(_MAGIC):
            return None
        body_at = position + _HEADER_BYTES + name_length
        end = body_at + body_length
        if end > len(data):
            return None
        (checksum,) = _CHECKSUM.unpack_from(data, position + _FIELDS.size)
        fields = data[position : position + _FIELDS.size]
        if checksum != zlib.crc32(data[position + _HEADER_BYTES : end], zlib.crc32(fields)):
            return None
        self._mark = mark
        name = data[position + _HEADER_BYTES : body_at].decode("ascii")
        return _Record(kind, name, data[body_at:end], modified_ms, base + position, base + end)

    def _apply(self, record: _Record) -> None:
        name, expected = record.name, None
        match record.kind:
            case Kind.CREATE if name in self._entries:
                return
            case Kind.MATCH:
                name, _, expected = name.partition("\n")
                current = self._entries.get(name)
                if current is None or current.etag != expected:
                    return
            case Kind.DELETE:
                for gone in record.body.decode("ascii").split("\n"):
                    self._forget(gone)
                return
            case Kind.CLOSED:
                self._closed = True
                return
            case Kind.PUT | Kind.CREATE:
                pass
            case _:
                raise StoreConfigurationError(self._path, "written by a newer release")
        self._forget(name)
        size, length = len(record.body), record.end - record.start
        self._entries[name] = _Entry(
            record.end - size, size, record.modified_ms, content_etag(record.body), length
        )
        if "/" in name:
            self._below[name.partition("/")[0]] += 1
        self._live_bytes += length

    def _forget(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._live_bytes -= entry.length
            above, slash, _ = name.partition("/")
            if slash:
                self._below[above] -= 1
                if not self._below[above]:
                    del self._below[above]

    # Appending

    def _append(self, kind: Kind, name: str, body: bytes) -> int:
        """Where the record begins; it and all before it are replayed then.

        Raises: `Gone` when the file was closed before; `StoreUnavailable` when it is not found where it must be.
        """
        mark = self._mark or _MAGIC + os.urandom(_NONCE_BYTES)
        record = _packed(mark, kind, name, body, time.time_ns() // 1_000_000)
        try:
            written = os.write(self._descriptor, record)
        except OSError as error:
            if error.errno == errno.EBADF:  # it could only be opened for reading
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error
            raise
        # behind what was appended, whatever others do meanwhile
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        if written != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = os.pread(self._descriptor, end - self._offset, self._offset)
        start = end - written
        if data[start - self._offset :] != record:
            raise StoreUnavailable("put", self._path, "the file system does not append in one step")
        self._replay(data, complete=True)
        if not self._mark:  # the first record is torn: nothing in this file counts, nor ever will
            self._closed = True
            self._succeed()
            raise Gone
        # Another's first record was faster, and its mark is the file's; or the file was closed before.
        if self._mark != mark or (self._closed and kind is not Kind.CLOSED):
            raise Gone
        return start

    def _sync(self) -> None:
        try:
            _force(self._descriptor)
            if not self._placed:
                self._sync_place()
                self._placed = True
        except OSError:
            self.doubted = True
            # At once if it can be: others who have the file open know of no doubt.
            with contextlib.suppress(OSError, ArchmaxError, Gone, Busy):
                self._settle_doubt()
            raise

    def _sync_place(self) -> None:
        """Force the file's name to disk. Gone already: then it was stored, and deleted by another."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._around.sync_folder(os.path.dirname(self._path))

    def _settle_doubt(self) -> None:
        """After a failed force the pages may be lost though they can be read: write all anew, and use this file no more."""
        if self.doubted:
            self._sync_place()
            self._catch_up()
            if self._closed:
                self._succeed()
            elif not self._replace():
                raise Busy
            raise Gone

    def _require_place(self, name: str) -> None:
        """Raises: `InvalidKey` for a key that is the folder of another, or lies below one."""
        above, slash, _ = name.partition("/")
        if slash and above in self._entries:
            raise InvalidKey(f"{self._folder}/{name}", "lies below an object")
        if (not slash and self._below[above]) or os.path.isdir(f"{os.path.dirname(self._path)}/{name}"):
            raise InvalidKey(f"{self._folder}/{name}", "is the folder of other objects")

    # Replacing

    def _require_current(self) -> None:
        """What a closed file held is still so until its replacement is there."""
        if self._closed and not self._named():
            raise Gone

    def _require_open(self) -> None:
        if self._closed:
            self._succeed()
            raise Gone

    def _named(self) -> bool:
        """Whether `path` still names this file."""
        try:
            named = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._descriptor)
        return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino)

    def _replace(self) -> bool:
        """Close the file and put one in its place that holds what it held; none if that is nothing.

        Returns: False when another process is at it already. The new file is written first: where there is no room for it, the
        old one stays open, unless more came in meanwhile; then writes wait for room.
        """
        with self._alone() as alone:
            if not alone:
                return False
            image, seen = self._image(), self._offset
            try:
                start = self._append(Kind.CLOSED, "", b"")
            except BaseException:
                _discard(image)
                raise
            if start != seen:  # more came in
                _discard(image)
                image = self._image()
            self._publish(image)
            return True

    def _succeed(self) -> None:
        """Replace a closed file whose closer has died. Raises: `Busy` while another process may be doing it."""
        if self._named():
            with self._alone() as alone:
                if not alone:
                    raise Busy
                self._publish(self._image())

    @contextlib.contextmanager
    def _alone(self) -> Generator[bool]:
        """Hold the lock that all who replace this file hold. False: another does."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _image(self) -> str | None:
        """A file, not in its place yet, with what this one holds; None for nothing."""
        if not self._entries:
            return None
        mark = _MAGIC + os.urandom(_NONCE_BYTES)
        records = [
            _packed(mark, Kind.PUT, name, self._whole_body(name, entry), entry.modified_ms)
            for name, entry in self._entries.items()
        ]
        return self._around.temporary(b"".join(records))

    def _publish(self, image: str | None) -> None:
        """Put `image` in this file's place."""
        if not self._named():
            _discard(image)
        elif image is None:
            os.unlink(self._path)
        else:
            try:
                os.rename(image, self._path)
            except BaseException:
                _discard(image)
                raise
            if self._around.fsync:
                self._sync_place()

    def _whole_body(self, name: str, entry: _Entry) -> bytes:
        """Checked: what could not be forced may be read from the disk as it was before."""
        body = self._body(name, entry)
        if content_etag(body) != entry.etag:
            raise StoreUnavailable(
                "get", f"{self._folder}/{name}", "the disk holds something else than was written"
            )
        return body

    def _body(self, name: str, entry: _Entry, read: Read = os.pread) -> bytes:
        body = read(self._descriptor, entry.size, entry.offset)
        if len(body) != entry.size:
            raise StoreUnavailable("get", f"{self._folder}/{name}", "the file was cut while it was read")
        return body


def _open(path: str, create: bool) -> int:
    """Raises: `FileNotFoundError`, `StoreConfigurationError`. Where nothing may be written it is opened for reading."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            descriptor = os.open(path, flags | (os.O_CREAT if create else 0), 0o666)
        except OSError as refused:
            if create or refused.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as odd:
        if odd.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):
            raise StoreConfigurationError(path, "not a file") from odd
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreConfigurationError(path, "not a file")
    return descriptor


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.close(descriptor)


def _discard(temporary: str | None) -> None:
    if temporary is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _packed(mark: bytes, kind: Kind, name: str, body: bytes, modified_ms: int) -> bytes:
    label = name.encode("ascii")
    fields = _FIELDS.pack(mark, kind, len(label), len(body), modified_ms)
    rest = label + body
    return fields + _CHECKSUM.pack(zlib.crc32(rest, zlib.crc32(fields))) + rest


#: forces content and length to disk; Linux can leave the rest
_force: Final = getattr(os, "fdatasync", os.fsync)
