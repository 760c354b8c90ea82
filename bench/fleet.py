"""A fleet for measuring: embedded Redis, workers and an API as processes, and the accepting side in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from archmax.local.ports import free_port
from archmax.local.processes import dying_with_parent
from archmax.local.redis import EmbeddedRedis
from bench.workload import write_workspace
from storage.records import EndedTurn
from storage.sessionlog import HeadMoved
from worker.client import FleetClient
from worker.events import OPEN
from worker.protocol.accept import Draft, accept
from worker.settings import FleetSettings

REPOSITORY = Path(__file__).resolve().parent.parent


class BenchFleet:
    """See `bench_fleet`."""

    def __init__(
        self, client: FleetClient, redis: EmbeddedRedis, root: Path, environment: dict[str, str]
    ) -> None:
        self.client, self.redis, self.root, self._environment = client, redis, root, environment
        self.effects = Path(environment["BENCH_EFFECTS"])
        self.calls = Path(environment["BENCH_CALLS"])
        self.processes: list[subprocess.Popen[bytes]] = []
        self._logs = 0

    def spawn_worker(self, concurrency: int = 200) -> tuple[subprocess.Popen[bytes], Path]:
        """Start one; the process and its log."""
        return self._spawn(["worker", "--root", str(self.root)], {"ARCHMAX_CONCURRENCY": str(concurrency)})

    async def start_worker(self, concurrency: int = 200) -> subprocess.Popen[bytes]:
        """Start one and wait until it is ready."""
        process, log = self.spawn_worker(concurrency)
        while b"worker ready" not in log.read_bytes():
            self._alive(process, log)
            await asyncio.sleep(0.005)
        return process

    async def start_api(self) -> str:
        """Start one that asks for no key, and wait until it answers; its base URL."""
        port = free_port("127.0.0.1")
        process, log = self._spawn(
            ["api", "--root", str(self.root)],
            {
                "ARCHMAX_API_PORT": str(port),
                "ARCHMAX_AUTH_DISABLED": "1",
                "ARCHMAX_API_RATE_PER_SECOND": "100000",
                "ARCHMAX_API_RATE_BURST": "100000",
            },
        )
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            while True:
                self._alive(process, log)
                with contextlib.suppress(httpx.HTTPError):
                    if (await http.get("/healthz")).status_code == 200:
                        return url
                await asyncio.sleep(0.02)

    def _spawn(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[subprocess.Popen[bytes], Path]:
        self._logs += 1
        log = self.root.parent / f"{arguments[0]}-{self._logs}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                dying_with_parent([sys.executable, "-m", "archmax", *arguments]),
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(process)
        return process, log

    @staticmethod
    def _alive(process: subprocess.Popen[bytes], log: Path) -> None:
        if process.poll() is not None:
            raise RuntimeError(log.read_text(errors="replace"))

    async def send(self, session: str, text: str, *, workflow: str = "bench", minted: bool = True) -> int:
        draft = Draft(session, workflow, "message", {"message": text}, minted=minted)
        return (await accept(self.client.fleet, draft)).n

    async def ended(self, session: str, turn: int, *, every_seconds: float = 0.002) -> EndedTurn:
        """Wait for the turn's end. Raises: `RuntimeError` when it did not complete."""
        log = self.client.fleet.log(session)
        while True:
            try:
                head = await log.head()
                if head is not None and head.turn >= turn:
                    end = await log.ended(head, turn)
                    if end is not None:
                        if end.outcome["kind"] != "completed":
                            raise RuntimeError(end.outcome)
                        return end
            except HeadMoved:
                pass
            await asyncio.sleep(every_seconds)

    async def all_ended(self) -> None:
        """Wait until nothing accepted is open, by the fleet's own list: asking the store would cost what is measured."""
        while await self.client.redis.hlen(OPEN):  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.02)

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        process.wait(60)
        self.processes.remove(process)

    def kill_all(self) -> None:
        """What they hold is thrown away with the fleet: nothing to drain."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.processes.clear()


@asynccontextmanager
async def bench_fleet(**settings: Any) -> AsyncGenerator[BenchFleet]:
    """A fleet on a temporary workspace. `settings` as `FleetSettings`' (`store`, `s3_endpoint_url`, `store_fsync`, …).

    Every process gets them; the store defaults to a directory in the workspace, with fsync.
    """
    with tempfile.TemporaryDirectory(prefix="archmax-bench-") as folder, EmbeddedRedis.start() as redis:
        root = Path(folder) / "workspace"
        write_workspace(root)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ARCHMAX_")},
            **{f"ARCHMAX_{name.upper()}": str(value) for name, value in settings.items()},
            "ARCHMAX_REDIS_URL": redis.url,
            "ARCHMAX_HOST": "bench.workload:wire",
            "ARCHMAX_LOG_LEVEL": "info",
            "LANGSMITH_TRACING": "false",
            "PYTHONPATH": str(REPOSITORY),
            "BENCH_NOTES": str(Path(folder) / "notes"),
            "BENCH_EFFECTS": str(Path(folder) / "effects"),
            "BENCH_CALLS": str(Path(folder) / "calls"),
        }
        client = FleetClient(FleetSettings(root=root, redis_url=SecretStr(redis.url), **settings))
        await client.open()
        fleet = BenchFleet(client, redis, root, environment)
        try:
            yield fleet
        finally:
            fleet.kill_all()
            await client.close()


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, frontier = [pid], [pid]
    while frontier:
        frontier = [child for parent in frontier for child in children.get(parent, [])]
        found += frontier
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """Processor time processes have used so far, with that of their ended children."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(value) for value in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mib(pids: Sequence[int]) -> float:
    """Resident memory of processes, shared pages counted once (PSS)."""
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
