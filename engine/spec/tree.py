"""Where authored files are read from: workflow documents, scripts, cases, skill bundles.

A tree is a plain, synchronous, read-only view of a workspace under workspace-relative paths. The directory one never
follows a link out of its root and never opens what is no regular file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from core.paths import canonical, is_within

MAX_FILE_BYTES: Final = 8 << 20
MAX_FILES: Final = 100_000
_NO_SUCH_FILE: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO}
)
#: what a path can name beside a file
_KINDS: Final = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}


class AuthoringTree(Protocol):
    """Paths are workspace-relative, in any spelling; one that leaves the root names nothing."""

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, None when there is none.

        Raises: `OSError` when there is one that cannot be read or is too large.
        """
        ...

    def files(self, prefix: str) -> list[str]:
        """The canonical paths of all files below the folder `prefix`, sorted by code point."""
        ...


class MemoryTree:
    """A tree over a mapping of path to content."""

    def __init__(self, files: Mapping[str, bytes | str]) -> None:
        self._files = {
            canonical(path).text: body.encode("utf-8") if isinstance(body, str) else body
            for path, body in files.items()
        }

    def read(self, path: str) -> bytes | None:
        return self._files.get(canonical(path).text)

    def files(self, prefix: str) -> list[str]:
        folder = canonical(prefix).text
        return sorted(path for path in self._files if path != folder and is_within(path, folder))


class DirectoryTree:
    """A tree over a directory. Links are followed only while they stay below the root.

    `max_bytes` bounds one file, `MAX_FILES` one listing; both raise `OSError` beyond.
    """

    def __init__(self, root: str | os.PathLike[str], *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.root = Path(root)
        self._max_bytes = max_bytes

    def read(self, path: str) -> bytes | None:
        real = self._inside(path)
        if real is None:
            return None
        try:
            # O_NONBLOCK: a named pipe must not hold the reader up before it is known for what it is.
            handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _NO_SUCH_FILE:
                return None
            raise
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return None
            if status.st_size > self._max_bytes:
                raise OSError(f"{canonical(path).text} is larger than {self._max_bytes} bytes")
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(self._max_bytes)
        finally:
            os.close(handle)

    def files(self, prefix: str) -> list[str]:
        start = self._inside(prefix)
        found: list[str] = []
        if start is None:
            return found
        for path in self._walk(start, canonical(prefix).text, {start}):
            found.append(path)
            if len(found) > MAX_FILES:
                raise OSError(
                    f"more than {MAX_FILES} files below {canonical(prefix).text or 'the workspace'}"
                )
        return sorted(found)

    def obstacle(self, path: str) -> str | None:
        """What stands at `path` and is no file that can be read, in words; None for a file, and where nothing is."""
        folder, _, name = canonical(path).text.rpartition("/")
        real = self._inside(folder)
        if real is None or not os.path.lexists(place := os.path.join(real, name)):
            return None
        if self._inside(path) is None:
            return "a link that leads out of the workspace"
        try:
            mode = os.stat(place).st_mode
        except OSError as error:
            return "a link that leads back to itself" if error.errno == errno.ELOOP else "a link to nothing"
        return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "a device")

    def _inside(self, path: str) -> str | None:
        """The real place of `path`, None when it lies outside the root."""
        name = canonical(path)
        if name.escaping or "\0" in name.text:
            return None
        root = os.path.realpath(self.root)
        try:
            real = os.path.realpath(os.path.join(root, name.text))
        except OSError:  # a name too long, a loop of links
            return None
        return real if is_within(real, root.rstrip("/")) else None

    def _walk(self, folder: str, name: str, seen: set[str]) -> Iterator[str]:
        todo = [(folder, name)]
        while todo:
            folder, name = todo.pop()
            try:
                entries = list(os.scandir(folder))
            except OSError as error:
                if error.errno in _NO_SUCH_FILE:
                    continue
                raise
            for entry in entries:
                below = f"{name}/{entry.name}" if name else entry.name
                real = self._inside(below) if entry.is_symlink() else entry.path
                if real is None:
                    continue
                if os.path.isdir(real):
                    if real not in seen:
                        seen.add(real)
                        todo.append((real, below))
                elif os.path.isfile(real):
                    yield below
