"""Schedules of triggers: which planned times are due, and that each is accepted once (ruling 10).

What is known of a trigger's schedule is one object of the store, `_schedules/<workflow>/<trigger>`, so it outlives every
beat and Redis:

    {"last": ms, "firing": [ms…], "plan": digest}

`last` is the newest planned time that was looked at. Who finds planned times behind it writes, if the object is still
the one he read, the new `last` and the times to fire; then he fires them; then he empties `firing`. Whoever finds
`firing` filled fires it again: every firing is accepted under the idempotency key
`schedule/<workflow>/<trigger>/<planned time>`, so two beats, or a beat that died in between, make one turn.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeGuard

from core.errors import ArchmaxError
from core.jsontext import Json, dumps
from engine.spec.loader import list_workflows
from engine.spec.model import Spec
from engine.spec.schedule import (
    SCHEDULE_KEY,
    Missed,
    Schedule,
    ScheduleProblem,
    next_time,
    parse_schedule,
    planned_times,
    previous_time,
)
from engine.spec.tree import DirectoryTree
from engine.turn.library import WorkflowLibrary
from storage.keys import encode_segment
from storage.limits import KEY_MS
from storage.logstore import Conflict
from storage.records import DamagedObject, pack, unpack
from worker.requests import StartRequest
from worker.service import Caller, FleetService

logger = logging.getLogger(__name__)

SCHEDULES = "_schedules/"
#: a planned time that is found later than this was missed; a beat may be replaced within it
LATE_MS = 60_000
#: planned times of one schedule claimed at once, so that a long absence under `missed: all` starves no other schedule
BATCH = 50
#: how often the workspace is read for schedules that are new or gone
RELOAD_SECONDS = 5.0

BEAT = Caller("beat", "schedule")


@dataclass(frozen=True, slots=True)
class Planned:
    """A trigger's schedule. `off`: its workflow is disabled; its times pass without a firing and are not missed."""

    workflow: str
    trigger: str
    schedule: Schedule
    plan: str
    off: bool

    @property
    def key(self) -> str:
        return f"{SCHEDULES}{encode_segment(self.workflow)}/{encode_segment(self.trigger)}"


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The stored object. `plan` is a digest of when (not of what): under another one, times behind `last` mean little."""

    last: int
    plan: str
    firing: tuple[int, ...] = ()
    etag: str = ""
    modified_ms: int = 0

    def body(self, w: str) -> bytes:
        return pack({"w": w, "last": self.last, "firing": list(self.firing), "plan": self.plan})


def plan_digest(value: Json) -> str:
    """What of a `schedule:` decides its planned times."""
    when = {name: value[name] for name in ("cron", "every", "timezone") if name in value}
    return hashlib.sha256(dumps(when)).hexdigest()[:16]


def schedules_of(spec: Spec) -> list[Planned]:
    """The schedules of a workflow's triggers; one that is malformed is left out and logged (`validate` refuses it)."""
    found: list[Planned] = []
    for trigger_id in spec.trigger_ids:
        trigger = spec.trigger(trigger_id)
        written = trigger.host.get(SCHEDULE_KEY) if trigger is not None else None
        if written is None:
            continue
        try:
            schedule = parse_schedule(written)
        except ScheduleProblem as problem:
            logger.warning(
                "the schedule of trigger %s of %s is not used: %s",
                trigger_id,
                spec.slug,
                problem,
                extra={"action": "schedule_malformed", "workflow": spec.slug, "trigger": trigger_id},
            )
            continue
        found.append(Planned(spec.slug, trigger_id, schedule, plan_digest(written), spec.disabled))
    return found


def due_times(
    schedule: Schedule, after_ms: int, now_ms: int, *, missed: Missed
) -> tuple[tuple[int, ...], int]:
    """The planned times to fire of those in `(after_ms, now_ms]`, and how far the looking went.

    The newest is on time unless it is older than `LATE_MS`; every other one has been overtaken and is missed. `skip`
    fires the newest if it is on time, `once` the newest in any case, `all` every one, the oldest `BATCH` first.
    """
    if missed == "all":
        times: list[int] = []
        for at in planned_times(schedule, after_ms, now_ms):
            times.append(at)
            if len(times) == BATCH:
                return tuple(times), at
        return tuple(times), times[-1] if times else after_ms
    newest = previous_time(schedule, now_ms)
    if newest is None or newest <= after_ms:
        return (), after_ms
    if missed == "skip" and now_ms - newest > LATE_MS:
        return (), newest
    return (newest,), newest


