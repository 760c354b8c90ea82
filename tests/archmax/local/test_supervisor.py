from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from archmax.cli.render.style import Style
from archmax.local.ports import free_port
from archmax.local.supervisor import LONGEST_LINE_BYTES, Part, Supervisor
from tests.support.command import command_environment
from tests.support.processes import alive

#: prints the word of its argument and waits; on SIGTERM says goodbye and ends
POLITE = """
import signal, sys, time
def bye(*_):
    print("bye", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, bye)
print("hello", sys.argv[1], flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""
LISTENER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""
#: leaves a child of its own behind, whose number it prints
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""


def python(name: str, script: str, *arguments: str, **more: object) -> Part:
    return Part(name=name, command=[sys.executable, "-c", script, *arguments], **more)  # pyrefly: ignore[bad-argument-type]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.01)


class Fleet:
    """A supervisor at work and what it has said."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.stream = io.StringIO()
        self.supervisor = Supervisor(parts, stream=self.stream, style=Style())
        self.task = asyncio.create_task(self.supervisor.run())

    @property
    def log(self) -> str:
        return self.stream.getvalue()

    async def says(self, text: str) -> None:
        await until(lambda: text in self.log or self.task.done())
        assert text in self.log


async def test_every_line_carries_its_parts_name():
    fleet = Fleet([python("a", POLITE, "one"), python("worker-1", POLITE, "two")])
    await fleet.says("worker-1 │ hello two")
    await fleet.says("a        │ hello one")
    fleet.supervisor.stop()
    assert await fleet.task == 0
    assert fleet.log.count("│ bye") == 2
    assert fleet.log.endswith("stopped\n")


async def test_a_part_that_listens_is_told_once_it_does_and_the_next_stage_waits_for_it():
    port = free_port()
    fleet = Fleet(
        [
            python("later", POLITE, "x", stage=2),
            python("redis", LISTENER, str(port), stage=0, port=port, listens=f"127.0.0.1:{port}"),
        ]
    )
    await fleet.says("later │ hello x")
    log = fleet.log
    assert log.index(f"● redis  127.0.0.1:{port}") < log.index("later │ hello x")
    fleet.supervisor.stop()
    assert await fleet.task == 0


async def test_stages_stop_from_the_last_to_the_first():
    """The API before the workers, the workers before Redis."""
    fleet = Fleet([python("first", POLITE, "x", stage=0), python("last", POLITE, "y", stage=1)])
    await fleet.says("first │ hello x")
    await fleet.says("last  │ hello y")
    fleet.supervisor.stop()
    assert await fleet.task == 0
    assert fleet.log.index("last  │ bye") < fleet.log.index("first │ bye")


async def test_one_part_that_ends_by_itself_ends_all_with_a_line_that_says_which():
    fleet = Fleet(
        [python("steady", POLITE, "x"), python("weak", "import time, sys; time.sleep(0.2); sys.exit(3)")]
    )
    assert await fleet.task == 1
    assert "✖ weak ended by itself (exit code 3); stopping everything" in fleet.log
    assert "steady ended" not in fleet.log


async def test_a_part_that_is_killed_is_told_by_its_signal():
    fleet = Fleet([python("weak", "import os; os.kill(os.getpid(), 9)")])
    assert await fleet.task == 1
    assert "weak ended by itself (SIGKILL)" in fleet.log


async def test_a_command_that_does_not_exist_ends_all_and_says_so():
    fleet = Fleet([Part(name="gone", command=["/nonexistent/command"])])
    assert await fleet.task == 1
    assert "No such file or directory" in fleet.log


async def test_a_part_that_ignores_its_end_is_killed_after_its_grace():
    fleet = Fleet([python("deaf", STUBBORN, grace_seconds=0.2)])
    await fleet.says("deaf │ deaf")
    fleet.supervisor.stop()
    assert await fleet.task == 0
    assert "deaf did not end in time and was killed" in fleet.log


