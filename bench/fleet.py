"""A fleet for measuring: embedded Redis, workers as processes, and the accepting side in this process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import SecretStr

from archmax.local.redis import EmbeddedRedis
from bench.workload import write_workspace
from storage.records import EndedTurn
from storage.sessionlog import HeadMoved
from worker.client import FleetClient
from worker.protocol.accept import Draft, accept
from worker.settings import FleetSettings

REPOSITORY = Path(__file__).resolve().parent.parent


class BenchFleet:
    """See `bench_fleet`."""

    def __init__(self, client: FleetClient, root: Path, environment: dict[str, str]) -> None:
        self.client, self.root, self._environment = client, root, environment
        self.processes: list[subprocess.Popen[bytes]] = []

    async def start_worker(self, concurrency: int = 200) -> subprocess.Popen[bytes]:
        """Start one and wait until it is ready."""
        log = self.root / f"worker-{len(self.processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: ASYNC220 - starting takes a millisecond
                [sys.executable, "-m", "archmax", "worker", "--root", str(self.root)],
                env={**self._environment, "ARCHMAX_CONCURRENCY": str(concurrency)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(process)
        while b"worker ready" not in log.read_bytes():
            if process.poll() is not None:
                raise RuntimeError(log.read_text(errors="replace"))
            await asyncio.sleep(0.005)
        return process

    async def send(self, session: str, text: str, *, minted: bool = True) -> int:
        draft = Draft(session, "bench", "message", {"message": text}, minted=minted)
        return (await accept(self.client.fleet, draft)).n

    async def ended(self, session: str, turn: int, *, every_seconds: float = 0.002) -> EndedTurn:
        log = self.client.fleet.log(session)
        while True:
            try:
                head = await log.head()
                if head is not None and head.turn >= turn:
                    end = await log.ended(head, turn)
                    if end is not None:
                        return end
            except HeadMoved:
                pass
            await asyncio.sleep(every_seconds)

    def stop_workers(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(20)
        self.processes.clear()


@asynccontextmanager
async def bench_fleet(*, store: str | None = None, **settings: object) -> AsyncGenerator[BenchFleet]:
    """A fleet on a temporary workspace; `store` defaults to a directory in it."""
    with tempfile.TemporaryDirectory(prefix="archmax-bench-") as folder, EmbeddedRedis.start() as redis:
        root = Path(folder) / "workspace"
        write_workspace(root)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ARCHMAX_")},
            "ARCHMAX_REDIS_URL": redis.url,
            "ARCHMAX_HOST": "bench.workload:wire",
            "ARCHMAX_LOG_LEVEL": "info",
            "PYTHONPATH": str(REPOSITORY),
        }
        if store is not None:
            environment["ARCHMAX_STORE"] = store
        client = FleetClient(FleetSettings(root=root, redis_url=SecretStr(redis.url), store=store))
        await client.open()
        fleet = BenchFleet(client, root, environment)
        try:
            yield fleet
        finally:
            fleet.stop_workers()
            await client.close()


def resident_mib(pids: Sequence[int]) -> float:
    """Resident memory of processes and their descendants, shared pages counted once by PSS."""
    total = 0
    for pid in pids:
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except OSError:
            continue
    return total / 1024


def now() -> float:
    return time.perf_counter()
