"""Soak: mixed load for minutes while a worker is killed, frozen or drained every few seconds.

`python -m tests.worker.soak --minutes 5` (or `make soak`). At the end everything accepted must have ended, nothing may have
been done twice but calls in flight at a death, and nothing may have piled up: the litter of ended turns is gone, Redis holds
no more than its watch set and streams, and the one worker that was spared has not grown.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from archmax.local.redis import EmbeddedRedis
from storage.layout import INBOX, life_kind
from storage.records import EndedTurn, LogKind, unpack
from tests.support.workers import Worker, WorkerFleet, until, was_cancelled
from worker.ports import BrokerUnavailable
from worker.protocol.cancel import cancel
from worker.protocol.errors import TurnOver, TurnUnknown

#: turns under way at once
OUTSTANDING = 24
#: workers that may be hurt, beside the one that is spared
VICTIMS = 2
STREAM_SECONDS = 20
GROWTH_MIB = 40

MODEL = """
- { when_state: plain, after_tool: quick, tool_calls: [ { name: slow, args: { ref: two, seconds: 0.2 } } ] }
- { when_state: plain, after_tool: slow, tool_calls: [ { name: archmax_advance, args: { to: done, reason: marks } } ] }
- { when_state: plain, tool_calls: [ { name: quick, args: { ref: one } } ] }
- { when_state: done, text: done }
- { when_state: fan, after_tool: quick, tool_calls: [ { name: archmax_workflow_leaf }, { name: archmax_workflow_leaf }, { name: archmax_workflow_leaf } ] }
- { when_state: fan, after_tool: archmax_workflow_leaf, text: fan done }
- { when_state: fan, tool_calls: [ { name: quick, args: { ref: one } } ] }
- { when_state: leaf, after_tool: quick, repeat: true, text: leaf done }
- { when_state: leaf, repeat: true, tool_calls: [ { name: quick, args: { ref: leaf } } ] }
- { when_state: said, text: script done }
- { when_state: talk, repeat: true, text: answered }
- { when_state: wait, after_tool: archmax_wait, repeat: true, text: a moment }
- { when_state: wait, text: waiting, tool_calls: [ { name: archmax_wait, args: { reason: tea, until: 1s } } ] }
- { when_state: wait, repeat: true, text: awake }
"""
AGENT = """
title: {slug}
instructions: Work.
tools: {{ allow_always: [quick, slow] }}
states:
  {slug}:
    triggers: {{ manual: }}
    instructions: Work.
"""
WORKFLOWS = {
    "plain": AGENT.format(slug="plain")
    + "    transitions: [ { to: done, description: done } ]\n  done: { instructions: Say so. }\n",
    "fan": AGENT.format(slug="fan") + "    tools: { allow: [archmax_workflow_leaf] }\n",
    "leaf": AGENT.format(slug="leaf"),
    "talk": AGENT.format(slug="talk"),
    "wait": AGENT.format(slug="wait"),
    "script": """
title: script
instructions: Run.
tools: { allow_always: [quick] }
states:
  code:
    type: code
    script: scripts/run.js
    triggers: { manual: }
    tools: { allow: [quick, archmax_workflow_leaf] }
    transitions: [ { to: said } ]
  said: { instructions: Say so. }