async def test_asking_twice_does_not_wait_for_the_grace():
    fleet = Fleet([python("deaf", STUBBORN, grace_seconds=600)])
    await fleet.says("deaf │ deaf")
    fleet.supervisor.stop()
    fleet.supervisor.stop()
    assert await fleet.task == 0
    assert "killed" in fleet.log


async def test_what_a_part_leaves_behind_is_killed_with_it():
    fleet = Fleet([python("parent", PARENT)])
    await fleet.says("child ")
    child = int(fleet.log.split("child ")[1].split()[0])
    fleet.supervisor.stop()
    assert await fleet.task == 0
    await until(lambda: not alive(child))


async def test_a_part_that_ends_is_noticed_even_if_something_it_started_holds_its_output():
    fleet = Fleet([python("parent", PARENT.replace("time.sleep(600)\n", "sys.exit(4)\n"), grace_seconds=600)])
    assert await fleet.task == 1
    assert "parent ended by itself (exit code 4)" in fleet.log
    child = int(fleet.log.split("child ")[1].split()[0])
    await until(lambda: not alive(child))


async def test_output_held_open_by_a_process_that_left_the_group_does_not_hold_up_the_end():
    escaped = PARENT.replace('time.sleep(600)"]', 'time.sleep(600)"], start_new_session=True')
    fleet = Fleet([python("parent", escaped)])
    await fleet.says("child ")
    child = int(fleet.log.split("child ")[1].split()[0])
    fleet.supervisor.stop()
    assert await fleet.task == 0
    os.kill(child, signal.SIGKILL)


async def test_a_stop_while_parts_still_start_is_a_clean_stop():
    fleet = Fleet([python("slow", POLITE, "x", port=free_port())])
    await fleet.says("hello x")
    fleet.supervisor.stop()
    assert await fleet.task == 0


async def test_endless_and_hostile_output_is_cut_and_cleaned():
    script = f"import sys, time; sys.stdout.write('\\x1b[2J' + 'x' * {3 * LONGEST_LINE_BYTES}); sys.stdout.flush(); time.sleep(600)"
    fleet = Fleet([python("noisy", script)])
    await until(lambda: fleet.log.count("x") >= 2 * LONGEST_LINE_BYTES)
    fleet.supervisor.stop()
    assert await fleet.task == 0
    assert "\x1b" not in fleet.log
    assert max(map(len, fleet.log.split("\n"))) < 3 * LONGEST_LINE_BYTES


DRIVER = f"""
import asyncio, sys
from archmax.cli.render.style import Style
from archmax.local.supervisor import Part, Supervisor
polite = {POLITE!r}
parts = [Part(name=n, command=[sys.executable, "-c", polite + "\\n", n]) for n in ("a", "b")]
async def main():
    return await Supervisor(parts, stream=sys.stdout, style=Style()).run()
sys.exit(asyncio.run(main()))
"""


def start_driver() -> tuple[subprocess.Popen[str], list[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        env=command_environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    seen: list[str] = []
    while sum("hello" in line for line in seen) < 2:
        seen.append(process.stdout.readline())
        assert seen[-1], "it ended too early"
    return process, seen


def children_of(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_ctrl_c_and_sigterm_end_a_real_supervisor_and_its_children():
    """SIGINT reaches the whole foreground group; only the supervisor is in it."""
    for number, to_group in ((signal.SIGINT, True), (signal.SIGTERM, False)):
        process, _ = start_driver()
        with process:
            children = children_of(process.pid)
            assert len(children) == 2
            (os.killpg if to_group else os.kill)(process.pid, number)
            rest, _ = process.communicate(timeout=90)
        assert process.returncode == 0
        assert rest.count("bye") == 2
        assert rest.endswith("stopped\n")
        assert not any(alive(child) for child in children)


def test_a_killed_supervisor_leaves_nothing_running():
    process, _ = start_driver()
    with process:
        children = children_of(process.pid)
        process.kill()
    deadline = time.monotonic() + 90
    while any(alive(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)
