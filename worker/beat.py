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
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from types import FrameType
from typing import Any, TypeVar

from celery.beat import Scheduler, Service
from typing_extensions import override

from core.errors import ArchmaxError
from worker.celery_app import create_app
from worker.health import BEAT_SECONDS, touch
from worker.schedules import Schedules
from worker.service import FleetService
from worker.settings import FleetSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: the longest sleep between two looks, in seconds: a signal ends beat within it
TICK_SECONDS = 1.0


class FleetScheduler(Scheduler):
    """Has no entries of its own and writes no file. `settings` are the environment's when not given.

    The looks run on a loop in a thread of its own: `celery beat` closes its scheduler and raises `SystemExit` from its
    signal handlers, which run in the main thread wherever it stands, and a loop there could not be entered again.
    """

    def __init__(self, app: Any, *, settings: FleetSettings | None = None, **options: Any) -> None:
        options.pop("schedule_filename", None)
        super().__init__(app, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="archmax-beat", daemon=True)
        self._thread.start()
        self._look: Future[float] | None = None
        self._closed = False
        self._service = FleetService(settings or FleetSettings())
        self._submit(self._service.open()).result()
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
            self._look = self._submit(self._schedules.run_due())
            wait = self._look.result()
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
        """Once: Celery closes in its signal handler and again at the end. A look under way is given up: it fires again."""
        if self._closed:
            return
        self._closed = True
        super().close()
        if self._look is not None:
            self._look.cancel()
        self._submit(self._service.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


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
