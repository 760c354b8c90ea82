"""What is due by the clock: timers of parks, retention, the purge of tombstones (docs/protocol.md §6, §7)."""

from __future__ import annotations

import logging

from storage.layout import TIMERS, timer_minute
from storage.records import DamagedObject, Head, NewerFormat
from storage.sessionlog import SessionLog
from worker.protocol.accept import Check, Draft, accept_record
from worker.protocol.delete import DELETE, purge
from worker.protocol.errors import SessionBusy, SessionGone
from worker.protocol.fleet import Fleet
from worker.protocol.keyed import KeyRecord, read_record
from worker.protocol.timers import PURGE, RETENTION

logger = logging.getLogger(__name__)


class ParkOver(SessionBusy):
    """The park a timer was set for is no longer the newest turn. The timer is dropped."""


async def sweep_timers(fleet: Fleet) -> int:
    """Deliver every timer that is due. Returns how many were looked at."""
    now = await fleet.clock.now_ms()
    due = await fleet.files.listing(TIMERS, until=timer_minute(now + 60_000))
    for item in due:
        try:
            await deliver(fleet, item.key, now)
        except (DamagedObject, NewerFormat) as problem:
            # One bad object must not stop the others.
            logger.error("timer not readable: %s", problem, extra={"action": "timer_unreadable"})
    return len(due)


async def deliver(fleet: Fleet, key: str, now_ms: int) -> None:
    """One timer; its object goes once the delivery is accepted or has lost its sense."""
    record = await read_record(fleet, key)
    if record is None or record.due is None or record.due["at"] > now_ms:
        return
    if record.due["due"] == PURGE:
        if await purge(fleet, record.session, record.life or ""):
            await fleet.files.delete([key])
        return
    try:
        await accept_record(fleet, record, _draft(record), check=_standing(record))
    except (ParkOver, SessionGone):
        pass
    await fleet.files.delete([key])


def _draft(record: KeyRecord) -> Draft:
    due = record.due or {}
    if due["due"] == RETENTION:
        return Draft(record.session, due.get("workflow", ""), DELETE, {"onlyAfter": record.turn})
    delivered = {name: value for name, value in due.items() if name not in ("due", "workflow")}
    return Draft(record.session, due.get("workflow", ""), "timer", {**delivered, "park": record.turn})


def _standing(record: KeyRecord) -> Check:
    async def check(log: SessionLog, head: Head | None) -> None:
        if head is None or head.life != record.life or head.turn != record.turn:
            raise ParkOver(record.session)

    return check
