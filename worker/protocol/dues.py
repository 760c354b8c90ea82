"""Dues: what an ended turn owes, paid before anything of it is removed (docs/protocol.md §6).

A due is a JSON object with `due`, its kind:

* `{"due": "timer", "at": ms, …}`: wake the session's park at that time; the rest goes with the delivery.
* `{"due": "retention", "at": ms}`: delete the session then, if no newer turn has come.
* `{"due": "webhook", …}`: tell an address; the rest is the webhook port's.

A child's answer to its parent is owed by its inbox entry, not by this list. Every due may be paid twice: by the ender, and
again by whoever finds the entry of a dead ender. A repeat first checks that the debt still stands, or it would recreate
what the creditor has cleaned.
"""

from __future__ import annotations

from dataclasses import replace

from core.jsontext import JsonObject
from storage.limits import SEAL_MS
from storage.logstore import Conflict
from storage.records import EndedTurn, Head, InboxEntry
from storage.sessionlog import SessionLog
from worker.protocol.fleet import Fleet
from worker.protocol.join import settle_child, settle_child_again
from worker.protocol.timers import set_timer

TIMER = "timer"
RETENTION = "retention"
WEBHOOK = "webhook"
#: the outcome of an input that had lost its sense when its turn came
VOID: JsonObject = {"kind": "void"}


def answer_of(entry: InboxEntry, outcome: JsonObject) -> JsonObject:
    """What the parent gets for a child's turn, whatever its outcome."""
    return {"session": entry.session, "n": entry.n, "outcome": outcome}


def webhook_dues(entry: InboxEntry) -> list[JsonObject]:
    """Whoever sent the input may have asked to be told of its outcome, whatever that is."""
    webhook = entry.input.get("webhook")
    return [{"due": WEBHOOK, **webhook}] if webhook else []


async def pay(fleet: Fleet, log: SessionLog, head: Head, end: EndedTurn, entry: InboxEntry) -> bool:
    """The ender's payment, right after the end. False: something is still owed; the entry must stay."""
    await fleet.notices.ended(log.session, end)
    for due in end.dues:
        if due["due"] in (TIMER, RETENTION):
            await set_timer(fleet, log.session, head.life, end.turn, due)
    if entry.parent is not None:
        await settle_child(fleet, entry.parent, answer_of(entry, end.outcome))
    return await _webhooks(fleet, log, end, entry)


async def pay_again(fleet: Fleet, log: SessionLog, head: Head, end: EndedTurn, entry: InboxEntry) -> bool:
    """A repeat, by whoever finds the entry. Same answer as `pay`."""
    if end.turn == head.turn:
        await fleet.notices.ended(log.session, end)
        for due in end.dues:
            if due["due"] in (TIMER, RETENTION):
                await set_timer(fleet, log.session, head.life, end.turn, due)
    if entry.parent is not None:
        await settle_child_again(fleet, entry.parent, answer_of(entry, end.outcome))
    return await _webhooks(fleet, log, end, entry)


async def _webhooks(fleet: Fleet, log: SessionLog, end: EndedTurn, entry: InboxEntry) -> bool:
    owed = [due for due in end.dues if due["due"] == WEBHOOK]
    if not owed or entry.paid:
        return True
    told = [await fleet.webhooks.post(log.session, end.turn, due, end.outcome) for due in owed]
    if not all(told) and not await _too_old(fleet, entry):
        return False
    await _note_paid(fleet, log, entry)
    return True


async def _too_old(fleet: Fleet, entry: InboxEntry) -> bool:
    """After a day an address that never answered is given up. A rate, not an order: clocks may differ."""
    return await fleet.clock.now_ms() - entry.modified_ms > SEAL_MS


async def _note_paid(fleet: Fleet, log: SessionLog, entry: InboxEntry) -> None:
    """So that the sweeps of the next minutes do not tell the address again."""
    current: InboxEntry | None = entry
    while current is not None and current.id == entry.id and not current.paid:
        paid = replace(current, paid=True, w=fleet.files.new_id())
        written = await fleet.files.replace(log.keys.inbox(entry.n), paid.body(), paid.w, current.etag)
        if not isinstance(written, Conflict):
            return
        current = await log.entry(entry.n)
