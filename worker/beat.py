"""Beat: Celery's own beat service, with a scheduler whose entries are the schedules of the workspace's triggers.

Celery's schedulers keep their state in a file of one process and send a task per entry: two of them send it twice. Here
a firing is an input accepted in the store (`worker.schedules`), so any number of beats may run and none needs a lock.
`archmax beat` runs it; so does `celery beat --scheduler worker.beat:FleetScheduler`, with the fleet's environment.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import time
from types import FrameType
from typing import Any

from celery.beat import Scheduler, Service
from typing_extensions import override

from core.errors import ArchmaxError
from worker.celery_app import create_app
from worker.health import BEAT_SECONDS, touch
from worker.schedules import Schedules
from worker.service import FleetService
from worker.settings import FleetSettings

logger = logging.getLogger(__name__)

#: the longest sleep between two looks, in seconds: a signal ends beat within it
TICK_SECONDS = 1.0


class FleetScheduler(Scheduler):
    """Has no entries of its own and writes no file. `settings` are the environment's when not given."""

    def __init__(self, app: Any, *, settings: FleetSettings | None = None, **options: Any) -> None:
        options.pop("schedule_filename", None)
        super().__init__(app, **options)
        self._runner = asyncio.Runner()
        self._service = FleetService(settings or FleetSettings())
        self._runner.run(self._service.open())
        self._schedules = Schedules(self._service)
        self._failing = False
        self._beat_at = -BEAT_SECONDS
        logger.info("beat ready", extra={"action": "beat_ready"})

    @override
    def setup_schedule(self) -> None:
        """Nothing: the schedules stand in the workspace."""

    @override
    def tick(self, *_: Any, **__: Any) -> float:
        """Fire what is due; the seconds to sleep. A failure is told once and tried again after a full sleep."""
        self._beat()
        try:
            wait = self._runner.run(self._schedules.run_due())
        except ArchmaxError as error:
            if not self._failing:
                logger.warning("beat waits: %s", error, extra={"action": "beat_waits", "code": error.code})
            self._failing = True
            return TICK_SECONDS
        except Exception:
            logger.exception("beat failed and tries again", extra={"action": "beat_failed"})
            return TICK_SECONDS
        self._failing = False
        return min(wait, TICK_SECONDS)

    def _beat(self) -> None:
        """At most once in two seconds, whatever became of the look: a broker that is away restarts nothing."""
        file, now = self._service.settings.heartbeat_file, time.monotonic()
        if file is not None and now - self._beat_at >= BEAT_SECONDS:
            self._beat_at = now
            touch(file)

    @override
    def close(self) -> None:
        super().close()
        self._runner.run(self._service.close())
        self._runner.close()


def run_beat(settings: FleetSettings) -> int:
    """Run until TERM or INT; returns the exit code. Raises: configuration errors before the first look."""
    service = Service(
        create_app(settings),
        scheduler_cls=functools.partial(FleetScheduler, settings=settings),
        remote_control=False,
    )

    def stop(_number: int, _frame: FrameType | None) -> None:
        service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    service.start()
    return 0
