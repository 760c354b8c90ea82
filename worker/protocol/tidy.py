"""Tidying a session whose entries outlived their turns: repeat the dues, then clean (docs/protocol.md §6).

Runs when a message names a turn that is over, which only a sweep sends: the ender cleans from memory.
"""

from __future__ import annotations

from storage.records import Head
from storage.sessionlog import SessionLog
from worker.protocol.dues import VOID, answer_of, pay_again
from worker.protocol.fleet import Fleet
from worker.protocol.join import settle_child_again


async def tidy(fleet: Fleet, log: SessionLog, head: Head) -> None:
    """All entries up to the head's turn, which is over. The entry goes last, or its dues would die with this worker."""
    life = log.keys.life(head.life)
    for item in await fleet.files.listing(log.keys.inbox_prefix):
        n = int(item.key.removeprefix(log.keys.inbox_prefix))
        if n > head.turn:
            break
        entry = await log.entry(n)
        if entry is None:
            continue
        end = await log.ended(head, n)
        if end is None:
            continue
        if entry.id != end.entry:
            # A late accept's slip: it wrote into an emptied slot and looks for another number itself.
            fleet.cleaner.remove([item.key])
            if entry.parent is not None:
                # Only a parent that names a number already taken gets here. It must not wait for ever.
                await settle_child_again(fleet, entry.parent, answer_of(entry, VOID))
        elif await pay_again(fleet, log, head, end, entry):
            fleet.cleaner.remove(end.litter(life))
            fleet.cleaner.remove_entry(item.key)
