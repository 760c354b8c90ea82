"""Timers: objects under `_timers/<due minute>/`, one per park that wakes by itself (docs/protocol.md §7).

A timer is also the idempotency record of its own delivery: it names the number that the delivery is accepted under, so
two sweeps make one delivery. The same objects wake retention and the purge of tombstones.
"""

from __future__ import annotations

from core.jsontext import JsonObject
from storage.layout import SessionKeys
from worker.protocol.fleet import Fleet
from worker.protocol.keyed import KeyRecord

TIMER = "timer"
RETENTION = "retention"
PURGE = "purge"


async def set_timer(fleet: Fleet, session: str, life: str, turn: int, due: JsonObject) -> None:
    """Store the timer of `due` (`{"due": kind, "at": ms, …}`) for the park of `turn`. Safe to repeat."""
    key = SessionKeys(session).timer(due["at"], turn)
    record = KeyRecord(
        key=key, w=fleet.files.new_id(), request="", session=session, n=0, life=life, turn=turn, due=due
    )
    await fleet.files.create(key, record.body(), record.w)
