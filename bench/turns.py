"""The workloads W1–W5 on this system, and what a waiting turn, an idle worker, a start and the first call cost."""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.figures import Figures, percentile
from bench.fleet import BenchFleet, bench_fleet, cpu_seconds, family, now, resident_mib
from bench.workload import marks, message, wire, write_workspace
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

WARM = 5
#: W4 as the peers play it: a turn of 5 model calls of 300 ms and 4 tool calls of 200 ms, killed at these seconds
W4_LATENCY_MS, W4_TOOL_MS = 300, 200
W4_KILLS = tuple(0.1 + (index + 0.5) * 0.2 for index in range(10))


async def bench_agent(
    root: Path, store: ObjectStore, sandbox: Sandbox, host: dict[str, Any] | None = None
) -> Agent:
    """The workflow `bench`, driven in this process."""
    wiring = await wire_fleet(FleetSettings(root=root), ModelEnvironment(), host or wire(None), sandbox)
    return Agent(assemble(wiring, "bench"), SessionFolder(store), EventStream(None))


@asynccontextmanager
async def bench_workspace() -> AsyncGenerator[tuple[Path, Sandbox]]:
    with tempfile.TemporaryDirectory(prefix="archmax-bench-") as folder:
        root = Path(folder) / "workspace"
        write_workspace(root)
        async with Sandbox() as sandbox:
            yield root, sandbox


async def run_turn(agent: Agent, session: str, text: str) -> float:
    """Milliseconds of one turn in this process. Raises: `RuntimeError` when it did not complete."""
    began = now()
    outcome = await agent.send(session, message=text)
    spent = (now() - began) * 1000
    if outcome.kind != "completed":
        raise RuntimeError(outcome)
    return spent


async def w1_in_process(figures: Figures, quick: bool) -> None:
    """One turn, a new session each, in this process."""
    async with bench_workspace() as (root, sandbox):
        for name, store, turns in (
            ("memory", MemoryStore(), 150),
            ("directory", DirectoryStore(root.parent / "plain", fsync=False), 150),
            ("directory, fsync", DirectoryStore(root.parent / "synced"), 150),
            ("S3", _s3_server().store(), 60),
        ):
            agent = await bench_agent(root, store, sandbox)
            spent = [
                await run_turn(agent, f"s{number}", message(f"s{number}"))
                for number in range((10 if quick else turns) + WARM)
            ]
            await store.close()
            figures.add("W1", f"in process, {name}, lat 0", "turn", "ms", spent[WARM:])


async def w1_queued(figures: Figures, quick: bool) -> None:
    """Accept to end, one at a time, through queue and worker; and the same from a POST to the API."""
    for store, settings in (("directory, fsync", {}), ("S3", _s3_settings())):
        async with bench_fleet(**settings) as fleet:
            await fleet.start_worker()
            url = await fleet.start_api()
            api = fleet.processes[-1].pid
            async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
                for number in range(WARM):  # the first requests import what they need
                    await _waited(http, f"warm{number}", message("warm"))
                before = cpu_seconds([api])
                turns = await _w1_ways(figures, fleet, http, store, quick)
                each = (cpu_seconds([api]) - before) * 1000 / turns
                figures.add("W1", f"HTTP, {store}", "API CPU of a turn", "ms", [each])


