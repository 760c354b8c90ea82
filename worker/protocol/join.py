"""Fan-out and join: a suspended turn, its children, and the answers that bring it back (docs/protocol.md §5).

No slot waits. The suspension's record names the children; each child that ends leaves its answer as an object under the
suspension and accepts the next one in call order. Who sees all answers sends the parent. Waking it twice is harmless.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from core.jsontext import JsonObject
from storage.layout import SessionKeys
from storage.logstore import Conflict
from storage.records import Head, InboxEntry, LogKind, LogObject, Parent, pack, unpack
from worker.ports import BrokerUnavailable, Message, Stop
from worker.protocol.fleet import Fleet


async def settle_child(fleet: Fleet, parent: Parent, answer: JsonObject) -> None:
    """A child has ended: leave its answer, then accept the next ones or wake the parent."""
    w = fleet.files.new_id()
    # There already: paid before. A child's turn has one outcome, so it is the same answer.
    await fleet.files.create(_answer_key(parent), pack({"w": w, "answer": answer}), w)
    await _after_answer(fleet, parent)


async def _wake(fleet: Fleet, parent: Parent) -> None:
    """Send the parent, once from this process: children that end together all find that they are the last.

    The first message was sent when all answers were there, so whoever takes it finds them. One that is lost, or that
    the broker refuses just then, is sent by the sweep.
    """
    suspension = _suspension_key(parent)
    if fleet.woken.get(suspension):
        return
    fleet.woken.put(suspension, True)
    sent = False
    try:
        sent = await tell(fleet, [Message(parent.session, parent.turn, parent.workflow, child=True)])
    finally:  # cancelled, too
        if not sent:
            fleet.woken.drop(suspension)


async def settle_child_again(fleet: Fleet, parent: Parent, answer: JsonObject) -> None:
    """As `settle_child`, for a debt that may have been paid: its creditor may have gone on, and cleaned up."""
    # The answer is looked for before the parent: one that is gone by now was cleaned, and then the parent is over.
    paid = await fleet.files.read(_answer_key(parent)) is not None
    if not await debt_stands(fleet, parent):
        return
    if paid:
        fleet.woken.drop(_suspension_key(parent))  # who paid may have died before it sent
        await _after_answer(fleet, parent)
    else:
        await settle_child(fleet, parent, answer)


async def _after_answer(fleet: Fleet, parent: Parent) -> None:
    settled = await settled_children(fleet, parent)
    if len(settled) >= parent.of:
        await _wake(fleet, parent)
    elif parent.of > parent.width:
        await _accept_next(fleet, parent, settled)


def _answer_key(parent: Parent) -> str:
    life = SessionKeys(parent.session).life(parent.life)
    return life.join(parent.turn, parent.fence, parent.position, parent.index)


async def debt_stands(fleet: Fleet, parent: Parent) -> bool:
    """Whether the parent is still in the turn that waits for this answer."""
    log = fleet.log(parent.session)
    head = await log.head()
    return (
        head is not None
        and not head.deleted
        and head.life == parent.life
        and head.turn == parent.turn
        and await log.over(head) is None
    )


def _suspension_key(parent: Parent) -> str:
    """The prefix of the answers to the parent's suspension."""
    return SessionKeys(parent.session).life(parent.life).joins(parent.turn, parent.fence, parent.position)


async def settled_children(fleet: Fleet, parent: Parent) -> set[int]:
    prefix = _suspension_key(parent)
    return {int(item.key.removeprefix(prefix)) for item in await fleet.files.listing(prefix)}


async def answers(fleet: Fleet, head: Head, suspension: LogObject) -> list[JsonObject] | None:
    """Every child's answer in call order; None while one is missing."""
    where = _pointer(head, suspension, 0)
    if len(await settled_children(fleet, where)) < len(suspension.calls):
        return None
    life = SessionKeys(head.session).life(head.life)
    keys = [
        life.join(head.turn, suspension.fence, suspension.position, i) for i in range(len(suspension.calls))
    ]
    found = await fleet.files.gather([partial(fleet.files.read, key) for key in keys])
    values = [unpack(key, o.body)["answer"] for key, o in zip(keys, found, strict=True) if o is not None]
    return values if len(values) == len(keys) else None


async def start_children(fleet: Fleet, head: Head, suspension: LogObject) -> None:
    """The suspender's pump: the first `width` children."""
    indexes = range(min(len(suspension.calls), suspension.width))
    entries = [_child_entry(head, suspension, i) for i in indexes]
    await _accept_children(fleet, entries)
    if not suspension.calls:
        await tell(fleet, [Message(head.session, head.turn, head.workflow, child=True)])


async def pump(fleet: Fleet, head: Head, suspension: LogObject, *, cancel: str | None) -> None:
    """A visit's pump: fills whatever a crash left out, and sends every child that may be running.

    `cancel`: the parent is to end. Then *all* missing children are accepted flagged and the others are flagged, so that
    each ends at once or at its next step and the join brings the parent back.
    """
    settled = await settled_children(fleet, _pointer(head, suspension, 0))
    count = len(suspension.calls)
    limit = count if cancel else min(count, suspension.width + len(settled))
    entries = [_child_entry(head, suspension, i, cancel=cancel) for i in range(limit) if i not in settled]
    await _accept_children(fleet, entries)


