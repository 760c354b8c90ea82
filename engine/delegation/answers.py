"""What a child's turn says to its caller, and what the caller makes of it (04 §4, §6, §8, §9)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from core.jsontext import JsonObject, text
from core.jsvalues import deep_equal
from core.paths import canonical
from engine.governance.zones import MountPrefixes
from engine.session.messages import note_message
from engine.session.outcome import NO_MESSAGE, Outcome, last_text
from engine.session.state import SessionState
from engine.spec.model import Spec
from engine.turn.context import TurnContext
from engine.turn.moves import tell_parked, trail_step
from engine.turn.recorder import now_ms
from engine.workspace.session_files import SessionFiles

PARKED_ANSWER = (
    "The sub-workflow '{workflow}' stopped for {what} in its state '{state}'. This session waits for that now and goes on "
    "here afterwards; do not call it again."
)


def note_for(missing: list[str]) -> str:
    """The contract's fixed sentence (04 §6)."""
    names = ", ".join(f"'{name}'" for name in missing)
    verb = "was" if len(missing) == 1 else "were"
    return f"Not all return variables were set by the sub-workflow: {names} {verb} not set."


def success_text(message: str, declared: list[str], returns: Mapping[str, Any]) -> str:
    """The answer to the caller: the closing message, or it beside the declared returns."""
    message = message if message.strip() else NO_MESSAGE
    if not declared:
        return message
    given: JsonObject = {name: returns[name] for name in declared if name in returns}
    missing = [name for name in declared if name not in returns]
    if missing:
        given["note"] = note_for(missing)
    return text({"message": message, "returns": given})


# -- the child's side --------------------------------------------------------------------------------------------------


async def answer_of(
    spec: Spec, s: SessionState, outcome: Outcome, files: SessionFiles, mounts: MountPrefixes
) -> JsonObject:
    """What a settled child's turn leaves for its caller. Stored with the turn's end; the caller reads nothing else."""
    answer: JsonObject = {"kind": outcome.kind, "turn": outcome.turn, "state": outcome.state or s.position}
    if outcome.kind == "completed":
        trigger = spec.trigger(s.turn_trigger or "")
        declared = [entry.name for entry in trigger.returns] if trigger is not None else []
        returns = {name: s.variables[name].value for name in declared if name in s.variables}
        answer |= {"message": last_text(s), "declared": declared, "returns": returns}
        carried: JsonObject = {}
        for entry in trigger.returns if trigger is not None else ():
            value = returns.get(entry.name)
            if (
                entry.type == "file"
                and isinstance(value, str)
                and mounts.mount_of(canonical(value).text) is None
            ):
                body = await files.read(canonical(value).text)
                if body is not None:
                    carried[canonical(value).text] = base64.b64encode(body).decode("ascii")
        if carried:
            answer["files"] = carried
        return answer
    if outcome.kind == "parked":
        answer |= {"channel": outcome.parked_channel, "pending": outcome.pending}
        return answer
    problem = outcome.problem or {}
    reason = (
        outcome.rejected or (outcome.exit or {}).get("reason") or problem.get("message") or "it could not run"
    )
    answer["reason"] = reason
    if outcome.exit is not None:
        answer["code"] = outcome.exit.get("code")
        answer["raised"] = s.deliberate
    if s.raised is not None and outcome.kind == "failed":
        answer["state"] = s.raised.get("state") or answer["state"]
    if s.invalid_return:
        answer["invalidReturn"] = True
    return answer


def failure_kind(answer: Mapping[str, Any]) -> str:
    """The failure kinds of 04 §4.2 and OP-13."""
    if answer.get("invalidReturn"):
        return "invalid-return"
    if answer["kind"] in ("rejected", "refused"):
        return "rejected" if answer["kind"] == "rejected" else "error"
    if answer.get("raised"):  # whatever code it chose
        return "raised"
    match answer.get("code"):
        case "recursion-limit" | "turn-deadline" | "turn-cancelled":
            return "budget"
        case _:
            return "error"


def failure_text(workflow: str, answer: Mapping[str, Any]) -> str:
    kind = failure_kind(answer)
    where = f" in state '{answer['state']}'" if answer.get("state") else ""
    code = f" with code '{answer['code']}'" if kind == "raised" else ""
    return (
        f"Sub-workflow '{workflow}' failed ({kind}){where}{code}: {answer.get('reason', 'no reason given')}"
    )


# -- the caller's side -------------------------------------------------------------------------------------------------


def start_event(ctx: TurnContext, workflow: str, dispatch_id: str, call_id: str | None) -> None:
    depth = int((ctx.state.origin or {}).get("depth", 0)) + 1
    ctx.rec.event(
        "sub-workflow-start",
        state=ctx.state.position,
        workflow=workflow,
        dispatchId=dispatch_id,
        toolCallId=call_id,
        depth=depth,
        chain=list(ctx.chain) if depth > 1 else None,
    )


def result_event(
    ctx: TurnContext,
    workflow: str,
    dispatch_id: str,
    call_id: str | None,
    status: str,
    ms: int = 0,
    **more: Any,
) -> None:
    ctx.rec.event(
        "sub-workflow-result",
        state=ctx.state.position,
        workflow=workflow,
        dispatchId=dispatch_id,
        toolCallId=call_id,
        status=status,
        durationMs=ms,
        **more,
    )


