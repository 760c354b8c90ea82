"""Reading the fleet: turns and sessions as the store has them (docs/protocol.md §11).

Nothing is believed of Redis: a lease only saves reading a running turn's log to tell `running` from `suspended`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from redis.exceptions import RedisError

from core.jsontext import JsonObject
from engine.host.session_folder import fold_session
from engine.session.state import SessionState
from engine.session.state_cache import StateCache
from storage.records import EndedTurn, Head, InboxEntry
from storage.sessionlog import HeadMoved, SessionLog
from worker.client import FleetClient
from worker.protocol.errors import SessionGone, TurnUnknown
from worker.redis_leases import PREFIX
from worker.refusals import SessionUnknown

#: looks at a session whose head keeps moving
_LOOKS = 8
#: messages held of folded sessions
_CACHED_MESSAGES = 100_000
#: records folded on the loop; more go to a thread
_ON_LOOP_RECORDS = 200


class TurnStatus(StrEnum):
    QUEUED = "queued"  #: accepted; no worker has begun it
    RUNNING = "running"  #: a worker has it, or another will take it over
    SUSPENDED = "suspended"  #: it waits for its children
    SETTLED = "settled"  #: it has its outcome
    REFUSED = "refused"  #: the session could not take it when its turn came
    CANCELLED = "cancelled"  #: it was cancelled before it began

    @property
    def over(self) -> bool:
        return self in (TurnStatus.SETTLED, TurnStatus.REFUSED, TurnStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn as a reader sees it. `outcome` is set exactly when it is over."""

    session: str
    n: int
    workflow: str
    status: TurnStatus
    outcome: JsonObject | None = None
    kind: str | None = None
    accepted_at: int | None = None
    cancel_requested: bool = False

    @property
    def turn_id(self) -> str:
        return f"{self.session}.{self.n}"

    def to_json(self) -> JsonObject:
        body: JsonObject = {
            "turnId": self.turn_id,
            "sessionId": self.session,
            "turn": self.n,
            "workflow": self.workflow,
            "status": self.status.value,
        }
        for name, value in (("kind", self.kind), ("acceptedAt", self.accepted_at)):
            if value is not None:
                body[name] = value
        if self.cancel_requested and not self.status.over:
            body["cancelRequested"] = True
        if self.outcome is not None:
            shown = shown_outcome(self.outcome)
            body["outcome"] = shown
            if self.status is TurnStatus.REFUSED:
                body["problem"] = shown.get("problem") or {"code": "void", "message": "it had lost its sense"}
            if isinstance(self.outcome.get("at"), int):
                body["settledAt"] = self.outcome["at"]
        return body


def shown_outcome(outcome: JsonObject) -> JsonObject:
    """Without what is the parent's or the index's."""
    hidden = ("answer", "at", "title", "labels", "parent")
    return {key: value for key, value in outcome.items() if key not in hidden}


def split_turn_id(turn_id: str) -> tuple[str, int]:
    """Raises: `TurnUnknown` for what no turn is called."""
    session, dot, number = turn_id.rpartition(".")
    if not dot or not session or not number.isascii() or not number.isdigit() or len(number) > 8:
        raise TurnUnknown(turn_id, 0)
    if number[0] == "0":
        raise TurnUnknown(session, int(number))
    return session, int(number)


@dataclass(frozen=True, slots=True)
class SessionView:
    """`state` must not be changed. `open`: the head's turn has not ended, so the state may still move."""

    head: Head
    state: SessionState
    open: bool

    @property
    def version(self) -> str:
        """Names this content: a turn's history never changes within a life."""
        return f"{self.head.life}.{self.head.turn}.{self.head.fence}.{self.state.updated_at or 0}.{int(self.open)}"


