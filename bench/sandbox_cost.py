"""What scripts cost: an evaluation, a tool call, a suspension and many scripts at once.

The longest the event loop was held up meanwhile is CPU time of its thread: the scripts themselves occupy every core.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.figures import Figures
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


def _good(result: Result) -> Result:
    assert result.status is Status.OK, result
    return result


async def _watch_loop(longest: list[float]) -> None:
    while True:
        began = time.thread_time()
        await asyncio.sleep(0)
        longest[0] = max(longest[0], (time.thread_time() - began) * 1000)


async def scripts(figures: Figures, quick: bool) -> None:
    rounds = 20 if quick else 200

    def add(name: str, times: list[float]) -> None:
        figures.add("scripts", name, "time", "ms", times)

    async with Sandbox() as sandbox:
        began = time.perf_counter()
        warm = await sandbox.repl()
        await warm.evaluate(Evaluation(source="1"))
        add("first use: zygote, fork, evaluation", [(time.perf_counter() - began) * 1000])

        fresh: list[float] = []
        for _ in range(rounds):
            repl = await sandbox.repl()
            await asyncio.sleep(0.02)  # turns wait for models: the spare processes are forked by then
            fresh += await _timed(lambda repl=repl: repl.evaluate(Evaluation(source="1 + 1")), 1)
            await repl.close()
        add("evaluation in a process forked ahead", fresh)
        add(
            "evaluation in a REPL at work",
            await _timed(lambda: warm.evaluate(Evaluation(source="1 + 1")), rounds),
        )

        calls = 200
        source = f"for (let i = 0; i < {calls}; i++) await tools.echo({{ i }}); 1"
        loop = Evaluation(source=source, tools=["echo"], call=_echo)
        add(
            "tools.* round trip, one after another",
            [t / calls for t in await _timed(lambda: warm.evaluate(loop), max(5, rounds // 20))],
        )
        source = (
            f"(await Promise.all(Array.from({{ length: {calls} }}, (_, i) => tools.echo({{ i }})))).length"
        )
        fan = Evaluation(source=source, tools=["echo"], call=_echo)
        add(
            "tools.* call, 200 at once",
            [t / calls for t in await _timed(lambda: warm.evaluate(fan), max(5, rounds // 20))],
        )
        done = _good(await warm.evaluate(loop))
        replay = Evaluation(source=loop.source, tools=["echo"], call=_echo, journal=done.journal)
        add("replay of 200 calls", await _timed(lambda: warm.evaluate(replay), max(5, rounds // 20)))

        longest = [0.0]
        watcher = asyncio.create_task(_watch_loop(longest))

        async def one() -> None:
            repl = await sandbox.repl()
            _good(
                await repl.evaluate(Evaluation(source="await tools.echo({}); 1", tools=["echo"], call=_echo))
            )
            await repl.close()

        add(
            "50 scripts at once, each with a call, all of them",
            await _timed(lambda: asyncio.gather(*(one() for _ in range(50))), 5),
        )
        watcher.cancel()
        add("longest turn of the event loop meanwhile", longest)
