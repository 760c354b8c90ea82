"""One QuickJS interpreter in its own process, serving one REPL over one socket. Loaded in sandbox processes only.

The host decides when an evaluation is over; here scripts run, console lines and calls go out as they are made, and
answers come in one by one, each worked off before the next, so that the order of answers alone determines a run.
`_quickjs` is imported, not `quickjs`, whose import starts a thread. Its `eval` stops at a NUL and its strings cannot
carry one: everything crosses as JSON text, where NUL and lone surrogates are escaped.
"""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any, Final

import _quickjs

from sandbox import confine, rewrite, wire
from sandbox.wire import Kind

_STACK_BYTES: Final = 1024 * 1024  # of the 8 MiB a main thread has
#: scripts are compiled this many lines down, which tells their stack frames from the prelude's
_OFFSET_LINES: Final = 1000
_FRAME: Final = re.compile(r"<input>:(\d+)(?::(\d+))?")
_MAX_FRAMES: Final = 20
_UNSENT_BYTES: Final = 64 * 2**10
#: share of the heap's limit beyond which a failed script leaves too little for another
_EXHAUSTED: Final = 0.9
_PRELUDE: Final = (Path(__file__).with_name("prelude.js")).read_text(encoding="utf-8")


def serve(descriptor: int) -> None:
    """Run the loop of one sandbox process; returns when the host hangs up."""
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(True)
    pidfd = os.pidfd_open(os.getpid())
    interpreter = _Interpreter(connection)
    interpreter.warm_up()
    socket.send_fds(connection, [wire.frame(Kind.READY, b"")], [pidfd])
    confine.keep_only(descriptor)
    while (message := _receive(connection)) is not None:
        kind, payload = message
        try:
            interpreter.handle(kind, payload)
        except MemoryError:
            interpreter.fatal("InternalError", "out of memory")
        except Exception as error:
            interpreter.fatal(*_split(error))


def _receive(connection: socket.socket) -> tuple[int, bytes] | None:
    header = _read(connection, wire.HEADER.size)
    if header is None:
        return None
    length, kind = wire.HEADER.unpack(header)
    payload = _read(connection, length)
    return None if payload is None else (kind, payload)


def _read(connection: socket.socket, length: int) -> bytes | None:
    parts: list[bytes] = []
    while length:
        part = connection.recv(min(length, 2**20))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _split(error: BaseException) -> tuple[str, str]:
    """Name and message of what the binding raised (`Name: message`, then the stack)."""
    if str(error).strip() == "null":  # there was no memory left for an error object
        return "InternalError", "out of memory"
    name, separator, message = str(error).partition("\n")[0].partition(": ")
    return (name, message) if separator else ("Error", str(error)[: wire.MAX_MESSAGE_CHARS])