class Schedules:
    """The schedules of one workspace. Lives on the event loop of an opened service."""

    def __init__(self, service: FleetService) -> None:
        self._service = service
        self._files = service.client.fleet.files
        self._clock = service.client.fleet.clock
        self._library = WorkflowLibrary(DirectoryTree(service.settings.root))
        self._planned: list[Planned] = []
        self._loaded = float("-inf")
        #: (key, plan) → when to look again: the next planned time after the stored `last`
        self._next: dict[tuple[str, str], int | None] = {}

    async def run_due(self) -> float:
        """Fire everything that is due. Returns the seconds until the next planned time or reading of the workspace.

        Raises: `BrokerUnavailable` when Redis, whose clock counts, does not answer.
        """
        await self._load()
        now = await self._clock.now_ms()
        for planned in self._planned:
            if self._is_due(planned, now):
                try:
                    await self._attend(planned, now)
                except ArchmaxError as error:
                    self._next.pop(
                        (planned.key, planned.plan), None
                    )  # due at every look, but no reason to hurry
                    self._complain(planned, error)
        loop = asyncio.get_running_loop()
        wait = self._loaded + RELOAD_SECONDS - loop.time()
        now = await self._clock.now_ms()
        for at in self._next.values():
            if at is not None:
                wait = min(wait, (at - now) / 1000)
        return max(wait, 0.0)

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._loaded + RELOAD_SECONDS:
            return
        self._planned = await asyncio.to_thread(self._read)
        known = {(planned.key, planned.plan) for planned in self._planned}
        self._next = {at: due for at, due in self._next.items() if at in known}
        self._loaded = loop.time()

    def _read(self) -> list[Planned]:
        specs = (self._library.usable(slug) for slug in list_workflows(self._library.tree))
        return [planned for spec in specs if spec is not None for planned in schedules_of(spec)]

    def _is_due(self, planned: Planned, now: int) -> bool:
        at = self._next.get((planned.key, planned.plan), 0)
        return at is not None and at <= now

    async def _attend(self, planned: Planned, now: int) -> None:
        """Bring one schedule up to `now`. Raises: `StoreUnavailable`, `BrokerUnavailable`; what is due stays due."""
        state = await self._state(planned, now)
        if state.firing:
            state = await self._fire(planned, state, now)
        missed = planned.schedule.missed if state.plan == planned.plan else "skip"
        times, last = due_times(planned.schedule, state.last, now, missed=missed)
        if last > state.last:
            claimed = replace(state, last=last, plan=planned.plan, firing=() if planned.off else times)
            stored = await self._replace(planned, state, claimed)
            if stored is None:
                return  # another beat was here: look again at once
            state = await self._fire(planned, stored, now) if stored.firing else stored
        self._next[planned.key, planned.plan] = await asyncio.to_thread(
            next_time, planned.schedule, state.last
        )

    async def _fire(self, planned: Planned, state: ScheduleState, now: int) -> ScheduleState:
        """Accept what is to be fired, and forget it. Raises: what may be tried again; then it is still to be fired."""
        if now - state.modified_ms < KEY_MS:
            for at in state.firing:
                await self._accept(planned, at)
        else:  # their idempotency keys are forgotten: firing now could be a second time
            logger.warning(
                "planned times of trigger %s of %s were claimed long ago and are dropped",
                planned.trigger,
                planned.workflow,
                extra={"action": "schedule_dropped", "workflow": planned.workflow},
            )
        done = replace(state, firing=())
        return await self._replace(planned, state, done) or done

    async def _accept(self, planned: Planned, at: int) -> None:
        schedule = planned.schedule
        request = StartRequest(
            message=schedule.message, trigger=planned.trigger, variables=dict(schedule.variables) or None
        )
        key = f"schedule/{planned.workflow}/{planned.trigger}/{instant(at)}"
        try:
            accepted = await self._service.start(planned.workflow, request, BEAT, key=key)
        except ArchmaxError as error:
            if error.retryable:
                raise
            logger.warning(
                "the firing of trigger %s of %s planned for %s was refused: %s",
                planned.trigger,
                planned.workflow,
                instant(at),
                error,
                extra={"action": "schedule_refused", "workflow": planned.workflow, "code": error.code},
            )
            return
        if not accepted.repeated:
            logger.info(
                "fired trigger %s of %s planned for %s as turn %s.%d",
                planned.trigger,
                planned.workflow,
                instant(at),
                accepted.session,
                accepted.n,
                extra={"action": "schedule_fired", "workflow": planned.workflow, "trigger": planned.trigger},
            )

    async def _state(self, planned: Planned, now: int) -> ScheduleState:
        """What is stored. A schedule seen for the first time begins now: nothing before it was missed."""
        while True:
            found = await self._files.read(planned.key)
            if found is not None:
                state = _read_state(planned.key, found.body)
                return replace(state, etag=found.etag, modified_ms=found.modified_ms)
            w = self._files.new_id()
            await self._files.create(planned.key, ScheduleState(now, planned.plan).body(w), w)

    async def _replace(
        self, planned: Planned, state: ScheduleState, wanted: ScheduleState
    ) -> ScheduleState | None:
        """The stored state, or None when another beat has changed it."""
        w = self._files.new_id()
        written = await self._files.replace(planned.key, wanted.body(w), w, state.etag)
        if isinstance(written, Conflict):
            return None
        return replace(wanted, etag=written.etag, modified_ms=await self._clock.now_ms())

    def _complain(self, planned: Planned, error: ArchmaxError) -> None:
        logger.warning(
            "trigger %s of %s cannot be attended to now: %s",
            planned.trigger,
            planned.workflow,
            error,
            extra={"action": "schedule_retry", "workflow": planned.workflow, "code": error.code},
        )


def _read_state(key: str, body: bytes) -> ScheduleState:
    """Raises: `DamagedObject`, `NewerFormat`."""
    shown = unpack(key, body)
    last, plan, firing = shown.get("last"), shown.get("plan"), shown.get("firing")
    if not (
        _is_time(last) and isinstance(plan, str) and isinstance(firing, list) and all(map(_is_time, firing))
    ):
        raise DamagedObject(key, "it is no state of a schedule")
    return ScheduleState(last, plan, tuple(firing))


def _is_time(value: Json) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def instant(at_ms: int) -> str:
    """A planned time as idempotency keys and logs spell it; planned times are whole seconds."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
