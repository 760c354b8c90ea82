"""Processes come and go with the sandbox: nothing is left behind, loops may change, many scripts at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox import Evaluation, Repl, Sandbox, Status
from tests.support.scripts import (
    Host,
    eventually,
    is_live,
    live_descendants,
    run,
    sandbox_processes,
    value_of,
)

ROOT = Path(__file__).parents[2]


async def test_nothing_is_started_before_the_first_use() -> None:
    before = sandbox_processes()
    async with Sandbox() as box:
        await box.repl()
        assert sandbox_processes() <= before


async def test_close_leaves_no_process_and_no_descriptor() -> None:
    before, descriptors = sandbox_processes(), len(os.listdir("/proc/self/fd"))
    box = Sandbox()
    repls = [await box.repl() for _ in range(3)]
    for repl in repls:
        assert await value_of(repl, "1") == 1
    endless = asyncio.create_task(run(repls[0], "while (true);"))
    await asyncio.sleep(0)
    assert sandbox_processes() - before
    await box.close()
    assert (await endless).status is Status.ERROR
    await eventually(lambda: sandbox_processes() <= before)
    await eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    await box.close()


async def test_a_closed_sandbox_may_be_used_again() -> None:
    box = Sandbox(spare_processes=0)
    for _ in range(2):
        assert await value_of(await box.repl(), "2") == 2
        await box.close()


async def test_a_closed_repl_ends_its_process_and_refuses_more() -> None:
    before = sandbox_processes()
    async with Sandbox(spare_processes=0) as box:
        repl = await box.repl()
        assert await value_of(repl, "1") == 1
        own = sandbox_processes() - before
        await repl.close()
        await eventually(lambda: len(own & sandbox_processes()) < len(own))
        with pytest.raises(RuntimeError, match="closed"):
            await run(repl, "1")


async def test_a_zygote_that_died_is_replaced() -> None:
    async with Sandbox(spare_processes=0) as box:
        assert await value_of(await box.repl(), "1") == 1
        zygote = box._zygote
        assert zygote is not None
        zygote._process.kill()
        await eventually(lambda: not zygote.alive)
        assert await value_of(await box.repl(), "2") == 2


def test_a_host_killed_outright_leaves_no_process(tmp_path: Path) -> None:
    """SIGKILL runs no handler: the kernel takes the zygote and its children along."""
    script = tmp_path / "host.py"
    script.write_text(
        "import asyncio, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from sandbox import Sandbox, Evaluation\n"
        "async def main():\n"
        "    box = Sandbox()\n"
        "    repl = await box.repl()\n"
        "    await repl.evaluate(Evaluation(source='1'))\n"
        "    print('ready', flush=True)\n"
        "    await repl.evaluate(Evaluation(source='while (true);', timeout_ms=600000))\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "ready\n"
        started = live_descendants(host.pid)
        assert len(started) >= 3
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
    asyncio.run(eventually(lambda: not any(is_live(pid) for pid in started)))


def test_it_works_on_the_loop_of_another_thread_and_after_an_earlier_loop() -> None:
    """A worker's threads hand their turns to one loop in a thread of its own."""
    earlier = sandbox_processes()  # the validator's regex process lives as long as this one
    box = Sandbox(spare_processes=1)
    values: list[object] = []

    async def use() -> None:
        repl = await box.repl()
        values.append(await value_of(repl, "await tools.echo({ x: 1 })"))
        await repl.close()

    def work() -> None:
        asyncio.run(use())

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    asyncio.run(use())

    async def finish() -> None:
        await use()
        await box.close()

    before = os.getpid()
    asyncio.run(finish())
    assert values == ["1"] * 4 and before == os.getpid()
    asyncio.run(eventually(lambda: sandbox_processes() <= earlier))


async def test_two_running_loops_need_two_sandboxes() -> None:
    async with Sandbox(spare_processes=0) as box:
        assert await value_of(await box.repl(), "1") == 1
        caught: list[BaseException] = []

        def work() -> None:
            try:
                asyncio.run(_first_repl(box))
            except RuntimeError as error:
                caught.append(error)

        await asyncio.to_thread(work)
        assert len(caught) == 1
        assert await value_of(await box.repl(), "2") == 2


async def _first_repl(box: Sandbox) -> Repl:
    return await box.repl()


async def test_fifty_scripts_at_once_each_get_their_own_answers() -> None:
    async with Sandbox() as box:

        async def one(number: int) -> None:
            repl = await box.repl()
            source = f"globalThis.me = {number}; const r = await Promise.all([1, 2, 3].map(i => tools.echo({{ x: me * 10 + i }}))); r.join()"
            assert await value_of(repl, source) == ",".join(str(number * 10 + i) for i in (1, 2, 3))
            assert await value_of(repl, "me") == number
            await repl.close()

        await asyncio.gather(*(one(number) for number in range(50)))


async def test_evaluations_of_one_repl_queue() -> None:
    async with Sandbox(spare_processes=0) as box:
        repl = await box.repl()
        sources = ["globalThis.n = (globalThis.n ?? 0) + 1; await tools.echo(); n"] * 10
        results = await asyncio.gather(*(run(repl, source) for source in sources))
        assert [result.value for result in results] == list(range(1, 11))


async def test_repls_share_nothing() -> None:
    async with Sandbox(spare_processes=0) as box:
        one, two = await box.repl(), await box.repl()
        await run(one, "globalThis.secret = 1; Object.prototype.leak = 1")
        assert await value_of(two, "[typeof secret, ({}).leak === undefined]") == ["undefined", True]


async def test_many_evaluations_in_many_repls_of_many_threads_worth_of_work() -> None:
    """Known fault of QuickJS contexts shared by threads: here each has one owner, so answers are right."""
    async with Sandbox() as box:
        repls = [await box.repl() for _ in range(8)]

        async def work(repl: Repl, base: int) -> None:
            for number in range(25):
                result = await repl.evaluate(Evaluation(source=f"{base} * 1000 + {number}"))
                assert result.value == base * 1000 + number

        await asyncio.gather(*(work(repl, base) for base, repl in enumerate(repls)))


async def test_a_host_without_tools_answers_every_call_with_an_error() -> None:
    async with Sandbox(spare_processes=0) as box:
        repl = await box.repl()
        result = await repl.evaluate(Evaluation(source="await tools.x()", tools=["x"]))
        assert result.error is not None and "not available" in result.error.message
        host = Host()
        assert await value_of(repl, "typeof tools.x", host) == "undefined"
