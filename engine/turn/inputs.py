"""What comes into a session, and whether it may now (03 §2).

An input is a JSON object, stored as it was accepted:

    {"kind": "message", "message"?, "trigger"?, "variables"?, "history"?, "raw"?, "labels"?}
    {"kind": "decision", "to", "comment"?}
    {"kind": "reply", "message"}
    {"kind": "delivery", "trigger", "variables"?, "message"?, "park"?}     park: the wait this delivery is for (timers)
    {"kind": "child", "variables", "parent", "chain", "dispatchId", "files"?}

`check_input` is asked twice: when the input is accepted, and again when its turn comes, because other turns may lie
between. It reads only the folded state and the spec; no model, no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.jsontext import JsonObject
from engine.errors import (
    ChildSessionError,
    EmptyMessageError,
    InvalidDecisionTargetError,
    InvalidTitleError,
    InvalidVariableNameError,
    MissingDeliveryTriggerError,
    ParkedStateRemovedError,
    SessionNotAwaitingInputError,
    SessionNotParkedError,
    UnknownSessionTriggerError,
    UnknownTriggerError,
    WorkflowDisabledError,
)
from engine.session.state import Disposition, SessionState
from engine.spec.model import Spec
from engine.spec.paths import title_problem, variable_name_ok

MANUAL = "manual"


def check_seeds(variables: Mapping[str, Any]) -> None:
    """Raises: `InvalidVariableNameError`, `InvalidTitleError`."""
    for name, value in variables.items():
        if not variable_name_ok(name):
            raise InvalidVariableNameError(name)
        if name == "title" and (problem := title_problem(value)):
            raise InvalidTitleError(problem)


def begun(state: SessionState | None) -> bool:
    return state is not None and state.turn > 0


def disposition_of(state: SessionState | None, body: Mapping[str, Any]) -> Disposition:
    """What an input becomes, by the session's own record (03 §2.2); never by its words."""
    kind = body["kind"]
    if kind == "decision":
        return "decide"
    if kind == "reply":
        return "reply"
    if kind == "delivery":
        return "deliver"
    if kind == "child" or body.get("raw") or state is None:
        return "turn"
    if state.status == "awaiting_decision":
        return "reply"
    if state.status == "awaiting_input":
        return "deliver"
    return "turn"


def check_input(
    spec: Spec,
    state: SessionState | None,
    body: Mapping[str, Any],
    *,
    session_id: str,
    default_trigger: str = MANUAL,
) -> Disposition:
    """The disposition of an input the session can take now; otherwise one of the contract's typed errors."""
    disposition = disposition_of(state, body)
    if disposition == "turn":
        _check_turn(spec, state, body, session_id, default_trigger)
        return disposition
    if state is None:
        raise (
            SessionNotAwaitingInputError(session_id, "none")
            if disposition == "deliver"
            else SessionNotParkedError(session_id, "none")
        )
    if body.get("from_parent") is None and _waited_on(state):
        raise ChildSessionError(session_id, str((state.origin or {}).get("parent")))
    if disposition in ("decide", "reply"):
        _check_decision(spec, state, body, session_id, disposition)
    else:
        _check_delivery(spec, state, body, session_id)
    return disposition


def _waited_on(state: SessionState) -> bool:
    """A parked child belongs to the caller that waits on it; one nobody waits on any more does too (04 OP-10)."""
    return state.origin is not None and state.status in ("awaiting_decision", "awaiting_input")


def _check_turn(
    spec: Spec, state: SessionState | None, body: Mapping[str, Any], session_id: str, default_trigger: str
) -> None:
    trigger = body.get("trigger") or default_trigger
    declared = spec.trigger(trigger) is not None
    if not begun(state) and not declared:
        raise UnknownSessionTriggerError(trigger)
    if spec.disabled:
        raise WorkflowDisabledError(spec.slug)
    message = body.get("message")
    if message is not None and not str(message).strip():
        raise EmptyMessageError(session_id)
    if not declared:
        raise UnknownTriggerError(trigger, spec.trigger_ids)
    check_seeds(body.get("variables") or {})


def _parked_state_known(spec: Spec, state: SessionState, session_id: str) -> None:
    pending = state.pending_decision or state.pending_input or {}
    parked = state.position if state.pending_delegations else pending.get("state", state.position)
    if parked not in spec.states:
        raise ParkedStateRemovedError(session_id, str(parked))


def _check_decision(
    spec: Spec, state: SessionState, body: Mapping[str, Any], session_id: str, disposition: Disposition
) -> None:
    record = state.pending_decision
    if state.status != "awaiting_decision" or record is None:
        raise SessionNotParkedError(session_id, state.status or "running")
    _parked_state_known(spec, state, session_id)
    if disposition == "reply":
        if not str(body.get("message") or "").strip():
            raise EmptyMessageError(session_id)
        return
    target = str(body.get("to", ""))
    valid = [edge["to"] for edge in record["transitions"] if edge["to"] != record["state"]]
    if not state.pending_delegations:
        current = spec.states[record["state"]]
        valid = [to for to in valid if current.edge(to) is not None and to in spec.states]
    if target not in valid:
        raise InvalidDecisionTargetError(session_id, target, valid)


def _check_delivery(spec: Spec, state: SessionState, body: Mapping[str, Any], session_id: str) -> None:
    if state.status != "awaiting_input" or state.pending_input is None:
        raise SessionNotAwaitingInputError(session_id, state.status or "running")
    _parked_state_known(spec, state, session_id)
    trigger = body.get("trigger") if body["kind"] == "delivery" else body.get("trigger") or MANUAL
    if not isinstance(trigger, str) or not trigger.strip():
        raise MissingDeliveryTriggerError(session_id)
    for name in body.get("variables") or {}:
        if not variable_name_ok(name):
            raise InvalidVariableNameError(name)
    park = body.get("park")
    if park is not None and park != state.pending_input.get("parkedAt"):
        raise SessionNotAwaitingInputError(session_id, "void: the wait this delivery was for is over")


def seeded(variables: Mapping[str, Any]) -> JsonObject:
    """Seeds as they are stored: a title trimmed."""
    return {
        name: value.strip() if name == "title" and isinstance(value, str) else value
        for name, value in variables.items()
    }