async def _w1_ways(
    figures: Figures, fleet: BenchFleet, http: httpx.AsyncClient, store: str, quick: bool
) -> int:
    """Returns how many turns went through HTTP."""

    async def queue(session: str, text: str) -> None:
        await fleet.ended(session, await fleet.send(session, text))

    async def wait(session: str, text: str) -> None:
        await _waited(http, session, text)

    async def stream(session: str, text: str) -> None:
        turn = await _post(http, session, text)
        async with http.stream("GET", f"/v1/turns/{turn}/events") as answer:
            answer.raise_for_status()
            async for _ in answer.aiter_lines():
                pass  # the stream closes behind the turn's end

    through_http = 0
    for way, run in (("queue", queue), ("HTTP, ?wait=", wait), ("HTTP, events", stream)):
        for latency in (0, 20):
            spent: list[float] = []
            for number in range((5 if quick else 60 if latency == 0 else 30) + WARM):
                session = f"{uuid.uuid4().hex[:8]}-{number}"
                began = now()
                await run(session, message(session, latency_ms=latency))
                spent.append((now() - began) * 1000)
            through_http += len(spent) if run is not queue else 0
            figures.add("W1", f"{way}, {store}, lat {latency}", "turn", "ms", spent[WARM:])
    return through_http


async def _waited(http: httpx.AsyncClient, session: str, text: str) -> None:
    turn = await _post(http, session, text)
    answer = await http.get(f"/v1/turns/{turn}", params={"wait": 30})
    answer.raise_for_status()
    if answer.json()["status"] != "settled":
        raise RuntimeError(answer.text)


async def _post(http: httpx.AsyncClient, session: str, text: str) -> str:
    answer = await http.post("/v1/workflows/bench/sessions", json={"sessionId": session, "message": text})
    answer.raise_for_status()
    turn: str = answer.json()["turnId"]
    return turn


async def w2_long_session(figures: Figures, quick: bool) -> None:
    """40 turns on one session: bytes kept, and whether a turn gets slower."""
    turns = 12 if quick else 40
    growth: list[float] = []
    kept: list[float] = []
    async with bench_workspace() as (root, sandbox):
        for run in range(1 if quick else 3):
            folder = root.parent / f"kept-{run}"
            agent = await bench_agent(root, DirectoryStore(folder), sandbox)
            for number in range(WARM):
                await run_turn(agent, f"warm{number}", message("warm", number))
            before = _size(folder)
            spent = [await run_turn(agent, "long", message("long", number)) for number in range(turns)]
            growth.append(sum(spent[-3:]) / sum(spent[:3]))
            kept.append((_size(folder) - before) / 1e6)
    figures.add("W2", f"{turns} turns", "bytes kept", "MB", kept)
    figures.add("W2", f"{turns} turns", "last 3 / first 3", "ratio", growth)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def w3_fan_out(figures: Figures, quick: bool) -> None:
    """A parent with 50 children, two worker processes; and with one slot."""
    children = 50
    for workers, concurrency, variant in ((2, 200, "2 processes"), (1, 1, "one slot")):
        runs = 1 if concurrency == 1 else 2 if quick else 8
        async with bench_fleet() as fleet:
            for _ in range(workers):
                await fleet.start_worker(concurrency)
            for latency in (0, 20) if concurrency > 1 else (20,):
                spent: list[float] = []
                for number in range(runs + 1):
                    session = f"f{latency}-{number}"
                    began = now()
                    turn = await fleet.send(session, message(session, latency_ms=latency, fan=children))
                    await fleet.ended(session, turn)
                    spent.append(now() - began)
                figures.add("W3", f"{children} children, {variant}, lat {latency}", "fan-out", "s", spent[1:])


