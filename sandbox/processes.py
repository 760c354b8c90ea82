"""The host's side of sandbox processes: the zygote that forks them and a handle on each.

Everything is driven by the event loop that started it. Nothing blocks: a fork is asked for by sending a socket to the
zygote and is there once the child has said so on that socket, bringing a pidfd of itself. Only the zygote's own start
runs in the loop's thread (about 1 ms, once), since the kernel ties a process's death signal to the thread that
started it, and a pool's thread may end first.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Final

from core.jsontext import dumps, loads
from sandbox import wire
from sandbox.errors import SandboxUnavailableError
from sandbox.wire import Kind

_HIGH_WATER_BYTES: Final = 2**20
_CLOSE_SECONDS: Final = 2.0

#: Makes `sandbox.*` importable without running the host's `sandbox/__init__`, and `tree_sitter` and `_quickjs` only.
_BOOTSTRAP: Final = """
import sys, types
package = types.ModuleType("sandbox"); package.__path__ = [sys.argv[3]]; sys.modules["sandbox"] = package
sys.path[:0] = sys.argv[4:]
import _quickjs, tree_sitter, tree_sitter_javascript
from sandbox import zygote
del sys.path[: len(sys.argv) - 4]
zygote.main(int(sys.argv[1]), int(sys.argv[2]))
"""


def _package_folders() -> list[str]:
    folders: dict[str, None] = {}
    for name, depth in (("_quickjs", 1), ("tree_sitter", 2), ("tree_sitter_javascript", 2)):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise SandboxUnavailableError(f"the package of {name} is not installed")
        folders[str(Path(spec.origin).parents[depth - 1])] = None
    return list(folders)


class SandboxDiedError(Exception):
    """The process at the other end is gone or talks nonsense. Never leaves this package."""


class Child:
    """One sandbox process. Dead once its socket closed, whoever did it."""

    def __init__(self, connection: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._pidfd = -1
        self._buffer = bytearray()
        self._frames: deque[tuple[Kind, bytes]] = deque()
        self._queued_bytes = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self.alive = True
        loop.add_reader(connection.fileno(), self._readable)

    async def read(self) -> tuple[Kind, bytes]:
        """The next frame. Raises `SandboxDiedError`."""
        while not self._frames:
            if not self.alive:
                raise SandboxDiedError
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        kind, payload = self._frames.popleft()
        self._queued_bytes -= len(payload)
        if self._paused and self._queued_bytes < _HIGH_WATER_BYTES and self.alive:
            self._paused = False
            self._loop.add_reader(self._connection.fileno(), self._readable)
        return kind, payload

    async def send(self, kind: Kind, payload: bytes) -> None:
        """Raises `SandboxDiedError`."""
        message = wire.frame(kind, payload)
        if not self.alive:
            raise SandboxDiedError
        try:
            sent = self._connection.send(message)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise SandboxDiedError from error
        if sent < len(message):
            try:
                await self._loop.sock_sendall(self._connection, memoryview(message)[sent:])
            except OSError as error:
                raise SandboxDiedError from error

    async def expect(self, kind: Kind) -> bytes:
        """The payload of the next frame, which must be of `kind`. Raises `SandboxDiedError`."""
        got, payload = await self.read()
        if got != kind:
            raise SandboxDiedError
        return payload

    async def prepared(self) -> bool:
        """Wait for the fork. Returns whether the system call filter is in force. Raises `SandboxDiedError`."""
        await self.expect(Kind.READY)
        return bool(loads(await self.expect(Kind.PREPARED))["seccomp"])

    def kill(self) -> None:
        """End the process, at once and for certain; a reader waiting on it wakes with `SandboxDiedError`."""
        if self._pidfd >= 0:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._release()

    def abandon(self) -> None:
        """Let go of descriptors inherited over a fork: the process belongs to another."""
        self.alive = False
        self._connection.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _release(self) -> None:
        if not self.alive:
            return
        self.alive = False
        if not self._loop.is_closed():
            self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _readable(self) -> None:
        try:
            if self._pidfd < 0:
                part, descriptors, _, _ = socket.recv_fds(self._connection, 65536, 1)
                if descriptors:
                    self._pidfd = descriptors[0]
            else:
                part = self._connection.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._release()
            return
        self._buffer += part
        if not self._parse():
            self.kill()
            return
        if self._queued_bytes > _HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            self._loop.remove_reader(self._connection.fileno())
        if self._frames:
            self._wake()

    def _parse(self) -> bool:
        """Cut whole frames off the buffer; `False` when it holds none of ours."""
        at = 0
        size = wire.HEADER.size
        while len(self._buffer) - at >= size:
            length, kind = wire.HEADER.unpack_from(self._buffer, at)
            if length > wire.MAX_FRAME_BYTES or kind not in wire.KINDS:
                return False
            if len(self._buffer) - at < size + length:
                break
            payload = bytes(memoryview(self._buffer)[at + size : at + size + length])
            self._frames.append((wire.KINDS[kind], payload))
            self._queued_bytes += length
            at += size + length
        if at:
            del self._buffer[:at]
        return True


class Zygote:
    """The process that forks. Belongs to the loop and thread that constructed it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        folders = _package_folders()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                [
                    sys.executable, "-I", "-S", "-c", _BOOTSTRAP,
                    str(theirs.fileno()), str(os.getpid()), str(Path(__file__).parent), *folders,
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={"TZ": "UTC", "LC_ALL": "C.UTF-8"},
            )  # fmt: skip
        ours.setblocking(False)
        self._control = ours
        self._loop = loop

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, memory_limit_bytes: int) -> Child | None:
        """Ask for a child; it is there when `Child.prepared` returns. `None` when hundreds are being forked already.

        Raises `SandboxUnavailableError`.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            ours.send(wire.frame(Kind.PREPARE, dumps({"memory": memory_limit_bytes})))
            try:
                socket.send_fds(self._control, [b"f"], [theirs.fileno()])
            except BlockingIOError:
                ours.close()
                return None
            except OSError as error:
                ours.close()
                raise SandboxUnavailableError("its process has ended") from error
        return Child(ours, self._loop)

    async def close(self) -> None:
        """Hang up and wait until the process is gone; its children must have been killed before."""
        self._control.close()
        deadline = self._loop.time() + _CLOSE_SECONDS
        while self._process.poll() is None:
            if self._loop.time() > deadline:
                self._process.kill()
            await asyncio.sleep(0.002)

    def kill(self) -> None:
        """End the process without a loop to wait on, as when that loop was closed."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def abandon(self) -> None:
        """Let go of what a fork inherited, so that nothing here reaps or warns of another's process."""
        self._control.close()
        self._process.returncode = 0
