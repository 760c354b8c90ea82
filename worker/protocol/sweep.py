"""Sweeps: what nobody holds is sent again (docs/protocol.md §6).

`sweep_watch` runs twice a second over Redis alone and finds the sessions of dead holders and lost messages. `sweep_inbox`
runs each minute, at a worker's start, and when Redis has lost the mark of the last one: it rebuilds everything from the store.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import groupby

from storage.keys import decode_segment
from storage.layout import INBOX, KEYS, inbox_place
from storage.limits import KEY_MS
from storage.records import DamagedObject, InboxEntry, NewerFormat
from worker.ports import Message
from worker.protocol.fleet import Fleet
from worker.protocol.join import WATCH_MS

logger = logging.getLogger(__name__)

#: sessions looked at in one go, so that a hundred thousand do not become as many tasks
AT_ONCE = 256


async def sweep_watch(fleet: Fleet) -> int:
    """Send every session whose deadline has passed. Returns how many. Raises: `BrokerUnavailable`."""
    messages = await fleet.leases.overdue()
    if messages:
        await fleet.queue.send(messages)
    return len(messages)


async def sweep_inbox(fleet: Fleet) -> int:
    """Send each session with an entry, at most once in 30 s. Returns how many. Raises: `BrokerUnavailable`."""
    listed = await fleet.files.listing(INBOX)
    places = [(place, item.key) for item in listed if (place := inbox_place(item.key)) is not None]
    looks: list[Callable[[], Awaitable[bool]]] = []
    for segment, entries in groupby(places, key=lambda found: found[0][0]):
        several = list(entries)
        looks.append(partial(_send_overdue, fleet, segment, oldest=several[0][1], newest=several[-1][0][1]))
    sent = 0
    for start in range(0, len(looks), AT_ONCE):
        sent += sum(await fleet.files.gather(looks[start : start + AT_ONCE]))
    return sent


async def _send_overdue(fleet: Fleet, segment: str, *, oldest: str, newest: int) -> bool:
    # Redis first: of a backlog, and of what has just ended, it knows that nothing is to be done.
    session = decode_segment(segment)
    asked = session is not None
    if session is not None and not await fleet.leases.may_send(session, newest):
        return False
    found = await fleet.files.read(oldest)
    if found is None:
        return False
    try:
        entry = InboxEntry.read(oldest, found.body, found.etag, found.modified_ms)
    except (DamagedObject, NewerFormat) as problem:
        # One bad object must not stop the others.
        logger.error("inbox entry not readable: %s", problem, extra={"action": "entry_unreadable"})
        return False
    if not asked and not await fleet.leases.may_send(entry.session, newest):
        return False
    # Without a number: whatever of the session was lost is made good by one look.
    message = Message(entry.session, 0, entry.workflow, child=entry.parent is not None)
    await fleet.leases.watch([message], WATCH_MS)
    await fleet.queue.send([message])
    return True


async def sweep_keys(fleet: Fleet) -> int:
    """Forget idempotency keys older than `KEY_MS`. A rate: the store's dates against the fleet's. Returns how many."""
    oldest = await fleet.clock.now_ms() - KEY_MS
    old = [item.key for item in await fleet.files.listing(KEYS) if item.modified_ms < oldest]
    await fleet.files.delete(old)
    return len(old)
