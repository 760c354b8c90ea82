"""Whether a process still works, as a file that a probe can judge by its age alone.

A probe that starts a client takes a CPU, times out under load and restarts what was merely busy. So the process says
itself that it is alive: it touches a file, from the loop that does its work. A worker's file also goes stale when its
consumer stands still although the broker answers; a broker that is away restarts nothing. How old is too old is the
probe's business: the chart's and compose's use `MAX_AGE_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from celery import bootsteps

from worker.ports import BrokerUnavailable

logger = logging.getLogger(__name__)

#: how often the file is touched
BEAT_SECONDS = 2.0
#: a file older than this is a process that does not work any more
MAX_AGE_SECONDS = 30
#: a consumer that has not turned for this long, the broker answering all the while, is stuck (known fault H7):
#: longer than Celery's longest wait between two attempts to connect (32 s), twice over
STUCK_SECONDS = 90.0


def touch(file: Path) -> None:
    """Never raises: a full disk must not end a process that works."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        logger.warning("heartbeat not written: %s", error, extra={"action": "heartbeat_failed"})


class ConsumerPulse:
    """When the consumer's own loop last turned. Written by its thread, read by the event loop."""

    def __init__(self) -> None:
        self.at = time.monotonic()

    def beat(self) -> None:
        self.at = time.monotonic()

    def step(self) -> type[bootsteps.StartStopStep]:
        """A step of Celery's consumer that beats from its timer: it stands still when the consumer does."""
        pulse = self

        class PulseStep(bootsteps.StartStopStep):
            requires = ("celery.worker.consumer.tasks:Tasks",)

            def __init__(self, parent: Any, **options: Any) -> None:
                super().__init__(parent, **options)
                self._entry: Any = None

            def start(self, parent: Any) -> None:
                pulse.beat()
                self._entry = parent.timer.call_repeatedly(BEAT_SECONDS, pulse.beat)

            def stop(self, parent: Any) -> None:
                if self._entry is not None:
                    self._entry.cancel()
                    self._entry = None

        return PulseStep


class Heartbeat:
    """Touches `file` while loop and consumer work. `broker` raises `BrokerUnavailable` while it is away."""

    def __init__(
        self,
        file: Path,
        pulse: ConsumerPulse,
        broker: Callable[[], Awaitable[None]],
        *,
        stuck_seconds: float = STUCK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file, self._pulse, self._broker = file, pulse, broker
        self._stuck_seconds, self._clock = stuck_seconds, clock
        self._broker_since = clock()
        self._told = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.beat()
            await asyncio.sleep(BEAT_SECONDS)

    async def beat(self) -> None:
        try:
            await self._broker()
        except BrokerUnavailable:
            self._broker_since = self._clock()
        if self.stuck():
            if not self._told:
                logger.error("the consumer stands still", extra={"action": "consumer_stuck"})
            self._told = True
            return
        self._told = False
        await asyncio.to_thread(touch, self._file)

    def stuck(self) -> bool:
        still_since = max(self._pulse.at, self._broker_since)
        return self._clock() - still_since > self._stuck_seconds
