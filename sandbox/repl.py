"""One REPL: evaluations one after another in one sandbox process, replaced when an evaluation ended it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sandbox import wire
from sandbox.evaluation import Evaluation, Fault, Result, ScriptError, Status, formatted
from sandbox.journal import Journal
from sandbox.processes import Child
from sandbox.run import Run


class Repl:
    """A JavaScript session with its own globals. Evaluations queue; each sees what the earlier ones left."""

    def __init__(
        self,
        obtain: Callable[[int], Awaitable[Child]],
        memory_limit_bytes: int,
        on_killed: Callable[[Fault], None] | None = None,
    ) -> None:
        self._obtain = obtain
        self._memory_limit_bytes = memory_limit_bytes
        self._on_killed = on_killed
        self._child: Child | None = None
        self._names: set[str] = set()
        self._turn = asyncio.Lock()
        self._closed = False

    @property
    def fresh(self) -> bool:
        """Whether the next evaluation finds no state: none ran yet, or the process was lost. Replay earlier ones then."""
        return self._child is None or not self._child.alive

    async def evaluate(self, request: Evaluation) -> Result:
        """Run `request`. A failing script is a result.

        Raises: what `request.call`, `request.record` and `request.on_console` raise; `SandboxUnavailableError`;
            `RuntimeError` after `close`. The process is gone then, as it is when the caller is cancelled.
        """
        async with self._turn:
            if self._closed:
                raise RuntimeError("the REPL is closed")
            problem = unreadable(request.source)
            if problem is not None:
                return refusal(request, problem)
            if self._child is None or not self._child.alive:
                self._child = await self._obtain(self._memory_limit_bytes)
                self._names = set()
            self._names.update(request.tools)
            run = Run(self._child, request, self._names, self._memory_limit_bytes)
            keep = False
            try:
                result = await run.evaluate()
                keep = not result.lost_state
                if not keep and result.error is not None and self._on_killed is not None:
                    self._on_killed(result.error.fault)
                return result
            finally:
                if not keep:
                    self._child.kill()
                    self._child = None
                await run.abandon_calls()

    async def close(self) -> None:
        """End the process; a running evaluation fails with `Fault.CRASH`. May be repeated."""
        self._closed = True
        if self._child is not None:
            self._child.kill()


def unreadable(source: str) -> ScriptError | None:
    """Why `source` is not evaluated at all."""
    size = len(source.encode("utf-8", "replace"))
    if "\0" in source:
        problem = "the source contains a NUL character"
    elif size > wire.MAX_SOURCE_BYTES:
        problem = f"the source has {size} bytes, at most {wire.MAX_SOURCE_BYTES} are evaluated"
    else:
        return None
    return ScriptError(Fault.THROWN, "SyntaxError", problem)


def refusal(request: Evaluation, error: ScriptError, forbidden: tuple[str, ...] = ()) -> Result:
    """The result of an evaluation that never began."""
    return Result(
        status=Status.ERROR,
        journal=request.journal or Journal.begin(),
        error=error,
        formatted=formatted((), str(error), request.max_result_chars),
        forbidden=forbidden,
    )
