"""One evaluation in one sandbox process: replay, then calls, answers and limits until it ends or is suspended.

The process runs what it can and then says it is idle; here it is decided what comes next. Answers are delivered one
by one in an order that is written down, so running again with the same journal gives the same run (docs/decisions/0030).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from core.jsontext import clean, dumps, loads, text, too_deep, well_formed
from sandbox import wire
from sandbox.attempt import REPLAY_FACTOR, Attempt, Failed, diverged
from sandbox.evaluation import (
    Evaluation,
    Fault,
    HostCall,
    Report,
    Result,
    ScriptError,
    Status,
    aliases,
    calls_missing_tool,
    forbidden_error,
    formatted,
    missing_tool,
)
from sandbox.journal import CallRecord, Deferred, HostAnswer
from sandbox.processes import Child, SandboxDiedError
from sandbox.wire import Kind

#: calls made and not yet answered, as JSON text with some weight for each
_MAX_OUTSTANDING_BYTES: Final = 16 * 2**20
_CALL_WEIGHT_BYTES: Final = 512
_MAX_SETTLE_BYTES: Final = 2**20
#: how long cancelled calls are waited for before they are left to end by themselves
_CANCEL_SECONDS: Final = 0.1
#: CPU time beyond the time limit after which the kernel kills the process, should the host be stuck
_CPU_GRACE_SECONDS: Final = 2.0
_TOO_DEEP: Final = "the arguments are nested too deeply to leave the sandbox"


class Run:
    """One evaluation in one process."""

    def __init__(
        self, child: Child, request: Evaluation, known_tools: set[str], memory_limit_bytes: int
    ) -> None:
        self._child = child
        self._request = request
        self._known_tools = known_tools
        self._memory_limit_bytes = memory_limit_bytes
        self._attempt = Attempt(request)
        self._issued = 0
        self._sizes: dict[int, int] = {}
        self._outstanding_bytes = 0
        self._unstarted: list[HostCall] = []
        self._running: dict[asyncio.Task[HostAnswer | Deferred], HostCall] = {}
        self._done: list[asyncio.Task[HostAnswer | Deferred]] = []
        self._something_done: asyncio.Future[None] | None = None
        self._ready: list[tuple[int, HostAnswer]] = []
        self._deferred: set[int] = set()
        self._unreadable_calls: dict[int, str] = {}
        self._report: Report | None = None
        self._value_text = "null"

    async def evaluate(self) -> Result:
        try:
            await self._start()
            return await self._go_on()
        except SandboxDiedError:
            message = "the sandbox process ended unexpectedly (out of memory, or a crash of the interpreter)"
            return self._result(ScriptError(Fault.CRASH, "InternalError", message), lost_state=True)
        except Failed as failure:
            return self._result(failure.error, lost_state=True)

    async def abandon_calls(self) -> None:
        """Cancel calls still running and wait a moment for them; the rest end by themselves, unheard."""
        for task in self._running:
            task.cancel()
            task.add_done_callback(_consume)
        if self._running:
            await asyncio.wait(self._running, timeout=_CANCEL_SECONDS)

    # --- start and replay ---------------------------------------------------------------------------------------

    async def _start(self) -> None:
        request, attempt = self._request, self._attempt
        delivered = sorted(
            (record for record in attempt.journalled.values() if record.order is not None),
            key=lambda record: record.order or 0,
        )
        if attempt.first:
            attempt.end_replay()
        named = {name: alias for alias, name in aliases(request.tools).items()}
        offered = [[name, named.get(name)] for name in request.tools]
        header = {
            "source": well_formed(request.source),
            "module": request.kind == "module",
            "context": request.context,
            "args": clean(request.args),
            "tools": offered,
            "seed": [int(attempt.header.seed[at : at + 8], 16) for at in range(0, 32, 8)],
            "now": attempt.header.started_ms,
            "filename": request.filename,
            "memory": self._memory_limit_bytes,
            "cpuSeconds": (1 + REPLAY_FACTOR) * request.timeout_ms / 1000 + _CPU_GRACE_SECONDS,
        }
        await self._child.send(Kind.EVALUATE, dumps(header))
        await self._until_idle()
        for batch in _batches(delivered):
            await self._settle(batch)
            await self._until_idle()
        self._finish_replay()

    def _finish_replay(self) -> None:
        self._attempt.check_all_made()
        for seq, record in sorted(self._attempt.journalled.items()):
            if record.answer is not None and record.order is None:
                self._ready.append((seq, record.answer))
        self._attempt.end_replay()

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def _go_on(self) -> Result:
        while True:
            failed = self._report is not None and not self._report.ok
            if failed:
                self._drop_unstarted()  # a script that failed begins nothing more
            self._begin_calls()
            if self._ready:
                await self._deliver()
            elif self._running:
                await self._wait_for_answers()
            elif self._report is not None and (failed or not self._deferred):
                return self._finished(self._report)
            elif self._deferred:
                return self._result(None, status=Status.SUSPENDED, lost_state=True)
            else:
                message = "the script waits for a promise that nothing will settle"
                raise Failed(ScriptError(Fault.DEADLOCK, "DeadlockError", message))

    def _drop_unstarted(self) -> None:
        for call in self._unstarted:
            if call.seq not in self._attempt.journalled:
                del self._attempt.made[call.seq]
        self._unstarted.clear()

    def _begin_calls(self) -> None:
        for call in self._unstarted:
            problem = self._unreadable_calls.pop(call.seq, None)
            if problem is not None:
                self._ready.append((call.seq, HostAnswer.failed("TypeError", problem)))
                continue
            task = asyncio.ensure_future(self._request.call(call))
            task.add_done_callback(self._call_done)
            self._running[task] = call
        self._unstarted.clear()

    def _call_done(self, task: asyncio.Task[HostAnswer | Deferred]) -> None:
        self._done.append(task)
        if self._something_done is not None and not self._something_done.done():
            self._something_done.set_result(None)

    async def _wait_for_answers(self) -> None:
        """Wait for the next call to end, and take those that ended with it. Linear in the calls, unlike `asyncio.wait`."""
        if not self._done:
            loop = asyncio.get_running_loop()
            waiter = self._something_done = loop.create_future()
            limit = loop.call_later(self._attempt.remaining_seconds(), _stop_waiting, waiter)
            try:
                await waiter
            finally:
                limit.cancel()
                self._something_done = None
            if not self._done:
                raise Failed(self._attempt.timed_out())
        done, self._done = self._done, []
        for task in sorted(done, key=lambda task: self._running[task].seq):
            call = self._running.pop(task)
            answer = task.result()
            if isinstance(answer, Deferred):
                self._deferred.add(call.seq)
            else:
                self._ready.append((call.seq, answer))

    async def _deliver(self) -> None:
        """Record and deliver what came in, in that order."""
        ready, self._ready = self._ready, []
        batch = await self._attempt.record((seq, _portable(answer)) for seq, answer in ready)
        for part in _batches(batch):
            await self._settle(part)
            await self._until_idle()

    async def _settle(self, batch: list[CallRecord]) -> None:
        items: list[list[Any]] = []
        for record in batch:
            answer = record.answer
            if answer is None:
                continue
            self._outstanding_bytes -= self._sizes.pop(record.seq, 0)
            value = answer.text if answer.error is None else _error_json(answer)
            items.append([record.seq, answer.error is None, text(value), record.at_ms])
        await self._child.send(Kind.SETTLE, dumps(items))

    # --- what the process says ----------------------------------------------------------------------------------

    async def _until_idle(self) -> None:
        """Take in everything up to the next idle frame. Raises `Failed` at the time limit."""
        try:
            async with asyncio.timeout(self._attempt.remaining_seconds()):
                while True:
                    kind, payload = await self._child.read()
                    if kind == Kind.IDLE:
                        self._idle(payload)
                        return
                    self._take(kind, payload)
        except TimeoutError:
            raise Failed(self._attempt.timed_out()) from None

    def _take(self, kind: Kind, payload: bytes) -> None:
        match kind:
            case Kind.LINE:
                self._line(payload)
            case Kind.CALL:
                self._call(payload)
            case Kind.VALUE:
                self._value_text = payload.decode("utf-8", "replace")
            case Kind.FATAL:
                said = _loads(payload)
                raise Failed(self._script_error(str(said.get("name")), str(said.get("message")), ""))
            case _:
                raise SandboxDiedError

    def _line(self, payload: bytes) -> None:
        if len(self._attempt.logs) > wire.MAX_LINES:
            raise SandboxDiedError  # the process drops more; one that does not is not ours any longer
        line = _loads(payload)
        if not isinstance(line, str):
            raise SandboxDiedError
        self._attempt.print(line)

    def _call(self, payload: bytes) -> None:
        self._issued += 1
        seq = self._issued
        self._attempt.check_limit(seq)
        self._sizes[seq] = len(payload) + _CALL_WEIGHT_BYTES
        self._outstanding_bytes += self._sizes[seq]
        if self._outstanding_bytes > _MAX_OUTSTANDING_BYTES:
            message = f"unanswered tool calls hold more than {_MAX_OUTSTANDING_BYTES} bytes"
            raise Failed(ScriptError(Fault.CALLS, "SandboxLimitError", message))
        tool, args, problem = _parse_call(payload, seq)
        if tool not in self._known_tools:
            raise SandboxDiedError
        record = self._attempt.make(seq, tool, args)
        if problem is not None:
            self._unreadable_calls[seq] = problem
        if record.answer is None:
            self._unstarted.append(HostCall(seq, tool, args))

    def _idle(self, payload: bytes) -> None:
        state = _loads(payload)
        if "missing" in state:
            raise diverged(f"call {state['missing']} was answered before, but has not been made")
        report = state.get("report")
        if report is None:
            return
        if self._report is not None or not isinstance(report, dict):
            raise SandboxDiedError
        self._report = Report(
            ok=report.get("ok") is True,
            value_text=self._value_text,
            has_value=report.get("has") is True,
            shown=str(report.get("shown", "")),
            name=str(report.get("name", "Error")),
            message=str(report.get("message", "")),
            stack=str(report.get("stack", "")),
            missed=str(report["missed"]) if report.get("missed") is not None else None,
            exhausted=report.get("exhausted") is True,
            forbidden=tuple(str(item) for item in report.get("forbidden", ())),
        )

    # --- results ------------------------------------------------------------------------------------------------------

    def _script_error(self, name: str, message: str, stack: str) -> ScriptError:
        if name == "InternalError" and message == "out of memory":
            message = (
                f"out of memory: the limit is {self._memory_limit_bytes} bytes (settings.memoryLimitBytes)"
            )
            return ScriptError(Fault.MEMORY, name, message, stack)
        if name == "ReferenceError" and message.startswith("could not load module"):
            return ScriptError(Fault.IMPORT, "ForbiddenSandboxImportError", message, stack)
        return ScriptError(Fault.THROWN, name, message, stack)

    def _finished(self, report: Report) -> Result:
        if report.forbidden:
            return self._result(forbidden_error(report.forbidden), forbidden=report.forbidden)
        if not report.ok:
            name, message = report.name, report.message
            # without memory for an error object, what was thrown has no message or is null
            if report.exhausted and message in ("", "the script threw null"):
                name, message = "InternalError", "out of memory"
            if report.missed is not None and calls_missing_tool(report, self._request.source):
                message = f"{message}: {missing_tool(report.missed, self._request.tools)}"
            error = self._script_error(name, message, report.stack)
            return self._result(error, lost_state=report.exhausted or error.fault is Fault.MEMORY)
        try:
            value = _loads(report.value_text.encode())
            deep = too_deep(value)
        except SandboxDiedError:
            value, deep = None, True
        if deep:
            message = "the result is nested too deeply to leave the sandbox"
            return self._result(ScriptError(Fault.THROWN, "RangeError", message))
        return self._result(None, value=value, has_value=report.has_value, shown=report.shown)

    def _result(
        self,
        error: ScriptError | None,
        *,
        status: Status | None = None,
        value: Any = None,
        has_value: bool = False,
        shown: str = "",
        forbidden: tuple[str, ...] = (),
        lost_state: bool = False,
    ) -> Result:
        last = str(error) if error is not None else shown if has_value else ""
        return Result(
            status=status or (Status.OK if error is None else Status.ERROR),
            journal=self._attempt.journal(),
            value=value,
            has_value=has_value,
            error=error,
            logs=tuple(self._attempt.logs),
            formatted=formatted(self._attempt.logs, well_formed(last), self._request.max_result_chars),
            forbidden=forbidden,
            lost_state=lost_state,
        )


def _stop_waiting(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _consume(task: asyncio.Task[HostAnswer | Deferred]) -> None:
    if not task.cancelled():
        task.exception()


def _batches(records: list[CallRecord]) -> list[list[CallRecord]]:
    """Records in parts whose answers fit a frame of moderate size."""
    parts: list[list[CallRecord]] = []
    size = 0
    for record in records:
        length = len(record.answer.text) if record.answer is not None else 0
        if not parts or size + length > _MAX_SETTLE_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += length
    return parts


def _portable(answer: HostAnswer) -> HostAnswer:
    """The answer as the script will read it: well-formed, not longer than a value may be."""
    if len(answer.text) > wire.MAX_VALUE_CHARS:
        message = f"the tool's result has {len(answer.text)} characters, at most {wire.MAX_VALUE_CHARS} fit a script"
        return HostAnswer.failed("RangeError", message)
    return answer.well_formed()


def _error_json(answer: HostAnswer) -> dict[str, Any]:
    return {"name": answer.error, "message": answer.message, "data": dict(answer.data) or None}


def _parse_call(payload: bytes, seq: int) -> tuple[str, dict[str, Any], str | None]:
    """Tool, arguments and, where those cannot be read, what is wrong with them. Raises `SandboxDiedError`."""
    try:
        number, tool, args = loads(payload)
        if number != seq or not isinstance(tool, str) or not isinstance(args, dict):
            raise SandboxDiedError
        if too_deep(args):
            return tool, {}, _TOO_DEEP
        return tool, clean(args) if b"\\u" in payload else args, None
    except RecursionError:
        head = payload[: payload.find(b",", payload.find(b",") + 1)] + b"]"
        return str(_loads(head)[1]), {}, _TOO_DEEP
    except (ValueError, TypeError) as error:
        raise SandboxDiedError from error


def _loads(payload: bytes) -> Any:
    """JSON from the process, well-formed. Raises `SandboxDiedError` for what is none."""
    try:
        value = loads(payload)
        return clean(value) if b"\\u" in payload else value
    except (ValueError, RecursionError) as error:
        raise SandboxDiedError from error
