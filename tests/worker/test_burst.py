"""Many inputs at once: a burst waits for its turn at Redis, and is not refused (the broker is well)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import SecretStr

from archmax.local.redis import EmbeddedRedis
from storage.directory import DirectoryStore
from tests.support.workers import until
from worker.celery_app import turn_queue
from worker.client import CONNECTIONS, FleetClient
from worker.protocol.accept import Draft, accept
from worker.protocol.sweep import sweep_inbox, sweep_watch
from worker.redis_leases import SENT
from worker.settings import FleetSettings


async def test_a_burst_of_accepts_is_not_an_outage(tmp_path: Path, redis_server: EmbeddedRedis) -> None:
    """protocol.md §3: only a broker that is not alive refuses an input."""
    client = FleetClient(FleetSettings(root=tmp_path, redis_url=SecretStr(redis_server.url)))
    await client.open()
    try:
        drafts = [
            Draft(f"burst-{number}", "burst-desk", "message", {"message": "Hello"}, minted=True)
            for number in range(CONNECTIONS * 8)
        ]
        accepted = await asyncio.gather(*(accept(client.fleet, draft) for draft in drafts))

        async def sent() -> bool:
            return await client.redis.llen(turn_queue("burst-desk")) >= len(drafts)

        await until(sent, what="every message in its queue")
    finally:
        await client.close()
    assert [(one.session, one.n) for one in accepted] == [(draft.session, 1) for draft in drafts]


async def test_a_backlog_does_not_multiply(tmp_path: Path, redis_server: EmbeddedRedis) -> None:
    """protocol.md §6: what waits in its queue is not sent again, however long, and a listing reads nothing of it."""
    client = FleetClient(FleetSettings(root=tmp_path, redis_url=SecretStr(redis_server.url)))
    await client.open()
    await client.redis.flushdb()  # what earlier tests' dead workers have left is overdue, too
    queue = turn_queue("backlog-desk")
    try:
        drafts = [
            Draft(f"backlog-{number}", "backlog-desk", "message", {"message": "Hello"}, minted=True)
            for number in range(40)
        ]
        await asyncio.gather(*(accept(client.fleet, draft) for draft in drafts))

        async def sent() -> bool:
            return await client.redis.llen(queue) == len(drafts)

        await until(sent, what="every message in its queue")
        # as if each had waited for its half minute
        await client.redis.zadd(SENT, {f"{draft.session}.1": 1 for draft in drafts})
        reads = store_of(client).requests["get"]
        assert await sweep_inbox(client.fleet) == 0
        assert store_of(client).requests["get"] == reads
        assert await sweep_watch(client.fleet) == 0
        assert await client.redis.llen(queue) == len(drafts)
        # the queue is gone, as with a Redis that restarts from an old file: then each is sent once more, to where it was
        await client.redis.delete(queue)
        await client.redis.zadd(SENT, {f"{draft.session}.1": 1 for draft in drafts})
        assert await sweep_watch(client.fleet) == len(drafts)
        await until(sent, what="every message in its queue again")
    finally:
        await client.redis.delete(queue)
        await client.close()


def store_of(client: FleetClient) -> DirectoryStore:
    assert isinstance(client.store, DirectoryStore)
    return client.store
