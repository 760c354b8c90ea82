"""Child calls: what a suspension names, and what a driver needs to run one child to its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.jsontext import JsonObject
from engine.turn.context import TurnContext
from engine.turn.recorder import now_ms
from engine.workspace.session_id import child_session_id

MAX_DEPTH = 3
MAX_CONCURRENT = 4


@dataclass(frozen=True)
class Bounds:
    """Dispatcher configuration (04 §7): delegations below the root, and children at once per session."""

    max_depth: int = MAX_DEPTH
    max_concurrent: int = MAX_CONCURRENT


@dataclass(frozen=True)
class ChildCall:
    """One child's turn. `n` numbers the child in its parent; `turn` is the child's own turn this call becomes.

    `caller` says who waits: `agent` (a tool message), `script`, `code`, `grader` (a frame's journal entry `seq`), or
    `park` (nobody: the answer becomes a note).
    """

    session: str
    n: int
    turn: int
    workflow: str
    input: JsonObject
    caller: str
    state: str
    dispatch_id: str
    arguments: JsonObject
    call_id: str | None = None
    frame: str | None = None
    seq: int | None = None
    step: int = 0

    def to_json(self) -> JsonObject:
        """The protocol reads `child`, `n`, `input` and `workflow`; the rest comes back with the answer."""
        body: JsonObject = {
            "child": self.session,
            "n": self.turn,
            "workflow": self.workflow,
            "kind": self.input["kind"],
            "input": self.input,
            "identity": self.n,
            "caller": self.caller,
            "state": self.state,
            "dispatchId": self.dispatch_id,
            "arguments": self.arguments,
            "step": self.step,
            "at": now_ms(),
        }
        for key, value in (("callId", self.call_id), ("frame", self.frame), ("seq", self.seq)):
            if value is not None:
                body[key] = value
        return body


def new_child(
    ctx: TurnContext,
    *,
    workflow: str,
    arguments: JsonObject,
    files: JsonObject,
    caller: str,
    call_id: str | None,
    frame: str | None = None,
    seq: int | None = None,
) -> ChildCall:
    """Allocate the next child number and describe the child's first turn (04 §5)."""
    s = ctx.state
    n = s.dispatch_count + 1
    ctx.rec.add("child", n=n)
    session = child_session_id(s.session_id, n)
    depth = int((s.origin or {}).get("depth", 0)) + 1
    body: JsonObject = {
        "kind": "child",
        "variables": arguments,
        "parent": s.session_id,
        "chain": list(ctx.chain),
        "dispatchId": session,
        "depth": depth,
    }
    if files:
        body["files"] = files
    return ChildCall(
        session=session,
        n=n,
        turn=1,
        workflow=workflow,
        input=body,
        caller=caller,
        state=s.position or "",
        dispatch_id=session,
        arguments=arguments,
        call_id=call_id,
        frame=frame,
        seq=seq,
        step=s.model_steps,
    )


def resume_call(ctx: TurnContext, body: Mapping[str, Any], disposition: str) -> ChildCall:
    """The decision or delivery a parked child is resumed with: it gets it, its caller does not (04 §9.2)."""
    s = ctx.state
    head = s.pending_delegations[0]
    given: JsonObject = {key: value for key, value in body.items() if key != "park"}
    given["kind"] = "decision" if disposition == "decide" else "delivery"
    if given["kind"] == "delivery":
        given.setdefault("trigger", "manual")
    given["from_parent"] = s.session_id
    session = child_session_id(s.session_id, head["identity"])
    return ChildCall(
        session=session,
        n=head["identity"],
        turn=int(head["turn"]) + 1,
        workflow=head["workflow"],
        input=given,
        caller="park",
        state=head["state"],
        dispatch_id=head["dispatchId"],
        arguments=head.get("arguments", {}),
        call_id=head.get("toolCallId"),
        step=int(head.get("step", 0)),
    )
