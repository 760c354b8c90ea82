"""Events and the session index in Redis: what readers are told after it is durable (design: Surfaces).

A session's stream `archmax:events:<session>` holds its recorded events, each with the id `<turn>.<fence>.<commit>.<index>`
so that a reader goes on exactly where it was, from the store where Redis lost them; live text deltas carry the fence and no
id. The index `archmax:sessions` serves lists and filters and is rebuilt from the store when lost. Nothing here may fail a turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.jsontext import JsonObject, dumps, text
from engine.session.events import level_of
from engine.turn.recorder import EventStream
from storage.records import EndedTurn, InboxEntry, LogObject
from worker.redis_leases import PREFIX

logger = logging.getLogger(__name__)

SESSIONS = f"{PREFIX}sessions"
BY_TIME = f"{PREFIX}sessions:time"
#: session → newest turn accepted and not yet ended
OPEN = f"{PREFIX}sessions:open"
# keys: open · args: session, turn
_OPENED = """
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held or tonumber(held) < tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
"""
_CLOSED = """
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held and tonumber(held) <= tonumber(ARGV[2]) then redis.call('HDEL', KEYS[1], ARGV[1]) end
"""
#: items kept of one session's stream; a reader that is further behind reads the store
STREAM_LENGTH = 5_000
#: between two round trips, so that what many steps and tokens say in a moment shares one
GATHER_SECONDS = 0.01


def stream_key(session: str) -> str:
    return f"{PREFIX}events:{session}"


def ended_channel(session: str) -> str:
    return f"{PREFIX}ended:{session}"


def event_id(turn: int, fence: int, position: int, index: int) -> str:
    return f"{turn}.{fence}.{position}.{index}"


def parse_event_id(value: str) -> tuple[int, int, int, int] | None:
    """The four numbers of an event id; None for any other text."""
    parts = value.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return None
    turn, fence, position, index = (int(part) for part in parts)
    return turn, fence, position, index


class StagedEvents(EventStream):
    """One turn's events: recorded ones wait for their commit, live ones go at once."""

    def __init__(self, publisher: EventPublisher, session: str, turn: int, fence: int) -> None:
        super().__init__(None)
        self._publisher, self._session, self._turn, self._fence = publisher, session, turn, fence
        self._staged: list[JsonObject] = []

    @property
    def active(self) -> bool:
        return True

    def emit(
        self,
        event: JsonObject,
        *,
        session_id: str | None = None,
        dispatch_id: str | None = None,
        recorded: bool = True,
    ) -> None:
        body = enveloped(event, session_id or self._session, self._turn, dispatch_id)
        if recorded:
            self._staged.append(body)
        else:
            self._publisher.live(self._session, {**body, "live": True, "fence": self._fence})

    def take(self) -> list[JsonObject]:
        staged, self._staged = self._staged, []
        return staged


def enveloped(event: JsonObject, session: str, turn: int, dispatch_id: str | None) -> JsonObject:
    body: JsonObject = {
        "level": level_of(event),
        **event,
        "ts": time.time_ns() // 1_000_000,
        "sessionId": event.get("sessionId", session),
        "turnId": f"{session}.{turn}",
    }
    if dispatch_id is not None:
        body["subWorkflowDispatchId"] = dispatch_id
    return body


