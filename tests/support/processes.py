"""Processes of a test, found by a mark in their environment, and an `archmax up` or demo that runs in the background."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.command import command_environment

MARK = "ARCHMAX_TEST_MARK"


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def marked(mark: str) -> list[str]:
    """Command lines of all living processes that were started, however deep, with `MARK=mark` in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue  # it is gone, or another user's
    return found


def end(mark: str, *, seconds: float = 60) -> bool:
    """Whether all of them end in time; those killed with their parent may take a moment."""
    deadline = time.monotonic() + seconds
    while marked(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Background:
    """A command of the project that runs while a test looks at it. Its output is in one file, stderr included."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        log: Path,
        mark: str,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.mark, self._log = mark, log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=cwd,
                env=command_environment({MARK: mark, **(env or {})}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def until(self, condition: Callable[[], bool], *, seconds: float = 200) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.05)

    def interrupt(self, *, seconds: float = 120) -> int:
        """What Ctrl-C sends; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
