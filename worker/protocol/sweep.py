"""Sweeps: what nobody holds is sent again (docs/protocol.md §6).

`sweep_watch` runs twice a second over Redis alone and finds the sessions of dead holders and lost messages. `sweep_inbox`
runs each minute, at a worker's start, and when Redis has lost the mark of the last one: it rebuilds everything from the store.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import groupby

from storage.layout import INBOX, KEYS, inbox_place
from storage.limits import KEY_MS
from storage.records import DamagedObject, InboxEntry, NewerFormat
from worker.ports import Message
from worker.protocol.fleet import Fleet

logger = logging.getLogger(__name__)

#: sessions looked at in one go, so that a hundred thousand do not become as many tasks
AT_ONCE = 256


async def sweep_watch(fleet: Fleet) -> int:
    """Send every session whose deadline has passed. Returns how many. Raises: `BrokerUnavailable`."""
    sessions = await fleet.leases.overdue()
    if sessions:
        await fleet.queue.send([Message(session, 0) for session in sessions])
    return len(sessions)


async def sweep_inbox(fleet: Fleet) -> int:
    """Send each session with an entry, at most once in 30 s. Returns how many. Raises: `BrokerUnavailable`."""
    listed = await fleet.files.listing(INBOX)
    places = [(place, item.key) for item in listed if (place := inbox_place(item.key)) is not None]
    looks: list[Callable[[], Awaitable[bool]]] = []
    for _, entries in groupby(places, key=lambda found: found[0][0]):
        several = list(entries)
        looks.append(partial(_send_overdue, fleet, oldest=several[0][1], newest=several[-1][0][1]))
    sent = 0
    for start in range(0, len(looks), AT_ONCE):
        sent += sum(await fleet.files.gather(looks[start : start + AT_ONCE]))
    return sent


async def _send_overdue(fleet: Fleet, *, oldest: str, newest: int) -> bool:
    found = await fleet.files.read(oldest)
    if found is None:
        return False
    try:
        entry = InboxEntry.read(oldest, found.body, found.etag, found.modified_ms)
    except (DamagedObject, NewerFormat) as problem:
        # One bad object must not stop the others.
        logger.error("inbox entry not readable: %s", problem, extra={"action": "entry_unreadable"})
        return False
    if not await fleet.leases.may_send(entry.session, newest):
        return False
    # Without a number: whatever of the session was lost is made good by one look.
    await fleet.queue.send([Message(entry.session, 0, entry.workflow, child=entry.parent is not None)])
    return True


async def sweep_keys(fleet: Fleet) -> int:
    """Forget idempotency keys older than `KEY_MS`. A rate: the store's dates against the fleet's. Returns how many."""
    oldest = await fleet.clock.now_ms() - KEY_MS
    old = [item.key for item in await fleet.files.listing(KEYS) if item.modified_ms < oldest]
    await fleet.files.delete(old)
    return len(old)
