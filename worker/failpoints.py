"""Failpoints: where a process can be made to die, for the tests that nothing is lost and nothing done twice.

`ARCHMAX_FAILPOINT=<name>[:<n>[:freeze]]` kills the process with SIGKILL when it comes to that place for the n-th time, or stops
it with SIGSTOP. Every durable write and every send has two places, `<operation>.before` and `<operation>.after`; `OPERATIONS`
lists the operations. Unset, nothing is wrapped and nothing is asked. It is no setting: nothing that comes in by a door can
set it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from storage.layout import INBOX, KEYS, TIMERS, life_kind
from storage.objects import ListedObject, ObjectStore, StoredObject
from storage.records import is_seal, unpack
from worker.ports import Message, Queue

VARIABLE = "ARCHMAX_FAILPOINT"

#: what can be named, each with `.before` and `.after`
OPERATIONS = (
    "put-entry",  # an accepted input
    "put-child-entry",  # the same, of a child
    "flag-entry",  # a cancel's flag, or a webhook's note, in an accepted input
    "claim",  # the head, for a new turn
    "takeover",  # the head, under the next fence
    "tombstone",  # the head of a deleted session
    "put-step",
    "put-suspend",
    "put-joined",
    "put-released",
    "seal-log",
    "put-end",
    "seal-end",
    "put-segment",
    "put-answer",  # a child's answer to its parent
    "put-blob",
    "put-key",  # an idempotency key
    "move-key",
    "put-timer",
    "move-timer",
    "put-spec",
    "put-other",
    "delete",
    "send-turn",
    "send-children",
    "send-wake",
)


class Failpoint:
    """The place that was asked for, and how often it is still passed."""

    def __init__(self, asked: str) -> None:
        """Raises: `ValueError` for a name that is none."""
        name, _, rest = asked.partition(":")
        count, _, how = rest.partition(":")
        operation, _, moment = name.rpartition(".")
        known = operation in OPERATIONS and moment in ("before", "after") and how in ("", "freeze")
        if not known or not (count or "1").isdecimal():
            raise ValueError(f"{VARIABLE}={asked!r} names no failpoint")
        self._name, self._left = name, int(count or 1)
        self._signal = signal.SIGSTOP if how else signal.SIGKILL

    def reach(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                # To this very thread: one sent to the process stops the main thread first, and this one may run on.
                signal.pthread_kill(threading.get_ident(), self._signal)


def armed() -> Failpoint | None:
    """The failpoint of this process. Raises: as `Failpoint`."""
    asked = os.environ.get(VARIABLE)
    return Failpoint(asked) if asked else None


class FailingStore:
    """A store whose writes pass the failpoint."""

    def __init__(self, store: ObjectStore, point: Failpoint) -> None:
        self._store, self._point = store, point

    async def get(self, key: str) -> StoredObject | None:
        return await self._store.get(key)

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        operation = _operation(key, body, replaces=if_match is not None)
        self._point.reach(f"{operation}.before")
        etag = await self._store.put(key, body, if_absent=if_absent, if_match=if_match)
        self._point.reach(f"{operation}.after")
        return etag

    def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        return self._store.list(prefix, after=after)

    async def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        if wanted:
            self._point.reach("delete.before")
        await self._store.delete(wanted)
        if wanted:
            self._point.reach("delete.after")

    async def check(self) -> None:
        """Of a bucket; other stores are not checked."""
        store: Any = self._store
        await store.check()

    async def close(self) -> None:
        await self._store.close()


class FailingQueue:
    """A queue whose sends pass the failpoint."""

    def __init__(self, queue: Queue, point: Failpoint) -> None:
        self._queue, self._point = queue, point

    async def alive(self) -> None:
        await self._queue.alive()

    async def send(self, messages: Sequence[Message], *, delay_seconds: float = 0.0) -> None:
        operation = "send-turn"
        if messages and messages[0].child:
            operation = "send-children" if messages[0].parent is not None else "send-wake"
        self._point.reach(f"{operation}.before")
        await self._queue.send(messages, delay_seconds=delay_seconds)
        self._point.reach(f"{operation}.after")


def _operation(key: str, body: bytes, *, replaces: bool) -> str:
    if key.startswith(KEYS):
        return "move-key" if replaces else "put-key"
    if key.startswith(TIMERS):
        return "move-timer" if replaces else "put-timer"
    if key.startswith("_specs/"):
        return "put-spec"
    if key.startswith(INBOX):
        if replaces:
            return "flag-entry"
        return "put-child-entry" if unpack(key, body).get("parent") else "put-entry"
    if key.endswith("/checkpoints/head"):
        return _head(unpack(key, body))
    match life_kind(key):
        case "log":
            kind = str(unpack(key, body)["kind"])
            return "seal-log" if kind == "seal" else f"put-{kind}"
        case "end":
            return "seal-end" if is_seal(unpack(key, body)) else "put-end"
        case "seg":
            return "put-segment"
        case "join":
            return "put-answer"
        case "blob":
            return "put-blob"
        case _:
            return "put-other"


def _head(head: dict[str, Any]) -> str:
    if head.get("deleted"):
        return "tombstone"
    return "claim" if head["fence"] == 1 else "takeover"
