"""A host's own JavaScript runtime in place of ours (03 §19.6), held to the same journal.

A `SandboxRuntime` evaluates classic scripts and knows nothing of turns. What makes a script durable stays here: calls
are numbered, journalled and replayed, limits kept, and an evaluation that can go on only after a sub-workflow has
answered is dropped and run again. What no runtime says is when a script rests; one whose calls all wait for
sub-workflows is taken to rest after a moment, and replaying one that did not costs nothing but time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, runtime_checkable

from core.jsontext import Json, JsonObject, clean, dumps, loads, too_deep, well_formed
from sandbox.attempt import Attempt, Failed, diverged
from sandbox.evaluation import (
    DEFAULT_MEMORY_LIMIT_BYTES,
    Evaluation,
    Fault,
    HostCall,
    Result,
    ScriptError,
    Status,
    aliases,
    forbidden_error,
    formatted,
    truncated,
)
from sandbox.journal import Deferred, HostAnswer
from sandbox.repl import refusal, unreadable
from sandbox.rewrite import Program, rewrite

logger = logging.getLogger(__name__)

#: with every call waiting for a sub-workflow and nothing heard for so long, a script is taken to rest
_QUIET_SECONDS: Final = 0.05
#: how long a runtime may take to end a cancelled evaluation before it is left alone
_CANCEL_SECONDS: Final = 0.25


class ToolRejected(Exception):
    """A `tools.*` call failed: its promise rejects with an `Error` of this name, message and further properties."""

    def __init__(self, name: str, message: str, data: Mapping[str, Json]) -> None:
        super().__init__(name, message, data)
        self.name, self.message, self.data = name, message, data

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """What a session offers its next evaluation."""

    session_id: str
    context: Literal["code-state", "ptc"]
    #: the global `args`; its `variables`, if any, are read-only
    args: Json
    #: the global `tools`: own name → function of one object (or None). Called on the loop that awaits `eval`; answers
    #: text or raises `ToolRejected`
    tools: Mapping[str, Callable[[JsonObject | None], Awaitable[str]]]
    #: camelCase name → own name: the names `tools` enumerates
    aliases: Mapping[str, str]
    #: told each console line as it is printed; a runtime that cannot returns them as `logs`
    on_console: Callable[[str], None]
    memory_limit_bytes: int
    #: kept here already; None: unbounded
    max_calls: int | None
    max_result_chars: int
    #: the same whenever the evaluation is repeated: what a runtime makes `Math.random` and `Date` of, so that a replay
    #: does what the first run did. 32 hexadecimal digits; epoch milliseconds
    seed: str
    started_ms: int


class RuntimeSession(Protocol):
    """One namespace of a runtime, as its next evaluation finds it."""

    async def eval(self, code: str, timeout_ms: int) -> Mapping[str, Any]:
        """Run a classic script without imports whose value is a promise, and await that.

        Returns: `{ok, value?, logs?, error?, formatted?}`: `value` is JSON, `error` a text or `{name, message, stack?}`,
        `formatted` the result as the model reads it. A script that fails is a result; what is raised ends the namespace.
        May be cancelled at any await.
        """
        ...


@runtime_checkable
class SandboxRuntime(Protocol):
    """What `sandbox_runtime` takes beside a `Sandbox`. Scripts must reach nothing but their globals."""

    def session(self, namespace: str, options: RuntimeOptions) -> RuntimeSession:
        """Called before every evaluation. Globals last from one to the next in a namespace until it is disposed of."""
        ...

    async def dispose(self, namespace: str) -> None:
        """Drop a namespace. It may never have been used; its name is not used again."""
        ...


class HostSandbox:
    """A host's runtime where the engine expects a `Sandbox`."""

    def __init__(self, runtime: SandboxRuntime) -> None:
        self.runtime = runtime
        self._numbers = itertools.count(1)

    async def repl(self, *, memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES) -> HostRepl:
        return HostRepl(self.runtime, self._numbers, memory_limit_bytes)


