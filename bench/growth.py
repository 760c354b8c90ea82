"""How cost grows: a session's turns and messages, sessions in the store, turns in the queue.

What would take hours to come about is written straight through storage code, in the form real turns have.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from bench.figures import Figures
from bench.fleet import BenchFleet, bench_fleet, now
from bench.turns import bench_agent, bench_workspace, run_turn
from bench.workload import message
from core.jsontext import JsonObject
from engine.host.session_folder import fold_session
from storage.directory import DirectoryStore
from storage.layout import SessionKeys
from storage.local import LOCAL
from storage.logstore import LogStore
from storage.records import EndedTurn, Head, InboxEntry, Part, Why
from storage.sessionlog import SessionLog
from worker.protocol.sweep import sweep_inbox
from worker.redis_leases import SENT

_ID: Final = re.compile(r'"([a-z]+)-[0-9a-f]{20}"')
TOGETHER: Final = 64


async def long_sessions(figures: Figures, quick: bool) -> None:
    """A turn after 10, 100, 1,000, 10,000 earlier ones; and what opening so long a session takes."""
    async with bench_workspace() as (root, sandbox):
        store = DirectoryStore(root.parent / "sessions", fsync=False)
        agent = await bench_agent(root, store, sandbox)
        session, filled = "grown", 0
        for number in range(2):
            await run_turn(agent, session, message(session, number))
        log = SessionLog(LogStore(store), session)
        template = await _last_turn(log)
        for turns in (10, 100) if quick else (10, 100, 1_000, 10_000):
            filled = await _fill_turns(log, template, turns - filled) if filled < turns else filled
            opening: list[float] = []
            for _ in range(3):
                # a store of its own has cached nothing
                fresh = SessionLog(LogStore(DirectoryStore(root.parent / "sessions", fsync=False)), session)
                head = await fresh.head()
                assert head is not None
                began = now()
                state = await fold_session(fresh, head)
                opening.append((now() - began) * 1000)
            messages = len(state.messages)
            figures.add("growth", "opening a session, by messages", "open", "ms", opening, at=messages)
            spent = [
                await run_turn(agent, session, message(session, number))
                for number in range(3 if quick else 7)
            ]
            figures.add(
                "growth", "a turn, by earlier turns of its session", "turn", "ms", spent[1:], at=turns
            )
            filled += len(spent)


async def _last_turn(log: SessionLog) -> EndedTurn:
    head = await log.head()
    assert head is not None
    end = await log.over(head)
    assert end is not None
    return end


async def _fill_turns(log: SessionLog, template: EndedTurn, count: int) -> int:
    """Add so many turns like `template`, each with message ids of its own. Returns the session's turns."""
    changes = json.dumps([change for record in template.records for change in record["changes"]])
    head = await log.head()
    assert head is not None
    for n in range(head.turn + 1, head.turn + count + 1):
        entry = InboxEntry(log.session, n, uuid.uuid4().hex, "message", template.workflow, {}, 0)
        opened = await log.claim(await log.head(), entry, by=LOCAL)
        assert opened is not None
        record: JsonObject = {**template.records[0], "changes": json.loads(_renamed(changes, n))}
        await opened.end(record, template.outcome)
    return head.turn + count


def _renamed(changes: str, n: int) -> str:
    numbers = itertools.count()
    return _ID.sub(lambda found: f'"{found[1]}-{n:010x}{next(numbers):010x}"', changes)


async def sweeps(figures: Figures, quick: bool) -> None:
    """The store's sweep over 10 to 100,000 sessions: at rest, and all with a turn that waits in the queue."""
    sizes = (10, 100, 1_000) if quick else (10, 100, 1_000, 10_000, 100_000)
    for kind in ("at rest", "waiting"):
        with tempfile.TemporaryDirectory(prefix="archmax-bench-") as folder:
            async with bench_fleet(store=(Path(folder) / "store").as_uri(), store_fsync=False) as fleet:
                filled = 0
                for size in sizes:
                    await (_rest if kind == "at rest" else _wait)(fleet, range(filled, size))
                    filled = size
                    spent: list[float] = []
                    for _ in range(3 if size < 10_000 else 1):
                        began = now()
                        sent = await sweep_inbox(fleet.client.fleet)
                        spent.append((now() - began) * 1000)
                        if sent:
                            raise RuntimeError(f"{sent} sessions were sent again")
                    figures.add("growth", f"sweep, by sessions {kind}", "sweep", "ms", spent, at=size)