async def w4_killed(figures: Figures, quick: bool) -> None:
    """Kill -9 of the holder of a turn of 2.3 s: until the turn goes on elsewhere, and which calls ran twice."""
    resumed: list[float] = []
    done: list[float] = []
    repeated: list[float] = []
    twice: list[float] = []
    async with bench_fleet() as fleet:
        workers = {process.pid: process for process in [await fleet.start_worker() for _ in range(2)]}
        for number, delay in enumerate(W4_KILLS[::5] if quick else W4_KILLS):
            session = f"k{number}"
            turn = await fleet.send(session, message(session, latency_ms=W4_LATENCY_MS, tool_ms=W4_TOOL_MS))
            begun_at, pid = await _first_call(fleet, session)
            await asyncio.sleep(max(0.0, begun_at + delay - time.time()))
            killed = workers.pop(pid)
            began = time.time()
            killed.kill()
            killed.wait()
            committed = await _committed_calls(fleet, session)
            before = {key for key, _, _ in marks(fleet.effects)}
            fleet.processes.remove(killed)
            while not (again := _acts(fleet, session, after=began, by=set(workers))):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.005)
            resumed.append(min(again) - began)
            await fleet.ended(session, turn)
            done.append(time.time() - began)
            ran = [key for key, _, _ in marks(fleet.effects) if key.startswith(f"{session}/")]
            repeated.append(sum(ran.count(f"{session}/0/{call}") > 1 for call in committed & {0, 1, 2, 3}))
            twice.append(len(ran) - len(set(ran)))
            if not committed <= {int(key.rsplit("/", 1)[1]) for key in before if key.startswith(session)}:
                raise RuntimeError("a call was committed that never ran")
            fresh = await fleet.start_worker()
            workers[fresh.pid] = fresh
    figures.add("W4", "worker killed", "until it goes on", "s", resumed)
    figures.add("W4", "worker killed", "until it is done", "s", done)
    figures.add("W4", "worker killed", "committed calls repeated", "1/kill", repeated)
    figures.add("W4", "worker killed", "calls run twice", "1/kill", twice)


async def _first_call(fleet: BenchFleet, session: str) -> tuple[float, int]:
    """When, and in which process, a turn's first model call began."""
    while True:
        for key, at, pid in marks(fleet.calls):
            if key == f"{session}/0/0":
                return at, pid
        await asyncio.sleep(0.002)


def _acts(fleet: BenchFleet, session: str, *, after: float, by: set[int]) -> list[float]:
    """When a turn's model or tool calls were made by other processes."""
    rows = marks(fleet.calls) + marks(fleet.effects)
    return [at for key, at, pid in rows if key.startswith(f"{session}/") and at > after and pid in by]


async def _committed_calls(fleet: BenchFleet, session: str) -> set[int]:
    """Numbers of the tool calls whose answers are in the log of the open turn."""
    log = fleet.client.fleet.log(session)
    head = await log.head()
    if head is None:
        return set()
    found: set[int] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("role") == "tool" and str(value.get("id", "")).startswith("c"):
                found.add(int(value["id"][1:]))
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    for logged in (await log.read_chain(head)).objects:
        look(logged.record)
    return found


async def w5_throughput(figures: Figures, quick: bool) -> None:
    """Many turns at once, one and two processes."""
    turns = 60 if quick else 500
    for workers in (1, 2):
        async with bench_fleet() as fleet:
            for _ in range(workers):
                await fleet.start_worker()
            await fleet.ended("warm", await fleet.send("warm", message("warm")))
            for latency in (0, 20):
                variant = f"{turns} turns, {workers} process(es), lat {latency}"
                pids = [pid for process in fleet.processes for pid in family(process.pid)]
                before = cpu_seconds(pids), cpu_seconds([fleet.redis.pid])
                runs = 1 if quick else 3
                spent = [await _burst(fleet, f"t{latency}-{run}", turns, latency) for run in range(runs)]
                rates = [turns / seconds for seconds in spent]
                figures.add("W5", variant, "turns/s", "1/s", rates, "higher")
                curve = f"{turns} turns at once, lat {latency}, by worker processes"
                figures.add("growth", curve, "turns/s", "1/s", rates, "higher", at=workers)
                for name, began, cost in (
                    ("worker", before[0], cpu_seconds(pids)),
                    ("Redis", before[1], cpu_seconds([fleet.redis.pid])),
                ):
                    each = (cost - began) * 1000 / (turns * runs)
                    figures.add("W5", variant, f"{name} CPU of a turn", "ms", [each])


