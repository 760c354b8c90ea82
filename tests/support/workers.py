"""Real worker processes over a real Redis and a directory store, for tests that kill, freeze and drain them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import SecretStr

from core.jsontext import JsonObject
from engine.host.session_folder import fold_session
from engine.session.state import SessionState
from storage.records import EndedTurn
from storage.sessionlog import HeadMoved
from tests.support.command import REPOSITORY, command_environment
from tests.support.nursery import Forked, nursery
from worker.client import FleetClient
from worker.protocol.accept import Accepted, Draft, accept
from worker.service import FleetService
from worker.settings import FleetSettings

#: a host whose tools leave a mark in a file when they run, so that a test can count what ran twice
HOST = '''
import asyncio, os, time
from langchain_core.tools import tool
from engine.host.tool_map import current_context

MARKS = os.environ["TEST_MARKS"]

# a machine whose clock is wrong
shift = int(os.environ.get("TEST_CLOCK_SHIFT_SECONDS", "0"))
if shift:
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + shift
    time.time_ns = lambda: right_ns() + shift * 1_000_000_000

def mark(name):
    with open(MARKS, "a") as file:
        file.write(f"{name} {current_context().idempotency_key} {os.getpid()}\\n")

@tool
async def quick(ref: str) -> str:
    """Leaves a mark at once."""
    mark(f"quick:{ref}")
    return f"did {ref}"

@tool
async def slow(ref: str, seconds: float) -> str:
    """Leaves a mark when it begins and another when it ends."""
    mark(f"begin:{ref}")
    await asyncio.sleep(seconds)
    mark(f"end:{ref}")
    return f"did {ref} slowly"

@tool
async def stubborn(seconds: float) -> str:
    """Does not let itself be stopped."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass
    return "done"

@tool
async def suicide(ref: str, seconds: float = 0) -> str:
    """Kills its own process, after a while."""
    mark(f"suicide:{ref}")
    await asyncio.sleep(seconds)
    os.kill(os.getpid(), 9)
    return "never"

def wire(context):
    return {"tools": [quick, slow, stubborn, suicide]}
'''


class RedisServer(Protocol):
    @property
    def url(self) -> str: ...


class Worker:
    """One `archmax worker` process."""

    def __init__(self, process: Forked, log: Path) -> None:
        self.process, self._log = process, log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def name(self) -> str:
        """As Celery's remote control and the dashboard know it."""
        return f"archmax-{self.process.pid}@{socket.gethostname()}"

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self, timeout_seconds: float = 120) -> int:
        """TERM, and its exit code."""
        self.process.terminate()
        return self.process.wait(timeout_seconds)


class WorkerFleet:
    """A workspace, a Redis, and as many workers as a test starts. Use as an async context manager."""

    def __init__(self, folder: Path, redis: RedisServer, *, database: int = 0, **environment: str) -> None:
        """`environment`: `ARCHMAX_…` variables of every worker and of the tests' own client."""
        self._environment = {"ARCHMAX_STORE_FSYNC": "false", **environment}
        self.root = folder / "workspace"
        self.marks = folder / "marks.txt"
        self._folder, self._redis = folder, redis
        self._workers: list[Worker] = []
        self.redis_url = f"{redis.url.rsplit('/', 1)[0]}/{database}"
        self.root.mkdir(parents=True)
        (folder / "fleet_host.py").write_text(HOST)

    async def __aenter__(self) -> WorkerFleet:
        given: dict[str, Any] = {
            name.removeprefix("ARCHMAX_").lower(): value for name, value in self._environment.items()
        }
        self.settings = FleetSettings(root=self.root, redis_url=SecretStr(self.redis_url), **given)
        self.client = FleetClient(self.settings)
        await self.client.open()
        await self.client.redis.flushdb()
        self.service = FleetService(self.settings, self.client)
        await self.service.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.signal(signal.SIGCONT)
                worker.kill()
        await self.service.close()
        await self.client.close()

    @property
    def workers(self) -> list[Worker]:
        return list(self._workers)

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def environment(self, **more: str) -> dict[str, str]:
        """Of a process of this fleet."""
        return command_environment(
            {
                "ARCHMAX_REDIS_URL": self.redis_url,
                "ARCHMAX_MODEL": "scripted:model.yaml",
                "ARCHMAX_HOST": "fleet_host:wire",
                "ARCHMAX_ROOT": str(self.root),
                "TEST_MARKS": str(self.marks),
                "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{self._folder}",
                **self._environment,
                **more,
            }
        )

    def start_worker(self, *, concurrency: int = 8, **environment: str) -> Worker:
        log = self._folder / f"worker-{len(self._workers)}.log"
        env = self.environment(ARCHMAX_CONCURRENCY=str(concurrency), **environment)
        worker = Worker(nursery().fork(log, env, "worker", "--root", str(self.root)), log)
        self._workers.append(worker)
        return worker

    async def ready(self, worker: Worker, seconds: float = 120) -> None:
        def is_ready() -> bool:
            assert worker.process.poll() is None, worker.log
            return "worker ready" in worker.log

        await until(is_ready, seconds=seconds, what="the worker to be ready")

    async def send(self, session: str, workflow: str, message: str = "go", **more: Any) -> Accepted:
        body: JsonObject = {"message": message, **more}
        return await accept(self.client.fleet, Draft(session, workflow, "message", body))

    async def accept(self, session: str, workflow: str, kind: str, body: JsonObject) -> Accepted:
        return await accept(self.client.fleet, Draft(session, workflow, kind, body))

    async def ended(self, session: str, turn: int) -> EndedTurn | None:
        log = self.client.fleet.log(session)
        try:
            head = await log.head()
            if head is None or head.turn < turn:
                return None
            return await log.ended(head, turn)
        except HeadMoved:
            return None

    async def settled(self, session: str, turn: int = 1, *, seconds: float = 120) -> EndedTurn:
        """The turn's end, once it is there."""
        deadline = time.monotonic() + seconds
        while True:
            found = await self.ended(session, turn)
            if found is not None:
                return found
            logs = "\n".join(worker.log[-2000:] for worker in self._workers)
            assert time.monotonic() < deadline, f"turn {session}.{turn} did not end in {seconds} s\n{logs}"
            await asyncio.sleep(0.05)

    async def state(self, session: str) -> SessionState:
        log = self.client.fleet.log(session)
        head = await log.head()
        assert head is not None
        return await fold_session(log, head)

    def marked(self) -> list[str]:
        """Names of the marks the tools have left, in order."""
        if not self.marks.exists():
            return []
        return [line.split()[0] for line in self.marks.read_text().splitlines()]

    def pid_of(self, mark: str) -> int:
        """The process that left a mark last."""
        lines = [line.split() for line in self.marks.read_text().splitlines()]
        return next(int(pid) for name, _key, pid in reversed(lines) if name == mark)

    def marked_keys(self) -> list[tuple[str, str]]:
        """(mark, idempotency key) pairs in order."""
        if not self.marks.exists():
            return []
        return [(line.split()[0], line.split()[1]) for line in self.marks.read_text().splitlines()]


def was_cancelled(end: EndedTurn) -> bool:
    """Before it began, or between two steps."""
    exit_code = (end.outcome.get("exit") or {}).get("code")
    return end.outcome["kind"] == "cancelled" or exit_code == "turn-cancelled"


async def until(
    condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = 120, what: str = "a condition"
) -> None:
    deadline = time.monotonic() + seconds
    while True:
        met = condition()
        if not isinstance(met, bool):
            met = await met
        if met:
            return
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        await asyncio.sleep(0.05)