async def _rest(fleet: BenchFleet, numbers: Sequence[int]) -> None:
    """Sessions whose one turn is over and cleaned up: a head and an end."""

    async def one(number: int) -> None:
        session, files = f"r{number}", fleet.client.files
        keys, life = SessionKeys(session), uuid.uuid4().hex
        part = Part(1, 5, Why.ENDED)
        head = Head(uuid.uuid4().hex, session, life, "bench", 1, 1, "fleet", uuid.uuid4().hex)
        end = EndedTurn(1, 1, head.entry, "bench", {"kind": "completed"}, (), (), (part,), w=uuid.uuid4().hex)
        await files.create(keys.head, head.body(), head.w)
        await files.create(keys.life(life).end(1, 1), end.body(), end.w)

    await _together(one, numbers)


async def _wait(fleet: BenchFleet, numbers: Sequence[int]) -> None:
    """Sessions with an accepted input whose message is on its way."""

    async def one(number: int) -> None:
        session = f"w{number}"
        body: JsonObject = {"message": message(session)}
        entry = InboxEntry(session, 1, uuid.uuid4().hex, "message", "bench", body, 0, w=uuid.uuid4().hex)
        await fleet.client.files.create(SessionKeys(session).inbox(1), entry.body(), entry.w)

    await _together(one, numbers)
    far = 10**14
    for batch in _batches(numbers, 1000):
        await fleet.client.redis.zadd(SENT, {f"w{number}.1": far for number in batch})


def _batches(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


async def _together(one: Callable[[int], Awaitable[None]], numbers: Sequence[int]) -> None:
    for batch in _batches(numbers, TOGETHER):
        await asyncio.gather(*(one(number) for number in batch))


async def queues(figures: Figures, quick: bool) -> None:
    """A queue of 100,000 turns: Redis memory of each, and what other work feels while it stands.

    The queue is made of top-level turns of two workflows, `bench` and `bench-child`. Other work is a turn of the workflow
    `other`, and one that calls `bench-child`: its child is of the very workflow whose top-level turns stand in the queue.
    Told is when a turn is claimed: how long it then takes is the workers' load. A queue of 0 is an idle fleet.
    """
    samples = 4 if quick else 40
    async with bench_fleet(store_fsync=False) as fleet:
        left = 0
        for size in (0, 300) if quick else (0, 2_000, 10_000, 100_000):
            before = await _redis_bytes(fleet)
            await _enqueue(fleet, range(left, size))
            if size:
                each = (await _redis_bytes(fleet) - before) / (size - left)
                figures.add(
                    "queue", "turns waiting, by turns", "Redis memory of each", "bytes", [each], at=size
                )
            workers = [await fleet.start_worker(16) for _ in range(2)]
            warm = await fleet.send(f"warm{size}", message("warm", fan=1), workflow="other")
            await fleet.ended(f"warm{size}", warm)
            turns: list[float] = []
            children: list[float] = []
            for number in range(samples):
                session = f"o{size}-{number}"
                began = now()
                turn = await fleet.send(session, message(session, latency_ms=20, fan=1), workflow="other")
                turns.append(await _claimed(fleet, session) - began)
                children.append(await _claimed(fleet, f"{session}~1") - began - turns[-1])
                await fleet.ended(session, turn)
            left = await _waiting(fleet)
            for kind, spent in (
                ("another workflow's turn", turns),
                ("a child of a queued workflow", children),
            ):
                milliseconds = [seconds * 1000 for seconds in spent]
                figures.add(
                    "queue", f"{kind}, by turns waiting", "until claimed", "ms", milliseconds, at=size
                )
            figures.add(
                "queue", "turns waiting in the end, by turns", "left", "turns", [left], "higher", at=size
            )
            for worker in workers:
                fleet.stop(worker)


async def _claimed(fleet: BenchFleet, session: str) -> float:
    """When a session's first turn has begun."""
    log = fleet.client.fleet.log(session)
    while await log.head() is None:  # noqa: ASYNC110 - the store tells nobody
        await asyncio.sleep(0.002)
    return now()


async def _enqueue(fleet: BenchFleet, numbers: Sequence[int]) -> None:
    name = uuid.uuid4().hex[:6]

    async def one(number: int) -> None:
        session = f"q{name}-{number}"
        workflow = "bench" if number % 2 else "bench-child"
        await fleet.send(session, message(session, latency_ms=20), workflow=workflow)

    await _together(one, numbers)


async def _redis_bytes(fleet: BenchFleet) -> int:
    used: int = (await fleet.client.redis.info("memory"))["used_memory"]
    return used


async def _waiting(fleet: BenchFleet) -> int:
    return sum(
        [
            await fleet.client.redis.llen(f"archmax.turns.{workflow}")  # type: ignore[misc]
            for workflow in ("bench", "bench-child")
        ]
    )