class HostRepl:
    """As `sandbox.Repl`, over namespaces of a host's runtime: a new one whenever the state of the last is lost."""

    def __init__(
        self, runtime: SandboxRuntime, numbers: itertools.count[int], memory_limit_bytes: int
    ) -> None:
        self._runtime, self._numbers, self._memory_limit_bytes = runtime, numbers, memory_limit_bytes
        self._namespace: str | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    @property
    def fresh(self) -> bool:
        """Whether the next evaluation finds no state."""
        return self._namespace is None

    async def evaluate(self, request: Evaluation) -> Result:
        """Run `request`. Raises: what `request.call`, `request.record` and `request.on_console` raise."""
        async with self._turn:
            if self._closed:
                raise RuntimeError("the REPL is closed")
            problem = unreadable(request.source)
            if problem is not None:
                return refusal(request, problem)
            module = request.kind == "module"
            program = await asyncio.to_thread(rewrite, well_formed(request.source), module=module)
            if program.forbidden:
                return refusal(request, forbidden_error(program.forbidden), program.forbidden)
            if self._namespace is None:
                self._namespace = f"{request.session_id or 'script'}/{next(self._numbers)}"
            run = _Run(self._runtime, self._namespace, request, program, self._memory_limit_bytes)
            keep = False
            try:
                result = await run.evaluate()
                keep = not result.lost_state
                return result
            finally:
                if not keep:
                    await self._drop()

    async def close(self) -> None:
        """Dispose of the namespace. May be repeated."""
        self._closed = True
        await self._drop()

    async def _drop(self) -> None:
        namespace, self._namespace = self._namespace, None
        if namespace is None:
            return
        try:
            await self._runtime.dispose(namespace)
        except Exception:  # the evaluation has its result; what the runtime keeps is the host's to look after
            logger.warning(
                "the sandbox runtime could not dispose of a namespace",
                exc_info=True,
                extra={"action": "namespace_not_disposed", "namespace": namespace},
            )


