"""The fleet's clock: the process's own for spans, the Redis server's for what is due."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from redis.asyncio import Redis
from redis.exceptions import RedisError

from storage.logstore import SystemClock
from worker.ports import BrokerUnavailable


class RedisClock(SystemClock):
    """The `Clock` port."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._ahead_ms: int | None = None

    async def now_ms(self) -> int:
        """Raises: `BrokerUnavailable`."""
        try:
            seconds, micros = await self._redis.time()
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(f"{type(error).__name__}: {error}") from error
        now = seconds * 1000 + micros // 1000
        self._ahead_ms = now - self.monotonic_ms()
        return now

    def told_ms(self) -> int:
        """As `now_ms`, without asking: what Redis said last, and the time since by the process's own clock.

        Where Redis has never answered it is the machine's clock.
        """
        if self._ahead_ms is None:
            return time.time_ns() // 1_000_000
        return self.monotonic_ms() + self._ahead_ms

    def moment(self) -> datetime:
        """`told_ms` as the engine takes it."""
        return datetime.fromtimestamp(self.told_ms() / 1000, UTC)
