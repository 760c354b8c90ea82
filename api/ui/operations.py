"""What operators watch: schedules, timers, and turns and webhooks the fleet gave up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from api.problems import HttpProblem
from core.errors import ArchmaxError
from core.jsontext import JsonObject
from engine.spec.model import Spec
from engine.spec.schedule import SCHEDULE_KEY, next_time
from storage.records import unpack
from worker.protocol.accept import Accepted
from worker.reading import split_turn_id
from worker.redrive import GIVEN_UP, input_of
from worker.requests import StartRequest, Webhook
from worker.schedules import Planned, schedules_of
from worker.service import Caller, FleetService
from worker.session_index import Filters

_STRIDE: Final = 500
_READS: Final = 20
#: timers and dead letters one page lists
MAX_LISTED: Final = 200


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """`last`: the newest planned time beat has looked at; None before its first look. `next` None: there is none."""

    workflow: str
    trigger: str
    when: str
    timezone: str
    missed: str
    message: str
    last: int | None
    next: int | None
    off: bool


@dataclass(frozen=True, slots=True)
class DeadTurn:
    """A turn the fleet gave up. `input` None: nothing tells it; `again`: it can be sent as a new turn."""

    line: JsonObject
    turn_id: str
    code: str
    reason: str
    input: JsonObject | None

    @property
    def again(self) -> bool:
        return self.input is not None and self.input.get("kind") == "message"


async def schedules(service: FleetService, caller: Caller) -> list[ScheduleLine]:
    """Every schedule of the workflows the caller may see. A workflow that does not load has none."""
    lines: list[ScheduleLine] = []
    now = round(time.time() * 1000)
    for slug in await service.workflows(caller):
        try:
            spec = await service.spec(slug, caller)
        except ArchmaxError:
            continue
        lines += [await _schedule(service, spec, planned, now) for planned in schedules_of(spec)]
    return lines


async def _schedule(service: FleetService, spec: Spec, planned: Planned, now: int) -> ScheduleLine:
    found = await service.client.fleet.files.read(planned.key)
    last: Any = unpack(planned.key, found.body).get("last") if found is not None else None
    coming = None if planned.off else await asyncio.to_thread(next_time, planned.schedule, now)
    schedule = planned.schedule
    return ScheduleLine(
        planned.workflow,
        planned.trigger,
        _written(spec, planned.trigger),
        schedule.timezone,
        schedule.missed,
        schedule.message or "",
        last,
        coming,
        planned.off,
    )


def _written(spec: Spec, trigger_id: str) -> str:
    """When, in the author's own words."""
    trigger = spec.trigger(trigger_id)
    written: Any = trigger.host.get(SCHEDULE_KEY) if trigger is not None else None
    if not isinstance(written, dict):
        return str(written)
    return str(written["cron"]) if "cron" in written else f"every {written.get('every')}"


async def timers(service: FleetService, caller: Caller) -> list[JsonObject]:
    """Sessions that wait for a time, the next first; those that wait for an event alone are behind them."""
    lines = await _lines(service, caller, "awaiting_input", lambda _line: True)
    return sorted(
        lines, key=lambda line: (not line.get("resumeAt"), str(line.get("resumeAt")), line["updatedAt"])
    )


async def dead_turns(service: FleetService, caller: Caller) -> list[DeadTurn]:
    """Sessions whose newest turn the fleet gave up."""
    lines = await _lines(
        service, caller, "failed", lambda line: (line.get("exit") or {}).get("code") in GIVEN_UP
    )
    return list(await asyncio.gather(*(_dead(service, line) for line in lines)))


async def redrive(service: FleetService, turn_id: str, caller: Caller) -> Accepted:
    """Send the input of a turn that was given up again, as the session's next turn; once, whoever asks how often.

    Raises: `HttpProblem` when it is no such turn or the session has moved on, and what accepting raises.
    """
    view = await service.turn(turn_id, caller)
    session, n = split_turn_id(turn_id)
    code = ((view.outcome or {}).get("exit") or {}).get("code")
    head = (await service.session(session, caller)).head
    given = await input_of(service.client, session, n)
    if code not in GIVEN_UP or head.turn != n:
        raise HttpProblem(
            "page-outdated", f"turn {turn_id!r} is not given up, or its session has moved on since"
        )
    if given is None or given.get("kind") != "message":
        raise HttpProblem(
            "page-outdated", f"the input of turn {turn_id!r} cannot be sent again: write to its session"
        )
    webhook = given.get("webhook")
    request = StartRequest(
        session_id=session,
        message=given.get("message"),
        trigger=given.get("trigger"),
        variables=given.get("variables"),
        labels=given.get("labels"),
        webhook=Webhook(url=webhook["url"]) if webhook else None,
        on_busy="reject",
    )
    # one key for all operators: two who press the button make one turn
    everyone = Caller("redrive", caller.name, caller.workflows)
    return await service.start(view.workflow, request, everyone, key=f"redrive/{turn_id}")


async def _dead(service: FleetService, line: JsonObject) -> DeadTurn:
    session, n = line["sessionId"], line["turn"]
    end = line["exit"]
    given = await input_of(service.client, session, n)
    return DeadTurn(line, f"{session}.{n}", str(end.get("code")), str(end.get("reason") or ""), given)


async def _lines(
    service: FleetService, caller: Caller, status: str, holds: Callable[[JsonObject], bool]
) -> list[JsonObject]:
    filters = Filters(status=frozenset({status}))
    found: list[JsonObject] = []
    cursor: str | None = None
    for _ in range(_READS):
        page = await service.sessions(filters, caller, cursor=cursor, limit=_STRIDE)
        found += [line for line in page.items if "openTurn" not in line and holds(line)]
        cursor = page.cursor
        if cursor is None or len(found) >= MAX_LISTED:
            break
    return found[:MAX_LISTED]
