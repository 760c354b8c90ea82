"""Leases on Redis: who may look at a session now, who wants another look, and whom nobody holds any more.

All of it hints (docs/protocol.md §3): order and fencing are the store's. Every step is one script, so that no two
processes see a half of it, and time is the Redis server's. One task renews all leases of a process in one pipeline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Sequence
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from storage.logstore import SystemClock
from worker.celery_app import SENT_HEADER, SHARED_QUEUE, queue_of, workflow_of
from worker.ports import REST_MS, BrokerUnavailable, Message

logger = logging.getLogger(__name__)

PREFIX = "archmax:"
#: sessions by the time their holder must have renewed, or a look must be repeated
WATCH = f"{PREFIX}watch"
#: messages (`session.n`) by the time they must have arrived, and where each went: `<epoch ms> <queue>`
SENT = f"{PREFIX}sent"
SENT_TO = f"{PREFIX}sent:to"
BOOT = f"{PREFIX}boot"
#: somebody lists the store, or has within the minute; two at once do no harm
LIST_LOCK = f"{PREFIX}lock:list"
LIST_LOCK_MS = 5_000
LISTED = f"{PREFIX}listed"
LISTED_MS = 60_000
#: a wake-up outlives any turn: its holder looks only when that has ended
WAKE_SECONDS = 86_400
CANCEL_SECONDS = 3600
#: how far ahead an overdue session is pushed when it is sent again
PUSH_MS = 30_000
#: after Redis lost everything nobody but earlier holders takes a lease for this long
BOOT_MS = 1_000

# keys: lease, wake, watch, boot, sent, sent to · args: token, ttl ms, session, wake seconds, boot ms, message
_TAKE = """
local now = redis.call('TIME'); local ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('SET', KEYS[4], ms, 'NX')
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then
  redis.call('SET', KEYS[2], '1', 'EX', ARGV[4])
  redis.call('ZREM', KEYS[5], ARGV[6]); redis.call('HDEL', KEYS[6], ARGV[6])
  return 0
end
if not held and ms - tonumber(redis.call('GET', KEYS[4])) < tonumber(ARGV[5]) then
  redis.call('ZADD', KEYS[3], ms + tonumber(ARGV[5]), ARGV[3]); return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]); redis.call('DEL', KEYS[2])
redis.call('ZREM', KEYS[5], ARGV[6]); redis.call('HDEL', KEYS[6], ARGV[6])
redis.call('ZADD', KEYS[3], ms + tonumber(ARGV[2]), ARGV[3])
return 1
"""
# keys: lease, watch, cancel… · args: token, ttl ms, session
_RENEW = """
local now = redis.call('TIME'); local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[2], ms + tonumber(ARGV[2]), ARGV[3])
return 1
"""
# keys: lease, wake, watch, rest · args: token, session, watch ms or '', settled turn or '', rest ms
# A sender's deadline stays: its message may still be on the way.
_RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('DEL', KEYS[2]) == 1 then return 1 end
redis.call('DEL', KEYS[1])
if ARGV[3] == '' then redis.call('ZREM', KEYS[3], ARGV[2]) else
  local now = redis.call('TIME')
  redis.call('ZADD', KEYS[3], now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(ARGV[3]), ARGV[2])
end
if ARGV[4] ~= '' then redis.call('SET', KEYS[4], ARGV[4], 'PX', ARGV[5]) end
return 0
"""
# keys: sent, sent to · args: in ms, then message and queue of each
_WATCH = """
local now = redis.call('TIME'); local ms = now[1] * 1000 + math.floor(now[2] / 1000)
for i = 2, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], ms + tonumber(ARGV[1]), ARGV[i])
  redis.call('HSET', KEYS[2], ARGV[i], string.format('%.0f %s', ms, ARGV[i + 1]))
end
"""
# keys: watch, sent, sent to · args: push ms, limit, the header that says when a message was sent, slack ms, the shared queue
# A queue is served in order: while its oldest message is no younger than ours, ours may be waiting behind it. A key of its
# name that is no queue holds up no other session.
_OVERDUE = """
local now = redis.call('TIME'); local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local oldest = {}
local function may_wait(queue, at)
  if oldest[queue] == nil then
    local message = redis.pcall('LINDEX', queue, -1)
    local sent = type(message) == 'string' and message:match('"' .. ARGV[3] .. '": ?(%d+)')
    oldest[queue] = sent and tonumber(sent) or math.huge
  end
  return oldest[queue] <= at + tonumber(ARGV[4])
end
local found = {}
local function send(session, queue)
  found[#found + 1] = session; found[#found + 1] = queue
end
for _, late in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ms, 'LIMIT', 0, ARGV[2])) do
  redis.call('ZREM', KEYS[1], late)
  send(late, ARGV[5])
end
for _, late in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ms, 'LIMIT', 0, ARGV[2])) do
  local at, queue = (redis.call('HGET', KEYS[3], late) or ''):match('^(%d+) (.*)$')
  if queue and may_wait(queue, tonumber(at)) then
    redis.call('ZADD', KEYS[2], ms + tonumber(ARGV[1]), late)
  else
    redis.call('ZREM', KEYS[2], late); redis.call('HDEL', KEYS[3], late)
    send(late:match('^(.*)%.%d+$'), queue or ARGV[5])
  end
end
for i = 1, #found, 2 do
  local message = found[i] .. '.0'
  redis.call('ZADD', KEYS[2], ms + tonumber(ARGV[1]), message)
  redis.call('HSET', KEYS[3], message, string.format('%.0f %s', ms, found[i + 1]))
end
return found
"""
# keys: watch, sent, rest · args: session, push ms, newest turn
_MAY_SEND = """
local rest = redis.call('GET', KEYS[3])
if rest and tonumber(rest) >= tonumber(ARGV[3]) then return 0 end
local now = redis.call('TIME'); local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local ahead = {redis.call('ZSCORE', KEYS[1], ARGV[1])}
for _, n in ipairs({'0', ARGV[3]}) do ahead[#ahead + 1] = redis.call('ZSCORE', KEYS[2], ARGV[1] .. '.' .. n) end
for _, at in ipairs(ahead) do
  if at then return 0 end
end
redis.call('ZADD', KEYS[2], ms + tonumber(ARGV[2]), ARGV[1] .. '.0')
return 1
"""
OVERDUE_LIMIT = 500
#: by how much the clocks of senders may differ from Redis'
CLOCK_SLACK_MS = 5_000


