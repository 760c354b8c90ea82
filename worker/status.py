"""What an operator asks of a fleet at once: how much waits in each queue, and which workers answer."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import RedisError

from core.jsontext import JsonObject
from worker.celery_app import create_app, queues_of
from worker.client import FleetClient
from worker.refusals import IndexUnavailable

#: how long workers may take to answer, in seconds
ANSWER_SECONDS = 1.0


async def queue_lengths(client: FleetClient, workflows: list[str]) -> list[JsonObject]:
    """Raises: `IndexUnavailable`."""
    names = queues_of(workflows)
    pipeline = client.redis.pipeline(transaction=False)
    for name in names:
        pipeline.llen(name)
    pipeline.hlen("unacked")
    try:
        lengths: list[Any] = await pipeline.execute()
    except (RedisError, OSError) as error:
        raise IndexUnavailable from error
    lines: list[JsonObject] = [
        {"name": name, "waiting": int(length)} for name, length in zip(names, lengths, strict=False)
    ]
    return [*lines, {"name": "(taken by a worker)", "waiting": int(lengths[-1])}]


async def workers(client: FleetClient) -> list[JsonObject]:
    """The workers that answer a ping within `ANSWER_SECONDS`; none when the broker does not."""
    return await asyncio.to_thread(_ping, client)


def _ping(client: FleetClient) -> list[JsonObject]:
    app = create_app(client.settings)
    app.conf.broker_transport_options = {
        **app.conf.broker_transport_options,
        "socket_timeout": ANSWER_SECONDS,
    }
    try:
        answers = app.control.inspect(timeout=ANSWER_SECONDS).stats() or {}
    except Exception:
        return []
    finally:
        app.close()
    return [
        {
            "name": name,
            "taken": sum((stats.get("total") or {}).values()),
            "concurrency": (stats.get("pool") or {}).get("max-concurrency"),
            "pid": stats.get("pid"),
        }
        for name, stats in sorted(answers.items())
    ]
