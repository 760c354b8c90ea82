"""The sandbox of a process: one zygote, a few processes forked ahead, REPLs on demand.

Started on first use and bound to the event loop that used it, in whatever thread that runs. When a later loop finds
the earlier one closed, what belonged to it is killed and a new zygote started; two loops at once need two sandboxes.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

from core.jsontext import dumps, loads, well_formed
from sandbox.errors import MalformedRegexError, RegexTimeoutError, SandboxUnavailableError
from sandbox.evaluation import DEFAULT_MEMORY_LIMIT_BYTES, Fault
from sandbox.processes import Child, SandboxDiedError, Zygote
from sandbox.repl import Repl
from sandbox.wire import Kind

_START_ATTEMPTS: Final = 3
_REFILL_SECONDS: Final = 0.002
REGEX_TIMEOUT_MS: Final = 1000


class Sandbox:
    """Runs untrusted JavaScript in processes of their own (03 §19)."""

    def __init__(self, *, spare_processes: int = 4, on_killed: Callable[[Fault], None] | None = None) -> None:
        """`spare_processes`: how many are kept forked ahead of use, about 2 MiB each.

        `on_killed` hears why, whenever an evaluation ended its process.
        """
        self._spare_processes = spare_processes
        self._on_killed = on_killed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._zygote: Zygote | None = None
        self._spare: deque[Child] = deque()
        self._used: weakref.WeakSet[Child] = weakref.WeakSet()
        self._refill: asyncio.TimerHandle | None = None
        self._regex: Child | None = None
        self._regex_turn: asyncio.Lock | None = None
        #: whether the system call filter is in force; `None` before the first process ran
        self.filtered: bool | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def repl(self, *, memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES) -> Repl:
        """A REPL with no state. Its process is taken at the first evaluation. `close` it when done."""
        self._attach()
        return Repl(self._obtain, memory_limit_bytes, self._on_killed)

    async def compile_regex(self, pattern: str, flags: str = "") -> None:
        """Raises: `MalformedRegexError` when ECMAScript knows no such regular expression (06 §4.1)."""
        await self._match(pattern, flags, None, REGEX_TIMEOUT_MS)

    async def test_regex(
        self, pattern: str, flags: str, text: str, *, timeout_ms: int = REGEX_TIMEOUT_MS
    ) -> bool:
        """Whether the regular expression finds a match in `text`, from its start (06 §4.1).

        Raises: `MalformedRegexError`, `RegexTimeoutError`.
        """
        return await self._match(pattern, flags, text, timeout_ms)

    async def close(self) -> None:
        """Kill every process and wait for it. The sandbox may be used again; REPLs made before may not."""
        if self._loop is not None and (
            self._pid != os.getpid() or self._loop is not asyncio.get_running_loop()
        ):
            self._detach()
            return
        zygote, self._zygote, self._loop = self._zygote, None, None
        self._kill_children()
        if zygote is not None:
            await zygote.close()

    def _attach(self) -> None:
        """Make the running loop the one this sandbox serves."""
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._pid == os.getpid():
            return
        if self._loop is not None and self._pid == os.getpid() and self._loop.is_running():
            raise RuntimeError("this sandbox serves another event loop that is still running")
        self._detach()
        self._loop, self._pid, self._regex_turn = loop, os.getpid(), asyncio.Lock()

    def _detach(self) -> None:
        """Drop what belongs to a loop that is gone, or to the process this one was forked from."""
        zygote, self._zygote, self._loop = self._zygote, None, None
        if self._pid == os.getpid():
            self._kill_children()
            if zygote is not None:
                zygote.kill()
            return
        self._refill = None
        for child in (*self._spare, *self._used):
            child.abandon()
        self._spare.clear()
        self._used.clear()
        self._regex = None
        if zygote is not None:
            zygote.abandon()

    def _kill_children(self) -> None:
        if self._refill is not None:
            self._refill.cancel()
            self._refill = None
        for child in (*self._spare, *self._used):
            child.kill()
        self._spare.clear()
        self._used.clear()
        self._regex = None

    async def _obtain(self, memory_limit_bytes: int) -> Child:
        """A fresh process that may be given `memory_limit_bytes` of heap. Raises `SandboxUnavailableError`."""
        self._attach()
        for _ in range(_START_ATTEMPTS):
            if memory_limit_bytes <= DEFAULT_MEMORY_LIMIT_BYTES and self._spare:
                child = self._spare.popleft()
            else:
                child = await self._fork(max(memory_limit_bytes, DEFAULT_MEMORY_LIMIT_BYTES))
            self._used.add(child)
            if self._refill is None:
                self._refill = asyncio.get_running_loop().call_later(_REFILL_SECONDS, self._fork_ahead)
            try:
                self.filtered = await child.prepared()
                return child
            except SandboxDiedError:
                child.kill()
            except BaseException:
                child.kill()
                raise
        raise SandboxUnavailableError("its processes end as they start")

    async def _fork(self, memory_limit_bytes: int) -> Child:
        if self._zygote is None or not self._zygote.alive:
            if self._zygote is not None:
                self._zygote.kill()
            self._zygote = Zygote(asyncio.get_running_loop())
        while (child := self._zygote.fork(memory_limit_bytes)) is None:  # noqa: ASYNC110 - no event tells of room in a socket
            await asyncio.sleep(_REFILL_SECONDS)
        return child

    def _fork_ahead(self) -> None:
        """Fill up the spare processes, a moment after one was taken: whoever took it runs first."""
        self._refill = None
        try:
            while self._zygote is not None and len(self._spare) < self._spare_processes:
                child = self._zygote.fork(DEFAULT_MEMORY_LIMIT_BYTES)
                if child is None:
                    return
                self._spare.append(child)
        except SandboxUnavailableError:
            return  # the next `_fork` starts another zygote

    async def _match(self, pattern: str, flags: str, text: str | None, timeout_ms: int) -> bool:
        self._attach()
        turn = self._regex_turn
        if turn is None:
            raise SandboxUnavailableError("it was closed meanwhile")
        async with turn:
            if self._regex is None or not self._regex.alive:
                self._regex = await self._obtain(DEFAULT_MEMORY_LIMIT_BYTES)
            child = self._regex
            answered = False
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    reply = await _ask(child, pattern, flags, text)
                answered = True
            except TimeoutError:
                raise RegexTimeoutError(pattern, flags, timeout_ms) from None
            except SandboxDiedError:
                raise RegexTimeoutError(pattern, flags, timeout_ms) from None
            finally:
                if not answered:
                    child.kill()
        if "malformed" in reply:
            raise MalformedRegexError(pattern, flags, str(reply["malformed"]))
        return reply.get("found") is True


async def _ask(child: Child, pattern: str, flags: str, text: str | None) -> dict[str, Any]:
    request = {
        "pattern": well_formed(pattern),
        "flags": well_formed(flags),
        "text": None if text is None else well_formed(text),
    }
    await child.send(Kind.REGEX, dumps(request))
    reply = loads(await child.expect(Kind.MATCHED))
    if not isinstance(reply, dict):
        raise SandboxDiedError
    return reply