def lease_key(session: str) -> str:
    return f"{PREFIX}lease:{session}"


def wake_key(session: str) -> str:
    return f"{PREFIX}wake:{session}"


def rest_key(session: str) -> str:
    return f"{PREFIX}rest:{session}"


def cancel_key(session: str, n: int) -> str:
    return f"{PREFIX}cancel:{session}.{n}"


class RedisLease:
    """A lease of this process, as of its latest renewal."""

    def __init__(self, session: str, token: str, owner: RedisLeases) -> None:
        self.session = session
        self.token = token
        self.taken_over = False
        self._owner = owner
        #: no renewal may be under way or begin once its release is sent: it would take the freed lease again
        self.releasing = False
        #: turn number → reason of its cancel hint; `watched` are the numbers asked about
        self.cancels: dict[int, str] = {}
        self.watched: set[int] = set()

    def lost(self) -> bool:
        return self.taken_over

    def froze_since(self, ms: int) -> bool:
        self._owner.tick()
        return self._owner.woke_ms > ms

    def cancelled(self, n: int) -> str | None:
        self.watched.add(n)
        return self.cancels.get(n)


class RedisLeases:
    """The `Leases` port. `run` must be running for leases to be renewed."""

    def __init__(self, redis: Redis, *, ttl_seconds: float = 2.0, heartbeat_seconds: float = 0.5) -> None:
        self._redis = redis
        self._ttl_ms = round(ttl_seconds * 1000)
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = SystemClock()
        #: when this process was last seen to go on after it had stood still for longer than a lease lasts
        self.woke_ms = 0
        self._ticked_ms = self._clock.monotonic_ms()
        self._held: dict[str, RedisLease] = {}
        self._renewing = asyncio.Lock()
        self._take = redis.register_script(_TAKE)
        self._renew = redis.register_script(_RENEW)
        self._release = redis.register_script(_RELEASE)
        self._watch = redis.register_script(_WATCH)
        self._overdue = redis.register_script(_OVERDUE)
        self._may_send = redis.register_script(_MAY_SEND)
        #: leases found in another's hands, for the metrics
        self.lost_count = 0

    @property
    def held(self) -> int:
        return len(self._held)

    def tick(self) -> int:
        """Note that this process is running; whoever runs first after a freeze finds it out. Returns its clock, ms."""
        now = self._clock.monotonic_ms()
        if now - self._ticked_ms > self._ttl_ms:
            self.woke_ms = now
        self._ticked_ms = now
        return now

    async def take(self, session: str, n: int) -> RedisLease | None:
        # Asked of Redis also where this process holds it: only one script after another tells whether the holder's
        # release, perhaps under way, has still seen the wake-up.
        token = secrets.token_hex(16)
        taken = await self._ask(
            self._take(
                keys=[lease_key(session), wake_key(session), WATCH, BOOT, SENT, SENT_TO],
                args=[token, self._ttl_ms, session, WAKE_SECONDS, BOOT_MS, f"{session}.{n}"],
            )
        )
        if not taken:
            return None
        lease = RedisLease(session, token, self)
        self._held[session] = lease
        return lease

    async def release(self, lease: Any, *, watch_ms: int | None = None, settled: int | None = None) -> bool:
        held = cast(RedisLease, lease)
        held.releasing = True
        async with self._renewing:
            pass  # the renewal that may be under way has its answer now, and the next one leaves this lease out
        try:
            woken = await self._ask(
                self._release(
                    keys=[lease_key(held.session), wake_key(held.session), WATCH, rest_key(held.session)],
                    args=[
                        held.token,
                        held.session,
                        *("" if number is None else number for number in (watch_ms, settled)),
                        REST_MS,
                    ],
                )
            )
        except BrokerUnavailable:
            woken = 0  # it runs out by itself, and the sweep finds what is left
        if woken:
            held.releasing = False
            return True
        if self._held.get(held.session) is held:
            del self._held[held.session]
        return False

    async def watch(self, messages: Sequence[Message], in_ms: int) -> None:
        places: list[str] = []
        for message in messages:
            places += [
                f"{message.session}.{message.n}",
                queue_of(message.workflow, child=message.child),
            ]
        await self._ask(self._watch(keys=[SENT, SENT_TO], args=[in_ms, *places]))

    async def overdue(self) -> list[Message]:
        args = [PUSH_MS, OVERDUE_LIMIT, SENT_HEADER, CLOCK_SLACK_MS, SHARED_QUEUE]
        found = await self._ask(self._overdue(keys=[WATCH, SENT, SENT_TO], args=args))
        messages: dict[str, Message] = {}
        for session, queue in zip(found[::2], found[1::2], strict=True):
            workflow, child = workflow_of(queue)
            messages.setdefault(session, Message(session, 0, workflow, child=child))
        return list(messages.values())

    async def may_send(self, session: str, newest: int) -> bool:
        asked = self._may_send(keys=[WATCH, SENT, rest_key(session)], args=[session, PUSH_MS, newest])
        return bool(await self._ask(asked))

    async def hint_cancel(self, session: str, n: int, reason: str) -> None:
        await self._ask(self._redis.set(cancel_key(session, n), reason, ex=CANCEL_SECONDS))

    async def cancel_hint(self, session: str, n: int) -> str | None:
        try:
            return await self._ask(self._redis.get(cancel_key(session, n)))
        except BrokerUnavailable:
            return None

    async def begin(self) -> None:
        """Leave the mark that tells a Redis we know from one that lost everything, before any turn comes in."""
        seconds, micros = await self._ask(self._redis.time())
        await self._ask(self._redis.set(BOOT, int(seconds) * 1000 + int(micros) // 1000, nx=True))

    async def begin_listing(self) -> bool:
        """Whether to list the store now: nobody else does, or has done so just now."""
        return bool(await self._ask(self._redis.set(LIST_LOCK, "1", nx=True, px=LIST_LOCK_MS)))

    async def end_listing(self) -> None:
        """Everything has been listed and sent. Whoever dies or fails before it leaves it to be done again."""
        await self._ask(self._redis.set(LISTED, "1", px=LISTED_MS))

    async def listed(self) -> bool:
        """Whether somebody has listed the store within the minute. A Redis that lost everything does not know it."""
        return bool(await self._ask(self._redis.exists(LISTED)))

    async def run(self) -> None:
        """Renew every lease of this process until cancelled."""
        ticking = asyncio.create_task(self._tick_always(), name="archmax-tick")
        try:
            # In this very task: a cancel that redis-py loses is repeated by whoever waits for the task to end.
            await self._renew_always()
        finally:
            ticking.cancel()

    async def _renew_always(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            if self._held:
                with contextlib.suppress(BrokerUnavailable):
                    async with self._renewing:
                        await self._renew_all()

    async def _tick_always(self) -> None:
        """Apart from the renewals: waiting for a Redis that is away is no freeze."""
        while True:
            self.tick()
            await asyncio.sleep(self._heartbeat_seconds)

    async def _renew_all(self) -> None:
        leases = [lease for lease in self._held.values() if not lease.releasing]
        asked: list[tuple[RedisLease, list[int]]] = []
        pipeline = self._redis.pipeline(transaction=False)
        for lease in leases:
            await self._renew(
                keys=[lease_key(lease.session), WATCH],
                args=[lease.token, self._ttl_ms, lease.session],
                client=pipeline,
            )
            numbers = sorted(lease.watched)
            for n in numbers:
                pipeline.get(cancel_key(lease.session, n))
            asked.append((lease, numbers))
        answers = iter(await self._ask(pipeline.execute()))
        for lease, numbers in asked:
            mine = bool(int(next(answers)))
            if not mine and not lease.taken_over:
                lease.taken_over = True
                self.lost_count += 1
                logger.warning("lease lost", extra={"action": "lease_lost", "session": lease.session})
            for n in numbers:
                reason = next(answers)
                if reason is not None:
                    lease.cancels[n] = reason

    async def _ask(self, operation: Awaitable[Any]) -> Any:
        try:
            return await operation
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(f"{type(error).__name__}: {error}") from error