class _Run:
    """One evaluation in one namespace."""

    def __init__(
        self,
        runtime: SandboxRuntime,
        namespace: str,
        request: Evaluation,
        program: Program,
        memory_limit_bytes: int,
    ) -> None:
        self._runtime, self._namespace, self._request = runtime, namespace, request
        self._code = _script(program, request)
        self._memory_limit_bytes = memory_limit_bytes
        self._attempt = Attempt(request)
        journalled = self._attempt.journalled.values()
        #: orders of the answers a replay has yet to give
        self._owed = deque(sorted(record.order for record in journalled if record.order is not None))
        self._given = asyncio.Condition()
        self._replayed = asyncio.Event()
        self._issued = 0
        self._calls: set[asyncio.Task[str]] = set()
        #: those of them that wait for a sub-workflow
        self._deferred: set[asyncio.Task[str]] = set()
        self._delivering = asyncio.Lock()
        self._quiet: asyncio.TimerHandle | None = None
        #: done when the evaluation is over whatever the script does: an error of its own, or None for a suspension
        self._over: asyncio.Future[ScriptError | None] = asyncio.get_running_loop().create_future()

    async def evaluate(self) -> Result:
        if not self._owed:
            self._end_replay()
        work = asyncio.ensure_future(self._evaluated())
        try:
            await self._until(work)
            if self._over.done():
                return self._ended()
            if work.cancelled() or (failure := work.exception()) is not None:
                message = "the sandbox runtime gave the script up"
                if not work.cancelled():
                    message = f"the sandbox runtime failed: {type(failure).__name__}: {failure}"
                return self._result(ScriptError(Fault.CRASH, "InternalError", message), lost_state=True)
            return await self._finished(work.result())
        except Failed as failure:
            return self._result(failure.error, lost_state=True)
        finally:
            self._hush()
            tasks = {work, *self._calls}
            for task in tasks:
                task.cancel()
                task.add_done_callback(_consume)
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
            self._over.cancel()

    def _ended(self) -> Result:
        """Over before the script was: at a limit, by a divergence or to wait for sub-workflows."""
        error = self._over.result()
        return self._result(error, status=None if error else Status.SUSPENDED, lost_state=True)

    async def _evaluated(self) -> Mapping[str, Any]:
        request = self._request
        options = RuntimeOptions(
            session_id=request.session_id,
            context=request.context,
            args=clean(request.args),
            tools={name: self._tool(name) for name in request.tools},
            aliases=aliases(request.tools),
            on_console=self._print,
            memory_limit_bytes=self._memory_limit_bytes,
            max_calls=request.max_calls,
            max_result_chars=request.max_result_chars,
            seed=self._attempt.header.seed,
            started_ms=self._attempt.header.started_ms,
        )
        session = self._runtime.session(self._namespace, options)
        return await session.eval(self._code, request.timeout_ms)

    async def _until(self, *work: asyncio.Future[Any]) -> None:
        """Wait for all of `work`, the end of the evaluation or its time limit."""
        while not self._over.done() and not all(item.done() for item in work):
            remaining = self._attempt.remaining_seconds()
            if remaining <= 0:
                self._over.set_result(self._timed_out())
                return
            pending = {item for item in work if not item.done()}
            await asyncio.wait({*pending, self._over}, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)

    async def _finished(self, said: Any) -> Result:
        """The script came to its end: wait for the calls it left, then say how it ended."""
        failed = not isinstance(said, Mapping) or said.get("ok") is not True
        await self._until(*(self._calls - self._deferred))
        if self._over.done() and not (failed and self._over.result() is None):
            return self._ended()
        if not isinstance(said, Mapping):
            message = f"the sandbox runtime answered with {type(said).__name__}, not a mapping"
            return self._result(ScriptError(Fault.CRASH, "InternalError", message), lost_state=True)
        for line in list(said.get("logs") or ())[len(self._attempt.logs) :]:
            self._print(line)
        self._attempt.check_all_made()
        if failed:
            return self._result(_error(said.get("error")))
        if self._deferred:
            return self._result(None, status=Status.SUSPENDED, lost_state=True)
        try:
            value = _plain(said.get("value"))
        except (TypeError, ValueError, RecursionError) as error:
            return self._result(ScriptError(Fault.THROWN, "TypeError", f"the result is no JSON: {error}"))
        return self._result(None, value=value, has_value="value" in said, shown=said.get("formatted"))

    # --- calls --------------------------------------------------------------------------------------------------------

    def _tool(self, name: str) -> Callable[[JsonObject | None], Awaitable[str]]:
        def called(args: JsonObject | None = None) -> Awaitable[str]:
            return self._issue(name, {} if args is None else args)

        return called

    def _issue(self, tool: str, given: Any) -> Awaitable[str]:
        """Number a call as it is made, and begin to answer it."""
        if not isinstance(given, Mapping):
            raise ToolRejected("TypeError", f"tools.{tool} takes one object of arguments", {})
        try:
            args: JsonObject = _plain(dict(given))
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolRejected("TypeError", f"the arguments are no JSON: {error}", {}) from error
        self._hush()
        self._issued += 1
        task = asyncio.ensure_future(self._answer(self._issued, tool, args))
        self._calls.add(task)
        task.add_done_callback(self._answered)
        answer = asyncio.shield(task)
        answer.add_done_callback(_consume)  # a script may leave a call alone
        return answer

    async def _answer(self, seq: int, tool: str, args: JsonObject) -> str:
        try:
            self._attempt.check_limit(seq)
            record = self._attempt.make(seq, tool, args)
        except Failed as failure:
            if not self._over.done():
                self._over.set_result(failure.error)
            return await _never()
        if record.answer is not None and record.order is not None:
            await self._in_order(record.order)
            return _value(record.answer)
        await self._replayed.wait()
        try:
            answer: HostAnswer | Deferred | None = record.answer
            if answer is None:
                answer = await self._request.call(HostCall(seq, tool, args))
            if not isinstance(answer, Deferred):
                answer = await self._deliver(seq, answer)
        except Exception as error:
            if not self._over.done():
                self._over.set_exception(error)
            raise
        if not isinstance(answer, Deferred):
            return _value(answer)
        task = asyncio.current_task()
        assert task is not None
        self._deferred.add(task)
        self._listen()
        return await _never()

    async def _in_order(self, order: int) -> None:
        """Wait until it is this answer's turn in a replay."""
        async with self._given:
            await self._given.wait_for(lambda: self._owed[0] == order)
            self._owed.popleft()
            self._given.notify_all()
            if not self._owed:
                self._end_replay()

    def _end_replay(self) -> None:
        self._attempt.end_replay()
        self._replayed.set()

    async def _deliver(self, seq: int, answer: HostAnswer) -> HostAnswer:
        """Record an answer before the script has it."""
        kept = answer.well_formed()
        async with self._delivering:
            await self._attempt.record([(seq, kept)])
        return kept

    def _answered(self, task: asyncio.Task[str]) -> None:
        self._calls.discard(task)
        _consume(task)
        self._listen()

    # --- rest ---------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Once only deferred calls are left and the script stays quiet, it is suspended."""
        self._hush()
        if self._deferred and self._calls <= self._deferred:
            self._quiet = asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._suspend)

    def _hush(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

    def _suspend(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    # --- results ------------------------------------------------------------------------------------------------------

    def _print(self, line: object) -> None:  # a host's runtime may hand in what it likes
        self._attempt.print(well_formed(str(line)))

    def _timed_out(self) -> ScriptError:
        if self._attempt.replaying:
            return diverged("it did not ask again for what it was answered").error
        return self._attempt.timed_out()

    def _result(
        self,
        error: ScriptError | None,
        *,
        status: Status | None = None,
        value: Json = None,
        has_value: bool = False,
        shown: Any = None,
        lost_state: bool = False,
    ) -> Result:
        limit = self._request.max_result_chars
        if error is None and isinstance(shown, str):
            said = truncated(well_formed(shown), limit) or "(no output)"
        else:
            plain = value if isinstance(value, str) else dumps(value).decode() if has_value else ""
            said = formatted(self._attempt.logs, str(error) if error is not None else plain, limit)
        return Result(
            status=status or (Status.OK if error is None else Status.ERROR),
            journal=self._attempt.journal(),
            value=value,
            has_value=has_value,
            error=error,
            logs=tuple(self._attempt.logs),
            formatted=said,
            lost_state=lost_state,
        )


def _script(program: Program, request: Evaluation) -> str:
    """A classic script, on the lines of its source, whose value is the promise of its completion value."""
    declared = "".join(f'"{name}"in globalThis||(globalThis.{name}=void 0);' for name in program.names)
    return (
        f"globalThis.SANDBOX_CONTRACT=Object.freeze({{context:'{request.context}',version:3}});"
        f"globalThis.defineCodeState??=(f)=>f;{declared}({program.code})({{globals:globalThis,exported:void 0,finish(){{"
        "if(typeof this.exported!=='function')throw new TypeError('the default export is not a function');"
        "return this.exported({tools,...args})}})"
    )


def _value(answer: HostAnswer) -> str:
    if answer.error is not None:
        raise ToolRejected(answer.error, answer.message, answer.data)
    return answer.text


def _error(said: Any) -> ScriptError:
    if not isinstance(said, Mapping):
        return ScriptError(Fault.THROWN, "Error", well_formed(str(said or "the script failed")))
    name, message, stack = (well_formed(str(said.get(key) or "")) for key in ("name", "message", "stack"))
    return ScriptError(Fault.THROWN, name or "Error", message, stack)


async def _never() -> str:
    """Wait until the evaluation is over and this call is cancelled with it."""
    return await asyncio.get_running_loop().create_future()


def _plain(given: Any) -> Json:
    """`given` as JSON that is nobody else's. Raises: `TypeError`, `ValueError`, `RecursionError`."""
    if too_deep(given):
        raise ValueError("nested too deeply to leave the sandbox")
    return loads(dumps(clean(given)))


def _consume(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
