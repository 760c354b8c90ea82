"""Inputs that are accepted once however often they are sent: idempotency keys, timers, planned times (docs/protocol.md §7).

The record of the key names a session **and a number**. The input's identity is only ever written at that number, and the
number only moves once its slot is provably another's. So one key is one turn for ever.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Self

from core.jsontext import JsonObject
from storage.layout import key_record
from storage.logstore import Conflict
from storage.objects import StoredObject
from storage.records import Head, pack, unpack
from storage.sessionlog import SessionLog
from worker.protocol.fleet import Fleet


def key_path(scope: str, key: str) -> str:
    """Where an idempotency key's record lies. `scope` is the caller, so callers cannot meet."""
    text = f"{len(scope)}:{scope}{key}"
    return key_record(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """`n` is 0 until a number is pinned; `request` is a digest of what was asked. `turn`, `due`: a timer's park."""

    key: str
    w: str
    request: str
    session: str
    n: int
    life: str | None = None
    turn: int = 0
    due: JsonObject | None = None
    etag: str = ""

    @property
    def id(self) -> str:
        """The identity of the input accepted under this record."""
        return hashlib.sha256(self.key.encode("ascii")).hexdigest()[:32]

    def body(self) -> bytes:
        shown: JsonObject = {"w": self.w, "request": self.request, "session": self.session, "n": self.n}
        if self.life is not None:
            shown["life"] = self.life
        if self.due is not None:
            shown["turn"], shown["due"] = self.turn, self.due
        return pack(shown)

    @classmethod
    def read(cls, key: str, found: StoredObject) -> Self:
        o = unpack(key, found.body)
        return cls(
            key=key,
            w=o["w"],
            request=o["request"],
            session=o["session"],
            n=o["n"],
            life=o.get("life"),
            turn=o.get("turn", 0),
            due=o.get("due"),
            etag=found.etag,
        )


async def read_record(fleet: Fleet, key: str) -> KeyRecord | None:
    found = await fleet.files.read(key)
    return KeyRecord.read(key, found) if found else None


async def create_record(
    fleet: Fleet, path: str, request: str, session: str, head: Head | None
) -> tuple[KeyRecord, bool]:
    """The record of an idempotency key, and whether it is new. The number is the next one, as far as the head says."""
    record = KeyRecord(
        key=path,
        w=fleet.files.new_id(),
        request=request,
        session=session,
        n=head.turn + 1 if head else 1,
        life=head.life if head else None,
    )
    while True:
        written = await fleet.files.create(record.key, record.body(), record.w)
        if not isinstance(written, Conflict):
            return replace(record, etag=written.etag), not written.lost
        if written.found is not None:
            return KeyRecord.read(record.key, written.found), False


async def move(fleet: Fleet, record: KeyRecord, n: int, life: str | None) -> KeyRecord | None:
    """Pin another number. Returns the record as it is now: a racer's number is as good. None: it is gone."""
    moved = replace(record, n=n, life=life, w=fleet.files.new_id())
    written = await fleet.files.replace(record.key, moved.body(), moved.w, record.etag)
    if not isinstance(written, Conflict):
        return replace(moved, etag=written.etag)
    return KeyRecord.read(record.key, written.found) if written.found else None


async def ran(log: SessionLog, head: Head, n: int) -> str:
    """The identity of the input that turn `n`, at most the head's, ran."""
    if n == head.turn:
        return head.entry
    end = await log.ended(head, n)
    return end.entry if end is not None else ""
