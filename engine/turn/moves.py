"""Moves: every change of position, park and failure route, with the one order of events the contract gives.

Nothing here decides whether a move is allowed; that was asked before. Each function makes the changes of one move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.jsontext import JsonObject, text
from core.paths import canonical
from engine.session.messages import note_message
from engine.session.state import SessionState
from engine.spec.model import Spec, State
from engine.turn.recorder import Recorder, now_ms


def trail_step(rec: Recorder, to: str, kind: str, reason: str | None = None, **more: Any) -> None:
    step: JsonObject = {"to": to, "kind": kind}
    if reason is not None:
        step["reason"] = reason
    step.update({key: value for key, value in more.items() if value is not None})
    step["ts"] = now_ms()
    rec.add("trail", step=step)


def decision_record(state: State, seq: int, attached: Sequence[str] = ()) -> JsonObject:
    """What a person is shown to decide on (03 §10.2): declared evidence first, then what the mover attached."""
    record: JsonObject = {"state": state.slug}
    if state.title is not None:
        record["title"] = state.title
    record["seq"] = seq
    transitions: list[JsonObject] = []
    for edge in state.transitions:
        shown: JsonObject = {"to": edge.to}
        if edge.description is not None:
            shown["description"] = edge.description
        if edge.type != "none":
            shown["type"] = edge.type
        transitions.append(shown)
    record["transitions"] = transitions
    evidence: dict[str, None] = {}
    for path in (*state.evidence, *attached):
        evidence.setdefault(canonical(path).text, None)
    if evidence:
        record["evidence"] = list(evidence)
    record["createdAt"] = now_ms()
    return record


def park_for_decision(rec: Recorder, state: State, attached: Sequence[str] = ()) -> None:
    """Park at a human state; one handoff message is owed."""
    record = decision_record(state, rec.state.decision_count + 1, attached)
    rec.add("park", channel="decision", record=record, phase="closing")


def tell_parked(rec: Recorder, **more: Any) -> None:
    s = rec.state
    pending = s.pending_decision or s.pending_input or {}
    awaiting = "decision" if s.pending_decision is not None else "input"
    rec.event(
        "parked",
        state=pending.get("state", s.position),
        sessionId=s.session_id,
        awaiting=awaiting,
        reason=pending.get("reason"),
        resumeAt=pending.get("resumeAt"),
        **more,
    )


def enter(rec: Recorder, spec: Spec, to: str, attached: Sequence[str] = ()) -> None:
    """Leave the active state for `to`: `state-leave`, `state-enter`, and `parked` when a person is needed there."""
    left = rec.state.position
    target = spec.states[to]
    rec.event("state-leave", state=left, next=to)
    rec.add("position", state=to)
    if target.type == "human":
        park_for_decision(rec, target, attached)
    rec.event("state-enter", state=to)
    if target.type == "human":
        tell_parked(rec)


def land(rec: Recorder) -> None:
    """What every landed move clears: a committed rejection and outstanding failed delegations."""
    s = rec.state
    if s.rejected is not None or s.failed_delegations:
        rec.add("unreject")


def failure_reason(s: SessionState) -> str:
    """The reason a stopping agent's state fails with (03 §13.2)."""
    if s.rejected is not None:
        return s.rejected
    return "\n".join(
        f"{held['message']} (called with {text(held['arguments'])})" for held in s.failed_delegations
    )


def route_failure(rec: Recorder, spec: Spec, reason: str) -> None:
    """A state failed: to its `on_error`, else the session ends rejected."""
    s = rec.state
    state = spec.states.get(s.position or "")
    target = state.on_error if state is not None else None
    if target is None or target not in spec.states:
        rec.add("rejected", reason=reason)
        return
    failed = s.position
    rec.add("unpark")
    rec.add("unreject")
    trail_step(rec, target, "on_error", reason)
    rec.add(
        "message",
        m=note_message("error", f"[error] State '{failed}' failed: {reason}\nThe run is now in '{target}'."),
    )
    rec.event("state-error-routed", state=failed, to=target, reason=reason)
    enter(rec, spec, target)


def raise_session(rec: Recorder, code: str, reason: str, call_id: str | None) -> None:
    """`archmax_raise`: the session fails with the caller's own code; no route, no further state (03 §9.4)."""
    s = rec.state
    land(rec)
    rec.add("raise", code=code, reason=reason, state=s.position)
    rec.event("raised", state=s.position, sessionId=s.session_id, code=code, reason=reason, callId=call_id)
    rec.event("state-leave", state=s.position, next=s.position)


def complete(rec: Recorder) -> None:
    s = rec.state
    rec.event("state-leave", state=s.position, next=s.position)
    rec.add("complete")


def set_variables(
    rec: Recorder, values: JsonObject, *, lock: bool, host: bool = False, call_id: str | None = None
) -> None:
    """Write variables and tell their names, never their values; a title is the one exception (02 §16.3)."""
    if not values:
        return
    s = rec.state
    rec.add("vars", set=values, lock=lock or None, host=host or None)
    rec.event("variables-set", state=s.position, names=list(values), locked=lock, callId=call_id)
    if "title" in values:
        rec.event("title-set", title=values["title"], state=s.position, callId=call_id)
