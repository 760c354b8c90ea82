"""What the durable protocol needs from the fleet, as small ports (docs/protocol.md §2, §6).

Redis and Celery stand behind them in a worker, a seeded scheduler in the simulator. Nothing here is trusted: a lost
message, lease or hint costs time, never a turn. Only the object store decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from storage.limits import KEEP_MS
from storage.records import EndedTurn, InboxEntry, LogObject

if TYPE_CHECKING:
    from worker.protocol.open_turn import OpenTurn


#: how long a session whose last turn has ended needs no listing: its cleaner still has to remove the entry
REST_MS = KEEP_MS + 60_000


class BrokerUnavailable(ArchmaxError):
    """The queue does not answer within its bound. Nothing has been written."""

    code: ClassVar[str] = "broker-unavailable"
    retryable: ClassVar[bool] = True

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    @override
    def __str__(self) -> str:
        return f"the queue is not reachable: {self.problem}"


class HandBack(ArchmaxError):
    """Raised by a runner that stops between two steps without an outcome: the turn goes on elsewhere, undamaged.

    `delay_seconds`: how long the next attempt should wait; 0 when draining.
    """

    code: ClassVar[str] = "turn-handed-back"

    def __init__(self, reason: str, delay_seconds: float = 0.0) -> None:
        super().__init__(reason, delay_seconds)
        self.reason, self.delay_seconds = reason, delay_seconds

    @override
    def __str__(self) -> str:
        return f"handed back: {self.reason}"


class Stop(StrEnum):
    """Why a turn should stop between two steps. A cancel's own reason comes as the text it was flagged with."""

    CANCELLED = "cancelled"  #: a person or a program asked for it
    INTERRUPTED = "interrupted"  #: a later input was accepted with `onBusy: interrupt`
    DEADLINE = "deadline"  #: it has run too long
    EXPIRED = "expired"  #: it waited too long to begin
    PARENT = "parent"  #: the turn that waits for it was cancelled
    DELETED = "deleted"  #: the session is being deleted
    DRAIN = "drain"  #: this worker is leaving; raise `HandBack`
    LEASE_LOST = "lease-lost"  #: another may hold the session; raise `HandBack`


@dataclass(frozen=True, slots=True)
class Message:
    """`turn(session, n)`: look at the session. It carries no truth; lost, doubled, late or reordered ones are harmless.

    `workflow` and `child` choose the queue: None is the shared one of recoveries. `parent` is the session that waits for it.
    """

    session: str
    n: int
    workflow: str | None = None
    child: bool = False
    parent: str | None = None


class Queue(Protocol):
    async def alive(self) -> None:
        """Raises: `BrokerUnavailable` within a fixed bound."""
        ...

    async def send(self, messages: Sequence[Message], *, delay_seconds: float = 0.0) -> None:
        """Several are one Celery group. Raises: `BrokerUnavailable`."""
        ...


class Lease(Protocol):
    """A session's lease as this process sees it. Renewed in the background every 0.5 s until released."""

    session: str

    def lost(self) -> bool:
        """Whether a renewal found another's token. One that found none has taken it again."""
        ...

    def froze_since(self, ms: int) -> bool:
        """Whether this process has stood still for longer than the lease lasts since `ms` of its own clock.

        Another may have had the session meanwhile, so what was proven before may be so no more. A Redis that is away is no
        freeze: nobody else can take the lease either.
        """
        ...

    def cancelled(self, n: int) -> str | None:
        """The reason in the hint `cancel:S.n`, as of the latest renewal."""
        ...


class Leases(Protocol):
    """Redis, all of it hints. Methods raise `BrokerUnavailable` unless they say otherwise."""

    async def take(self, session: str, n: int) -> Lease | None:
        """For the message `turn(session, n)`, which has arrived and needs no deadline any more; another's stays.

        One script: free → take it and clear `wake`; held → set `wake`, which outlives any turn, and return None. Taking and
        each renewal set the session's watch deadline one lease time ahead.
        """
        ...

    async def release(self, lease: Lease, *, watch_ms: int | None = None, settled: int | None = None) -> bool:
        """One script: mine and woken → clear `wake`, True: visit again, still held. Mine → delete, not mine → leave: False.

        With the lease goes the watch deadline of its renewals, or it is set `watch_ms` ahead. `settled` is the number of a
        turn that has just ended: for `REST_MS` no listing sends the session unless it has a later entry. A sender's deadline
        stays in any case: its message may be on the way. Renewing stops **before** the script is sent, and goes on only
        after True: a renewal under way would take the freed lease again, and nobody would ever let it go. Never raises.
        """
        ...

    async def watch(self, messages: Sequence[Message], in_ms: int) -> None:
        """Have the sweep send each session again unless its message arrives in time, or still waits in its queue."""
        ...

    async def overdue(self) -> list[Message]:
        """A `turn(session, 0)` for each session of which a deadline has passed, watched from now on, by the same script.

        A message goes to the queue of the one that was lost. One that still waits there is no loss: a backlog of hours
        would otherwise send itself again and again.
        """
        ...

    async def may_send(self, session: str, newest: int) -> bool:
        """Whether a listing that found entries up to `newest` should send `turn(session, 0)`; that is watched then.

        False while the session, that message or the one of `newest` has a deadline, or the session rests after `newest`.
        """
        ...

    async def hint_cancel(self, session: str, n: int, reason: str) -> None:
        """Set `cancel:S.n` for a while and publish it."""
        ...

    async def cancel_hint(self, session: str, n: int) -> str | None:
        """Read it once, at the claim. None also when Redis does not answer; never raises."""
        ...


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """The process's own clock, counting while the machine is suspended."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def now_ms(self) -> int:
        """Epoch milliseconds by Redis `TIME` or the store's `Date`: for due times only."""
        ...


class Notices(Protocol):
    """What is told after it is durable. Best effort; never raises."""

    async def committed(self, session: str, turn: int, o: LogObject) -> None:
        """Events of this log object have the id `turn.fence.position`."""
        ...

    async def ended(self, session: str, end: EndedTurn) -> None:
        """Wakes waiters; the end's last record has position `parts[-1].records + 1`."""
        ...

    async def accepted(self, entry: InboxEntry) -> None: ...

    async def deleted(self, session: str) -> None: ...


class Webhooks(Protocol):
    async def post(self, session: str, turn: int, due: JsonObject, outcome: JsonObject) -> bool:
        """Deliver at least once, the turn id as key. False: not delivered, try again later. Never raises."""
        ...


class TurnRunner(Protocol):
    """The engine, as the protocol sees it."""

    async def run(self, turn: OpenTurn) -> None:
        """Finish by exactly one `turn.end` or `turn.suspend`, or raise.

        `HandBack` hands the turn on; `TurnFenced` and `StoreUnavailable` of the turn's methods must pass through; any
        other error counts as a death of the worker: another attempt, at most `MAX_ATTEMPTS` without progress.
        """
        ...

    async def worker_lost(self, turn: OpenTurn) -> tuple[JsonObject | None, JsonObject, Sequence[JsonObject]]:
        """The last record, the outcome and the dues of a turn whose attempts are spent, or whose local process died."""
        ...
