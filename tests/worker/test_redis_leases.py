"""Leases on a real Redis: nothing is left held after a release, and no wake-up is lost (docs/protocol.md §3)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Generator

import pytest
from redis.asyncio import Redis

from archmax.local.redis import EmbeddedRedis
from worker.celery_app import SENT_HEADER, SHARED_QUEUE, child_queue, turn_queue
from worker.ports import REST_MS, Message
from worker.redis_leases import SENT, SENT_TO, RedisLeases, lease_key, rest_key, wake_key
from worker.stopping import stop_tasks


@pytest.fixture(scope="module")
def server() -> Generator[EmbeddedRedis]:
    with EmbeddedRedis.start() as running:
        yield running


@pytest.fixture
async def redis(server: EmbeddedRedis) -> AsyncGenerator[Redis]:
    client = Redis.from_url(server.url, decode_responses=True)
    await client.flushdb()
    await client.set("archmax:boot", "1")
    yield client
    await client.aclose()


@pytest.fixture
async def leases(redis: Redis) -> AsyncGenerator[RedisLeases]:
    """Renewing as often as it can."""
    made = RedisLeases(redis, heartbeat_seconds=0)
    renewing = asyncio.create_task(made.run())
    yield made
    async with (
        made._renewing
    ):  # a client cut off in the middle of a round trip complains when it is collected
        await stop_tasks([renewing])


async def test_a_renewal_under_way_does_not_take_a_freed_lease_again(
    leases: RedisLeases, redis: Redis
) -> None:
    held = [await leases.take(f"other-{number}", 1) for number in range(20)]
    for _ in range(100):
        lease = await leases.take("s", 1)
        assert lease is not None
        await asyncio.sleep(0)
        assert await leases.release(lease) is False
        assert await redis.exists(lease_key("s")) == 0
    assert all(lease is not None and not lease.lost() for lease in held)


async def test_who_finds_a_session_held_has_woken_its_holder(leases: RedisLeases) -> None:
    """Whenever a look is refused while its holder lets go, that holder looks again."""
    for _ in range(100):
        lease = await leases.take("s", 1)
        assert lease is not None
        released, other = await asyncio.gather(leases.release(lease), leases.take("s", 1))
        if other is None:
            assert released is True, "the wake-up was lost"
            assert await leases.release(lease) is False
        else:
            assert released is False
            assert leases.held == 1
            assert await leases.release(other) is False
    assert leases.held == 0


async def test_a_senders_deadline_outlives_the_holders_release(leases: RedisLeases, redis: Redis) -> None:
    """A message may be on the way while the holder leaves, and be lost: then the sweep sends the session."""
    lease = await leases.take("s", 1)
    assert lease is not None
    await leases.watch([Message("s", 1)], 1)
    assert await leases.release(lease, settled=1) is False
    await asyncio.sleep(0.05)
    assert await leases.overdue() == [Message("s", 0)]
    assert await leases.overdue() == [], "and then again only after a while"


async def test_a_message_that_arrived_needs_no_deadline_any_more(leases: RedisLeases) -> None:
    await leases.watch([Message("s", 1)], 1)
    lease = await leases.take("s", 1)
    assert lease is not None
    await leases.watch([Message("s", 1)], 1)
    assert await leases.take("s", 1) is None, "held; but its holder is woken"
    assert await leases.release(lease) is True
    assert await leases.release(lease) is False
    await asyncio.sleep(0.05)
    assert await leases.overdue() == []


async def test_another_messages_arrival_leaves_the_deadline_of_one_that_was_lost(
    leases: RedisLeases,
) -> None:
    """Two messages are on the way; the second is lost with the worker that fetched it. The first one's turn ends."""
    await leases.watch([Message("s", 1)], 60_000)
    await leases.watch([Message("s", 2)], 1)
    lease = await leases.take("s", 1)
    assert lease is not None
    assert await leases.release(lease, settled=1) is False
    await asyncio.sleep(0.05)
    assert await leases.overdue() == [Message("s", 0)]


