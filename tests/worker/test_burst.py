"""Many inputs at once: a burst waits for its turn at Redis, and is not refused (the broker is well)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import SecretStr

from archmax.local.redis import EmbeddedRedis
from tests.support.workers import until
from worker.celery_app import turn_queue
from worker.client import CONNECTIONS, FleetClient
from worker.protocol.accept import Draft, accept
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
