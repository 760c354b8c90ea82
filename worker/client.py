"""What every process of a fleet holds on its event loop, whether it runs turns or only accepts and reads them.

Built and closed on one loop. Nothing here needs a model or a sandbox, so the API and beat hold this much and no more.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from storage.logstore import LogStore
from worker.celery_app import create_app
from worker.celery_queue import CeleryQueue
from worker.events import EventPublisher, RedisNotices
from worker.failpoints import FailingQueue, FailingStore, armed
from worker.protocol.fleet import Fleet
from worker.redis_clock import RedisClock
from worker.redis_leases import RedisLeases
from worker.settings import FleetSettings
from worker.tracing import Tracing, open_tracing
from worker.webhooks import WebhookPoster

#: connections to Redis of one client: what a burst needs more than these waits for one, and is not refused
CONNECTIONS = 32
#: for how long; each command is bounded by itself
CONNECTION_WAIT_SECONDS = 20.0


def open_redis(settings: FleetSettings, *, socket_timeout_seconds: float | None = None) -> Redis:
    """A client for one event loop, bounded in time. One retry: a connection the server closed is not an outage."""
    pool = BlockingConnectionPool.from_url(
        settings.redis_url.get_secret_value(),
        max_connections=CONNECTIONS,
        timeout=CONNECTION_WAIT_SECONDS,
        socket_timeout=socket_timeout_seconds or settings.redis_timeout_seconds,
        socket_connect_timeout=settings.redis_timeout_seconds,
        health_check_interval=10,
        retry=Retry(NoBackoff(), 1),
        decode_responses=True,
    )
    return Redis.from_pool(pool)


class FleetClient:
    """The store, the queue and Redis of one fleet. `Runtime` adds what running turns needs."""

    #: the process's name in traces
    service_name = "archmax-api"

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings
        self.draining = False
        self.tracing: Tracing | None = None

    async def open(self) -> None:
        """Connects to nothing yet. Raises: `StoreConfigurationError`, `TracingUnavailable`."""
        settings = self.settings
        self.tracing = open_tracing(settings, self.service_name)
        self.redis = open_redis(settings)
        point = armed()
        self.store = settings.open_store()
        if point is not None:
            self.store = FailingStore(self.store, point)
        self.files = LogStore(self.store)
        self.clock = RedisClock(self.redis)
        self.publisher = EventPublisher(self.redis, stream_seconds=settings.event_stream_seconds)
        self.leases = RedisLeases(
            self.redis, ttl_seconds=settings.lease_ttl_seconds, heartbeat_seconds=settings.heartbeat_seconds
        )
        self.queue = CeleryQueue(
            _producer_app(settings), self.redis, timeout_seconds=settings.redis_timeout_seconds
        )
        self.webhooks = WebhookPoster(settings, self.redis, self.store)
        self.fleet = Fleet(
            files=self.files,
            clock=self.clock,
            queue=self.queue if point is None else FailingQueue(self.queue, point),
            leases=self.leases,
            notices=RedisNotices(self.redis, self.publisher),
            webhooks=self.webhooks,
            draining=lambda: self.draining,
            max_attempts=settings.max_attempts,
        )

    async def close(self) -> None:
        await self.webhooks.close()
        self.queue.close()
        await self.store.close()
        await self.redis.aclose()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)


def _producer_app(settings: FleetSettings) -> Any:
    """An app that only sends: a silent broker must free its threads soon."""
    app = create_app(settings)
    app.conf.broker_transport_options = {
        **app.conf.broker_transport_options,
        "socket_timeout": settings.redis_timeout_seconds,
    }
    return app
