"""Accepting an input: the store gives it its number, and with it its place in the order (docs/protocol.md §3, §7).

Everything that can be refused is refused before anything is written. Once the entry is there the input is accepted,
whether or not its sender learns of it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from storage.limits import WINDOW_MS
from storage.local import LOCAL
from storage.logstore import Conflict
from storage.records import Head, InboxEntry
from storage.sessionlog import HeadMoved, SessionLog
from worker.ports import Message, Stop
from worker.protocol.cancel import cancel_below
from worker.protocol.delete import DELETE
from worker.protocol.errors import ChildSession, KeyReused, SessionBusy, SessionGone, SessionHeldLocally
from worker.protocol.fleet import Fleet
from worker.protocol.join import tell
from worker.protocol.keyed import KeyRecord, create_record, key_path, move, ran, read_record

_CHILD = re.compile(r"~[0-9]+\Z")


class OnBusy(StrEnum):
    QUEUE = "queue"  #: wait for the turns before it
    REJECT = "reject"  #: refuse when one is running or waiting
    INTERRUPT = "interrupt"  #: wait, and cancel those before it


@dataclass(frozen=True, slots=True)
class Draft:
    """An input to accept. `minted`: the session id is brand new, so nothing can be known about it.

    An empty `workflow` is the session's own.
    """

    session: str
    workflow: str
    kind: str
    input: JsonObject
    minted: bool = False
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """`scope`: the caller, or what makes the key unique; `request`: a digest of everything asked."""

    scope: str
    key: str
    request: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The turn `session.n`. `repeated`: an earlier request with the same key was accepted as it."""

    session: str
    n: int
    repeated: bool = False


#: Refuses, by raising, an input the session cannot take now. Gets the log and the head as just read.
Check = Callable[[SessionLog, Head | None], Awaitable[None]]


async def accept(
    fleet: Fleet,
    draft: Draft,
    *,
    on_busy: OnBusy = OnBusy.QUEUE,
    key: IdempotencyKey | None = None,
    check: Check | None = None,
) -> Accepted:
    """Accept an input from outside.

    Raises, with nothing accepted: `BrokerUnavailable`, `SessionGone`, `SessionBusy`, `ChildSession`, `KeyReused`, what
    `check` raises. `StoreUnavailable`: unknown; a retry with the same key settles it.
    """
    await fleet.queue.alive()
    if _CHILD.search(draft.session):
        raise ChildSession(draft.session)
    if key is not None:
        return await _accept_keyed(fleet, draft, on_busy, key, check)
    log = fleet.log(draft.session)
    identity = fleet.files.new_id()
    minted = draft.minted
    while True:
        started = fleet.clock.monotonic_ms()
        head = None if minted else await log.head()
        await _refuse(log, draft, head, on_busy, check)
        base = head.turn if head else 0
        entry = await _entry(fleet, draft, head, identity, base + 1)
        while not await _put(fleet, log, entry):
            if await _has_run(fleet, log, entry, started):
                return Accepted(draft.session, entry.n)
            if on_busy is OnBusy.REJECT:
                raise SessionBusy(draft.session)
            if head is None:
                await _refuse_beside(log, draft, on_busy, check)
            entry = replace(entry, n=await _next_free(fleet, log, base, entry.n))
        if await _holds(fleet, log, head, entry, started):
            await _announce(fleet, entry, head, on_busy)
            return Accepted(draft.session, entry.n)
        minted = False


async def delete_session(fleet: Fleet, session: str, *, key: IdempotencyKey | None = None) -> Accepted:
    """Accept a delete, and cancel everything before it. Raises: as `accept`."""
    return await accept(fleet, Draft(session, "", DELETE, {}), on_busy=OnBusy.INTERRUPT, key=key)


async def accept_record(
    fleet: Fleet,
    record: KeyRecord,
    draft: Draft,
    *,
    on_busy: OnBusy = OnBusy.QUEUE,
    check: Check | None = None,
    checked: bool = False,
) -> Accepted | None:
    """Accept `draft` as the one input of a key's record. None: the record is gone.

    `checked`: the input was found acceptable just now, and the record is new. Otherwise it may have been accepted
    before, and is checked only when it was not. Raises: what `check` raises, with nothing accepted.
    """
    log = fleet.log(record.session)
    repeated = not checked
    #: the claim in the head for which the input was found acceptable
    checked_for: str | None = None
    while True:
        started = fleet.clock.monotonic_ms()
        head = await log.head()
        claim = head.w if head else ""
        if head is not None and (head.deleted or record.life not in (None, head.life)):
            raise SessionGone(record.session)
        if head is None and record.life is not None:
            raise SessionGone(record.session)
        base = head.turn if head else 0
        if head is not None and 0 < record.n <= base and await _ran(log, head, record.n) == record.id:
            return Accepted(record.session, record.n, repeated)
        if not checked:
            waiting = await log.entry(record.n) if record.n > base else None
            if waiting is not None and waiting.id == record.id:
                await _announce(fleet, waiting, head, on_busy)
                return Accepted(record.session, record.n, repeated)
            await _refuse(log, draft, head, on_busy, check)
            checked = True
            checked_for = claim
        elif checked_for is None:
            checked_for = claim
        if record.n > base:
            entry = await _entry(fleet, draft, head, record.id, record.n)
            if await _put(fleet, log, entry):
                if await _holds(fleet, log, head, entry, started):
                    await _announce(fleet, entry, head, on_busy)
                    return Accepted(record.session, record.n, repeated)
                continue
            if await _has_run(fleet, log, entry, started):
                return Accepted(record.session, record.n, repeated)
            if on_busy is OnBusy.REJECT:
                raise SessionBusy(draft.session)
            if head is None:
                await _refuse_beside(log, draft, on_busy, check)
        # The number is provably another's, or none was pinned yet. A park's timer that a slow repeat of dues has set again
        # must not be delivered after the park.
        if checked_for != claim:
            await _refuse(log, draft, head, on_busy, check)
            checked_for = claim
        n = base + 1 if record.n == 0 else await _next_free(fleet, log, base, record.n, record.id)
        moved = await move(fleet, record, n, head.life if head else None)
        if moved is None:
            return None
        record = moved


