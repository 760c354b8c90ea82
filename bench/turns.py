"""The workloads W1–W5 on this system, and what a waiting turn, an idle worker and a start cost.

Run: `.venv/bin/python -m bench.turns [--quick] [--only W1,W5] [--s3] [--out bench/results/project.json]`

Seconds measured here say something only beside others of the same run on the same quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.figures import Figures, cpu_available
from bench.fleet import bench_fleet, now, resident_mib
from bench.workload import message, wire, write_workspace
from engine.host.agent import Agent
from engine.host.session_folder import SessionFolder
from engine.turn.assembly import assemble
from engine.turn.recorder import EventStream
from sandbox import Sandbox
from storage.directory import DirectoryStore
from storage.memory import MemoryStore
from storage.objects import ObjectStore
from worker.host import wire_fleet
from worker.settings import FleetSettings, ModelEnvironment


async def _agent(root: Path, store: ObjectStore, sandbox: Sandbox) -> Agent:
    settings = FleetSettings(root=root)
    wiring = await wire_fleet(settings, ModelEnvironment(), wire(None), sandbox)
    return Agent(assemble(wiring, "bench"), SessionFolder(store), EventStream(None))


async def w1_in_process(figures: Figures, quick: bool) -> None:
    """One turn, a new session each, in this process."""
    turns = 30 if quick else 150
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "workspace"
        write_workspace(root)
        stores: dict[str, ObjectStore] = {
            "memory": MemoryStore(),
            "directory": DirectoryStore(Path(folder) / "plain", fsync=False),
            "directory, fsync": DirectoryStore(Path(folder) / "synced"),
        }
        async with Sandbox() as sandbox:
            for name, store in stores.items():
                agent = await _agent(root, store, sandbox)
                spent: list[float] = []
                for number in range(turns + 5):
                    began = now()
                    outcome = await agent.send(f"s{number}", message=message())
                    spent.append((now() - began) * 1000)
                    if outcome.kind != "completed":
                        raise RuntimeError(outcome)
                figures.add("W1", f"in process, {name}", "turn", "ms", spent[5:])


async def w2_long_session(figures: Figures, quick: bool) -> None:
    """40 turns on one session: bytes kept, and whether a turn gets slower."""
    turns = 12 if quick else 40
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "workspace"
        write_workspace(root)
        kept = Path(folder) / "kept"
        async with Sandbox() as sandbox:
            agent = await _agent(root, DirectoryStore(kept, fsync=False), sandbox)
            spent: list[float] = []
            for _ in range(turns):
                began = now()
                await agent.send("s", message=message())
                spent.append((now() - began) * 1000)
        size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    figures.add("W2", f"{turns} turns", "bytes kept", "MB", [size / 1e6])
    figures.add("W2", f"{turns} turns", "last 3 / first 3", "ratio", [sum(spent[-3:]) / sum(spent[1:4])])


async def w1_queued(figures: Figures, quick: bool) -> None:
    """Accept to end, one at a time, through queue and worker."""
    turns = 15 if quick else 60
    async with bench_fleet() as fleet:
        await fleet.start_worker()
        for latency in (0, 20):
            spent: list[float] = []
            for number in range(turns + 5):
                session = f"q{latency}-{number}"
                began = now()
                turn = await fleet.send(session, message(latency_ms=latency))
                await fleet.ended(session, turn)
                spent.append((now() - began) * 1000)
            figures.add("W1", f"queued, directory, lat {latency}", "turn", "ms", spent[5:])


async def w3_fan_out(figures: Figures, quick: bool) -> None:
    """A parent with 50 children, two worker processes; and with one slot."""
    runs = 3 if quick else 8
    for workers, concurrency, variant in ((2, 200, "2 processes"), (1, 1, "one slot")):
        async with bench_fleet() as fleet:
            for _ in range(workers):
                await fleet.start_worker(concurrency)
            spent: list[float] = []
            for number in range(runs + 1 if concurrency > 1 else 2):
                began = now()
                turn = await fleet.send(f"f{number}", message(latency_ms=20, fan=50))
                end = await fleet.ended(f"f{number}", turn)
                if end.outcome["kind"] != "completed":
                    raise RuntimeError(end.outcome)
                spent.append(now() - began)
            figures.add("W3", f"50 children, {variant}", "fan-out", "s", spent[1:])


async def w4_killed(figures: Figures, quick: bool) -> None:
    """The holder killed in the middle of a turn of 300 ms model calls: until the turn goes on elsewhere."""
    kills = 2 if quick else 6
    async with bench_fleet() as fleet:
        spent: list[float] = []
        for number in range(kills):
            first = await fleet.start_worker()
            turn = await fleet.send(f"k{number}", message(latency_ms=300))
            log = fleet.client.fleet.log(f"k{number}")
            while True:
                head = await log.head()
                if head is not None and head.turn == turn and (await log.read_chain(head)).objects:
                    break
                await asyncio.sleep(0.01)
            fence = head.fence
            second = await fleet.start_worker()
            first.kill()
            began = now()
            first.wait()
            fleet.processes.remove(first)
            while True:
                head = await log.head()
                if head is not None and (head.fence > fence or await log.over(head) is not None):
                    break
                await asyncio.sleep(0.01)
            spent.append(now() - began)
            await fleet.ended(f"k{number}", turn)
            second.terminate()
            second.wait()
            fleet.processes.remove(second)
        figures.add("W4", "worker killed", "until it goes on", "s", spent)


async def w5_throughput(figures: Figures, quick: bool) -> None:
    """Many turns at once, 20 ms model, one and two processes."""
    turns = 100 if quick else 500
    for workers in (1, 2):
        async with bench_fleet() as fleet:
            for _ in range(workers):
                await fleet.start_worker()
            warm = await fleet.send("warm", message())
            await fleet.ended("warm", warm)
            began = now()
            numbers = await asyncio.gather(
                *(fleet.send(f"t{number}", message(latency_ms=20)) for number in range(turns))
            )
            ends = await asyncio.gather(
                *(fleet.ended(f"t{index}", n, every_seconds=0.25) for index, n in enumerate(numbers))
            )
            total = now() - began
            if any(end.outcome["kind"] != "completed" for end in ends):
                raise RuntimeError("a turn did not complete")
            figures.add(
                "W5", f"{turns} turns, {workers} process(es)", "turns/s", "1/s", [turns / total], "higher"
            )


async def waiting_turns(figures: Figures, quick: bool) -> None:
    """Turns waiting for a slow model in one process: what each adds, and what an idle worker holds."""
    turns = 50 if quick else 200
    async with bench_fleet() as fleet:
        began = now()
        worker = await fleet.start_worker()
        figures.add("start", "archmax worker", "until ready", "s", [now() - began])
        warm = await fleet.send("warm", message())
        await fleet.ended("warm", warm)
        await asyncio.sleep(1)
        idle = resident_mib(_family(worker.pid))
        figures.add("memory", "idle worker", "resident (PSS)", "MiB", [idle])
        for number in range(turns):
            await fleet.send(f"w{number}", message(calls=1, latency_ms=15_000))
        await asyncio.sleep(8)
        full = resident_mib(_family(worker.pid))
        figures.add("memory", f"{turns} waiting turns", "each adds", "MiB", [(full - idle) / turns])


def _family(pid: int) -> list[int]:
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


async def first_call(figures: Figures, quick: bool) -> None:
    """Accept to the turn's claim on an idle fleet: nearly all of what comes before the first model call."""
    turns = 20 if quick else 100
    async with bench_fleet() as fleet:
        await fleet.start_worker()
        spent: list[float] = []
        for number in range(turns + 5):
            session = f"l{number}"
            log = fleet.client.fleet.log(session)
            began = now()
            await fleet.send(session, message(calls=1, latency_ms=200))
            while await log.head() is None:  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.0005)
            spent.append((now() - began) * 1000)
        figures.add("latency", "idle fleet", "accept to claim", "ms", spent[5:])


WORKLOADS: dict[str, Callable[[Figures, bool], Awaitable[None]]] = {
    "W1": w1_in_process,
    "W1Q": w1_queued,
    "W2": w2_long_session,
    "W3": w3_fan_out,
    "W4": w4_killed,
    "W5": w5_throughput,
    "memory": waiting_turns,
    "latency": first_call,
}


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--out", type=Path, default=Path("bench/results/project.json"))
    options = parser.parse_args()
    os.environ["LANGSMITH_TRACING"] = "false"
    figures = Figures(cpu_available=cpu_available())
    print(f"processor available: {figures.cpu_available}", flush=True)
    for name in options.only.split(","):
        began = time.monotonic()
        await WORKLOADS[name](figures, options.quick)
        print(f"  ({name}: {time.monotonic() - began:.1f} s)", flush=True)
    figures.write(options.out)


if __name__ == "__main__":
    asyncio.run(_main())
