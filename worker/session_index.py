"""Lists of sessions: the index in Redis, filtered and paged, and rebuilt from the store when Redis has lost it.

Newest change first. A cursor names the last line looked at, so that a page goes on there whatever has moved meanwhile;
a line that moves to the top during paging is not met twice.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import RedisError

from core.jsontext import JsonObject, dumps, loads, text
from engine.host.session_folder import SessionFolder
from storage.layout import INBOX
from storage.records import InboxEntry
from storage.sessionlog import HeadMoved
from worker.client import FleetClient
from worker.events import BY_TIME, OPEN, SESSIONS, entry_of, first_line
from worker.ports import BrokerUnavailable
from worker.redis_leases import PREFIX
from worker.refusals import CursorInvalid, IndexUnavailable
from worker.stopping import stop_tasks

logger = logging.getLogger(__name__)

#: set once the index holds what the store holds; gone with everything else when Redis is wiped
WHOLE: Final = f"{PREFIX}sessions:whole"
#: lines one request looks at, matching or not
SCAN: Final = 5_000
_PAGE: Final = 250
_WAIT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Filters:
    """All given ones must hold. `workflows` None: any. Times are epoch milliseconds of the last change."""

    status: Collection[str] | None = None
    workflows: Collection[str] | None = None
    labels: Collection[tuple[str, str]] = ()
    updated_after: int | None = None
    updated_before: int | None = None
    parent: str | None = None
    children: bool = False

    def hold(self, line: JsonObject) -> bool:
        if self.workflows is not None and line.get("workflow") not in self.workflows:
            return False
        if self.status is not None and not self._status_holds(line):
            return False
        if self.parent is not None:
            if line.get("parent") != self.parent:
                return False
        elif not self.children and line.get("parent"):
            return False
        labels = line.get("labels") or {}
        return all(labels.get(name) == value for name, value in self.labels)

    def _status_holds(self, line: JsonObject) -> bool:
        wanted = self.status or ()
        return line.get("status") in wanted or ("running" in wanted and "openTurn" in line)


@dataclass(frozen=True, slots=True)
class Page:
    """`cursor` None: there is no more. `whole` false: the index is being rebuilt, more lines will come."""

    items: list[JsonObject]
    cursor: str | None
    whole: bool = True


class SessionIndex:
    def __init__(self, client: FleetClient) -> None:
        self._client = client
        self._rebuild: asyncio.Task[None] | None = None

    async def page(self, filters: Filters, cursor: str | None, limit: int) -> Page:
        """Raises: `CursorInvalid`, `IndexUnavailable`."""
        after = _read_cursor(cursor) if cursor else None
        try:
            # one bounded question first: a silent Redis would hold each of the list's own for its whole time-out, twice
            await self._client.queue.alive()
            whole = await self._whole()
            items, last, more = await self._scan(filters, after, limit)
        except (BrokerUnavailable, RedisError, OSError) as error:
            raise IndexUnavailable from error
        return Page(items, _write_cursor(*last) if more and last else None, whole)

    async def close(self) -> None:
        if self._rebuild is not None:
            await stop_tasks([self._rebuild])

    async def _scan(
        self, filters: Filters, after: tuple[int, str] | None, limit: int
    ) -> tuple[list[JsonObject], tuple[int, str] | None, bool]:
        redis = self._client.redis
        highest: str | int = "+inf" if filters.updated_before is None else filters.updated_before
        if after is not None and (filters.updated_before is None or after[0] <= filters.updated_before):
            highest = after[0]
        lowest: str | int = "-inf" if filters.updated_after is None else filters.updated_after
        items: list[JsonObject] = []
        last, looked, offset = after, 0, 0
        while True:
            found: Any = await redis.zrevrangebyscore(
                BY_TIME, highest, lowest, start=offset, num=_PAGE, withscores=True
            )
            offset += _PAGE
            lines = [(int(float(item[1])), str(item[0])) for item in found]
            fresh = [line for line in lines if after is None or line < after]
            if fresh:
                held, opened = await asyncio.gather(
                    redis.hmget(SESSIONS, [session for _, session in fresh]),
                    redis.hmget(OPEN, [session for _, session in fresh]),
                )
                for place, raw, turn in zip(fresh, held, opened, strict=True):
                    if len(items) == limit or looked == SCAN:
                        return items, last, True
                    last, looked = place, looked + 1
                    line = _line(place, raw, turn)
                    if line is not None and filters.hold(line):
                        items.append(line)
            if len(found) < _PAGE:
                return items, last, False

    async def _whole(self) -> bool:
        if await self._client.redis.exists(WHOLE):
            return True
        if self._rebuild is None or self._rebuild.done():
            self._rebuild = asyncio.create_task(self._run_rebuild(), name="archmax-index")
        await asyncio.wait([self._rebuild], timeout=_WAIT_SECONDS)
        return self._rebuild.done() and bool(await self._client.redis.exists(WHOLE))

    async def _run_rebuild(self) -> None:
        try:
            await self.rebuild()
        except Exception as error:
            logger.warning("index not rebuilt: %s", error, extra={"action": "index_rebuild_failed"})

    async def rebuild(self) -> int:
        """Add every session of the store that the index lacks. Returns how many there are."""
        count = 0
        async for session in SessionFolder(self._client.store).session_ids():
            line = await self._line_of(session)
            if line is not None:
                count += 1
                await self._add(session, line)
        for item in await self._client.files.listing(INBOX):
            found = await self._client.files.read(item.key)
            if found is not None:
                # of a session that has begun, or was deleted, the head says more
                entry = InboxEntry.read(item.key, found.body, found.etag, found.modified_ms)
                if await self._client.fleet.log(entry.session).head() is not None:
                    continue
                await self._add(entry.session, first_line(entry))
        await self._client.redis.set(WHOLE, "1")
        return count

    async def _add(self, session: str, line: JsonObject) -> None:
        await self._client.redis.hsetnx(SESSIONS, session, text(line))
        await self._client.redis.zadd(BY_TIME, {session: line["updatedAt"]}, nx=True)

    async def _line_of(self, session: str) -> JsonObject | None:
        log = self._client.fleet.log(session)
        for _ in range(5):
            head = await log.head()
            if head is None or head.deleted:
                return None
            try:
                end = await log.over(head)
                if end is None and head.turn > 1:
                    end = await log.ended(head, head.turn - 1)
            except HeadMoved:
                continue
            if end is not None:
                line = entry_of(session, end)
                line["updatedAt"] = end.outcome.get("at") or head.modified_ms
                return line
            entry = await log.entry(head.turn)
            if entry is not None:
                return {**first_line(entry, "running"), "updatedAt": head.modified_ms}
            return {
                "sessionId": session,
                "workflow": head.workflow,
                "status": "running",
                "turn": head.turn,
                "updatedAt": head.modified_ms,
            }
        return None


def _line(place: tuple[int, str], raw: bytes | str | None, turn: bytes | str | None) -> JsonObject | None:
    if raw is None:
        return None
    line = loads(raw)
    if not isinstance(line, dict):
        return None
    line.setdefault("updatedAt", place[0])
    if turn is not None:
        line["openTurn"] = int(turn)
    return line


def _write_cursor(score: int, session: str) -> str:
    return base64.urlsafe_b64encode(dumps([score, session])).decode("ascii").rstrip("=")


def _read_cursor(cursor: str) -> tuple[int, str]:
    try:
        score, session = loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, RecursionError) as error:
        raise CursorInvalid from error
    if (
        not isinstance(score, int)
        or isinstance(score, bool)
        or not isinstance(session, str)
        or abs(score) > 2**53
    ):
        raise CursorInvalid
    return score, session
