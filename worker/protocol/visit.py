"""The task `turn(S, n)`: take the session's lease, look at the session until nothing is to be done (docs/protocol.md §3).

The message means "look at S" and carries no truth. A holder looks until the session is idle, with one shortcut: a turn
that it opened itself, for the message that named it, and during which nobody woke it, needs no look afterwards. Whoever
accepted more has sent more, and that message has found, or will find, either this lease or none. After a resume or a
takeover the shortcut would be wrong: messages may have come while the turn was suspended or its worker dead.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from enum import Enum, auto
from typing import ClassVar

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from storage.local import LOCAL
from storage.records import EndedTurn, Head, InboxEntry, NewerFormat
from storage.sessionlog import HeadMoved, OpenLog, TurnFenced
from worker.ports import BrokerUnavailable, HandBack, Lease, Message, Stop, TurnRunner
from worker.protocol.delete import DELETE, clean_deleted, run_delete
from worker.protocol.dues import pay, webhook_dues
from worker.protocol.fleet import Fleet
from worker.protocol.join import answers, pump, start_children, tell
from worker.protocol.open_turn import OpenTurn, TurnMisuse
from worker.protocol.tidy import tidy

logger = logging.getLogger(__name__)

#: the kind that stands in for an input that is gone
LOST = "lost"
#: after an error, how long until the sweep sends the session again
RETRY_MS = 5_000
#: looks without any progress before something must be wrong
_LOOKS = 40


#: the outcome where telling the loss of the worker kills the worker as well
HOPELESS: JsonObject = {
    "kind": "failed",
    "exit": {"success": False, "code": "worker-lost", "reason": "every worker that took up this turn died"},
}


class Look(Enum):
    """What one look at the session came to."""

    IDLE = auto()  #: nothing to do until the next message
    AGAIN = auto()  #: the store moved meanwhile
    ENDED = auto()  #: a turn was ended here
    SUSPENDED = auto()  #: a turn was suspended here, or still waits for children
    FENCED = auto()  #: another holds the session
    HANDED_BACK = auto()  #: somebody else should go on


class SessionNeverRests(ArchmaxError):
    """Look after look found the head moved. Left to the sweep."""

    code: ClassVar[str] = "session-never-rests"
    retryable: ClassVar[bool] = True


async def attend(fleet: Fleet, runner: TurnRunner, session: str, n: int) -> None:
    """The body of the task. Raises what the runner or the store raised; the session is looked at again later then."""
    lease = await fleet.leases.take(session, n)
    if lease is None:
        return
    try:
        await _Attendance(fleet, runner, lease, n).run()
    except NewerFormat:
        await _let_go(fleet, lease, RETRY_MS)
        await tell(fleet, [Message(session, n)])
        raise
    except (Exception, CancelledError):
        # A lease that a living process renews and nobody works under would stop the session for good.
        await _let_go(fleet, lease, RETRY_MS)
        raise


async def _let_go(fleet: Fleet, lease: Lease, watch_ms: int | None = None) -> None:
    """Release although somebody wants another look: the caller sees to it that one comes."""
    while await fleet.leases.release(lease, watch_ms=watch_ms):
        pass


class _Attendance:
    """One holding of one lease."""

    def __init__(self, fleet: Fleet, runner: TurnRunner, lease: Lease, n: int) -> None:
        self._fleet = fleet
        self._runner = runner
        self._lease = lease
        self._log = fleet.log(lease.session)
        self._wanted = n
        self._tidied = False
        self._thorough = n == 0
        self._turn = 0
        self._workflow: str | None = None
        self._delay_seconds = 0.0

    async def run(self) -> None:
        idle_looks = 0
        while True:
            try:
                look = await self._look()
            except HeadMoved:
                look = Look.AGAIN
            except TurnFenced:
                look = Look.FENCED
            match look:
                case Look.AGAIN:
                    idle_looks += 1
                    if idle_looks > _LOOKS:
                        raise SessionNeverRests(self._lease.session)
                    if idle_looks > 3:
                        await self._fleet.clock.sleep(0.05)
                    continue
                case Look.ENDED if self._thorough or self._wanted > self._turn:
                    idle_looks = 0
                    continue
                case Look.HANDED_BACK:
                    await _let_go(self._fleet, self._lease)
                    message = Message(self._lease.session, 0, self._workflow, child=True)
                    await tell(self._fleet, [message], delay_seconds=self._delay_seconds)
                    return
                case _:
                    pass
            settled = self._turn if look is Look.ENDED else None
            # Whoever fenced this process may be gone, too, and its lease with it.
            watch_ms = RETRY_MS if look is Look.FENCED else None
            if not await self._fleet.leases.release(self._lease, watch_ms=watch_ms, settled=settled):
                return
            self._thorough = True

    async def _look(self) -> Look:
        head = await self._log.head()
        if head is not None and head.deleted:
            await clean_deleted(self._fleet, self._log, head)
            return Look.IDLE
        next_turn = 1
        if head is not None:
            if await self._log.over(head) is None:
                return await self._go_on(head)
            # A message without a number comes from a sweep as well: its holder may have died before it paid.
            if self._wanted <= head.turn and not self._tidied:
                self._tidied = True
                await tidy(self._fleet, self._log, head)
            next_turn = head.turn + 1
        entry = await self._log.entry(next_turn)
        if entry is None:
            return Look.IDLE
        if self._fleet.draining():
            return self._hand_back(entry.n, entry.workflow, 0.0)
        opened = await self._log.claim(head, entry, by="fleet")
        if opened is None:
            return Look.AGAIN
        self._fleet.cleaner.remove(opened.garbage)
        return await self._work(opened, None)

    async def _go_on(self, head: Head) -> Look:
        """The head's turn is open and nobody holds it: resume it, or see to its children."""
        entry = await self._log.entry(head.turn)
        if entry is None:
            # Removed after an end this look has not seen, or lost for good.
            again = await self._log.head()
            if again != head or await self._log.over(head) is not None:
                return Look.AGAIN
            entry = InboxEntry(head.session, head.turn, head.entry, LOST, head.workflow, {}, 0)
        if head.by == LOCAL and entry.cancel is None:
            return Look.IDLE  # a library's or command's process has it; only a cancel takes it away
        if self._lease.lost():
            return Look.FENCED
        if self._fleet.draining():
            return self._hand_back(head.turn, head.workflow, 0.0)
        chain = await self._log.read_chain(head)
        joined: list[JsonObject] | None = None
        if chain.suspension is not None:
            joined = await answers(self._fleet, head, chain.suspension)
            if joined is None:
                await pump(self._fleet, head, chain.suspension, cancel=entry.cancel)
                return Look.SUSPENDED
        opened = await self._log.take_over(head, entry, chain, by="fleet")
        if opened is None:
            return Look.AGAIN
        self._thorough = True
        if chain.untold is not None:
            return await self._work(opened, list(chain.untold.answers), told=True)
        return await self._work(opened, joined)

    async def _work(self, opened: OpenLog, joined: list[JsonObject] | None, *, told: bool = False) -> Look:
        """Run the turn to its end, its suspension, or its handing back. `told`: its log holds the join already."""
        entry = opened.entry
        self._turn, self._workflow = opened.turn, opened.head.workflow
        if entry.kind == DELETE:
            end = await run_delete(self._fleet, self._log, opened)
            if end is not None:
                await self._settle(opened, end)
            return Look.ENDED
        cancel = await self._cancelled(entry)
        turn = OpenTurn(self._fleet, self._lease, opened, joined=joined, told=told, cancel=cancel)
        if entry.kind in (LOST, LOCAL) or turn.attempts > self._fleet.max_attempts:
            record, outcome, dues = None, HOPELESS, webhook_dues(entry)
            if turn.attempts <= 2 * self._fleet.max_attempts:
                record, outcome, dues = await self._runner.worker_lost(turn)
            await turn.end(record, outcome, dues)
        else:
            try:
                await self._runner.run(turn)
            except HandBack as back:
                await opened.release()
                return self._hand_back(opened.turn, opened.head.workflow, back.delay_seconds)
        if turn.suspended is not None:
            await start_children(self._fleet, opened.head, turn.suspended)
            return Look.SUSPENDED
        if turn.ended is None:
            raise TurnMisuse(f"turn {opened.session}.{opened.turn} was neither ended nor suspended")
        await self._settle(opened, turn.ended)
        return Look.ENDED

    async def _cancelled(self, entry: InboxEntry) -> str | None:
        if entry.cancel is not None:
            return entry.cancel
        try:
            if entry.expires_ms is not None and await self._fleet.clock.now_ms() > entry.expires_ms:
                return Stop.EXPIRED
        except BrokerUnavailable:
            pass  # nobody knows the time now; running late is better than dying over it
        return await self._fleet.leases.cancel_hint(entry.session, entry.n)

    async def _settle(self, opened: OpenLog, end: EndedTurn) -> None:
        """Pay what the turn owes, then hand over what it leaves."""
        if await pay(self._fleet, self._log, opened.head, end, opened.entry):
            self._fleet.cleaner.remove(end.litter(self._log.keys.life(opened.head.life)))
            self._fleet.cleaner.remove_entry(self._log.keys.inbox(end.turn))

    def _hand_back(self, turn: int, workflow: str, delay_seconds: float) -> Look:
        self._turn, self._workflow, self._delay_seconds = turn, workflow, delay_seconds
        return Look.HANDED_BACK
