"""Cancelling: a flag in the turn's stored input, and a hint (docs/protocol.md §7).

Only a worker ends a turn. A cancel that races the end loses or wins by the one `end` object, and the answer to a reader
says which.
"""

from __future__ import annotations

from storage.records import Head
from storage.sessionlog import HeadMoved
from worker.ports import Message, Stop
from worker.protocol.errors import SessionGone, TurnOver, TurnUnknown
from worker.protocol.fleet import Fleet
from worker.protocol.join import flag, tell

#: looks at a turn that keeps moving
_LOOKS = 5


async def cancel(fleet: Fleet, session: str, n: int, *, reason: str = Stop.CANCELLED) -> None:
    """Ask for the end of turn `session.n`. Raises: `TurnOver`, `TurnUnknown`, `SessionGone`."""
    log = fleet.log(session)
    for _ in range(_LOOKS):
        head = await log.head()
        if head is not None:
            if head.deleted:
                raise SessionGone(session)
            if n <= head.turn:
                try:
                    end = await log.ended(head, n)
                except HeadMoved:
                    continue
                if end is not None:
                    raise TurnOver(session, n, end.outcome)
        entry = await flag(fleet, session, n, reason)
        if entry is not None:
            await tell(fleet, [Message(session, n, entry.workflow, child=entry.parent is not None)])
            return
        if head is None or n > head.turn:
            break
    raise TurnUnknown(session, n)


async def cancel_below(fleet: Fleet, session: str, n: int, head: Head | None, reason: str) -> None:
    """Cancel every unfinished turn before `n`. `head` was read before `n` was accepted."""
    for number in range(max(1, head.turn) if head else 1, n):
        try:
            await cancel(fleet, session, number, reason=reason)
        except (TurnOver, TurnUnknown):
            continue
        except SessionGone:
            return
