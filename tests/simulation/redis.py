"""Redis as the protocol uses it, in virtual time: leases, wake flags, the watch set, hints, and the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.faults import Faults
from tests.simulation.scheduler import Process, Request, Scheduler
from tests.simulation.store import EPOCH
from worker.ports import REST_MS, BrokerUnavailable, Lease, Message

LEASE_MS = 2_000
RENEW_MS = 500
_WAKE_MS = 86_400_000
_WATCH_MS = 30_000


class SimLease:
    """Renewed by the scheduler while its process lives and is awake."""

    def __init__(self, session: str, token: int) -> None:
        self.session = session
        self.token = token
        self.held = True
        self.round = 0
        self.taken_away = False
        self.renewed_ms = 0
        self.failing = False
        self.hints: dict[int, str] = {}
        self.rude = False
        self.now: Callable[[], int] = lambda: 0

    def lost(self) -> bool:
        return self.taken_away and not self.rude

    def froze_since(self, ms: int) -> bool:
        return not self.rude and self.now() - max(ms, self.renewed_ms) > LEASE_MS

    def cancelled(self, n: int) -> str | None:
        return self.hints.get(n)


class Redis:
    """The server's state, and everything that time does to it."""

    def __init__(self, scheduler: Scheduler, faults: Callable[[], Faults]) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.leases: dict[str, tuple[int, int]] = {}
        self.wake: dict[str, int] = {}
        self.watch: dict[str, int] = {}
        self.sent: dict[tuple[str, int], int] = {}
        #: the turn a session rests after, and until when
        self.rest: dict[str, tuple[int, int]] = {}
        self.cancels: dict[tuple[str, int], str] = {}
        self.boot_ms = -10_000
        self.tokens = 0
        self.skew = 0
        #: hands a message to a worker
        self.deliver: Callable[[Message], None] = lambda message: None
        #: the mutation of §3's release: leaves without looking at the wake flag
        self.ignores_wake = False

    @property
    def now(self) -> int:
        return self.scheduler.now + self.skew

    def wipe(self) -> None:
        self.leases.clear()
        self.wake.clear()
        self.watch.clear()
        self.sent.clear()
        self.rest.clear()
        self.cancels.clear()
        self.boot_ms = self.scheduler.now

    def take(self, session: str, n: int) -> int | None:
        now = self.scheduler.now
        held = self.leases.get(session)
        rude = self.faults().rude and self.scheduler.random.random() < self.faults().rude
        if not rude and ((held is not None and held[1] > now) or now - self.boot_ms < 1_000):
            self.wake[session] = now + _WAKE_MS
            if held is not None and held[1] > now:
                self.sent.pop((session, n), None)
            else:
                self.watch[session] = now + 1_000
            return None
        self.wake.pop(session, None)
        self.sent.pop((session, n), None)
        self.tokens += 1
        self.leases[session] = (self.tokens, now + LEASE_MS)
        self.watch[session] = now + LEASE_MS
        return self.tokens

    def renew(self, lease: SimLease) -> bool:
        now = self.scheduler.now
        held = self.leases.get(lease.session)
        if held is not None and held[0] != lease.token and held[1] > now:
            return False
        self.leases[lease.session] = (lease.token, now + LEASE_MS)
        self.watch[lease.session] = now + LEASE_MS
        lease.hints = {n: why for (session, n), why in self.cancels.items() if session == lease.session}
        return True

    def release(self, lease: SimLease, watch_ms: int | None, settled: int | None) -> bool:
        now = self.scheduler.now
        held = self.leases.get(lease.session)
        if held is None or held[0] != lease.token:
            return False
        if not self.ignores_wake and self.wake.pop(lease.session, 0) > now:
            return True
        del self.leases[lease.session]
        if watch_ms is not None:
            self.watch[lease.session] = now + watch_ms
        else:
            self.watch.pop(lease.session, None)
        if settled is not None:
            self.rest[lease.session] = settled, now + REST_MS
        return False

    def overdue(self) -> list[str]:
        now = self.scheduler.now
        dead = [session for session, at in self.watch.items() if at <= now]
        lost = [message for message, at in self.sent.items() if at <= now]
        for session in dead:
            del self.watch[session]
        for message in lost:
            del self.sent[message]
        late = sorted({*dead, *(session for session, _ in lost)})
        for session in late:
            self.sent[session, 0] = now + _WATCH_MS
        return late

    def may_send(self, session: str, newest: int) -> bool:
        now = self.scheduler.now
        after, until = self.rest.get(session, (0, 0))
        ahead = session in self.watch or any((session, n) in self.sent for n in (0, newest))
        if (after >= newest and until > now) or ahead:
            return False
        self.sent[session, 0] = now + _WATCH_MS
        return True


