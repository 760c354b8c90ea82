"""The fleet's clock: the process's own for spans, the Redis server's for what is due."""

from __future__ import annotations

from redis.asyncio import Redis
from redis.exceptions import RedisError

from storage.logstore import SystemClock
from worker.ports import BrokerUnavailable


class RedisClock(SystemClock):
    """The `Clock` port."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def now_ms(self) -> int:
        """Raises: `BrokerUnavailable`."""
        try:
            seconds, micros = await self._redis.time()
        except (RedisError, OSError, TimeoutError) as error:
            raise BrokerUnavailable(f"{type(error).__name__}: {error}") from error
        return int(seconds) * 1000 + int(micros) // 1000
