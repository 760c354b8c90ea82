"""A fleet of one process and one slot, over a real store in memory: the protocol's ports without Redis, time by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from core.jsontext import JsonObject
from storage.logstore import LogStore
from storage.memory import MemoryStore
from storage.records import EndedTurn, InboxEntry, LogObject
from worker.ports import REST_MS, BrokerUnavailable, Lease, Message
from worker.protocol.fleet import Fleet
from worker.protocol.open_turn import OpenTurn
from worker.protocol.sweep import sweep_inbox, sweep_watch
from worker.protocol.visit import attend

EPOCH = 1_700_000_000_000


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    async def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)

    async def now_ms(self) -> int:
        return EPOCH + self.ms


class HandLease:
    def __init__(self, leases: HandLeases, session: str) -> None:
        self.session = session
        self._leases = leases
        self.taken_away = False

    def lost(self) -> bool:
        return self.taken_away

    def froze_since(self, ms: int) -> bool:
        return False

    def cancelled(self, n: int) -> str | None:
        return self._leases.hints.get((self.session, n))


@dataclass
class HandLeases:
    clock: HandClock
    held: dict[str, HandLease] = field(default_factory=dict)
    woken: set[str] = field(default_factory=set)
    #: by session, and of messages by session and number
    deadlines: dict[tuple[str, int | None], int] = field(default_factory=dict)
    rests: dict[str, tuple[int, int]] = field(default_factory=dict)
    hints: dict[tuple[str, int], str] = field(default_factory=dict)

    async def take(self, session: str, n: int) -> Lease | None:
        self.deadlines.pop((session, n), None)
        if session in self.held:
            self.woken.add(session)
            return None
        self.woken.discard(session)
        self.held[session] = HandLease(self, session)
        return self.held[session]

    async def release(self, lease: Lease, *, watch_ms: int | None = None, settled: int | None = None) -> bool:
        if self.held.get(lease.session) is not lease:
            return False
        if lease.session in self.woken:
            self.woken.discard(lease.session)
            return True
        del self.held[lease.session]
        if watch_ms is not None:
            self.deadlines[lease.session, None] = self.clock.ms + watch_ms
        if settled is not None:
            self.rests[lease.session] = settled, self.clock.ms + REST_MS
        return False

    async def watch(self, messages: Sequence[Message], in_ms: int) -> None:
        for message in messages:
            self.deadlines[message.session, message.n] = self.clock.ms + in_ms

    async def overdue(self) -> list[Message]:
        late = [place for place, at in self.deadlines.items() if at <= self.clock.ms]
        for place in late:
            del self.deadlines[place]
        sessions = sorted({session for session, _ in late})
        for session in sessions:
            self.deadlines[session, 0] = self.clock.ms + 30_000
        return [Message(session, 0) for session in sessions]

    async def may_send(self, session: str, newest: int) -> bool:
        ahead = any((session, n) in self.deadlines for n in (None, 0, newest))
        after, until = self.rests.get(session, (0, -1))
        if ahead or (after >= newest and until > self.clock.ms):
            return False
        self.deadlines[session, 0] = self.clock.ms + 30_000
        return True

    async def hint_cancel(self, session: str, n: int, reason: str) -> None:
        self.hints[session, n] = reason

    async def cancel_hint(self, session: str, n: int) -> str | None:
        return self.hints.get((session, n))


@dataclass
class HandQueue:
    up: bool = True
    loses: bool = False
    messages: deque[Message] = field(default_factory=deque)

    async def alive(self) -> None:
        if not self.up:
            raise BrokerUnavailable("switched off")

    async def send(self, messages: Sequence[Message], *, delay_seconds: float = 0.0) -> None:
        if not self.up:
            raise BrokerUnavailable("switched off")
        if not self.loses:
            self.messages.extend(messages)


@dataclass
class Told:
    """Notices and webhooks, as they came."""

    committed_ids: list[str] = field(default_factory=list)
    outcomes: list[tuple[str, int, JsonObject]] = field(default_factory=list)
    posts: list[tuple[str, int]] = field(default_factory=list)
    answers: bool = True

    async def committed(self, session: str, turn: int, o: LogObject) -> None:
        self.committed_ids.append(f"{session}.{turn}.{o.fence}.{o.position}")

    async def ended(self, session: str, end: EndedTurn) -> None:
        self.outcomes.append((session, end.turn, end.outcome))

    async def accepted(self, entry: InboxEntry) -> None:
        return None

    async def deleted(self, session: str) -> None:
        self.outcomes.append((session, 0, {"kind": "deleted"}))

    async def post(self, session: str, turn: int, due: JsonObject, outcome: JsonObject) -> bool:
        self.posts.append((session, turn))
        return self.answers


Run = Callable[[OpenTurn], Awaitable[None]]


class Runner:
    """Runs each turn by a function of the test; `ran` are the turns it was given, with their fences."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.ran: list[tuple[str, int, int]] = []

    async def run(self, turn: OpenTurn) -> None:
        self.ran.append((turn.session_id, turn.turn, turn.fence))
        await self._run(turn)

    async def worker_lost(self, turn: OpenTurn) -> tuple[JsonObject | None, JsonObject, Sequence[JsonObject]]:
        return None, {"kind": "failed", "code": "worker-lost"}, []


async def steps(turn: OpenTurn) -> None:
    """`input.steps` steps, the last one with the end; a cancelled turn stops at once."""
    count = turn.entry.input.get("steps", 1)
    for step in range(len(turn.records) + 1, count + 1):
        if (reason := turn.stop()) is not None:
            await turn.end(None, {"kind": "cancelled", "reason": reason})
            return
        record = {"turn": turn.turn, "step": step}
        if step == count:
            await turn.end(record, {"kind": "completed"})
            return
        await turn.commit(record)


class HandFleet:
    """`store` is shared by several of them when a test needs several processes."""

    def __init__(
        self, run: Run = steps, *, store: MemoryStore | None = None, clock: HandClock | None = None
    ) -> None:
        self.clock = clock or HandClock()
        self.store = store or MemoryStore(now_ms=lambda: EPOCH + self.clock.ms)
        self.queue = HandQueue()
        self.leases = HandLeases(self.clock)
        self.told = Told()
        self.runner = Runner(run)
        self.draining = False
        self.files = LogStore(self.store, clock=self.clock)
        self.fleet = Fleet(
            self.files, self.clock, self.queue, self.leases, self.told, self.told, lambda: self.draining
        )

    async def work(self) -> None:
        """Attend to messages, one at a time, until none is left."""
        while self.queue.messages:
            message = self.queue.messages.popleft()
            await attend(self.fleet, self.runner, message.session, message.n)

    async def sweep(self) -> None:
        """Both sweeps: of what Redis knows to be late, and of the store."""
        await sweep_watch(self.fleet)
        await sweep_inbox(self.fleet)

    async def pass_time(self, seconds: float) -> None:
        self.clock.ms += int(seconds * 1000)
        await self.fleet.cleaner.run_once()

    def stored(self, prefix: str = "") -> list[str]:
        return [key for key in self.store._keys if key.startswith(prefix)]

    def requests(self) -> int:
        """How many requests the store has served since the last call."""
        served = sum(self.store.requests.values())
        self.store.requests.clear()
        return served
