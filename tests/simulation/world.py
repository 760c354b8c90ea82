"""One simulated fleet: workers, clients, a store and a Redis, all at the mercy of one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from storage.local import LocalSession
from storage.logstore import LogStore
from storage.records import EndedTurn, InboxEntry, LogObject
from tests.simulation.engine import Engine, Poisoned
from tests.simulation.faults import Faults, draw
from tests.simulation.oracle import Oracle
from tests.simulation.redis import Ports, Redis
from tests.simulation.scheduler import Process, Scheduler, Wait
from tests.simulation.store import Client, Server
from worker.ports import Message
from worker.protocol.accept import Draft, IdempotencyKey, OnBusy, accept, delete_session
from worker.protocol.cancel import cancel
from worker.protocol.deliveries import sweep_timers
from worker.protocol.fleet import Fleet
from worker.protocol.sweep import sweep_inbox, sweep_watch
from worker.protocol.visit import attend

T = TypeVar("T")

#: longest hostile phase, and how long everything may take to come to rest afterwards, virtual ms
_HOSTILE_MS = 40_000
_REST_MS = 10_800_000
#: how often it is looked whether anything stands still, and how long that may be: a listing and a sent message's deadline
_LOOK_MS = 10_000
_STILL_MS = 100_000


async def _in_turn(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    return [await job() for job in jobs]


class Quiet:
    """Notices and webhooks nobody listens to."""

    def __init__(self, chance: random.Random, faults: Callable[[], Faults]) -> None:
        self._chance = chance
        self._faults = faults

    async def committed(self, session: str, turn: int, o: LogObject) -> None:
        return None

    async def ended(self, session: str, end: EndedTurn) -> None:
        return None

    async def accepted(self, entry: InboxEntry) -> None:
        return None

    async def deleted(self, session: str) -> None:
        return None

    async def post(self, session: str, turn: int, due: JsonObject, outcome: JsonObject) -> bool:
        return self._chance.random() >= self._faults().refused


@dataclass
class Worker:
    process: Process
    fleet: Fleet
    engine: Engine
    slots: int
    draining: bool = False
    busy: int = 0


class World:
    """`run` plays it to the end and raises `Violation` where an invariant breaks."""

    def __init__(self, seed: int, *, faults: Faults | None = None) -> None:
        self.scheduler = Scheduler(seed)
        chance = self.scheduler.random
        self.chance = chance
        self.drawn = faults or draw(chance)
        self.faults = self.drawn
        self.server = Server(self.scheduler)
        self.redis = Redis(self.scheduler, lambda: self.faults)
        self.oracle = Oracle(self.server)
        self.workers: list[Worker] = []
        self.backlog: list[Message] = []
        self._ids = 0
        self._names = 0
        self._clients_by_fleet: dict[int, Process] = {}
        self._fleets: list[Fleet] = []
        self.redis.deliver = self._deliver
        self.scheduler.before_request = self._maybe_crash
        self._mortal: set[Process] = set()
        self._local_sessions: list[str] = []
        self._local_holders: dict[str, Process] = {}
        self._sweeps = not self.drawn.none
        self._plan_clients()
        for _ in range(chance.choice((1, 1, 2, 3))):
            self._start_worker()

    # Life and death

    def _new_process(self, kind: str, *, mortal: bool = True) -> Process:
        self._names += 1
        process = Process(f"{kind}{self._names}", self.chance.randint(0, 10**9))
        if mortal:
            self._mortal.add(process)
        return process

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self.chance.getrandbits(32):08x}{self._ids:06d}"

    def fleet(self, process: Process, draining: Callable[[], bool]) -> Fleet:
        ports = Ports(self.redis, process)
        client = Client(self.server, process, lambda: self.faults)
        quiet = Quiet(self.chance, lambda: self.faults)
        files = LogStore(client, clock=ports, new_id=self._new_id, gather=_in_turn)
        return Fleet(files, ports, ports, ports, quiet, quiet, draining)

    def _start_worker(self) -> None:
        process = self._new_process("worker")
        worker: Worker
        fleet = self.fleet(process, lambda: worker.draining)
        worker = Worker(
            process,
            fleet,
            Engine(self.scheduler, self.oracle, fleet.clock),
            self.chance.choice((1, 2, 4)),
        )
        self.workers.append(worker)
        self._loop(worker, "clean", 5_000, fleet.cleaner.run_once)
        if self._sweeps:
            self._loop(worker, "watch", 1_000, lambda: sweep_watch(fleet))
            self._loop(worker, "inbox", 60_000, lambda: sweep_inbox(fleet))
        self._loop(worker, "timers", 10_000, lambda: sweep_timers(fleet))
        self._feed()

    def _loop(
        self, worker: Worker, name: str, every_ms: int, act: Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        async def loop() -> None:
            while not worker.draining:
                try:
                    await act()
                except ArchmaxError:
                    pass
                await Wait(every_ms)

        self.scheduler.spawn(f"{worker.process.name} {name}", worker.process, loop())

    def kill(self, process: Process) -> None:
        if not process.alive:
            return
        self.scheduler.log(f"{process.name} dies")
        self.oracle.counts["crashes"] += 1
        process.alive = False
        for worker in [w for w in self.workers if w.process is process]:
            self.workers.remove(worker)
            self.scheduler.at(self.chance.choice((100, 3_000, 10_000)), self._start_worker)

    def _maybe_crash(self, process: Process) -> None:
        if process in self._mortal and self.chance.random() < self.faults.crash / 4:
            self.kill(process)

    def _mishap(self) -> None:
        """Once a virtual second of the hostile phase."""
        chance, faults = self.chance, self.faults
        if faults.none:
            return
        if chance.random() < faults.freeze and self.workers:
            process = chance.choice(self.workers).process
            process.freeze(self.scheduler.now + chance.choice((800, 3_000, 30_000, 200_000)))
            self.oracle.counts["freezes"] += 1
            self.scheduler.log(f"{process.name} freezes until {process.frozen_until}")
        if chance.random() < faults.wipe:
            self.scheduler.log("redis is wiped")
            self.redis.wipe()
        if chance.random() < faults.jump:
            self.redis.skew += chance.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        if chance.random() < faults.drain and self.workers:
            worker = chance.choice(self.workers)
            self.scheduler.log(f"{worker.process.name} drains")
            worker.draining = True
            self.workers.remove(worker)
            self._start_worker()

    # The queue's other end

    def _deliver(self, message: Message) -> None:
        self.backlog.append(message)
        self._feed()

    def _feed(self) -> None:
        while self.backlog:
            free = [
                w for w in self.workers if w.busy < w.slots and w.process.frozen_until <= self.scheduler.now
            ]
            if not free:
                return
            worker = self.chance.choice(free)
            message = self.backlog.pop(self.chance.randrange(len(self.backlog)))
            worker.busy += 1
            self.scheduler.log(f"{worker.process.name} takes turn({message.session}, {message.n})")
            self.scheduler.spawn(
                f"{worker.process.name} attends {message.session}.{message.n}",
                worker.process,
                attend(worker.fleet, worker.engine, message.session, message.n),
                lambda failure, worker=worker: self._freed(worker, failure),
            )

    def _freed(self, worker: Worker, failure: Exception | None) -> None:
        worker.busy -= 1
        if failure is not None and not isinstance(failure, ArchmaxError | Poisoned):
            raise failure
        if failure is not None:
            self.scheduler.log(f"{worker.process.name}: {failure!r}")
        self._feed()

    # Clients

    def _plan_clients(self) -> None:
        chance = self.chance
        for index in range(chance.choice((1, 1, 2, 3))):
            session = f"s{index}"
            inputs = chance.choice((1, 2, 3, 5, 12))
            at = 0
            for _ in range(inputs):
                at += chance.choice((0, 1, 50, 2_000, 4_000))
                self._client(at, self._one_input(session))
            if chance.random() < 0.3:
                at = chance.randint(0, 20_000)
                self._client(at, self._one_cancel(session, chance.randint(1, inputs)))
            if chance.random() < 0.12:
                self._client(chance.randint(0, 20_000), self._one_delete(session))
            if chance.random() < 0.15:
                self._sweeps = True
                self._local_sessions.append(session)
                for _ in range(chance.choice((1, 3))):
                    self._client(chance.randint(0, 20_000), self._one_local(session))

    def _client(self, at: int, script: Callable[[Fleet], Coroutine[Any, Any, None]]) -> None:
        process = self._new_process("client")
        fleet = self.fleet(process, lambda: False)
        self._clients_by_fleet[id(fleet)] = process
        self._fleets.append(fleet)

        async def run() -> None:
            try:
                await script(fleet)
            except ArchmaxError as refused:
                self.scheduler.log(f"{process.name}: {refused!r}")

        self.scheduler.at(at, lambda: self.scheduler.spawn(process.name, process, run()))
        if self.chance.random() < self.drawn.freeze:
            when = at + self.chance.randint(1, 60)

            def freeze() -> None:
                process.freeze(self.scheduler.now + self.chance.choice((2_000, 25_000, 200_000)))

            self.scheduler.at(when, freeze)

    def _one_input(self, session: str) -> Callable[[Fleet], Coroutine[Any, Any, None]]:
        chance = self.chance
        draft = Draft(session, "w", "message", {"plan": self._plan(0)})
        on_busy = chance.choice((OnBusy.QUEUE, OnBusy.QUEUE, OnBusy.QUEUE, OnBusy.REJECT, OnBusy.INTERRUPT))
        if chance.random() < 0.35:
            key = IdempotencyKey("caller", f"k{chance.randint(1, 4)}{session}", "same")
            draft = replace(draft, input={"plan": [{"do": "step"}, {"do": "step"}]})

            async def keyed(fleet: Fleet) -> None:
                accepted = await accept(fleet, draft, on_busy=on_busy, key=key)
                self.oracle.accepted_key(key.key, accepted.session, accepted.n)

            return keyed

        async def plain(fleet: Fleet) -> None:
            begun = self.scheduler.now
            accepted = await accept(fleet, draft, on_busy=on_busy)
            identity = InboxIdentity.of(self.server, session, accepted.n)
            if identity is not None:
                self.oracle.accepted(identity, session, accepted.n, begun)

        return plain

    def _one_local(self, session: str) -> Callable[[Fleet], Coroutine[Any, Any, None]]:
        """A command that settles what a dead one left, and runs a turn of its own."""
        steps = [self.chance.choice((1, 300, 3_000)) for _ in range(self.chance.choice((0, 1, 3)))]

        pause = self.chance.choice((0, 1, 300, 3_000))

        async def script(fleet: Fleet) -> None:
            head = await fleet.log(session).head()
            rests = head is None or (not head.deleted and await fleet.log(session).over(head) is not None)
            local = LocalSession(fleet.files, session, found=(head,) if rests else ())
            await Wait(pause)

            async def turn(fleet: Fleet) -> None:
                opened = None
                while opened is None:
                    if not local.at_rest:
                        await self._settle_local(local)
                    opened = await local.open("w", 0)
                for op, ms in enumerate(steps):
                    self.oracle.begin_step(session, opened.head.life, opened.turn, opened.fence, op)
                    await Wait(ms)
                    await opened.commit({"op": op, "turn": opened.turn})
                end = await opened.end({"turn": opened.turn}, {"kind": "completed"})
                await local.close(opened, end)

            await self._holding(session, turn)(fleet)

        return script

    def _holding(
        self, session: str, script: Callable[[Fleet], Coroutine[Any, Any, None]]
    ) -> Callable[[Fleet], Coroutine[Any, Any, None]]:
        """`script` under the session's file lock, which the kernel frees when its holder dies."""

        async def alone(fleet: Fleet) -> None:
            process = self._clients_by_fleet[id(fleet)]
            holder = self._local_holders.get(session)
            if holder is not None and holder.alive:
                return
            self._local_holders[session] = process
            try:
                await script(fleet)
            finally:
                if self._local_holders.get(session) is process:
                    del self._local_holders[session]

        return alone

    async def _settle_local(self, local: LocalSession) -> None:
        while (dead := await local.dead_turn()) is not None:
            end = await dead.end({"dead": True, "turn": dead.turn}, {"kind": "failed"})
            await local.close(dead, end)

    def _one_cancel(self, session: str, n: int) -> Callable[[Fleet], Coroutine[Any, Any, None]]:
        async def script(fleet: Fleet) -> None:
            await cancel(fleet, session, n)

        return script

    def _one_delete(self, session: str) -> Callable[[Fleet], Coroutine[Any, Any, None]]:
        async def script(fleet: Fleet) -> None:
            await delete_session(fleet, session)

        return script

    def _plan(self, depth: int) -> list[JsonObject]:
        chance = self.chance
        plan: list[JsonObject] = []
        for _ in range(chance.choice((1, 1, 2, 3, 5))):
            item: JsonObject = {"do": "step", "ms": chance.choice((1, 10, 300, 300, 3_000))}
            if self.drawn.poison and chance.random() < 0.2:
                item["poison"] = chance.choice((0.3, 1.0))
            if depth < 2 and chance.random() < 0.18:
                plans = [self._plan(depth + 1) for _ in range(chance.choice((1, 2, 3, 6)))]
                item = {"do": "fan", "ms": 1, "width": chance.choice((1, 2, 4)), "plans": plans}
                plan.append(item)
                item = {"do": "again", "ms": 1}
            plan.append(item)
        if chance.random() < 0.2:
            # A child's park is presented by its parent, which sets the timer.
            wake = chance.choice((None, 1, 5, 30)) if depth == 0 else None
            plan.append({"do": "park", "wake": wake})
        elif plan[-1]["do"] == "step" and chance.random() < 0.2:
            plan[-1]["hook"] = True
        return plan

    # The whole story

    def run(self) -> None:
        scheduler = self.scheduler
        hostile = self.chance.choice((5_000, 20_000, _HOSTILE_MS))
        try:
            for second in range(hostile // 1000):
                scheduler.run(second * 1000)
                self._mishap()
            self.faults = Faults(latency=self.drawn.latency)
            scheduler.log("peace")
            # Somebody uses the command once more where one died.
            for session in self._local_sessions:
                self._client(250_000, self._one_local(session))
            until = scheduler.now + _REST_MS
            still: Counter[str] = Counter()
            while scheduler.now < until:
                scheduler.run(scheduler.now + _LOOK_MS)
                self._check_moving(still)
                local_ms = 260_000 if self._local_sessions else 0
                if scheduler.now > 60_000 + hostile + local_ms and self._at_rest():
                    break
            self.oracle.check_rest(lambda session: False)
        finally:
            scheduler.forget()

    def _check_moving(self, still: Counter[str]) -> None:
        """Nothing stands still for long while a worker could go on. `still`: for how many ms each session has."""
        now = self.scheduler.now
        standing = self.oracle.standing().difference(self._local_sessions) if self._can_work() else set()
        for session in list(still.keys() | standing):
            moved = self.oracle.moved[session] > now - _LOOK_MS
            still[session] = 0 if moved or session not in standing else still[session] + _LOOK_MS
            if still[session] > _STILL_MS:
                self.oracle.fail(f"{session} has stood still since {self.oracle.moved[session]}")

    def _can_work(self) -> bool:
        now = self.scheduler.now
        awake = all(w.process.frozen_until <= now for w in self.workers)
        return awake and any(w.busy < w.slots for w in self.workers)

    def _at_rest(self) -> bool:
        if any(w.busy or w.fleet.cleaner.waiting for w in self.workers):
            return False
        return next(self.server.below("_inbox/"), None) is None


class InboxIdentity:
    """The identity of an accepted input, as the store has it."""

    @staticmethod
    def of(server: Server, session: str, n: int) -> str | None:
        from storage.layout import SessionKeys

        key = SessionKeys(session).inbox(n)
        stored = server.objects.get(key)
        return InboxEntry.read(key, stored.body, "", 0).id if stored else None