class _Interpreter:
    """The interpreter and its bridge (the functions the prelude returns)."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unsent = bytearray()
        self._lines = self._line_bytes = 0
        self._filename = "script"
        self._prefix: int | None = None
        context = _quickjs.Context()
        context.set_max_stack_size(_STACK_BYTES)
        context.add_callable("__emit", self._emit)
        context.add_callable("__take", self._take)
        limits = {
            "value": wire.MAX_VALUE_CHARS,
            "line": wire.MAX_LINE_CHARS,
            "message": wire.MAX_MESSAGE_CHARS,
            "shown": wire.MAX_SHOWN_CHARS,
        }
        context.eval(
            f"((bridge) => {{ for (const name of Object.keys(bridge)) __take(name, bridge[name]) }})(({_PRELUDE})"
            f"(__emit, {json.dumps(limits)})); delete globalThis.__emit; delete globalThis.__take;"
        )
        self._context = context

    def _take(self, name: str, function: Any) -> None:
        setattr(self, f"_js_{name}", function)

    # The functions of the prelude's bridge, put in by `_take`.
    _js_start: Any
    _js_settle: Any
    _js_report: Any
    _js_uncaught: Any
    _js_regex: Any

    def warm_up(self) -> None:
        """Go through an evaluation once, so that the pages it touches are this process's own before a script waits."""
        program = rewrite.rewrite("0", module=False)
        request = {"code": program.code, "names": [], "args": None, "tools": [], "seed": [0] * 4, "now": 0}
        self._js_start(json.dumps(request))
        self._work()
        self._js_report()

    def handle(self, kind: int, payload: bytes) -> None:
        match kind:
            case Kind.PREPARE:
                self._prepare(json.loads(payload)["memory"])
            case Kind.EVALUATE:
                self._evaluate(json.loads(payload))
            case Kind.SETTLE:
                self._settle(json.loads(payload))
            case Kind.REGEX:
                self._send(Kind.MATCHED, self._js_regex(json.dumps(json.loads(payload))).encode())
            case _:
                os._exit(1)

    def fatal(self, name: str, message: str) -> None:
        self._send(Kind.FATAL, json.dumps({"name": name, "message": message}).encode())
        os._exit(0)

    def _prepare(self, memory: int) -> None:
        confine.limit(memory)
        self._send(Kind.PREPARED, json.dumps({"seccomp": confine.seal()}).encode())

    def _evaluate(self, request: dict[str, Any]) -> None:
        confine.limit_cpu(request["cpuSeconds"])
        self._context.set_memory_limit(request["memory"])
        self._lines = self._line_bytes = 0
        self._filename = request["filename"]
        program = rewrite.rewrite(request.pop("source"), module=request["module"])
        if program.forbidden:
            report = {
                "ok": False,
                "name": "ForbiddenSandboxImportError",
                "message": "",
                "forbidden": program.forbidden,
            }
            self._send(Kind.IDLE, json.dumps({"report": report}).encode())
            return
        self._prefix = program.prefix
        request |= {"code": "\n" * _OFFSET_LINES + program.code, "names": program.names}
        self._js_start(json.dumps(request))
        self._work()
        self._idle()

    def _settle(self, answers: list[tuple[int, bool, str, int]]) -> None:
        for seq, ok, text, at in answers:
            if not self._js_settle(seq, ok, text, float(at)):
                self._idle(missing=seq)
                return
            self._work()
        self._idle()

    def _work(self) -> None:
        """Run all pending jobs. One that throws by itself (`queueMicrotask`) fails the evaluation."""
        while True:
            try:
                while self._context.execute_pending_job():
                    pass
                return
            except _quickjs.JSException as error:
                self._js_uncaught(*_split(error))

    def _idle(self, *, missing: int | None = None) -> None:
        state: dict[str, Any] = {} if missing is None else {"missing": missing}
        text: str = self._js_report()
        if text:
            report = state["report"] = json.loads(text)
            if report["ok"]:
                self._queue(Kind.VALUE, report.pop("value").encode())
                report["shown"] = self._own_lines(report["shown"])
            else:
                report["stack"] = self._own_frames(report["stack"])
                usage = self._context.memory()
                report["exhausted"] = usage["malloc_size"] > _EXHAUSTED * usage["malloc_limit"]
        self._send(Kind.IDLE, json.dumps(state).encode())

    def _emit(self, kind: str, text: str, seq: int = 0, tool: str = "") -> None:
        """Called from JavaScript. Must not raise: the binding would corrupt the interpreter's state."""
        try:
            if kind == "C":
                self._queue(Kind.CALL, f"[{seq},{tool},{text}]".encode())
            else:
                self._line(text)
        except BaseException:
            os._exit(1)

    def _line(self, text: str) -> None:
        self._lines += 1
        self._line_bytes += len(text)
        if self._lines <= wire.MAX_LINES and self._line_bytes <= wire.MAX_LINES_BYTES:
            if "<input>:" in text:
                text = json.dumps(self._own_lines(json.loads(text)))
            self._send(Kind.LINE, text.encode())
        elif self._lines <= wire.MAX_LINES + 1:
            self._lines = wire.MAX_LINES + 1
            self._send(Kind.LINE, b'"[further console output of this evaluation is dropped]"')

    def _own_lines(self, text: str) -> str:
        """`text` with positions as the author counts them."""
        return _FRAME.sub(self._position, text) if "<input>:" in text else text

    def _own_frames(self, stack: str) -> str:
        """The script's own frames of a stack: none of the prelude's, none of built-ins."""
        kept: list[str] = []
        for line in stack.splitlines():
            place = _FRAME.search(line)
            if place and int(place[1]) > _OFFSET_LINES and len(kept) < _MAX_FRAMES:
                kept.append("    " + self._own_lines(line).strip())
        return "\n".join(kept)

    def _position(self, place: re.Match[str]) -> str:
        line, column = int(place[1]) - _OFFSET_LINES, place[2]
        if line < 1:
            return self._filename
        if column is None or self._prefix is None:
            return f"{self._filename}:{line}"
        shift = self._prefix if line == 1 else 0
        return f"{self._filename}:{line}:{max(1, int(column) - shift)}"

    def _queue(self, kind: Kind, payload: bytes) -> None:
        """Send with the next frame that is sent at once: the host begins no call before the script rests anyway."""
        self._unsent += wire.frame(kind, payload)
        if len(self._unsent) > _UNSENT_BYTES:
            self._flush()

    def _send(self, kind: Kind, payload: bytes) -> None:
        self._unsent += wire.frame(kind, payload)
        self._flush()

    def _flush(self) -> None:
        self._connection.sendall(self._unsent)
        self._unsent = bytearray()
