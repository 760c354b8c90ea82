"""What an operator asks of a fleet at once: how much waits in each queue, and which workers answer."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import RedisError

from core.jsontext import JsonObject
from worker.celery_app import create_app, queues_of
from worker.client import FleetClient
from worker.ports import BrokerUnavailable
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
        await client.queue.alive()
        lengths: list[Any] = await pipeline.execute()
    except (BrokerUnavailable, RedisError, OSError) as error:
        raise IndexUnavailable from error
    lines: list[JsonObject] = [
        {"name": name, "waiting": int(length)} for name, length in zip(names, lengths, strict=False)
    ]
    return [*lines, {"name": "(taken by a worker)", "waiting": int(lengths[-1])}]


class WorkerRoll:
    """Who works for one fleet. However many ask at once, one question is out: with a silent broker each one holds a thread
    for seconds, and the loop's few threads are needed for everything else.
    """

    def __init__(self, client: FleetClient) -> None:
        self._client = client
        self._asked: asyncio.Task[list[JsonObject]] | None = None

    async def call(self) -> list[JsonObject]:
        """The workers that answer a ping within `ANSWER_SECONDS`; none when the broker does not."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(asyncio.to_thread(_ping, self._client), name="archmax-roll")
        return await asyncio.shield(self._asked)


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
