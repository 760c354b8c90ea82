"""Waiting for a session's turn to end: one subscription serves every waiter of a process.

A wake-up may be lost with Redis, so whoever waits looks again by itself every `LOOK_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from redis.exceptions import RedisError

from worker.client import FleetClient, open_redis
from worker.events import ended_channel
from worker.stopping import stop_tasks

LOOK_SECONDS = 2.0


class Waiters:
    """Who waits for a session's turn to end in this process. One subscription serves them all."""

    def __init__(self, client: FleetClient) -> None:
        self._client = client
        self._redis = open_redis(
            client.settings, socket_timeout_seconds=client.settings.redis_timeout_seconds + LOOK_SECONDS
        )
        self._held: dict[str, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def waiting(self, session: str) -> Generator[asyncio.Event]:
        """An event that is set whenever a turn of the session has ended; perhaps also for no reason."""
        woken = asyncio.Event()
        self._held.setdefault(session, set()).add(woken)
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="archmax-waiters")
        try:
            yield woken
        finally:
            held = self._held[session]
            held.discard(woken)
            if not held:
                del self._held[session]

    async def close(self) -> None:
        if self._task is not None:
            await stop_tasks([self._task])
        await self._redis.aclose()

    async def _listen(self) -> None:
        prefix = ended_channel("")
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.psubscribe(f"{prefix}*")
                    while True:
                        message = await pubsub.get_message(timeout=LOOK_SECONDS)
                        if message is not None:
                            for woken in self._held.get(str(message["channel"]).removeprefix(prefix), ()):
                                woken.set()
            except (RedisError, OSError):
                await asyncio.sleep(0.5)
