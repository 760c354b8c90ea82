"""Celery's task events, gathered: one message to Redis for all of a moment instead of one for nearly every event.

Celery buffers a worker's task events, and flushes the buffer at its consumer's next turn, so that they go out one by one.
Each is a message built, serialised and published by the thread that also fetches turns. A dashboard does not see the
difference of a tenth of a second.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps

GATHER_SECONDS = 0.1


class GatherEvents(bootsteps.StartStopStep):
    """A step of Celery's consumer: follows each dispatcher that its `Events` step makes."""

    requires = ("celery.worker.consumer.events:Events",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._waiting = False

    def start(self, parent: Any) -> None:
        self._waiting = False
        parent.event_dispatcher.on_send_buffered = lambda: self._plan(parent)

    def stop(self, parent: Any) -> None:
        """What was told of turns that have just ended still goes out."""
        if parent.event_dispatcher is not None:
            parent.event_dispatcher.flush()

    def _plan(self, parent: Any) -> None:
        """Called by whichever thread has something to tell."""
        if not self._waiting:
            self._waiting = True
            # only the consumer's own thread may set its timers
            parent.hub.call_soon(lambda: parent.hub.call_later(GATHER_SECONDS, self._flush, parent))

    def _flush(self, parent: Any) -> None:
        self._waiting = False
        if parent.event_dispatcher is not None:
            parent.event_dispatcher.flush()
