r"""Regex strings of a case: which strings are regexes, and running them as JavaScript does (06 §4.1).

The semantics are ECMAScript's, so ECMAScript's engine runs them: QuickJS, in a process of its own that is killed when
it takes too long (a pattern can backtrack for ever). Calls are synchronous and take well under a millisecond once
the process is up; inside an event loop a slow pattern blocks for `WALL_SECONDS` at most.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Protocol

from typing_extensions import override

from core.errors import ArchmaxError

#: one request, however many regexes it holds
WALL_SECONDS: Final = 5.0
#: text beyond this is not searched: no answer or argument is that long
MAX_TEXT_CHARS: Final = 16 << 20

_SHAPE = re.compile(r"/(.*)/([a-z]*)", re.DOTALL)


class Regex(NamedTuple):
    """A regex string taken apart. `str()` gives the spelling back."""

    pattern: str
    flags: str

    def __str__(self) -> str:
        return f"/{self.pattern}/{self.flags}"


def as_regex(text: str) -> Regex | None:
    """The regex a string spells; None for a literal. Says nothing about whether it compiles."""
    found = _SHAPE.fullmatch(text)
    return Regex(found[1], found[2]) if found else None


class RegexStopped(ArchmaxError):
    """A regex that ran out of time or memory: it neither matched nor failed to."""

    code: ClassVar[str] = "regex-stopped"

    def __init__(self, regex: str) -> None:
        super().__init__(regex)
        self.regex = regex

    @override
    def __str__(self) -> str:
        return f"the regex {self.regex} was stopped: it takes too long on this text"


class RegexEngine(Protocol):
    def problems(self, regexes: Sequence[Regex]) -> list[str | None]:
        """For each regex why it is malformed, or None."""
        ...

    def search(self, regex: Regex, text: str) -> bool:
        """Whether the regex finds a match anywhere in the text. Raises: `RegexStopped`."""
        ...


class QuickJsRegexEngine:
    """A `RegexEngine` over one child process, started at the first use and again after each kill."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[[subprocess.Popen[bytes]], QuickJsRegexEngine] | None = None

    def problems(self, regexes: Sequence[Regex]) -> list[str | None]:
        if not regexes:
            return []
        answers = self._ask(
            [{"pattern": regex.pattern, "flags": regex.flags, "text": None} for regex in regexes]
        )
        if answers is None:
            return ["it takes too long to compile"] * len(regexes)
        return [
            "it takes too long to compile" if "stopped" in answer else answer.get("malformed")
            for answer in answers
        ]

    def search(self, regex: Regex, text: str) -> bool:
        if len(text) > MAX_TEXT_CHARS:
            raise RegexStopped(str(regex))
        answers = self._ask([{"pattern": regex.pattern, "flags": regex.flags, "text": text}])
        if answers is None or "stopped" in answers[0]:
            raise RegexStopped(str(regex))
        return bool(answers[0].get("found"))

    def close(self) -> None:
        """End the process; the next use starts another."""
        with self._lock:
            self._stop()

    def _ask(self, jobs: list[dict[str, str | None]]) -> list[dict[str, str]] | None:
        """None when the process had to be killed, or died."""
        body = json.dumps(jobs).encode()
        with self._lock:
            try:
                answer = self._exchange(struct.pack(">I", len(body)) + body)
            except OSError:
                answer = None
            if answer is None:
                self._stop()
                return None
        return [dict(one) for one in json.loads(answer)]

    def _exchange(self, request: bytes) -> bytes | None:
        process = self._running()
        channel = _Channel(*_pipes(process), time.monotonic() + WALL_SECONDS)
        if not channel.write(request):
            return None
        header = channel.read(4)
        return None if header is None else channel.read(struct.unpack(">I", header)[0])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._stop()
            spec = importlib.util.find_spec("_quickjs")
            if spec is None or spec.origin is None:
                raise ImportError("the package quickjs-ng is not installed")
            child = Path(__file__).with_name("regex_child.py")
            command = [sys.executable, "-I", "-S", str(child), str(Path(spec.origin).parent)]
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
            )
            for end in _pipes(process):
                os.set_blocking(end, False)
            self._process = process
            self._finalizer = weakref.finalize(self, _end, process)
        return self._process

    def _stop(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None


class _Channel:
    """Both ends of the child's pipes, with one deadline."""

    def __init__(self, to_child: int, from_child: int, deadline: float) -> None:
        self._to, self._from, self._deadline = to_child, from_child, deadline

    def _ready(self, descriptor: int, event: int) -> bool:
        poll = select.poll()
        poll.register(descriptor, event)
        return bool(poll.poll(max(0.0, self._deadline - time.monotonic()) * 1000))

    def write(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            if not self._ready(self._to, select.POLLOUT):
                return False
            view = view[os.write(self._to, view) :]
        return True

    def read(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            if not self._ready(self._from, select.POLLIN):
                return None
            part = os.read(self._from, size - len(parts))
            if not part:
                return None
            parts += part
        return bytes(parts)


def _pipes(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    if process.stdin is None or process.stdout is None:
        raise OSError("the regex process has no pipes")
    return process.stdin.fileno(), process.stdout.fileno()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for end in (process.stdin, process.stdout):
        if end is not None:
            end.close()
    process.wait()


_engine: QuickJsRegexEngine | None = None
_engine_pid = 0


def regex_engine() -> QuickJsRegexEngine:
    """This process's engine. A forked copy starts its own: pipes are not shared."""
    global _engine, _engine_pid
    if _engine is None or _engine_pid != os.getpid():
        _engine, _engine_pid = QuickJsRegexEngine(), os.getpid()
    return _engine
