"""The engine as the protocol runs it: one open turn through the assembly of its workflow.

Keeps assemblies, looked at again when their files change, and the folded state of sessions whose turns came here before,
so that a conversation is not folded again for every message. Both are caches: the log is the truth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from engine.errors import UnsupportedRuntimeContractError, WorkflowLoadError
from engine.host.driver import TurnOptions, turn_context
from engine.host.session_folder import lost_record, refused_record
from engine.session.outcome import outcome_of
from engine.session.state import SessionState, UnknownChange
from engine.session.state_cache import StateCache
from engine.spec.spec_hash import snapshot_bytes
from engine.turn.assembly import Assembly, Wiring, assemble
from engine.turn.loop import advance
from engine.turn.ports import Stop as EngineStop
from engine.turn.ports import TurnReleased
from engine.turn.until import to_ms
from storage.objects import ObjectStore
from storage.records import InboxEntry
from worker.events import EventPublisher, StagedEvents
from worker.logs import log_fields
from worker.metrics import FleetMetrics
from worker.observing import TurnWatch
from worker.ports import HandBack, Stop
from worker.protocol.dues import RETENTION, TIMER, webhook_dues
from worker.protocol.open_turn import OpenTurn
from worker.redis_clock import RedisClock
from worker.redrive import keep_input
from worker.refusals import WorkflowMismatch
from worker.shown_tasks import ShownTasks
from worker.tracing import Tracing

DAY_MS = 86_400_000
#: how often a step in flight looks whether it must be cut off
LOOK_SECONDS = 0.25


class Assemblies:
    """Assemblies by workflow. `wire` is called again when nothing of the old wiring can be kept."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._held: dict[str, Assembly] = {}
        self._looked: dict[str, float] = {}
        self._lock = asyncio.Lock()

    async def get(self, workflow: str) -> Assembly:
        """Raises: `WorkflowLoadError`, `UnsupportedRuntimeContractError`."""
        held = self._held.get(workflow)
        if held is not None and time.monotonic() - self._looked.get(workflow, 0.0) < 1.0:
            return held
        async with self._lock:
            assembly = await asyncio.to_thread(self._fresh, workflow)
            self._looked[workflow] = time.monotonic()
            return assembly

    def _fresh(self, workflow: str) -> Assembly:
        spec = self.wiring.library.require(workflow)
        held = self._held.get(workflow)
        if held is None or held.spec is not spec:
            held = self._held[workflow] = assemble(self.wiring, workflow)
        return held

    async def for_session(self, state: SessionState, workflow: str, entry: JsonObject) -> Assembly:
        """A child's assembly carries every caller's denials, whatever process it runs in."""
        chain: Sequence[str] = (state.origin or {}).get("chain") or entry.get("chain") or ()
        if not chain:
            return await self.get(workflow)
        assembly = await self.get(chain[0])
        for slug in [*chain[1:], workflow]:
            assembly = assembly.child(slug)
        return assembly


class Dues:
    """What a turn owes when it has ended (`worker.protocol.dues`). The clock is the fleet's: due times are judged by it."""

    def __init__(self, clock: RedisClock, retention_days: float | None) -> None:
        self._clock, self._retention_days = clock, retention_days

    def of(self, entry: InboxEntry, state: SessionState | None, outcome: JsonObject) -> list[JsonObject]:
        """A child's session is its parent's to present, to wake and to delete (ruling 17)."""
        dues = webhook_dues(entry)
        if state is None or state.origin is not None:
            return dues
        pending = outcome.get("pending") or {}
        if outcome["kind"] == "parked" and pending.get("resumeAt"):
            due: JsonObject = {"due": TIMER, "at": to_ms(pending["resumeAt"]), "workflow": state.workflow}
            dues.append({**due, "parkedAt": pending.get("parkedAt")})
        if state.finished and self._retention_days is not None:
            at = self._clock.told_ms() + round(self._retention_days * DAY_MS)
            dues.append({"due": RETENTION, "at": at, "workflow": state.workflow})
        return dues