class Ports:
    """`Queue`, `Leases` and `Clock` of one process."""

    def __init__(self, redis: Redis, process: Process) -> None:
        self._redis = redis
        self._process = process

    async def _ask(self, act: Callable[[], Any]) -> Any:
        chance, faults = self._redis.scheduler.random, self._redis.faults()
        there, back = int(chance.random() * 4), int(chance.random() * 4)
        dice = chance.random()
        if dice < faults.redis / 2:
            return await Request(None, there, back, BrokerUnavailable("simulated"))
        if dice < faults.redis:
            return await Request(act, there, back, BrokerUnavailable("simulated"))
        return await Request(act, there, back)

    # Queue

    async def alive(self) -> None:
        await self._ask(lambda: None)

    async def send(self, messages: Sequence[Message], *, delay_seconds: float = 0.0) -> None:
        for message in messages:
            await self._ask(lambda message=message: self._post(message, int(delay_seconds * 1000)))

    def _post(self, message: Message, delay: int) -> None:
        scheduler, faults = self._redis.scheduler, self._redis.faults()
        chance = scheduler.random
        if chance.random() < faults.message_lost:
            return
        for _ in range(2 if chance.random() < faults.message_doubled else 1):
            extra = chance.choice((500, 5_000, 50_000)) if chance.random() < faults.message_delayed else 0
            scheduler.at(delay + extra + chance.randint(1, 10), lambda: self._redis.deliver(message))

    # Leases

    async def take(self, session: str, n: int) -> Lease | None:
        token = await self._ask(lambda: self._redis.take(session, n))
        if token is None:
            return None
        lease = SimLease(session, token)
        lease.now = self.monotonic_ms
        lease.renewed_ms = self.monotonic_ms()
        lease.rude = self._redis.faults().rude > 0
        self._redis.scheduler.at(RENEW_MS, lambda: self._renew(lease, 0))
        return lease

    def _renew(self, lease: SimLease, round: int) -> None:
        redis, scheduler = self._redis, self._redis.scheduler
        if not lease.held or round != lease.round or not self._process.alive or lease.taken_away:
            return
        if self._process.frozen_until > scheduler.now:
            scheduler.at(self._process.frozen_until - scheduler.now + 1, lambda: self._renew(lease, round))
            return
        lease.failing = scheduler.random.random() < redis.faults().redis
        if not lease.failing:
            if redis.renew(lease):
                lease.renewed_ms = self.monotonic_ms()
            else:
                lease.taken_away = True
        scheduler.at(RENEW_MS, lambda: self._renew(lease, round))

    async def release(self, lease: Lease, *, watch_ms: int | None = None, settled: int | None = None) -> bool:
        assert isinstance(lease, SimLease)
        # A renewal under way would take the lease again right after it was let go.
        lease.held = False
        try:
            again = bool(await self._ask(lambda: self._redis.release(lease, watch_ms, settled)))
        except BrokerUnavailable:
            return False
        if again:
            lease.held = True
            lease.round += 1
            self._renew(lease, lease.round)
        return again

    async def watch(self, messages: Sequence[Message], in_ms: int) -> None:
        def act() -> None:
            for message in messages:
                self._redis.sent[message.session, message.n] = self._redis.scheduler.now + in_ms

        await self._ask(act)

    async def overdue(self) -> list[Message]:
        return [Message(session, 0) for session in await self._ask(self._redis.overdue)]

    async def may_send(self, session: str, newest: int) -> bool:
        return await self._ask(lambda: self._redis.may_send(session, newest))

    async def hint_cancel(self, session: str, n: int, reason: str) -> None:
        await self._ask(lambda: self._redis.cancels.__setitem__((session, n), reason))

    async def cancel_hint(self, session: str, n: int) -> str | None:
        try:
            return await self._ask(lambda: self._redis.cancels.get((session, n)))
        except BrokerUnavailable:
            return None

    # Clock

    def monotonic_ms(self) -> int:
        return self._redis.scheduler.now + self._process.skew

    async def sleep(self, seconds: float) -> None:
        from tests.simulation.scheduler import Wait

        await Wait(int(seconds * 1000))

    async def now_ms(self) -> int:
        return EPOCH + self._redis.now
