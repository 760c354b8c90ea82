"""The `Queue` port on Celery: tasks that carry ids, sent from a thread and never waited for beyond a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

from celery import Celery
from kombu.exceptions import OperationalError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.ids import fresh_id
from worker.celery_app import SENT_HEADER, TURN_TASK, queue_of
from worker.ports import BrokerUnavailable, Message

#: the id of the Celery task a coroutine works for, and of its root: what it sends is shown as theirs
SENDER: ContextVar[tuple[str, str] | None] = ContextVar("archmax_sender", default=None)


class CeleryQueue:
    """`app` is a producer's: short socket time-outs, so that a silent broker frees its thread soon."""

    def __init__(self, app: Celery, redis: Redis, *, timeout_seconds: float = 1.0) -> None:
        self._app, self._redis, self._timeout_seconds = app, redis, timeout_seconds
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="archmax-send")
        self._ping: asyncio.Task[None] | None = None

    async def alive(self) -> None:
        """One ping answers for everyone who asks while it is on its way: a burst is no outage."""
        if self._ping is None or self._ping.done():
            self._ping = asyncio.create_task(self._ask())
            self._ping.add_done_callback(_look_at)
        await asyncio.shield(self._ping)

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._redis.ping()
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(f"the broker does not answer ({type(error).__name__})") from error

    async def send(self, messages: Sequence[Message], *, delay_seconds: float = 0.0) -> None:
        """Not waited for beyond the bound; what then still queues for a thread is sent all the same."""
        loop = asyncio.get_running_loop()
        sent = loop.run_in_executor(self._threads, self._send, list(messages), delay_seconds, SENDER.get())
        sent.add_done_callback(_look_at)
        try:
            async with asyncio.timeout(self._timeout_seconds + 0.5):
                await asyncio.shield(sent)
        except (OperationalError, RedisError, OSError) as error:
            raise BrokerUnavailable(f"the broker does not take messages ({type(error).__name__})") from error

    def _send(self, messages: list[Message], delay_seconds: float, sender: tuple[str, str] | None) -> None:
        parent, root = sender or (None, None)
        group = fresh_id(32) if len(messages) > 1 else None
        with self._app.producer_pool.acquire(block=True, timeout=self._timeout_seconds) as producer:
            for index, message in enumerate(messages):
                queue = queue_of(message.workflow, child=message.child)
                self._app.send_task(
                    TURN_TASK,
                    args=[message.session, message.n],
                    task_id=f"{message.session}.{message.n}:{fresh_id(8)}",
                    queue=queue,
                    countdown=delay_seconds or None,
                    producer=producer,
                    retry=False,
                    group_id=group,
                    group_index=index if group else None,
                    parent_id=parent,
                    root_id=root,
                    headers={SENT_HEADER: time.time_ns() // 1_000_000},
                    argsrepr=f"workflow={message.workflow or '-'} session={message.session} turn={message.n or '-'}",
                    kwargsrepr="",
                    ignore_result=True,
                )

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_at(done: asyncio.Future[None]) -> None:
    """An error nobody waits for any more is told by what follows it."""
    if not done.cancelled():
        done.exception()
