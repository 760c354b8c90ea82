"""Deleting a session (docs/protocol.md §8).

A delete is an input: it takes its number and is claimed like any other, so it races no turn. What stays for a day is the
tombstone and the seals, without content; then `purge`, woken by a timer, takes those too. Retention is the same delete
under the condition that no newer turn has come.
"""

from __future__ import annotations

from functools import partial

from core.jsontext import JsonObject
from storage.layout import SessionKeys, life_kind
from storage.limits import TOMB_MS
from storage.objects import ListedObject
from storage.records import EndedTurn, Head, LogKind, unpack
from storage.sessionlog import OpenLog, SessionLog, TurnFenced
from worker.protocol.dues import VOID
from worker.protocol.fleet import Fleet
from worker.protocol.join import settle_child_again
from worker.protocol.timers import PURGE, set_timer

#: the kind of a delete's inbox entry; `input.onlyAfter` names the turn that must still be the newest
DELETE = "delete"
GONE: JsonObject = {"kind": "gone"}
#: seals are smaller than this; only such objects are read before they are removed
_SEAL_BYTES = 512


async def run_delete(fleet: Fleet, log: SessionLog, opened: OpenLog) -> EndedTurn | None:
    """The claimed delete. Returns the end of a retention that came too late; None when the session is deleted.

    Raises: `TurnFenced`.
    """
    only_after = opened.entry.input.get("onlyAfter")
    if only_after is not None and only_after != opened.turn - 1:
        return await opened.end(None, VOID)
    due: JsonObject = {"due": PURGE, "at": await fleet.clock.now_ms() + TOMB_MS}
    await set_timer(fleet, log.session, opened.head.life, opened.turn, due)
    for child in await _descendants(fleet, log.keys):
        await _delete_child(fleet, child)
    tomb = await log.mark_deleted(opened.head)
    if tomb is None:
        raise TurnFenced(log.session, opened.turn, opened.fence)
    await fleet.notices.deleted(log.session)
    await clean_deleted(fleet, log, tomb)
    return None


async def clean_deleted(fleet: Fleet, log: SessionLog, tomb: Head) -> None:
    """Remove everything of a deleted session but the tombstone and the seals. Safe to repeat."""
    await _remove_content(fleet, log)
    for item in await fleet.files.listing(log.keys.inbox_prefix):
        n = int(item.key.removeprefix(log.keys.inbox_prefix))
        entry = await log.entry(n)
        if entry is not None and entry.parent is not None and n > tomb.turn:
            answer = {"session": log.session, "n": n, "outcome": GONE}
            await settle_child_again(fleet, entry.parent, answer)
        # An accept in its window would be given the number again if the entry went at once.
        fleet.cleaner.remove_entry(item.key)


async def purge(fleet: Fleet, session: str, life: str) -> bool:
    """A day after the delete: the seals, then the tombstone. False: it is too early, or an entry is still there."""
    log = fleet.log(session)
    head = await log.head()
    if head is None or head.life != life or not head.deleted:
        return True
    if await fleet.clock.now_ms() - head.modified_ms < TOMB_MS:
        return False
    if await fleet.files.listing(log.keys.inbox_prefix):
        return False
    for child in await _descendants(fleet, log.keys):
        await _remove_with_head(fleet, child)
    await _remove_with_head(fleet, log.keys)
    return True


async def _delete_child(fleet: Fleet, keys: SessionKeys) -> None:
    """Tombstone and clean a child. Its parent's turns are over, and so are its own."""
    log = fleet.log(keys.session)
    while (head := await log.head()) is not None:
        tomb = head if head.deleted else await log.mark_deleted(head)
        if tomb is not None:
            await clean_deleted(fleet, log, tomb)
            return


async def _descendants(fleet: Fleet, keys: SessionKeys) -> list[SessionKeys]:
    """Child sessions at any depth, found by their heads."""
    found: list[SessionKeys] = []
    for item in await fleet.files.listing(keys.descendants):
        segment, _, rest = item.key.partition("/")
        if rest == "checkpoints/head":
            found.append(SessionKeys(keys.session + segment.removeprefix(keys.segment)))
    return found


async def _remove_with_head(fleet: Fleet, keys: SessionKeys) -> None:
    """Everything, the head last."""
    listed = await fleet.files.listing(keys.root)
    await fleet.files.delete(item.key for item in listed if item.key != keys.head)
    await fleet.files.delete([keys.head])


async def _remove_content(fleet: Fleet, log: SessionLog) -> None:
    listed = [item for item in await fleet.files.listing(log.keys.root) if item.key != log.keys.head]
    seals = await fleet.files.gather([partial(_is_seal, fleet, item) for item in listed])
    await fleet.files.delete(item.key for item, seal in zip(listed, seals, strict=True) if not seal)


async def _is_seal(fleet: Fleet, item: ListedObject) -> bool:
    if item.size > _SEAL_BYTES or life_kind(item.key) not in ("log", "end"):
        return False
    found = await fleet.files.read(item.key)
    if found is None:
        return True
    o = unpack(item.key, found.body)
    return o.get("seal") is True or o.get("kind") in (LogKind.SEAL, LogKind.RELEASED)
