"""What scripts cost: medians of an evaluation, a tool call, a suspension and many scripts at once.

Run: `python -m bench.sandbox_cost [rounds]`. Prints milliseconds, lower is better; the last line is the longest the
event loop was held up meanwhile, in CPU time of its thread, since the scripts themselves occupy every core.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from sandbox import Evaluation, HostAnswer, HostCall, Result, Sandbox, Status


async def _echo(call: HostCall) -> HostAnswer:
    return HostAnswer.ok("answer")


async def _timed(work: Callable[[], Awaitable[object]], rounds: int) -> list[float]:
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1000)
    return times


def _print(name: str, times: list[float]) -> None:
    times = sorted(times)
    print(f"{name:<58} {statistics.median(times):8.3f}  p99 {times[int(len(times) * 0.99)]:8.3f}")


def _good(result: Result) -> Result:
    assert result.status is Status.OK, result
    return result


async def _watch_loop(longest: list[float]) -> None:
    while True:
        began = time.thread_time()
        await asyncio.sleep(0)
        longest[0] = max(longest[0], (time.thread_time() - began) * 1000)


async def main(rounds: int) -> None:
    """Measure and print."""
    async with Sandbox() as sandbox:
        began = time.perf_counter()
        warm = await sandbox.repl()
        await warm.evaluate(Evaluation(source="1"))
        print(f"{'first use: zygote, fork, evaluation':<58} {(time.perf_counter() - began) * 1000:8.3f}")

        fresh: list[float] = []
        for _ in range(rounds):
            repl = await sandbox.repl()
            await asyncio.sleep(0.02)  # turns wait for models: the spare processes are forked by then
            fresh += await _timed(lambda repl=repl: repl.evaluate(Evaluation(source="1 + 1")), 1)
            await repl.close()
        _print("evaluation in a process forked ahead", fresh)
        _print(
            "evaluation in a REPL at work",
            await _timed(lambda: warm.evaluate(Evaluation(source="1 + 1")), rounds),
        )

        calls = 200
        source = f"for (let i = 0; i < {calls}; i++) await tools.echo({{ i }}); 1"
        loop = Evaluation(source=source, tools=["echo"], call=_echo)
        _print(
            "tools.* round trip, one after another",
            [t / calls for t in await _timed(lambda: warm.evaluate(loop), max(5, rounds // 20))],
        )
        source = (
            f"(await Promise.all(Array.from({{ length: {calls} }}, (_, i) => tools.echo({{ i }})))).length"
        )
        fan = Evaluation(source=source, tools=["echo"], call=_echo)
        _print(
            "tools.* call, 200 at once",
            [t / calls for t in await _timed(lambda: warm.evaluate(fan), max(5, rounds // 20))],
        )
        done = _good(await warm.evaluate(loop))
        replay = Evaluation(source=loop.source, tools=["echo"], call=_echo, journal=done.journal)
        _print("replay of 200 calls", await _timed(lambda: warm.evaluate(replay), max(5, rounds // 20)))

        longest = [0.0]
        watcher = asyncio.create_task(_watch_loop(longest))

        async def one() -> None:
            repl = await sandbox.repl()
            _good(
                await repl.evaluate(Evaluation(source="await tools.echo({}); 1", tools=["echo"], call=_echo))
            )
            await repl.close()

        _print(
            "50 scripts at once, each with a call, all of them",
            await _timed(lambda: asyncio.gather(*(one() for _ in range(50))), 5),
        )
        watcher.cancel()
        print(f"{'longest turn of the event loop meanwhile':<58} {longest[0]:8.3f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