async def _accept_next(fleet: Fleet, parent: Parent, settled: set[int]) -> None:
    """Top-down, up to the first that is accepted already."""
    limit = min(parent.of, parent.width + len(settled))
    waiting = [i for i in range(limit - 1, -1, -1) if i not in settled]
    suspension: LogObject | None = None
    sent: list[InboxEntry] = []
    for index in waiting:
        if suspension is None:
            suspension = await _read_suspension(fleet, parent)
        if suspension is None:
            return
        entry = _entry_of(suspension, replace(parent, index=index), fleet.files.new_id())
        if not await _put_entry(fleet, entry):
            break
        sent.append(entry)
    await tell(fleet, [_message(entry) for entry in sent])


async def _accept_children(fleet: Fleet, entries: Sequence[InboxEntry]) -> None:
    stamped = [replace(entry, w=fleet.files.new_id()) for entry in entries]
    await fleet.files.gather([partial(_put_or_flag, fleet, entry) for entry in stamped])
    await tell(fleet, [_message(entry) for entry in entries])


async def _put_or_flag(fleet: Fleet, entry: InboxEntry) -> None:
    if not await _put_entry(fleet, entry) and entry.cancel is not None:
        await flag(fleet, entry.session, entry.n, entry.cancel)


async def _put_entry(fleet: Fleet, entry: InboxEntry) -> bool:
    """False: it was accepted before."""
    key = SessionKeys(entry.session).inbox(entry.n)
    return not isinstance(await fleet.files.create(key, entry.body(), entry.w), Conflict)


async def flag(fleet: Fleet, session: str, n: int, reason: str) -> InboxEntry | None:
    """Set the cancel flag in an accepted input and its hint. None: there is no such entry (any more)."""
    log = fleet.log(session)
    while (entry := await log.entry(n)) is not None:
        if entry.cancel is None:
            flagged = replace(entry, cancel=reason, w=fleet.files.new_id())
            written = await fleet.files.replace(log.keys.inbox(n), flagged.body(), flagged.w, entry.etag)
            if isinstance(written, Conflict):
                continue
            entry = flagged
        try:
            await fleet.leases.hint_cancel(session, n, entry.cancel or reason)
        except BrokerUnavailable:
            pass  # the flag is in the store: the holder reads it within ten seconds
        return entry
    return None


async def tell(fleet: Fleet, messages: Sequence[Message], *, delay_seconds: float = 0.0) -> bool:
    """Send, and have the sweep send again when nobody comes. The store knows already, so failing is no failure.

    False: they were not sent.
    """
    if messages:
        try:
            await fleet.leases.watch(messages, WATCH_MS)
            await fleet.queue.send(messages, delay_seconds=delay_seconds)
        except BrokerUnavailable:
            return False
    return True


#: how long a sent message may take before the sweep sends another
WATCH_MS = 30_000


async def _read_suspension(fleet: Fleet, parent: Parent) -> LogObject | None:
    """The parent's suspension; None when it is gone: then the turn is over and nothing is to be accepted."""
    life = SessionKeys(parent.session).life(parent.life)
    key = life.log(parent.turn, parent.fence, parent.position)
    known = fleet.files.suspensions.get(key)
    if known is not None:
        return known
    found = await fleet.files.read(key)
    if found is None:
        return None
    suspension = LogObject.read(key, found.body, parent.fence, parent.position)
    if suspension.kind is not LogKind.SUSPEND:
        return None
    fleet.files.suspensions.put(key, suspension)
    return suspension


def _pointer(head: Head, suspension: LogObject, index: int) -> Parent:
    return Parent(
        session=head.session,
        workflow=head.workflow,
        life=head.life,
        turn=head.turn,
        fence=suspension.fence,
        position=suspension.position,
        index=index,
        of=len(suspension.calls),
        width=suspension.width,
    )


def _child_entry(head: Head, suspension: LogObject, index: int, *, cancel: str | None = None) -> InboxEntry:
    flagged = Stop.PARENT.value if cancel else None
    return replace(_entry_of(suspension, _pointer(head, suspension, index), ""), cancel=flagged)


def _entry_of(suspension: LogObject, parent: Parent, w: str) -> InboxEntry:
    """The input of one child. Its identity follows from the call, so whoever accepts it means the same input."""
    call = suspension.calls[parent.index]
    place = f"{parent.session}\n{parent.life}\n{parent.turn}.{parent.fence}.{parent.position}.{parent.index}"
    return InboxEntry(
        session=call["child"],
        n=call["n"],
        id=hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        kind=call["kind"],
        workflow=call["workflow"],
        input=call["input"],
        at_ms=(suspension.record or {}).get("at", 0),
        w=w,
        parent=parent,
    )


def _message(entry: InboxEntry) -> Message:
    assert entry.parent is not None
    return Message(entry.session, entry.n, entry.workflow, child=True, parent=entry.parent.session)
