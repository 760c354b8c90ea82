"""Following a session's events: each recorded one once and in order, wherever the reader was (design: Events).

Redis carries them while they are fresh; the store has them all. A reader goes on with what Redis brings as long as the
ids follow on one another; at every gap, and when it has been quiet for a while, the missing ones are derived from the
store's records. So a wiped Redis, a worker that died between its commit and its telling, or a stream cut short costs
a reader nothing but a read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.jsontext import JsonObject, loads
from engine.session.events import events_of
from engine.session.state import SessionState
from storage.records import EndedTurn, Why
from storage.sessionlog import HeadMoved
from worker.client import FleetClient, open_redis
from worker.events import enveloped, event_id, parse_event_id, stream_key
from worker.reading import Reader

EventId: TypeAlias = tuple[int, int, int, int]
START: EventId = (0, 0, 0, 0)
#: the index of `turn-settled`, behind every event its commit can have
SETTLED_INDEX = 999_999
#: one blocking read, in milliseconds
_BLOCK_MS = 1_000
#: quiet for this long, the store is asked
_QUIET_SECONDS = 5.0
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Told:
    """`id` is None for a live event: never repeated, never derived."""

    id: str | None
    event: JsonObject


class Follower:
    """Readers of one process. Blocking reads have a client of their own."""

    def __init__(self, client: FleetClient, reader: Reader) -> None:
        self._client, self._reader = client, reader
        self._redis: Redis = open_redis(
            client.settings, socket_timeout_seconds=client.settings.redis_timeout_seconds + _BLOCK_MS / 1000
        )

    async def close(self) -> None:
        await self._redis.aclose()

    async def follow(
        self, session: str, after: EventId, *, turn: int | None = None, live: bool = True
    ) -> AsyncIterator[Told | None]:
        """Events behind `after`. With `turn`, those of that turn, ending when it has settled. None: a quiet second.

        Never ends by itself without `turn`, unless the session is deleted.
        """
        cursor = after if turn is None else max(after, (turn, 0, 0, 0))
        if turn is not None and (cursor[0] > turn or cursor[3] == SETTLED_INDEX):
            return  # everything of the turn has been told
        position = await self._latest(session)
        async for told in self._from_store(session, cursor, None):
            cursor = _id_of(told)
            if turn is not None and cursor[0] > turn:
                return
            yield told
            if turn is not None and cursor[3] == SETTLED_INDEX:
                return
        asked = time.monotonic()
        while True:
            items, position = await self._read(session, position)
            for told in items:
                if told.id is None:
                    if live and (turn is None or told.event.get("turnId") == f"{session}.{turn}"):
                        yield told
                    continue
                at = _id_of(told)
                if at <= cursor:
                    continue
                missing = (
                    [] if _follows(cursor, at) else [t async for t in self._from_store(session, cursor, at)]
                )
                for found in (*missing, told):
                    cursor = _id_of(found)
                    if turn is not None and cursor[0] > turn:
                        return
                    yield found
                    if turn is not None and cursor[3] == SETTLED_INDEX:
                        return
            if items:
                asked = time.monotonic()
                continue
            yield None
            if time.monotonic() - asked > _QUIET_SECONDS:
                asked = time.monotonic()
                async for told in self._from_store(session, cursor, None):
                    cursor = _id_of(told)
                    if turn is not None and cursor[0] > turn:
                        return
                    yield told
                    if turn is not None and cursor[3] == SETTLED_INDEX:
                        return

    async def _latest(self, session: str) -> str:
        """Where the stream ends now: whatever is committed later is told behind it."""
        try:
            newest = await self._client.redis.xrevrange(stream_key(session), count=1)
        except (RedisError, OSError):
            return "0-0"
        return str(newest[0][0]) if newest else "0-0"

    async def _read(self, session: str, position: str) -> tuple[list[Told], str]:
        try:
            answer: Any = await self._redis.xread(
                {stream_key(session): position}, count=_PAGE, block=_BLOCK_MS
            )
        except (RedisError, OSError):
            await asyncio.sleep(_BLOCK_MS / 1000)
            return [], position
        told: list[Told] = []
        entries = answer.values() if isinstance(answer, dict) else [stream[1] for stream in answer or ()]
        for batch in entries:
            for where, fields in _flat(batch):
                position = where
                told.append(Told(fields.get("id"), loads(fields["data"])))
        return told, position

    async def _from_store(self, session: str, after: EventId, before: EventId | None) -> AsyncIterator[Told]:
        """Recorded events between two ids, both exclusive."""
        for told in await self._derive(session, after):
            if before is not None and _id_of(told) >= before:
                return
            yield told

    async def _derive(self, session: str, after: EventId) -> list[Told]:
        log = self._client.fleet.log(session)
        while True:
            head = await self._reader.head(session)
            if head is None or (after[0] >= head.turn and after[3] == SETTLED_INDEX):
                return []
            try:
                ends = await self._reader.ends(head)
                open_objects = (
                    (await log.read_chain(head)).objects if not ends or ends[-1].turn < head.turn else []
                )
            except HeadMoved:
                continue
            state = SessionState(session, head.workflow)
            told: list[Told] = []
            for end in ends:
                wanted = (end.turn, SETTLED_INDEX, 0, 0) > after
                told += _tell_end(session, state, end) if wanted else _fold(state, end)
            for o in open_objects:
                if o.record is not None:
                    told += _tell(session, state, head.turn, o.fence, o.position, o.record)
            return [item for item in told if _id_of(item) > after]


def _fold(state: SessionState, end: EndedTurn) -> list[Told]:
    for record in end.records:
        state.apply_record(record)
    return []


def _tell_end(session: str, state: SessionState, end: EndedTurn) -> Iterator[Told]:
    where = positions(end)
    for (fence, position), record in zip(where, end.records, strict=False):
        yield from _tell(session, state, end.turn, fence, position, record)
    yield settled_event(session, end)


def settled_event(session: str, end: EndedTurn) -> Told:
    """The last event of a turn, as `worker.events` tells it."""
    fence, records = (end.parts[-1].fence, end.parts[-1].records) if end.parts else (end.fence, 0)
    outcome = {key: value for key, value in end.outcome.items() if key != "answer"}
    body = enveloped({"type": "turn-settled", "outcome": outcome}, session, end.turn, None)
    if isinstance(end.outcome.get("at"), int):
        body["ts"] = end.outcome["at"]
    return Told(event_id(end.turn, fence, records + 1, SETTLED_INDEX), body)


def _tell(
    session: str, state: SessionState, turn: int, fence: int, position: int, record: JsonObject
) -> Iterator[Told]:
    index = 0
    for change in record.get("changes", ()):
        state.apply(change)
        for event in events_of(change, state):
            dispatch = state.origin.get("dispatchId") if state.origin else None
            body = {**enveloped(event, session, turn, dispatch), "ts": record.get("at")}
            yield Told(event_id(turn, fence, position, index), body)
            index += 1


def positions(end: EndedTurn) -> list[tuple[int, int]]:
    """Fence and commit of each record of an ended turn.

    A resume that ended or suspended at once left a first object without a record; how many such there are follows from
    the counts, and they stand where a resume has the fewest.
    """
    silent = sum(part.records for part in end.parts) + 1 - len(end.records)
    resumed = [
        after for before, after in zip(end.parts, end.parts[1:], strict=False) if before.why == Why.JOINED
    ]
    skipped = {part.fence for part in sorted(resumed, key=lambda part: part.records)[: max(silent, 0)]}
    where = [
        (part.fence, position)
        for part in end.parts
        for position in range(1, part.records + 1)
        if not (position == 1 and part.fence in skipped)
    ]
    last = end.parts[-1] if end.parts else None
    where.append((last.fence, last.records + 1) if last else (end.fence, 1))
    return where


def _follows(before: EventId, after: EventId) -> bool:
    """Whether nothing can lie between two ids."""
    if before[:3] == after[:3]:
        return after[3] in (before[3] + 1, SETTLED_INDEX) if before[3] != SETTLED_INDEX else False
    if before[:2] == after[:2]:
        return after[2] == before[2] + 1 and after[3] == 0
    return before[3] == SETTLED_INDEX and after == (before[0] + 1, 1, 1, 0)


def _id_of(told: Told) -> EventId:
    return parse_event_id(told.id or "") or START


def _flat(batch: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """The entries of one stream, in either of the client's shapes."""
    for item in batch:
        if isinstance(item, tuple):
            yield item
        else:
            yield from _flat(item)


__all__ = ["START", "EventId", "Follower", "Told", "positions", "settled_event"]
