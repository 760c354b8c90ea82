"""Outcomes: what one turn came to (03 §4, 05 §12), read off the settled state."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from core.jsontext import JsonObject, detached
from engine.session.messages import to_langchain
from engine.session.state import SessionState

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

Kind: TypeAlias = Literal["completed", "parked", "failed", "rejected", "refused", "cancelled"]
NO_MESSAGE = "The sub-workflow completed without a message."


@dataclass(frozen=True)
class Outcome:
    """One settled turn. `refused` (with `problem`) is a turn whose input the session could not take.

    It shares nothing with the session's state, which lives on: whoever gets it may change it.
    """

    kind: Kind
    disposition: str
    status: str | None
    session_id: str
    turn: int
    state: str | None
    reply: str
    parked_channel: str | None = None
    pending: JsonObject | None = None
    delegation: JsonObject | None = None
    rejected: str | None = None
    exit: JsonObject | None = None
    #: the failure is somebody's `archmax_raise`, whatever code it chose
    raised: bool = False
    problem: JsonObject | None = None
    audit_trail: list[JsonObject] = field(default_factory=list)
    variables: dict[str, JsonObject] = field(default_factory=dict)
    usage: JsonObject | None = None
    #: the session's messages as they were; `transcript` is what anybody else reads
    _folded: list[JsonObject] = field(default_factory=list, repr=False)

    @cached_property
    def transcript(self) -> list[JsonObject]:
        """The whole transcript in its own form. Copied when asked for: a long session's is long."""
        return [detached(message) for message in self._folded]

    @cached_property
    def messages(self) -> list[BaseMessage]:
        """The whole transcript as LangChain messages, runtime notes as their pair."""
        return [rendered for message in self.transcript for rendered in to_langchain(message)]

    @property
    def success(self) -> bool:
        return self.kind == "completed"

    @property
    def reparked(self) -> bool:
        return self.kind == "parked"

    @property
    def workflow_state(self) -> str | None:
        return self.state

    def to_json(self) -> JsonObject:
        """The record stored with the turn's end and shown over HTTP: without transcript, trail and variables."""
        body: JsonObject = {
            "kind": self.kind,
            "disposition": self.disposition,
            "status": self.status,
            "state": self.state,
            "reply": self.reply,
        }
        for key, value in (
            ("parkedChannel", self.parked_channel),
            ("pending", self.pending),
            ("delegation", self.delegation),
            ("rejected", self.rejected),
            ("exit", self.exit),
            ("problem", self.problem),
            ("usage", self.usage),
        ):
            if value is not None:
                body[key] = value
        return body


def reply_of(state: SessionState) -> str:
    """Everything the agent said in this turn, joined by blank lines (03 OP-11)."""
    texts = [
        message["text"]
        for message in state.messages[state.reply_from :]
        if message["role"] == "assistant" and not message.get("seeded") and message["text"].strip()
    ]
    return "\n\n".join(texts)


def last_text(state: SessionState) -> str:
    for message in reversed(state.messages):
        if message["role"] == "assistant" and message["text"].strip():
            return str(message["text"])
    return ""


def delegation_of(state: SessionState) -> JsonObject | None:
    """The child whose park this session presents (04 §9.2)."""
    if not state.pending_delegations:
        return None
    head = state.pending_delegations[0]
    return {
        "workflow": head["workflow"],
        "sessionId": f"{state.session_id}~{head['identity']}",
        "identity": head["identity"],
        "dispatchId": head["dispatchId"],
        "toolCallId": head["toolCallId"],
        "state": head["state"],
    }


def outcome_of(state: SessionState) -> Outcome:
    """The outcome of the state's current turn. Raises `ValueError` while the turn is not settled."""
    if not state.settled:
        raise ValueError(f"turn {state.turn} of session {state.session_id!r} is not settled")
    common: dict[str, Any] = {
        "disposition": state.disposition or "turn",
        "status": state.status,
        "session_id": state.session_id,
        "turn": state.turn,
        "reply": reply_of(state),
        "audit_trail": [detached(step) for step in state.trail],
        "variables": {name: detached(variable.to_json()) for name, variable in state.variables.items()},
        "usage": detached(state.usage) or None,
        "_folded": list(state.messages),
    }
    if state.refused is not None:
        kind: Kind = "rejected" if state.refused.get("rejected") else "refused"
        if state.refused.get("cancelled"):
            kind = "cancelled"
        return Outcome(
            kind=kind,
            state=state.position,
            rejected=state.refused.get("rejected"),
            problem=detached(state.refused),
            **common,
        )
    if state.park_phase == "suspended":
        channel = "decision" if state.pending_decision is not None else "input"
        pending = state.pending_decision or state.pending_input or {}
        return Outcome(
            kind="parked",
            state=pending.get("state", state.position),
            parked_channel=channel,
            pending=detached(pending),
            delegation=delegation_of(state),
            problem=detached(state.problem),
            **common,
        )
    if state.status == "completed":
        return Outcome(kind="completed", state=state.position, exit={"success": True}, **common)
    if state.status == "failed":
        return Outcome(
            kind="failed", state=state.position, exit=detached(state.exit), raised=state.deliberate, **common
        )
    return Outcome(kind="rejected", state=state.position, rejected=state.rejected, **common)


def summary_of(state: SessionState, *, parent_session_id: str | None = None) -> JsonObject:
    """The contract's SessionSummary (05 §7.1)."""
    status = state.status or "running"
    body: JsonObject = {
        "sessionId": state.session_id,
        "status": status,
        "classification": "finished" if state.finished else "open",
    }
    if state.position is not None:
        body["workflowState"] = state.position
    if state.spec_hash:
        body["specHash"] = state.spec_hash
    pending = state.pending_decision if status == "awaiting_decision" else state.pending_input
    if status in ("awaiting_decision", "awaiting_input") and pending is not None:
        body["state"] = pending.get("state", state.position)
    if status == "awaiting_input" and state.pending_input is not None:
        body["waitReason"] = state.pending_input.get("reason")
        if state.pending_input.get("resumeAt"):
            body["resumeAt"] = state.pending_input["resumeAt"]
    if status == "failed" and state.exit:
        body["exit"] = state.exit
    if state.variables:
        body["variables"] = {name: variable.to_json() for name, variable in state.variables.items()}
    if state.usage:
        body["usage"] = dict(state.usage)
    parent = parent_session_id or (state.origin or {}).get("parent")
    if parent:
        body["parentSessionId"] = parent
    return body