class EventPublisher:
    """Writes streams and the index from a queue of its own, so that a slow Redis slows no turn. Best effort."""

    def __init__(self, redis: Redis, *, stream_seconds: float = 86_400) -> None:
        self._redis = redis
        self._stream_seconds = round(stream_seconds)
        self._queue: asyncio.Queue[tuple[str, list[tuple[str | None, JsonObject]]]] = asyncio.Queue(
            maxsize=10_000
        )
        self.dropped = 0

    def publish(
        self, session: str, turn: int, fence: int, position: int, events: Sequence[JsonObject]
    ) -> None:
        """Recorded events of one commit, now durable."""
        self._put(
            session, [(event_id(turn, fence, position, index), event) for index, event in enumerate(events)]
        )

    def live(self, session: str, event: JsonObject) -> None:
        self._put(session, [(None, event)])

    def _put(self, session: str, items: list[tuple[str | None, JsonObject]]) -> None:
        if not items:
            return
        try:
            self._queue.put_nowait((session, items))
        except asyncio.QueueFull:
            self.dropped += len(items)  # a reader finds the recorded ones in the store

    async def run(self) -> None:
        """Write until cancelled, everything that is waiting in one round trip."""
        while True:
            batch = [await self._queue.get()]
            while not self._queue.empty() and len(batch) < 200:
                batch.append(self._queue.get_nowait())
            pipeline = self._redis.pipeline(transaction=False)
            for session, items in batch:
                for identity, event in items:
                    fields: dict[Any, Any] = {"data": dumps(event)}
                    if identity is not None:
                        fields["id"] = identity
                    pipeline.xadd(stream_key(session), fields, maxlen=STREAM_LENGTH, approximate=True)
            for session in {session for session, _ in batch}:
                pipeline.expire(stream_key(session), self._stream_seconds)
            try:
                await pipeline.execute()
            except (RedisError, OSError) as error:
                self.dropped += sum(len(items) for _, items in batch)
                logger.warning("events not published: %s", error, extra={"action": "events_dropped"})
            await asyncio.sleep(GATHER_SECONDS)

    async def flush(self) -> None:
        """Wait, a little, until what is queued has been taken."""
        for _ in range(50):
            if self._queue.empty():
                return
            await asyncio.sleep(0.02)


class RedisNotices:
    """The `Notices` port: streams, waiters and the session index."""

    def __init__(self, redis: Redis, publisher: EventPublisher) -> None:
        self._redis, self._publisher = redis, publisher

    async def committed(self, session: str, turn: int, o: LogObject) -> None:
        """Events are published by the turn's own log, which knows them."""

    async def ended(self, session: str, end: EndedTurn) -> None:
        fence = end.parts[-1].fence if end.parts else end.fence
        position = (end.parts[-1].records if end.parts else 0) + 1
        settled = {
            "type": "turn-settled",
            "outcome": {key: value for key, value in end.outcome.items() if key != "answer"},
        }
        # the index after every event a commit can have
        self._publisher._put(
            session,
            [(event_id(end.turn, fence, position, 999_999), enveloped(settled, session, end.turn, None))],
        )
        summary = entry_of(session, end)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.hset(SESSIONS, session, text(summary))
        pipeline.zadd(BY_TIME, {session: summary["updatedAt"]})
        pipeline.eval(_CLOSED, 1, OPEN, session, end.turn)
        pipeline.publish(ended_channel(session), str(end.turn))
        await self._quietly(pipeline.execute())

    async def accepted(self, entry: InboxEntry) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.hsetnx(SESSIONS, entry.session, text(first_line(entry)))
        pipeline.zadd(BY_TIME, {entry.session: entry.at_ms})
        pipeline.eval(_OPENED, 1, OPEN, entry.session, entry.n)
        await self._quietly(pipeline.execute())

    async def deleted(self, session: str) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.hdel(SESSIONS, session)
        pipeline.zrem(BY_TIME, session)
        pipeline.hdel(OPEN, session)
        pipeline.delete(stream_key(session))
        await self._quietly(pipeline.execute())

    async def _quietly(self, operation: Any) -> None:
        try:
            await operation
        except (RedisError, OSError) as error:
            logger.warning("index not updated: %s", error, extra={"action": "index_skipped"})


def first_line(entry: InboxEntry, status: str = "queued") -> JsonObject:
    """The line of a session none of whose turns has ended, from its input."""
    line: JsonObject = {
        "sessionId": entry.session,
        "workflow": entry.workflow,
        "status": status,
        "turn": entry.n,
        "updatedAt": entry.at_ms,
    }
    if entry.input.get("labels"):
        line["labels"] = entry.input["labels"]
    if entry.parent is not None:
        line["parent"] = entry.parent.session
    return line


def entry_of(session: str, end: EndedTurn) -> JsonObject:
    """A session's line in the index, from its newest outcome."""
    outcome = end.outcome
    line: JsonObject = {
        "sessionId": session,
        "workflow": end.workflow,
        "status": outcome.get("status") or outcome.get("kind"),
        "turn": end.turn,
        "state": outcome.get("state"),
        "updatedAt": outcome.get("at") or time.time_ns() // 1_000_000,
    }
    for key in ("title", "labels", "parent", "usage", "parkedChannel", "exit", "rejected"):
        if outcome.get(key) is not None:
            line[key] = outcome[key]
    pending = outcome.get("pending") or {}
    if pending.get("resumeAt"):
        line["resumeAt"] = pending["resumeAt"]
    return line
