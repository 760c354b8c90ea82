"""A process that has imported everything and forks workers from itself.

Starting an interpreter and importing LangChain and Celery costs several seconds of processor time; a fork costs none of it.
Run as a module it is the nursery: one JSON line on stdin asks for a child (`argv` of `archmax`, or `call` with
`module:function`), its pid comes back as a line; the status a child ends with is written to `<log>.exit`. It and its
children die with the process that started it.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PRELOADED = (
    "archmax.cli.main",
    "archmax.cli.commands.worker",
    "celery.apps.worker",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "celery.worker.control",
    "kombu.transport.redis",
    "worker.tasks",
    "boto3",
    "botocore.endpoint",
)


class Forked:
    """A child of the nursery, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        try:
            return int(_exit_file(self.log).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert deadline is None or time.monotonic() < deadline, f"process {self.pid} did not end"
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Nursery:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nursery"],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def fork(self, log: Path, environment: Mapping[str, str], *argv: str) -> Forked:
        """`archmax <argv>`, its output in `log`."""
        return self._ask({"log": str(log), "env": dict(environment), "argv": list(argv)}, log)

    def call(self, log: Path, environment: Mapping[str, str], target: str, *arguments: Any) -> Forked:
        """`module:function` with JSON arguments."""
        asked = {"log": str(log), "env": dict(environment), "call": target, "arguments": list(arguments)}
        return self._ask(asked, log)

    def _ask(self, asked: dict[str, Any], log: Path) -> Forked:
        log.touch()
        into, out = self._process.stdin, self._process.stdout
        assert into is not None and out is not None
        into.write(json.dumps(asked).encode() + b"\n")
        into.flush()
        answer = out.readline()
        assert answer, "the nursery is gone"
        return Forked(int(answer), log)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()


@functools.cache
def nursery() -> Nursery:
    """The one of this test process."""
    made = Nursery()
    atexit.register(made.close)
    return made


def _exit_file(log: Path) -> Path:
    return log.with_name(f"{log.name}.exit")


def _serve() -> None:
    _die_with_parent()
    for name in _PRELOADED:
        importlib.import_module(name)
    logs: dict[int, Path] = {}
    pending = b""
    while True:
        if select.select([0], [], [], 0.02)[0]:
            read = os.read(0, 65536)
            if not read:
                return
            pending += read
        while b"\n" in pending:
            line, _, pending = pending.partition(b"\n")
            asked = json.loads(line)
            pid = os.fork()
            if pid == 0:
                _become(asked)
            logs[pid] = Path(asked["log"])
            os.write(1, b"%d\n" % pid)
        _reap(logs)


def _reap(logs: dict[int, Path]) -> None:
    while logs:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        log = logs.pop(pid, None)
        if log is not None and log.parent.is_dir():
            temporary = log.with_name(f"{log.name}.exiting")
            temporary.write_text(str(os.waitstatus_to_exitcode(status)))
            temporary.rename(_exit_file(log))


def _become(asked: dict[str, Any]) -> None:
    """In the child. Never returns."""
    _die_with_parent()
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(asked["env"])
    for folder in reversed(asked["env"].get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)
    if "call" in asked:
        module, _, name = asked["call"].partition(":")
        getattr(importlib.import_module(module), name)(*asked["arguments"])
        sys.exit(0)
    from archmax.cli.main import main

    argv: Sequence[str] = asked["argv"]
    sys.exit(main(argv))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
