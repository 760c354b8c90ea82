"""Opening: the first thing a turn does with its input (03 §3, §10.6–10.8), before any model call.

A new turn finds its position, is checked at the boundary, and seeds its variables. A decision, reply or delivery goes
on with the open turn where it was suspended. An input the session cannot take is refused and leaves it as it was.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from core.errors import ArchmaxError
from core.jsontext import JsonObject, text
from engine.delegation.opening_message import opening_message
from engine.errors import WorkflowDisabledError
from engine.session.messages import from_langchain, note_message, user_message
from engine.session.state import SessionState
from engine.spec.model import Spec, Trigger
from engine.spec.paths import title_problem
from engine.spec.signatures import signature_value_issues
from engine.turn.context import TurnContext
from engine.turn.inputs import MANUAL, check_input, seeded
from engine.turn.moves import enter, land, park_for_decision, set_variables, tell_parked, trail_step
from engine.turn.recorder import Recorder
from engine.turn.value_files import file_issues

INTERRUPTED = (
    "Error: this call was interrupted before its result was recorded; it may or may not have taken effect."
)


async def open_turn(ctx: TurnContext, body: Mapping[str, Any]) -> None:
    """Apply the turn's input to the session. Never raises for a bad input: the turn settles `refused` or `rejected`."""
    rec, s, spec = ctx.rec, ctx.state, ctx.assembly.spec
    before = s if s.turn > 0 else None
    if before is not None and s.status == "running":
        before = _settle_abandoned(rec)
    try:
        disposition = check_input(
            spec, before, body, session_id=s.session_id, default_trigger=ctx.assembly.default_trigger
        )
    except WorkflowDisabledError as refused:
        _reject(ctx, body, str(refused))
        return
    except ArchmaxError as error:
        rec.add(
            "refuse",
            turn=ctx.log.turn,
            disposition=_guess(body),
            problem={"code": error.code, "message": str(error)},
        )
        return
    if disposition == "turn":
        await _open(ctx, body)
    elif disposition == "reply":
        _reply(ctx, body)
    elif s.pending_delegations:
        rec.add("resume", turn=ctx.log.turn, disposition=disposition)
        ctx.hand_down(body, disposition)
    elif disposition == "decide":
        _decide(ctx, body)
    else:
        _deliver(ctx, body)


def _guess(body: Mapping[str, Any]) -> str:
    return {"decision": "decide", "reply": "reply", "delivery": "deliver"}.get(body["kind"], "turn")


def _settle_abandoned(rec: Recorder) -> SessionState:
    """A session left `running` by a turn that never ended: that turn failed, and this one opens on top of it."""
    rec.add("fail", code="turn-error", reason="worker lost")
    return rec.state


def answer_interrupted(rec: Recorder) -> None:
    """Give every call left without a result one, so that no provider refuses the transcript (03 §13.4)."""
    batch = rec.state.batch
    for call in rec.state.unanswered:
        told = batch is not None and call["id"] in batch.announced
        rec.add(
            "result",
            id=call["id"],
            tool=call["name"],
            ok=False,
            text=INTERRUPTED,
            quiet=None if told else True,
        )


def _reject(ctx: TurnContext, body: Mapping[str, Any], reason: str) -> None:
    spec, s = ctx.assembly.spec, ctx.state
    trigger = body.get("trigger") or ctx.assembly.default_trigger
    position = _position(spec, s, trigger)
    ctx.rec.add(
        "refuse",
        turn=ctx.log.turn,
        disposition="turn",
        problem={"code": "rejected", "message": reason, "rejected": reason},
        rejected=reason,
        position=position,
        entry=position,
        specHash=ctx.assembly.spec_hash,
        trigger=trigger,
        origin=_origin(body),
    )
    ctx.rec.event("warning", scope="turn-boundary", message=reason)


def _position(spec: Spec, s: SessionState, trigger: str) -> str:
    if s.position is not None and s.position in spec.states:
        return s.position
    return spec.entry_state(trigger) or next(iter(spec.states))


def _origin(body: Mapping[str, Any]) -> JsonObject | None:
    if body["kind"] != "child":
        return None
    return {key: body[key] for key in ("parent", "chain", "dispatchId", "depth", "root") if key in body}