async def _burst(fleet: BenchFleet, name: str, turns: int, latency: int) -> float:
    """Seconds until so many turns sent at once have ended."""
    began = now()
    sent = await asyncio.gather(
        *(fleet.send(f"{name}-{n}", message(f"{name}-{n}", latency_ms=latency)) for n in range(turns))
    )
    await fleet.all_ended()
    spent = now() - began
    await asyncio.gather(*(fleet.ended(f"{name}-{index}", n) for index, n in enumerate(sent)))
    return spent


async def waiting_turns(figures: Figures, quick: bool) -> None:
    """Turns waiting for a slow model in one process: what each adds, what others feel, what an idle worker holds."""
    turns, wait_seconds = (20, 40) if quick else (200, 60)
    # twice as many slots: the others' turns are to meet the waiting ones in the process, not to queue for a slot
    async with bench_fleet() as fleet:
        worker = await fleet.start_worker(2 * turns)
        for number in range(20):
            await fleet.ended(f"warm{number}", await fleet.send(f"warm{number}", message("warm")))
        alone = await _turns(fleet, "alone", 5 if quick else 60)
        await asyncio.sleep(1)
        idle = resident_mib(family(worker.pid))
        figures.add("memory", "idle worker", "resident (PSS)", "MiB", [idle])
        for number in range(turns):
            await fleet.send(
                f"slow{number}", message(f"slow{number}", calls=1, latency_ms=wait_seconds * 1000)
            )
        while sum(key.startswith("slow") for key, _, _ in marks(fleet.calls)) < turns:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        full = resident_mib(family(worker.pid))
        beside = await _turns(fleet, "beside", 5 if quick else 60)
        figures.add("memory", f"{turns} waiting turns", "each adds", "MiB", [(full - idle) / turns])
        ratio = percentile(beside, 0.5) / percentile(alone, 0.5)
        figures.add("memory", f"{turns} waiting turns", "others' latency", "ratio", [ratio])


async def _turns(fleet: BenchFleet, name: str, count: int, *, workflow: str = "bench") -> list[float]:
    """Milliseconds of turns, one after the other."""
    spent: list[float] = []
    for number in range(count):
        session = f"{name}-{number}"
        began = now()
        await fleet.ended(session, await fleet.send(session, message(session), workflow=workflow))
        spent.append((now() - began) * 1000)
    return spent


async def starts(figures: Figures, quick: bool) -> None:
    """From the command `archmax worker` to the end of a first turn that was waiting."""
    first: list[float] = []
    async with bench_fleet() as fleet:
        for number in range(2 if quick else 6):
            session = f"s{number}"
            turn = await fleet.send(session, message(session))
            began = now()
            process, _ = fleet.spawn_worker()
            await fleet.ended(session, turn)
            first.append(now() - began)
            fleet.stop(process)
    figures.add("start", "archmax worker", "to its first turn's end", "s", first)


async def first_call(figures: Figures, quick: bool) -> None:
    """Accept to the first model call, on an idle fleet."""
    spent: list[float] = []
    async with bench_fleet() as fleet:
        await fleet.start_worker()
        for number in range((15 if quick else 200) + WARM):
            session = f"l{number}"
            began = time.time()
            turn = await fleet.send(session, message(session, calls=1))
            called_at, _ = await _first_call(fleet, session)
            spent.append((called_at - began) * 1000)
            await fleet.ended(session, turn)
    figures.add("latency", "idle fleet", "accept to first model call", "ms", spent[WARM:])


def _s3_server() -> Any:
    """A real S3-speaking server on loopback, as the tests use it."""
    from tests.support.seaweed import running

    return running()


def _s3_settings() -> dict[str, Any]:
    server = _s3_server()
    return {
        "store": f"s3://{server.bucket}/{uuid.uuid4().hex}",
        "s3_endpoint_url": server.endpoint_url,
        "s3_region": "us-east-1",
        "s3_access_key_id": server.credentials.access_key_id,
        "s3_secret_access_key": server.credentials.secret_access_key,
    }