class FleetTurnLog:
    """One open turn as the engine's `TurnLog`: its events go out when their commit is durable."""

    def __init__(
        self,
        turn: OpenTurn,
        events: StagedEvents,
        publisher: EventPublisher,
        deadline_seconds: float,
        watch: TurnWatch,
        dues: Dues,
    ) -> None:
        self.session_id, self.turn = turn.session_id, turn.turn
        self._turn, self._events, self._publisher = turn, events, publisher
        self._deadline_ms = deadline_seconds * 1000
        self._watch, self._dues = watch, dues
        self.state: SessionState | None = None

    async def commit(self, record: JsonObject) -> None:
        staged = self._events.take()
        await self._turn.commit(record)
        self._told(staged, self._turn.position)
        self._watch.committed(record, staged)

    async def end(self, record: JsonObject, outcome: JsonObject) -> None:
        staged = self._events.take()
        dues = self._dues.of(self._turn.entry, self.state, outcome)
        await self._turn.end(record, self._described(outcome), dues)
        self._told(staged, self._turn.position + 1)
        self._watch.ended(record, staged, outcome)

    async def suspend(self, record: JsonObject, calls: Sequence[JsonObject], width: int) -> None:
        staged = self._events.take()
        await self._turn.suspend(record, self._watch.carried(calls), width)
        self._told(staged, self._turn.position)
        self._watch.suspended(record, staged, len(calls))

    def _told(self, staged: list[JsonObject], position: int) -> None:
        self._publisher.publish(self.session_id, self.turn, self._turn.fence, position, staged)

    def _described(self, outcome: JsonObject) -> JsonObject:
        """The outcome with what a list shows of the session."""
        state = self.state
        if state is None:
            return outcome
        described: JsonObject = {**outcome, "at": time.time_ns() // 1_000_000}
        title = state.variables.get("title")
        if title is not None:
            described["title"] = title.value
        if state.labels:
            described["labels"] = state.labels
        if state.origin is not None:
            described["parent"] = state.origin.get("parent")
        return described

    async def put_blob(self, body: bytes) -> str:
        return await self._turn.put_blob(body)

    async def get_blob(self, name: str) -> bytes | None:
        return await self._turn.get_blob(name)

    def stop(self) -> EngineStop | None:
        reason = self._turn.stop()
        if reason in (None, Stop.LEASE_LOST) and self._turn.spent_ms > self._deadline_ms:
            return EngineStop.DEADLINE
        match reason:
            case None:
                return None
            case Stop.DRAIN | Stop.LEASE_LOST:
                # Handed back: if another has it, the store refuses that, and otherwise somebody must go on.
                return EngineStop.DRAIN
            case Stop.DEADLINE:
                return EngineStop.DEADLINE
            case _:
                return EngineStop.CANCELLED

    async def interrupted(self) -> EngineStop:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            stop = self.stop()
            # a draining process finishes the step it is in; a lost lease may still be ours by the store's word
            if stop in (EngineStop.CANCELLED, EngineStop.DEADLINE):
                return stop


class EngineRunner:
    """The `TurnRunner` port."""

    def __init__(
        self,
        assemblies: Assemblies,
        store: ObjectStore,
        publisher: EventPublisher,
        *,
        turn_deadline_seconds: float,
        recursion_limit: int,
        clock: RedisClock,
        retention_days: float | None = None,
        metrics: FleetMetrics | None = None,
        tracing: Tracing | None = None,
        shown: ShownTasks | None = None,
    ) -> None:
        self._assemblies, self._store, self._publisher = assemblies, store, publisher
        self._deadline_seconds = turn_deadline_seconds
        self._options = TurnOptions(recursion_limit=recursion_limit, clock=clock.moment)
        self._dues = Dues(clock, retention_days)
        self._metrics = metrics if metrics is not None else FleetMetrics()
        self._tracing = tracing
        self._shown = shown
        self._states = StateCache()
        self._specs_kept: set[str] = set()
        self.running = 0

    async def run(self, turn: OpenTurn) -> None:
        self.running += 1
        watch = TurnWatch(turn, self._metrics, self._tracing)
        if self._shown is not None:
            self._shown.opened(turn.session_id, turn.turn, turn.workflow, turn.attempts)
        try:
            with log_fields(
                session=turn.session_id, turn=turn.turn, workflow=turn.workflow, attempt=turn.attempts
            ):
                await self._run(turn, watch)
            watch.finish("over")
        except HandBack:
            watch.finish("handed-back")
            raise
        except BaseException as error:
            watch.finish("broken-off", error)
            raise
        finally:
            self.running -= 1

    async def _run(self, turn: OpenTurn, watch: TurnWatch) -> None:
        state = await self._state(turn)
        events = StagedEvents(self._publisher, turn.session_id, turn.turn, turn.fence)
        log = FleetTurnLog(turn, events, self._publisher, self._deadline_seconds, watch, self._dues)
        log.state = state
        body = body_of(turn)
        if turn.entry.workflow not in ("", turn.workflow):
            await self._end_foreign(log, state, turn)
            return
        try:
            assembly = await self._assemblies.for_session(state, turn.workflow, body)
        except (WorkflowLoadError, UnsupportedRuntimeContractError) as error:
            await self._end_unusable(log, state, turn, error)
            return
        await self._keep_spec(assembly, state)
        options = self._options if self._tracing is None else replace(self._options, config=watch.config)
        ctx = turn_context(assembly, state, log, events, options)
        answers = None if turn.joined is None else [_answer(joined) for joined in turn.joined]
        try:
            await advance(ctx, body, answers=answers)
        except TurnReleased:
            raise HandBack("the process drains") from None
        if turn.ended is not None:
            if ctx.hooks is not None:
                state.forget_rendering()
            self._states.put((turn.session_id, turn.life, turn.turn + 1), state)

    async def _state(self, turn: OpenTurn) -> SessionState:
        state = self._states.take(turn.history_key)
        if state is None:
            state = SessionState(turn.session_id, turn.workflow)
            try:
                for record in await turn.history():
                    state.apply_record(record)
            except UnknownChange as newer:
                raise HandBack(str(newer), delay_seconds=1.0) from newer
        for record in turn.records:
            state.apply_record(record)
        return state

    async def _keep_spec(self, assembly: Assembly, state: SessionState) -> None:
        if assembly.spec_hash == state.spec_hash or assembly.spec_hash in self._specs_kept:
            return
        body = snapshot_bytes(assembly.spec.document)
        await self._store.put(f"_specs/{assembly.spec_hash}.json", body, if_absent=True)
        self._specs_kept.add(assembly.spec_hash)

    async def _end_unusable(
        self, log: FleetTurnLog, state: SessionState, turn: OpenTurn, error: ArchmaxError
    ) -> None:
        record = lost_record(state, turn.turn, reason=str(error))
        await log.end(record, outcome_of(state).to_json())

    async def _end_foreign(self, log: FleetTurnLog, state: SessionState, turn: OpenTurn) -> None:
        """Refuse an input of another workflow, from a producer that had nobody check it."""
        record = refused_record(state, turn.turn, WorkflowMismatch(turn.session_id, turn.entry.workflow))
        await log.end(record, outcome_of(state).to_json())

    async def worker_lost(self, turn: OpenTurn) -> tuple[JsonObject | None, JsonObject, Sequence[JsonObject]]:
        state = await self._state(turn)
        attempts = turn.attempts - 1
        record = lost_record(
            state, turn.turn, code="worker-lost", reason=f"the worker died {attempts} times at the same step"
        )
        keep_input(record, body_of(turn))
        outcome = outcome_of(state).to_json()
        self._metrics.ended(turn.workflow, outcome, 0.0)
        if state.origin is not None:
            outcome["answer"] = {
                "kind": "failed",
                "turn": turn.turn,
                "code": "worker-lost",
                "reason": "worker lost",
            }
        return record, outcome, self._dues.of(turn.entry, state, outcome)


def body_of(turn: OpenTurn) -> JsonObject:
    """The engine's form of an accepted input."""
    given = turn.entry.input
    if turn.entry.kind == "timer":
        return {"kind": "delivery", "trigger": "timer", "park": given.get("parkedAt")}
    return {"kind": turn.entry.kind, **given}


def _answer(joined: JsonObject) -> JsonObject:
    """A child's answer as the engine settles it; one that ended without its own words still says how."""
    outcome: dict[str, Any] = joined["outcome"]
    answer = outcome.get("answer")
    if isinstance(answer, dict):
        return answer
    reason = outcome.get("reason") or outcome.get("rejected") or "it was stopped before it could answer"
    return {
        "kind": "refused" if outcome.get("kind") != "failed" else "failed",
        "turn": joined.get("n", 1),
        "code": "turn-cancelled"
        if outcome.get("kind") in ("cancelled", "gone")
        else outcome.get("code", "turn-error"),
        "reason": reason,
    }