def recover(ctx: TurnContext, workflow: str, state: str, arguments: Mapping[str, Any], step: int) -> None:
    """A success recovers at most one outstanding failure of the same workflow, state and an earlier step (04 §8)."""
    candidates = [
        held
        for held in ctx.state.failed_delegations
        if held["workflow"] == workflow and held["state"] == state and held["step"] < step
    ]
    if not candidates:
        return
    chosen = next(
        (held for held in candidates if deep_equal(held["arguments"], dict(arguments))), candidates[0]
    )
    ctx.rec.add("recovered", id=chosen["id"])


def record_failure(ctx: TurnContext, call: Mapping[str, Any], message: str) -> None:
    ctx.rec.add(
        "failed-call",
        entry={
            "id": call["dispatchId"],
            "state": call["state"],
            "workflow": call["workflow"],
            "arguments": call["arguments"],
            "message": message,
            "step": call["step"],
        },
    )


async def take_files(ctx: TurnContext, answer: Mapping[str, Any]) -> str | None:
    """Copy returned files into the caller's session; an equal file is fine, a different one refuses (04 §12)."""
    new: dict[str, bytes] = {}
    for path, encoded in (answer.get("files") or {}).items():
        body = base64.b64decode(encoded)
        held = await ctx.workspace.files.read(path)
        if held is not None and held != body:
            return f"the returned file '{path}' would replace another file of that name here"
        if held is None:
            new[path] = body
    for path, body in new.items():
        await ctx.workspace.files.write(path, body)
    return None


async def settle_child(
    ctx: TurnContext, call: Mapping[str, Any], answer: Mapping[str, Any]
) -> tuple[str, bool]:
    """The trail, events and accounting of one settled child. Returns the text for whoever waits and whether it is good."""
    workflow, dispatch_id, call_id = call["workflow"], call["dispatchId"], call.get("callId")
    if answer["kind"] == "parked" and call["caller"] in ("agent", "park"):
        return _settle_parked(ctx, call, answer)
    if answer["kind"] == "completed":
        conflict = await take_files(ctx, answer)
        if conflict is None:
            trail_step(ctx.rec, call["state"], "sub-workflow", workflow=workflow, status="ok")
            if call["caller"] in ("agent", "park"):
                # by the step the call was made in, also when it answers after a park: a sibling recovers nothing
                recover(ctx, workflow, call["state"], call["arguments"], call["step"])
            names = list(answer.get("returns", ())) or None
            result_event(ctx, workflow, dispatch_id, call_id, "ok", _lasted(call), returns=names)
            return success_text(
                answer.get("message", ""), answer.get("declared", []), answer.get("returns", {})
            ), True
        answer = {"kind": "rejected", "invalidReturn": True, "reason": conflict, "state": answer.get("state")}
    if answer["kind"] == "parked":
        message = f"Sub-workflow '{workflow}' failed (parked) in state '{answer.get('state')}': it waits for {_what(answer)}, and nothing can resume it here"
    else:
        message = failure_text(workflow, answer)
    trail_step(ctx.rec, call["state"], "sub-workflow", message, workflow=workflow, status="error")
    if call["caller"] in ("agent", "park"):
        record_failure(ctx, call, message)
    result_event(ctx, workflow, dispatch_id, call_id, "error", _lasted(call), reason=message)
    return message, False


def _lasted(call: Mapping[str, Any]) -> int:
    """Milliseconds since the child was asked to run, waiting for a free slot included."""
    return max(0, now_ms() - int(call.get("at", now_ms())))


def _what(answer: Mapping[str, Any]) -> str:
    return "a person's decision" if answer.get("channel") == "decision" else "an outside event"


def _settle_parked(ctx: TurnContext, call: Mapping[str, Any], answer: Mapping[str, Any]) -> tuple[str, bool]:
    entry: JsonObject = {
        "state": call["state"],
        "workflow": call["workflow"],
        "toolCallId": call.get("callId"),
        "identity": call["identity"],
        "dispatchId": call["dispatchId"],
        "arguments": call["arguments"],
        "decision": answer["pending"],
        "channel": answer["channel"],
        "turn": answer["turn"],
        "step": call["step"],
    }
    ctx.rec.add("repend" if call["caller"] == "park" else "pend", entry=entry)
    result_event(ctx, call["workflow"], call["dispatchId"], call.get("callId"), "parked", _lasted(call))
    return (
        PARKED_ANSWER.format(
            workflow=call["workflow"], what=_what(answer), state=(answer["pending"] or {}).get("state")
        ),
        True,
    )


async def settle_resumed(ctx: TurnContext, call: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """A parked child went on: its answer becomes a note, its failure one too; then the next is presented (04 §9.2)."""
    if answer["kind"] == "refused":
        # the child did not take it: the session stays parked as it was
        ctx.rec.add(
            "phase",
            phase="suspended",
            problem={"code": answer.get("code") or "refused", "message": answer["reason"]},
        )
        return
    message, good = await settle_child(ctx, call, answer)
    if answer["kind"] == "parked":
        ctx.rec.add("unpark")
        return
    ctx.rec.add("unpend", identity=call["identity"])
    ctx.rec.add("unpark")
    if good:
        ctx.rec.add(
            "message", m=note_message("sub-workflow", f"[sub-workflow: {call['workflow']}] {message}")
        )
    else:
        ctx.rec.add("message", m=note_message("error", f"[error] {message}"))


def present_head(ctx: TurnContext) -> None:
    """Present the first waiting child's park as this session's own (04 §9.1)."""
    s, rec = ctx.state, ctx.rec
    head = s.pending_delegations[0]
    record: JsonObject = dict(head["decision"])
    if head["channel"] == "decision":
        record["seq"] = s.decision_count + 1
    rec.add("park", channel=head["channel"], record=record, phase="closing")
    tell_parked(rec)