""",
}
RUN = """
export default async function run() {
  await tools.quick({ ref: 'one' });
  await Promise.all([1, 2].map(() => tools.archmax_workflow_leaf({})));
  await tools.quick({ ref: 'two' });
  await tools.archmax_advance({ to: 'said', reason: 'done' });
}
"""
#: calls of one session, by workflow; a cancelled one may have made fewer
EXPECTED = {
    "plain": {"quick:one": 1, "begin:two": 1, "end:two": 1},
    "fan": {"quick:one": 1, "quick:leaf": 3},
    "script": {"quick:one": 1, "quick:two": 1, "quick:leaf": 2},
    "talk": {},
    "wait": {},
}


@dataclass
class Soak:
    fleet: WorkerFleet
    seed: int
    sent: dict[str, str] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    hurt: Counter[str] = field(default_factory=Counter)
    #: (seconds since the start, MiB) of the spared worker
    memory: list[tuple[float, float]] = field(default_factory=list)

    async def run(self, minutes: float) -> None:
        self._random = random.Random(self.seed)
        self.fleet.write({f"workflows/{slug}/workflow.yaml": text for slug, text in WORKFLOWS.items()})
        self.fleet.write({"workflows/script/scripts/run.js": RUN, "model.yaml": MODEL})
        self._spared = self.fleet.start_worker(concurrency=16)
        self._victims = [self.fleet.start_worker(concurrency=16) for _ in range(VICTIMS)]
        for worker in (self._spared, *self._victims):
            await self.fleet.ready(worker)
        self._started = time.monotonic()
        self._until = self._started + minutes * 60
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hurt())
            group.create_task(self._watch())
            for number in range(OUTSTANDING):
                group.create_task(self._load(number))
        await self._check()

    @property
    def _over(self) -> bool:
        return time.monotonic() > self._until

    async def _load(self, number: int) -> None:
        """Sessions one after the other."""
        lap = 0
        while not self._over:
            lap += 1
            workflow = self._random.choice(list(EXPECTED))
            session = f"{workflow}{number}x{lap}"
            self.sent[session] = workflow
            for n in range(1, 4 if workflow == "talk" else 2):
                if await self._send(session, workflow, f"message {n}"):
                    self.turns[session] = n
            if workflow == "plain" and self._random.random() < 0.2:
                self.cancelled.add(session)
                try:
                    await cancel(self.fleet.client.fleet, session, 1)
                except (TurnOver, TurnUnknown):
                    pass
            if workflow == "wait":
                self.turns[session] = 2
            await self._settled(session, self.turns[session])

    async def _settled(self, session: str, n: int) -> EndedTurn:
        """Raises: `AssertionError` with all that is known of a turn that does not end."""
        deadline = time.monotonic() + 180
        while (end := await self.fleet.ended(session, n)) is None:
            assert time.monotonic() < deadline, await self._known(session, n)
            await asyncio.sleep(0.1)
        return end

    async def _known(self, session: str, n: int) -> str:
        client = self.fleet.client
        lines = [f"turn {session}.{n} did not end"]
        for prefix in (f"{session}/", f"{session}~", f"_inbox/{session}"):
            lines += [f"{item.key} {item.modified_ms}" async for item in client.store.list(prefix)]
        for key in ("lease", "wake", "rest"):
            lines.append(f"{key} {await client.redis.get(f'archmax:{key}:{session}')}")
        for key in ("watch", "sent"):
            lines.append(f"{key} {await client.redis.zscore(f'archmax:{key}', session)}")
        lines.append(f"now {await client.clock.now_ms()}")
        for worker in self.fleet.workers:
            of = [line for line in worker.log.splitlines() if f"{session}." in line or f"{session}~" in line]
            lines += [f"{worker.name} ({worker.process.poll()})", *of]
        return "\n".join(lines)

    async def _send(self, session: str, workflow: str, text: str) -> bool:
        while True:
            try:
                await self.fleet.send(session, workflow, text)
                return True
            except BrokerUnavailable:
                await asyncio.sleep(0.2)

    async def _hurt(self) -> None:
        while not self._over:
            await asyncio.sleep(self._random.uniform(2, 5))
            at = self._random.randrange(VICTIMS)
            how = self._random.choices(["kill", "freeze", "drain"], [6, 2, 2])[0]
            self.hurt[how] += 1
            await getattr(self, f"_{how}")(at)

    async def _kill(self, at: int) -> None:
        await asyncio.to_thread(self._victims[at].kill)
        await self._replace(at)

    async def _freeze(self, at: int) -> None:
        self._victims[at].signal(signal.SIGSTOP)
        await asyncio.sleep(4)
        self._victims[at].signal(signal.SIGCONT)

    async def _drain(self, at: int) -> None:
        await asyncio.to_thread(self._victims[at].terminate, 60)
        await self._replace(at)

    async def _replace(self, at: int) -> None:
        self._victims[at] = self.fleet.start_worker(concurrency=16)
        await self.fleet.ready(self._victims[at])

    async def _watch(self) -> None:
        while not self._over:
            self.memory.append((time.monotonic() - self._started, resident_mib(self._spared)))
            await asyncio.sleep(5)

    # -- what must hold ------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        ended = 0
        for session, count in self.turns.items():
            for n in range(1, count + 1):
                end = await self._settled(session, n)
                well = end.outcome["kind"] in ("completed", "parked")
                assert well or (session in self.cancelled and was_cancelled(end)), (session, n, end.outcome)
                ended += 1
            assert await self.fleet.ended(session, count + 1) is None, f"{session} has a turn too many"
        again = self._check_marks()
        print(
            f"{ended} turns of {len(self.turns)} sessions ended; {dict(self.hurt)}; {again} calls in flight made again"
        )
        await self._check_litter()
        self._check_memory()

    def _check_marks(self) -> int:
        made: dict[str, Counter[tuple[str, str]]] = {}
        for mark, key in self.fleet.marked_keys():
            session = key.partition("/")[0].partition("~")[0]
            made.setdefault(session, Counter())[mark, key] += 1
        again = 0
        for session, workflow in self.sent.items():
            calls = made.get(session, Counter())
            names = Counter(mark for mark, _ in calls)
            if session in self.cancelled:
                assert names <= Counter(EXPECTED[workflow]), (session, names)
            else:
                assert names == EXPECTED[workflow], (session, names)
            again += sum(count - 1 for count in calls.values())
        assert again <= sum(self.hurt.values()) * OUTSTANDING
        return again

    async def _check_litter(self) -> None:
        """What a dead worker left rests three minutes, is listed within one, and goes after two more."""
        store = self.fleet.client.store

        async def empty() -> bool:
            return not [item async for item in store.list(INBOX)]

        await until(empty, seconds=480, what="the inbox to be empty")
        kinds: Counter[str] = Counter()
        for key in [item.key async for item in store.list("")]:
            parts = key.split("/")
            kind = life_kind(key) or (parts[-1] if "checkpoints" in parts else parts[0])
            if kind == "log":
                found = await store.get(key)
                kind = LogKind(unpack(key, found.body)["kind"]) if found else "gone"
            kinds[kind] += 1
        print(f"left in the store: {dict(kinds)}")
        litter = {
            kind: number for kind, number in kinds.items() if kind in ("step", "suspend", "joined", "join")
        }
        # A process that dies between two of the cleaner's requests leaves at most what one turn had.
        assert sum(litter.values()) <= 12 * sum(self.hurt.values()) // 10, litter
        redis = self.fleet.client.redis
        await asyncio.sleep(STREAM_SECONDS)
        left = Counter([str(key).split(":")[1] async for key in redis.scan_iter("archmax:*")])
        print(f"left in Redis: {dict(left)}")
        assert left["lease"] == 0 and left["wake"] <= 2, left

    def _check_memory(self) -> None:
        warm = [mib for at, mib in self.memory if at > self.memory[-1][0] * 0.4]
        print(
            f"spared worker: {warm[0]:.0f} MiB warm, {warm[-1]:.0f} MiB at the end, {max(warm):.0f} MiB at most"
        )
        assert warm[-1] - warm[0] < GROWTH_MIB, self.memory


def resident_mib(worker: Worker) -> float:
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


async def soak(folder: Path, redis: EmbeddedRedis, *, minutes: float, seed: int, database: int = 0) -> None:
    """Raises: `AssertionError` for whatever did not hold."""
    environment = {"ARCHMAX_EVENT_STREAM_SECONDS": str(STREAM_SECONDS)}
    async with WorkerFleet(folder, redis, database=database, **environment) as fleet:
        await Soak(fleet, seed).run(minutes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.worker.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, help="a new folder for everything, kept afterwards")
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    with EmbeddedRedis.start() as redis, tempfile.TemporaryDirectory(prefix="soak-") as folder:
        asyncio.run(soak(asked.keep or Path(folder), redis, minutes=asked.minutes, seed=asked.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