async def _accept_keyed(
    fleet: Fleet, draft: Draft, on_busy: OnBusy, key: IdempotencyKey, check: Check | None
) -> Accepted:
    log = fleet.log(draft.session)
    path = key_path(key.scope, key.key)
    while True:
        head = None if draft.minted else await log.head()
        try:
            await _refuse(log, draft, head, on_busy, check)
        except ArchmaxError:
            # A repeat gets its answer also where a new request would be refused.
            record, new = await read_record(fleet, path), False
            if record is None:
                raise
        else:
            record, new = await create_record(fleet, path, key.request, draft.session, head)
        if record.request != key.request:
            raise KeyReused(key.key)
        own = replace(draft, session=record.session)
        accepted = await accept_record(fleet, record, own, on_busy=on_busy, check=check, checked=new)
        if accepted is not None:
            return accepted


async def _refuse(
    log: SessionLog, draft: Draft, head: Head | None, on_busy: OnBusy, check: Check | None
) -> None:
    if head is not None:
        if head.deleted:
            raise SessionGone(draft.session)
        local = head.by == LOCAL and draft.kind != DELETE
        if (local or on_busy is OnBusy.REJECT) and await log.over(head) is None:
            raise SessionHeldLocally(draft.session) if local else SessionBusy(draft.session)
    if check is not None:
        await check(log, head)


async def _refuse_beside(log: SessionLog, draft: Draft, on_busy: OnBusy, check: Check | None) -> None:
    """Judge again an input found good for a new session: another has begun it meanwhile, maybe with its own workflow."""
    await _refuse(log, draft, await log.head(), on_busy, check)


async def _entry(fleet: Fleet, draft: Draft, head: Head | None, identity: str, n: int) -> InboxEntry:
    return InboxEntry(
        session=draft.session,
        n=n,
        id=identity,
        kind=draft.kind,
        workflow=draft.workflow or (head.workflow if head else ""),
        input=draft.input,
        at_ms=await fleet.clock.now_ms(),
        w=fleet.files.new_id(),
        expires_ms=draft.expires_ms,
    )


async def _put(fleet: Fleet, log: SessionLog, entry: InboxEntry) -> bool:
    """False: the number is another's. An own entry may carry a cancel by now, so its identity tells."""
    key = log.keys.inbox(entry.n)

    def mine(body: bytes) -> bool:
        return InboxEntry.read(key, body, "", 0).id == entry.id

    written = await fleet.files.create(key, entry.body(), entry.w, mine=mine)
    return not isinstance(written, Conflict)


async def _next_free(
    fleet: Fleet, log: SessionLog, base: int, taken: int, identity: str | None = None
) -> int:
    """The number after all that wait; with `identity`, the number under which that input waits already.

    The latter happens to a timer that a slow repeat of dues has set again.
    """
    listed = await fleet.files.listing(log.keys.inbox_prefix, after=log.keys.inbox(base))
    numbers = [int(found.key.removeprefix(log.keys.inbox_prefix)) for found in listed]
    if identity is not None:
        for entry in await fleet.files.gather([partial(log.entry, n) for n in numbers]):
            if entry is not None and entry.id == identity:
                return entry.n
    return max([base, taken, *numbers]) + 1


async def _holds(
    fleet: Fleet, log: SessionLog, head: Head | None, entry: InboxEntry, started_ms: int
) -> bool:
    """Whether the entry is where its number means something. A slow accept may have met an emptied slot.

    False: the entry was removed again. `head` is what the number was derived from, at `started_ms`.
    """
    if fleet.clock.monotonic_ms() - started_ms <= WINDOW_MS:
        return True
    now = await log.head()
    if now is not None and now.deleted:
        raise SessionGone(entry.session)
    same_life = head is None or (now is not None and now.life == head.life)
    slipped = now is not None and now.turn >= entry.n and await _ran(log, now, entry.n) != entry.id
    if same_life and not slipped:
        return True
    await fleet.files.delete([log.keys.inbox(entry.n)])
    return False


async def _has_run(fleet: Fleet, log: SessionLog, entry: InboxEntry, started_ms: int) -> bool:
    """Whether the entry, whose number is another's now, was there: the reply to its write came so late, or never, that its
    turn is over, its slot was emptied, and another slow accept has met the empty slot."""
    if fleet.clock.monotonic_ms() - started_ms <= WINDOW_MS:
        return False
    now = await log.head()
    if now is not None and now.deleted:
        raise SessionGone(entry.session)
    return now is not None and now.turn >= entry.n and await _ran(log, now, entry.n) == entry.id


async def _ran(log: SessionLog, head: Head, n: int) -> str:
    """As `keyed.ran`, over a head that moves."""
    while True:
        try:
            return await ran(log, head, n)
        except HeadMoved:
            again = await log.head()
            if again is None or again.turn < n:
                raise SessionGone(log.session) from None
            head = again


async def _announce(fleet: Fleet, entry: InboxEntry, head: Head | None, on_busy: OnBusy) -> None:
    await fleet.notices.accepted(entry)
    await tell(fleet, [Message(entry.session, entry.n, entry.workflow or None)])
    if on_busy is OnBusy.INTERRUPT:
        reason = Stop.DELETED if entry.kind == DELETE else Stop.INTERRUPTED
        await cancel_below(fleet, entry.session, entry.n, head, reason)
