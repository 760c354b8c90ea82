"""Automated states: code and grader, run by the runtime in place of the agent's next model call (03 §11).

A run decides by its first accepted advance or raise, which takes effect when it finishes cleanly. It is a frame: what it
did is journalled, so a run cut off by a suspension or a crash goes on where it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from engine.session.messages import note_message
from engine.session.state import SessionState
from engine.spec.model import State
from engine.turn.context import TurnContext
from engine.turn.controls import Advance
from engine.turn.model_step import returns_problem
from engine.turn.moves import complete, enter, land, raise_session, route_failure, trail_step

Status = Literal["advanced", "raised", "completed", "failed"]


@dataclass(frozen=True)
class Ran:
    """How a run ended: `error` when it threw, timed out or spent its budget. `waiting`: children must run first."""

    error: str | None = None
    waiting: bool = False


def frame_id(s: SessionState) -> str:
    """One run per visit: the same id whoever goes on with it."""
    return f"run-{s.visits}"


async def automated_step(ctx: TurnContext) -> None:
    from engine.turn.grader import run_grader  # both import this module's types

    s, rec, state = ctx.state, ctx.rec, ctx.current
    frame = frame_id(s)
    if frame not in s.frames:
        rec.add("frame", id=frame, kind=state.type, state=state.slug)
        if state.type == "code":
            rec.event("code-start", state=state.slug, script=state.script)
        else:
            rec.event("grader-start", state=state.slug)
    began = time.monotonic()
    ran = await (
        ctx.scripts.run_code_state(ctx, state, frame)
        if state.type == "code"
        else run_grader(ctx, state, frame)
    )
    if ran.waiting:
        return
    rec.add("frame-end", id=frame)
    await settle_run(ctx, state, frame, ran, round((time.monotonic() - began) * 1000))


async def settle_run(ctx: TurnContext, state: State, frame: str, ran: Ran, ms: int) -> None:
    """Exactly one of advanced, raised, completed, failed (03 §11.4)."""
    s, rec, spec = ctx.state, ctx.rec, ctx.assembly.spec
    decision = s.frames[frame].decision
    if decision is not None and decision["kind"] == "raise":
        _result(ctx, state, "raised", ms, decision["reason"])
        raise_session(rec, decision["code"], decision["reason"], None)
        return
    if ran.error is not None:
        _result(ctx, state, "failed", ms, ran.error)
        route_failure(rec, spec, ran.error)
        return
    if decision is not None:
        _result(ctx, state, "advanced", ms, decision["reason"])
        _advance(ctx, state, Advance(decision["to"], decision["reason"], tuple(decision.get("evidence", ()))))
        return
    if state.terminal and state.type == "code":
        _result(ctx, state, "completed", ms, None)
        problem = await returns_problem(ctx)
        if problem is not None:
            rec.add("rejected", reason=problem[1], invalidReturn=problem[0] == "invalid" or None)
        else:
            complete(rec)
        return
    undecided = f"{state.type} state '{state.slug}' finished without calling archmax_advance or archmax_raise"
    _result(ctx, state, "failed", ms, undecided)
    route_failure(rec, spec, undecided)


def recorded_raise(ctx: TurnContext) -> bool:
    """Let the raise of a run that is being stopped stand; its advance is dropped (03 §16). False: there is none."""
    frame = ctx.state.frames.get(frame_id(ctx.state))
    if frame is None or frame.done or frame.decision is None or frame.decision["kind"] != "raise":
        return False
    ctx.rec.add("frame-end", id=frame.id)
    _result(ctx, ctx.current, "raised", 0, frame.decision["reason"])
    raise_session(ctx.rec, frame.decision["code"], frame.decision["reason"], None)
    return True


def _result(ctx: TurnContext, state: State, status: Status, ms: int, reason: str | None) -> None:
    kind = "code-result" if state.type == "code" else "grader-result"
    ctx.rec.event(kind, state=state.slug, status=status, durationMs=ms, reason=reason)


def _advance(ctx: TurnContext, state: State, advance: Advance) -> None:
    rec, spec = ctx.rec, ctx.assembly.spec
    land(rec)
    trail_step(rec, advance.to, state.type, advance.reason)
    if state.type == "grader":
        note = f"[grader] The '{state.slug}' grader moved the run to '{advance.to}': {advance.reason}."
    else:
        note = f"[code] '{state.slug}' moved the run to '{advance.to}': {advance.reason}."
    rec.add("message", m=note_message(state.type, note))
    rec.event("advance", **{"from": state.slug}, to=advance.to, reason=advance.reason)
    enter(rec, spec, advance.to, advance.evidence)
