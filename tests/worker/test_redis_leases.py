"""Leases on a real Redis: nothing is left held after a release, and no wake-up is lost (docs/protocol.md §3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator

import pytest
from redis.asyncio import Redis

from archmax.local.redis import EmbeddedRedis
from worker.redis_leases import RedisLeases, lease_key
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
    await stop_tasks([renewing])


async def test_a_renewal_under_way_does_not_take_a_freed_lease_again(
    leases: RedisLeases, redis: Redis
) -> None:
    held = [await leases.take(f"other-{number}") for number in range(20)]
    for _ in range(100):
        lease = await leases.take("s")
        assert lease is not None
        await asyncio.sleep(0)
        assert await leases.release(lease) is False
        assert await redis.exists(lease_key("s")) == 0
    assert all(lease is not None and not lease.lost() for lease in held)


async def test_who_finds_a_session_held_has_woken_its_holder(leases: RedisLeases) -> None:
    """Whenever a look is refused while its holder lets go, that holder looks again."""
    for _ in range(100):
        lease = await leases.take("s")
        assert lease is not None
        released, other = await asyncio.gather(leases.release(lease), leases.take("s"))
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
    lease = await leases.take("s")
    assert lease is not None
    await leases.watch("s", 1)
    assert await leases.release(lease, rest_ms=60_000) is False
    await asyncio.sleep(0.05)
    assert await leases.overdue() == ["s"]
    assert await leases.overdue() == [], "and then again only after a while"


async def test_a_message_that_arrived_needs_no_deadline_any_more(leases: RedisLeases) -> None:
    await leases.watch("s", 1)
    lease = await leases.take("s")
    assert lease is not None
    await leases.watch("s", 1)
    assert await leases.take("s") is None, "held; but its holder is woken"
    assert await leases.release(lease) is True
    assert await leases.release(lease) is False
    await asyncio.sleep(0.05)
    assert await leases.overdue() == []


async def test_a_session_that_rests_is_left_alone_by_listings_and_costs_no_look(leases: RedisLeases) -> None:
    """Its last turn has ended; the entry is kept for two minutes and its cleaner removes it."""
    lease = await leases.take("s")
    assert lease is not None
    assert await leases.release(lease, rest_ms=200) is False
    assert await leases.may_send("s") is False
    await asyncio.sleep(0.3)
    assert await leases.overdue() == []
    assert await leases.may_send("s") is True, "a cleaner that died is found out by the listing"
