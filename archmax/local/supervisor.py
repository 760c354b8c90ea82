"""The processes of `archmax up`: started together, one prefixed log, stopped together.

Parts stand in stages. They start in ascending order of stage, each stage once the one before it is ready, and stop in
descending order, each stage once the one before it has ended: the API before the workers, the workers before Redis.
Nothing is restarted: a part that ends by itself ends all, with a line that says which.

Every part runs in a session of its own, so that a Ctrl-C in the terminal reaches only the supervisor, and dies with it
whatever happens (`archmax.local.processes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from archmax.cli.render.style import ACTIVE, ATTENTION, FAILED, QUOTE, Style, safe
from archmax.local.processes import dying_with_parent

#: a line of a part's output longer than this is drawn in pieces
LONGEST_LINE_BYTES = 16 * 1024
_CONNECT_SECONDS = 1.0
_POLL_SECONDS = 0.05
#: how long output is still read once every process has ended
_LAST_WORDS_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process. `port` (on 127.0.0.1 or `host`) is what it listens on once it is ready; None: ready as it starts.

    `listens` is told to the user once it is ready. `grace_seconds` is what it gets between SIGTERM and SIGKILL.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stage: int = 1
    host: str = "127.0.0.1"
    port: int | None = None
    listens: str | None = None
    grace_seconds: float = 30


@dataclass(slots=True)
class _Running:
    part: Part
    process: asyncio.subprocess.Process
    pump: asyncio.Task[None]
    ended: asyncio.Task[int]


class Supervisor:
    """Runs parts until it is told to stop or one of them ends. Lines go to `stream`."""

    def __init__(
        self, parts: Sequence[Part], *, stream: TextIO, style: Style, ready_seconds: float = 60
    ) -> None:
        self._parts = sorted(parts, key=lambda part: part.stage)
        self._stream = stream
        self._style = style
        self._ready_seconds = ready_seconds
        self._width = max((len(part.name) for part in parts), default=0)
        self._running: list[_Running] = []
        #: set once every part is ready
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failed = False

    def fail(self, reason: str) -> None:
        """End all because of something that is no part, and say what."""
        if not self._stop.is_set():
            self._failed = True
            self._say(f"{self._style.bad(FAILED)} {reason}; stopping everything")
            self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for, or a part has ended."""
        return self._stop.is_set() or any(running.ended.done() for running in self._running)

    def stop(self) -> None:
        """Ask for a clean end; asked a second time, kill what is left at once."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self) -> int:
        """Returns: 0 after a stop that was asked for, 1 when a part ended by itself, never became ready, or `fail`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            return await self._supervise()
        finally:
            try:
                await self._shut_down()
            finally:
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.remove_signal_handler(number)

    async def _supervise(self) -> int:
        for stage in sorted({part.stage for part in self._parts}):
            started = [await self._start(part) for part in self._parts if part.stage == stage]
            for running in started:
                if not await self._ready(running):
                    return self._verdict()
        self._say(self._style.dim("running; Ctrl-C stops everything"))
        self.ready.set()
        await self._first_end()
        return self._verdict()

    def _verdict(self) -> int:
        return 0 if self._stop.is_set() and not self._failed else 1

    async def _start(self, part: Part) -> _Running:
        # A pipe of our own: asyncio reports the end of a process only once its pipes are closed, and what the process
        # left behind may hold them open for as long as it likes.
        reading, writing = os.pipe()
        output = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb", buffering=0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *dying_with_parent(part.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **part.environment},
                start_new_session=True,
            )
        except BaseException:
            pipe.close()
            raise
        finally:
            os.close(writing)
        pump = asyncio.create_task(self._pump(part, output, pipe))
        running = _Running(part, process, pump, asyncio.create_task(process.wait()))
        self._running.append(running)
        return running

    async def _ready(self, running: _Running) -> bool:
        """Wait until the part listens. False when something ended, a stop was asked for, or it took too long."""
        part = running.part
        deadline = asyncio.get_running_loop().time() + self._ready_seconds
        while part.port is not None and not await _accepts(part.host, part.port):
            if await self._first_end(timeout_seconds=_POLL_SECONDS):
                return False
            if asyncio.get_running_loop().time() > deadline:
                self._say(
                    f"{self._style.bad(FAILED)} {part.name} did not listen within {self._ready_seconds:g} s"
                )
                return False
        if await self._first_end(timeout_seconds=0):
            return False
        where = f"  {part.listens}" if part.listens else ""
        self._say(f"{self._style.accent(ACTIVE)} {part.name.ljust(self._width)}{where}")
        return True

    async def _first_end(self, *, timeout_seconds: float | None = None) -> bool:
        """Wait for a stop or the end of any part; a part that ended by itself is told. False when time ran out."""
        stop = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait(
                {stop, *(running.ended for running in self._running)},
                timeout=timeout_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stop.cancel()
        if not self._stop.is_set():
            for running in self._running:
                if running.ended in done:
                    self._say(
                        f"{self._style.bad(FAILED)} {running.part.name} ended by itself"
                        f" ({_how(running.ended.result())}); stopping everything"
                    )
        return bool(done)

    async def _shut_down(self) -> None:
        for stage in sorted({running.part.stage for running in self._running}, reverse=True):
            members = [running for running in self._running if running.part.stage == stage]
            await asyncio.gather(*(self._end(running) for running in members))
        pumps = [running.pump for running in self._running]
        if pumps:
            _, late = await asyncio.wait(pumps, timeout=_LAST_WORDS_SECONDS)
            for pump in late:  # a process that left its group still holds the pipe
                pump.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._say(self._style.dim("stopped"))

    async def _end(self, running: _Running) -> None:
        """SIGTERM to the process alone (its children are its to stop), then SIGKILL to all that is left of its group."""
        if not running.ended.done():
            with contextlib.suppress(ProcessLookupError):
                running.process.send_signal(signal.SIGTERM)
            hurry = asyncio.create_task(self._hurry.wait())
            await asyncio.wait(
                {running.ended, hurry},
                timeout=running.part.grace_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            hurry.cancel()
            if not running.ended.done():
                self._say(
                    f"{self._style.warn(ATTENTION)} {running.part.name} did not end in time and was killed"
                )
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(running.process.pid, signal.SIGKILL)
        await running.ended

    async def _pump(self, part: Part, output: asyncio.StreamReader, pipe: asyncio.BaseTransport) -> None:
        prefix = f"{self._style.accent(part.name.ljust(self._width))} {self._style.dim(QUOTE)} "
        try:
            async for line in _lines(output):
                self._say(prefix + safe(line))
        finally:
            pipe.close()

    def _say(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


async def _lines(output: asyncio.StreamReader) -> AsyncIterator[str]:
    """The lines of a stream; one without an end in sight comes in pieces of bounded size."""
    pending = b""
    while chunk := await output.read(LONGEST_LINE_BYTES):
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(pending) >= LONGEST_LINE_BYTES:
            yield pending.decode("utf-8", "replace")
            pending = b""
    if pending:
        yield pending.decode("utf-8", "replace")


async def _accepts(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_SECONDS)
    except OSError:  # a time-out is one
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _how(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
