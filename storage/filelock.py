"""File locks: one holder at a time among the processes of one machine (05 §8).

The library and the command hold a session this way. The kernel frees a lock when its holder dies, so none is ever
stale. A lock is refused at once, never waited for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar

from core.errors import ArchmaxError


class LockHeld(ArchmaxError):
    """Somebody else holds the lock; `holder` is the process id it left, None when it left none."""

    code: ClassVar[str] = "lock-held"
    retryable: ClassVar[bool] = True

    def __init__(self, path: str, holder: int | None) -> None:
        super().__init__(path, holder)
        self.path, self.holder = path, holder

    def __str__(self) -> str:
        by = f" by process {self.holder}" if self.holder is not None else ""
        return f"{self.path!r} is locked{by}"


@asynccontextmanager
async def exclusive(path: Path) -> AsyncGenerator[None, None]:
    """Hold the lock at `path` (created with its folder, removed afterwards). Also excludes within this process.

    Raises: `LockHeld` at once when another holds it.
    """
    descriptor = _acquire(path)
    try:
        yield
    finally:
        # Removed while still held: whoever opened this file before sees that it is gone and opens the next one.
        _remove(path)
        os.close(descriptor)


@contextmanager
def waited(path: str) -> Generator[None, None, None]:
    """Hold the lock at `path`, waiting for it; the file stays. For short sections, in a thread."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_current(descriptor, path):  # the holder removed it between our open and our lock
                os.close(descriptor)
                continue
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0)
            os.close(descriptor)
            raise LockHeld(str(path), int(holder) if holder.isdigit() else None) from None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _open(path: str | Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, flags, 0o666)


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)