class Reader:
    """Turns and folded sessions of one fleet."""

    def __init__(self, client: FleetClient) -> None:
        self._client = client
        #: read only: nobody may change what is taken from here
        self._states = StateCache(_CACHED_MESSAGES)

    async def head(self, session: str) -> Head | None:
        """Raises: `SessionGone`."""
        head = await self._client.fleet.log(session).head()
        if head is not None and head.deleted:
            raise SessionGone(session)
        return head

    async def turn(self, session: str, n: int) -> TurnView:
        """Raises: `TurnUnknown`, `SessionGone`."""
        log = self._client.fleet.log(session)
        looked = False
        for _ in range(_LOOKS):
            head = await self.head(session)
            if head is None or n > head.turn:
                entry = await log.entry(n)
                if entry is not None:
                    return _queued(entry)
                if looked:
                    break
                looked = True  # it may have been claimed, run and tidied between the two reads
                continue
            try:
                end = await log.ended(head, n)
            except HeadMoved:
                continue
            if end is not None:
                return ended_view(session, end)
            return await self._open_turn(log, head)
        raise TurnUnknown(session, n)

    async def _open_turn(self, log: SessionLog, head: Head) -> TurnView:
        entry = await log.entry(head.turn)
        status = TurnStatus.RUNNING
        if not await self._leased(head.session):
            try:
                if (await log.read_chain(head)).suspension is not None:
                    status = TurnStatus.SUSPENDED
            except HeadMoved:
                pass
        return TurnView(
            head.session,
            head.turn,
            head.workflow,
            status,
            kind=entry.kind if entry else None,
            accepted_at=entry.at_ms if entry else None,
            cancel_requested=entry is not None and entry.cancel is not None,
        )

    async def _leased(self, session: str) -> bool:
        try:
            return bool(await self._client.redis.exists(f"{PREFIX}lease:{session}"))
        except (RedisError, OSError):
            return False

    async def session(self, session: str) -> SessionView:
        """Raises: `SessionUnknown`, `SessionGone`."""
        log = self._client.fleet.log(session)
        for _ in range(_LOOKS):
            head = await self.head(session)
            if head is None:
                raise SessionUnknown(session)
            try:
                ended = await log.over(head)
                key = (session, head.life, head.turn + 1)
                state = self._states.get(key) if ended is not None else None
                if state is None:
                    state = await fold_session(log, head)
                    if ended is not None:
                        self._states.put(key, state)
            except HeadMoved:
                continue
            return SessionView(head, state, ended is None)
        raise SessionUnknown(session)

    async def records(self, session: str) -> list[JsonObject]:
        """Every record of a session, its open turn's included. Raises: `SessionUnknown`, `SessionGone`."""
        log = self._client.fleet.log(session)
        for _ in range(_LOOKS):
            head = await self.head(session)
            if head is None:
                break
            try:
                before = await log.history(head)
                ended = await log.over(head)
                if ended is not None:
                    return [*before, *ended.records]
                return [
                    *before,
                    *(o.record for o in (await log.read_chain(head)).objects if o.record is not None),
                ]
            except HeadMoved:
                continue
        raise SessionUnknown(session)

    async def ends(self, head: Head) -> list[EndedTurn]:
        """Every ended turn the head leads to. Raises: `HeadMoved`."""
        log = self._client.fleet.log(head.session)
        found: list[EndedTurn] = []
        for number in range(1, head.turn + 1):
            end = await log.ended(head, number)
            if end is not None:
                found.append(end)
            if number % _ON_LOOP_RECORDS == 0:
                await asyncio.sleep(0)
        return found


def _queued(entry: InboxEntry) -> TurnView:
    return TurnView(
        entry.session,
        entry.n,
        entry.workflow,
        TurnStatus.QUEUED,
        kind=entry.kind,
        accepted_at=entry.at_ms,
        cancel_requested=entry.cancel is not None,
    )


def ended_view(session: str, end: EndedTurn) -> TurnView:
    match end.outcome.get("kind"):
        case "refused" | "void":
            status = TurnStatus.REFUSED
        case "cancelled":
            status = TurnStatus.CANCELLED
        case _:
            status = TurnStatus.SETTLED
    return TurnView(session, end.turn, end.workflow, status, outcome=end.outcome)


def outline_of(session: str, head: Head, end: EndedTurn) -> SessionState | None:
    """Enough of the settled state to judge the next input, from the outcome alone; None where it takes the fold.

    A refused input leaves the park as it was, and a child's park hides where its caller stands: those need the fold.
    """
    outcome: dict[str, Any] = end.outcome
    state = SessionState(session, head.workflow)
    state.turn, state.position, state.status = head.turn, outcome.get("state"), outcome.get("status")
    match outcome.get("kind"):
        case "completed" | "failed" | "rejected" if state.status in ("completed", "failed", "rejected"):
            return state
        case "parked" if outcome.get("delegation") is None and outcome.get("pending"):
            if outcome.get("parkedChannel") == "decision":
                state.pending_decision = outcome["pending"]
            else:
                state.pending_input = outcome["pending"]
            return state
        case _:
            return None
