"""The recorder: one turn's changes on their way into the log.

A change is folded the moment it is made, and told to the event handler; it is durable after the next `flush`. Flushes
of calls that settle together share one write. When a write fails the state in memory is worthless: the turn is given
up and whoever goes on folds the log again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from core.jsontext import JsonObject, detached
from engine.session.events import events_of, level_of
from engine.session.state import RECORD_VERSION, SessionState
from engine.turn.ports import TurnLog

EventSink: TypeAlias = Callable[[JsonObject], None]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class EventStream:
    """Gives every event its envelope and hands it to a synchronous callback, one sequence per handler."""

    def __init__(self, sink: EventSink | None) -> None:
        self._sink = sink
        self._seq = 0

    @property
    def active(self) -> bool:
        return self._sink is not None

    def emit(
        self,
        event: JsonObject,
        *,
        session_id: str | None = None,
        dispatch_id: str | None = None,
        recorded: bool = True,
    ) -> None:
        """`recorded` is false for what the log does not hold: text deltas. Here both are told at once."""
        if self._sink is None:
            return
        self._seq += 1
        told = {
            name: detached(value) for name, value in event.items()
        }  # a handler may change what it is given
        body: JsonObject = {"level": level_of(event), **told, "ts": now_ms(), "seq": self._seq}
        if session_id is not None:
            body.setdefault("sessionId", session_id)
        if dispatch_id is not None:
            body["subWorkflowDispatchId"] = dispatch_id
        self._sink(body)


async def _whole(write: Coroutine[Any, Any, None]) -> None:
    """Finish a write that has begun, also when its step is cut off: memory and log would differ otherwise."""
    task = asyncio.ensure_future(write)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # looked at: the cancellation is what is told
        raise


class Recorder:
    """Folds, tells and commits the changes of one turn."""

    def __init__(self, state: SessionState, log: TurnLog, events: EventStream) -> None:
        self.state = state
        self.log = log
        self._events = events
        self._buffer: list[JsonObject] = []
        self._over = False
        self._lock = asyncio.Lock()

    @property
    def pending(self) -> bool:
        return bool(self._buffer)

    def add(self, change_type: str, /, **fields: Any) -> None:
        """Make one change. Absent (`None`) fields are left out."""
        self.add_change(
            {"t": change_type, **{key: value for key, value in fields.items() if value is not None}}
        )

    def add_change(self, change: JsonObject) -> None:
        """Raises: `RuntimeError` once the turn has ended: a tool that outlived it changes nothing any more."""
        if self._over:
            raise RuntimeError(f"turn {self.log.turn} of session {self.state.session_id!r} has ended")
        self.state.apply(change)
        self._buffer.append(change)
        if self._events.active:
            for event in events_of(change, self.state):
                self._tell(event, recorded=True)

    def event(self, event_type: str, /, **fields: Any) -> None:
        """Record an event that changes nothing by itself."""
        event = {"type": event_type, **{key: value for key, value in fields.items() if value is not None}}
        self.add("ev", e=event)

    def live(self, event: JsonObject) -> None:
        """Tell an event without recording it: text deltas."""
        self._tell(event, recorded=False)

    def _tell(self, event: JsonObject, *, recorded: bool) -> None:
        origin = self.state.origin
        self._events.emit(
            event,
            session_id=self.state.session_id,
            dispatch_id=origin.get("dispatchId") if origin else None,
            recorded=recorded,
        )

    def _take(self) -> JsonObject:
        changes, self._buffer = self._buffer, []
        at = now_ms()
        self.state.touched(at)
        return {"v": RECORD_VERSION, "at": at, "changes": changes}

    async def flush(self) -> None:
        """Make everything so far durable. Concurrent callers share writes."""
        async with self._lock:
            if self._buffer:
                await _whole(self.log.commit(self._take()))

    async def end(self, outcome: JsonObject) -> None:
        async with self._lock:
            self._over = True
            await _whole(self.log.end(self._take(), outcome))

    async def suspend(self, calls: Sequence[JsonObject], width: int) -> None:
        async with self._lock:
            await _whole(self.log.suspend(self._take(), calls, width))