async def _open(ctx: TurnContext, body: Mapping[str, Any]) -> None:
    rec, s, assembly = ctx.rec, ctx.state, ctx.assembly
    spec = assembly.spec
    child = body["kind"] == "child"
    trigger_id = MANUAL if child else body.get("trigger") or assembly.default_trigger
    trigger = spec.trigger(trigger_id)
    assert trigger is not None  # check_input refused an undeclared one
    seeds: JsonObject = {} if child else dict(assembly.variables)
    seeds.update(seeded(body.get("variables") or {}))
    if not child and "title" in seeds and "title" in s.variables:
        del seeds["title"]
    seeds["trigger"] = trigger_id
    for path, ref in (body.get("files") or {}).items():
        await ctx.workspace.files.write(path, base64.b64decode(ref["data"]))
    reason = await _boundary_problem(ctx, trigger, seeds)
    if reason is not None:
        _reject(ctx, body, reason)
        return
    first = s.position is None
    lost = s.position if s.position is not None and s.position not in spec.states else None
    start = spec.entry_state(trigger_id)
    assert start is not None
    position = start if first or lost is not None else s.position
    assert position is not None
    answer_interrupted(rec)
    abandoned = bool(s.pending_delegations)
    rec.add(
        "open",
        turn=ctx.log.turn,
        trigger=trigger_id,
        position=position,
        entry=s.entry_state or position,
        specHash=assembly.spec_hash,
        origin=_origin(body),
        labels=body.get("labels"),
    )
    if lost is not None:
        rec.event(
            "warning",
            scope="turn-boundary",
            message=f"state '{lost}' is gone from the workflow; reopening at '{start}'",
        )
    if abandoned:
        rec.event(
            "warning", scope="sub-workflow", message="a new turn abandons the parked sub-workflow sessions"
        )
    if first or lost is not None:
        rec.event("workflow-reset", entry=position)
    rec.event("advance", **{"from": "__start__"}, to=position)
    rec.add("vars", set=seeds, lock=True, host=True)
    if "title" in seeds:
        rec.event("title-set", title=seeds["title"], state=position)
    rec.event("state-enter", state=position)
    trail_step(rec, position, "trigger", trigger_id)
    _append_messages(ctx, body, seeds, child)
    target = spec.states[position]
    if target.type == "human":
        park_for_decision(rec, target)
        tell_parked(rec)


def _append_messages(ctx: TurnContext, body: Mapping[str, Any], seeds: JsonObject, child: bool) -> None:
    rec = ctx.rec
    for message in from_langchain(body.get("history") or ()):
        rec.add("message", m=message)
    message = body.get("message")
    if message is not None and not child:
        rec.add("message", m=user_message(str(message)))
    elif child or not body.get("history"):
        shown = {name: value for name, value in seeds.items() if name != "trigger"}
        rec.add("message", m=user_message(opening_message(shown), note="opening"))


async def _boundary_problem(ctx: TurnContext, trigger: Trigger, seeds: JsonObject) -> str | None:
    """Why the trigger's `requires` is not met by what the session holds plus what this firing supplies (ruling 1)."""
    if not trigger.requires:
        return None
    values = {**ctx.state.values, **seeds}
    issues = signature_value_issues(trigger.requires, values)
    problems = [issue.message for issue in issues if issue.kind == "missing"]
    problems += [issue.message for issue in issues if issue.kind == "invalid"]
    if not problems:
        problems = await file_issues(ctx, trigger.requires, values)
    if not problems:
        return None
    return f"Refusing to start: trigger '{trigger.id}' {'; '.join(problems)}."


def _decide(ctx: TurnContext, body: Mapping[str, Any]) -> None:
    rec, s, spec = ctx.rec, ctx.state, ctx.assembly.spec
    parked = s.position or ""
    target = str(body["to"])
    edge = spec.states[parked].edge(target)
    comment = body.get("comment") or None
    rec.add("resume", turn=ctx.log.turn, disposition="decide")
    answer_interrupted(rec)
    land(rec)
    rec.add("unpark")
    trail_step(rec, target, "human", comment)
    kind = f" ({edge.type})" if edge is not None and edge.type != "none" else ""
    said = f"\nComment: {comment}" if comment else ""
    rec.add(
        "message",
        m=note_message(
            "decision",
            f"[decision] A person decided '{parked}'{kind}: the run is now in '{target}'.{said}\n"
            f"Do the work of '{target}' now.",
        ),
    )
    rec.event("decided", state=parked, to=target, sessionId=s.session_id, by=body.get("by"))
    enter(rec, spec, target)


def _reply(ctx: TurnContext, body: Mapping[str, Any]) -> None:
    rec, s = ctx.rec, ctx.state
    rec.add("resume", turn=ctx.log.turn, disposition="reply")
    answer_interrupted(rec)
    message = str(body.get("message") or "")
    rec.add("message", m=user_message(message))
    rec.event("park-message", state=_parked_at(s), sessionId=s.session_id, direction="inbound", text=message)


def _parked_at(s: SessionState) -> str | None:
    pending = s.pending_decision or s.pending_input or {}
    return pending.get("state", s.position)


def _deliver(ctx: TurnContext, body: Mapping[str, Any]) -> None:
    rec, s = ctx.rec, ctx.state
    state = s.position or ""
    trigger = str(body.get("trigger") or MANUAL).strip()
    variables = seeded(body.get("variables") or {})
    rec.add("resume", turn=ctx.log.turn, disposition="deliver")
    answer_interrupted(rec)
    rec.event("delivered", state=state, trigger=trigger, to=state, sessionId=s.session_id)
    if "title" in variables and (problem := title_problem(variables["title"])):
        del variables["title"]
        rec.event("warning", scope="delivery", message=f"the delivered title was skipped: {problem}")
    set_variables(rec, variables, lock=True, host=True)
    rec.add("vars", set={"trigger": trigger}, lock=True, host=True)
    rec.add("trigger", value=trigger)
    land(rec)
    rec.add("unpark")
    trail_step(rec, state, "trigger", trigger)
    lines = [f"[event] Trigger '{trigger}' arrived; '{state}' goes on."]
    lines += [f"{name}={text(value)}" for name, value in variables.items()]
    rec.add("message", m=note_message("event", "\n".join(lines)))
    message = body.get("message")
    if message is not None and str(message).strip():
        rec.add("message", m=user_message(str(message)))
        rec.event("park-message", state=state, sessionId=s.session_id, direction="inbound", text=str(message))
    rec.event("state-enter", state=state)