def waiting(sent_ms: int) -> str:
    """A message as kombu keeps it in a queue."""
    return json.dumps({"body": "", "headers": {"id": "x", SENT_HEADER: sent_ms}, "properties": {}})


@pytest.mark.parametrize(
    ("message", "queue"),
    [
        (Message("s", 1, "flow"), turn_queue("flow")),
        (Message("s", 1, "flow", child=True), child_queue("flow")),
        (Message("s", 0), SHARED_QUEUE),
    ],
)
async def test_a_message_that_still_waits_in_its_queue_is_not_sent_again(
    leases: RedisLeases, redis: Redis, message: Message, queue: str
) -> None:
    """A backlog of hours does not send itself again every half minute, and none of it reaches another's queue."""
    now_ms = time.time_ns() // 1_000_000
    name = f"s.{message.n}"
    await redis.lpush(queue, waiting(now_ms - 60_000))
    await leases.watch([message], 1)
    await asyncio.sleep(0.05)
    assert await leases.overdue() == []
    deadline = await redis.zscore(SENT, name)
    assert deadline is not None and deadline > now_ms + 20_000, "and is looked at again later"
    # The oldest is younger by now: ours has left the queue, and nobody came.
    await redis.delete(queue)
    await redis.lpush(queue, waiting(now_ms + 60_000))
    await redis.zadd(SENT, {name: now_ms - 1})
    assert await leases.overdue() == [Message("s", 0, message.workflow, child=message.child)]
    # The one that was sent instead waits in the same queue.
    await redis.delete(queue)
    await redis.lpush(queue, waiting(now_ms - 60_000))
    await redis.zadd(SENT, {"s.0": now_ms - 1})
    assert await leases.overdue() == []
    lease = await leases.take("s", 0)
    assert lease is not None
    assert not await redis.exists(SENT, SENT_TO)


async def test_a_key_that_is_no_queue_and_a_note_that_says_nothing_hold_up_no_session(
    leases: RedisLeases, redis: Redis
) -> None:
    await redis.set(turn_queue("odd"), "no list")
    await leases.watch([Message("s", 1, "odd"), Message("a\n.b", 1, "flow"), Message("c", 1, "flow")], 1)
    await redis.hset(SENT_TO, "c.1", "nonsense")
    await asyncio.sleep(0.05)
    assert set(await leases.overdue()) == {
        Message("s", 0, "odd"),
        Message("a\n.b", 0, "flow"),
        Message("c", 0),
    }


async def test_a_session_that_rests_is_left_alone_by_listings_and_costs_no_look(
    leases: RedisLeases, redis: Redis
) -> None:
    """Its last turn has ended; the entry is kept for two minutes and its cleaner removes it."""
    lease = await leases.take("s", 1)
    assert lease is not None
    assert await leases.release(lease, settled=1) is False
    assert await leases.may_send("s", 1) is False
    assert 0 < await redis.pttl(rest_key("s")) <= REST_MS
    await asyncio.sleep(0.05)
    assert await leases.overdue() == []
    await redis.delete(rest_key("s"))
    assert await leases.may_send("s", 1) is True, "a cleaner that died is found out by the listing"
    assert await leases.may_send("s", 1) is False, "once in a while"


async def test_a_session_rests_only_until_it_has_a_later_entry(leases: RedisLeases) -> None:
    """Its sender died, or lost Redis, between the entry and the message: the next listing finds it."""
    lease = await leases.take("s", 1)
    assert lease is not None
    assert await leases.release(lease, settled=1) is False
    assert await leases.may_send("s", 2) is True


async def test_a_wake_up_outlives_the_longest_turn(leases: RedisLeases, redis: Redis) -> None:
    """The holder looks again when its turn has ended, and that may take hours (design: an hour of active time)."""
    lease = await leases.take("s", 1)
    assert lease is not None
    assert await leases.take("s", 2) is None
    assert await redis.ttl(wake_key("s")) > 12 * 3600
    assert await leases.release(lease, settled=1) is True
    assert await leases.release(lease, settled=2) is False
