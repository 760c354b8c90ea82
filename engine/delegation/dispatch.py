"""Dispatch: the checks a delegation call passes before anything is composed, and what it becomes (04 §3, §10)."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.jsontext import MAX_DEPTH, JsonObject, too_deep
from core.paths import canonical
from engine.delegation.answers import (
    failure_text,
    record_failure,
    recover,
    result_event,
    start_event,
    success_text,
)
from engine.delegation.calls import ChildCall, new_child
from engine.delegation.mocks import mocked_child
from engine.errors import SubWorkflowError
from engine.governance.names import delegation_target
from engine.governance.references import Unresolved, substitute_typed
from engine.spec.model import Spec, Trigger
from engine.spec.paths import title_problem, variable_name_ok
from engine.spec.signatures import signature_value_issues
from engine.turn.calls import Call, Result, announce, mocked, settle
from engine.turn.context import MockResult, TurnContext
from engine.turn.inputs import MANUAL
from engine.turn.moves import trail_step
from engine.turn.value_files import file_issues

Caller = Literal["agent", "script", "code", "grader"]


@dataclass(frozen=True)
class Target:
    """What a call may reach: the target's spec and its `manual` trigger; both None when a mock stands in for it."""

    workflow: str
    spec: Spec | None
    trigger: Trigger | None


def _refuse(kind: str, workflow: str, problem: str) -> SubWorkflowError:
    return SubWorkflowError(kind, workflow, f"'archmax_workflow_{workflow}' was refused ({kind}): {problem}")


async def check_call(
    ctx: TurnContext, call: Call, *, substitute_references: bool
) -> tuple[Target, JsonObject, MockResult | None]:
    """Checks 1–8 in order. Raises: `SubWorkflowError` with a refusal kind."""
    workflow = delegation_target(call.name) or ""
    depth = int((ctx.state.origin or {}).get("depth", 0)) + 1
    limit = ctx.assembly.bounds.max_depth
    if depth > limit:
        raise _refuse("depth-exceeded", workflow, f"at most {limit} delegations below the root session")
    if workflow in ctx.chain:
        raise _refuse(
            "cycle", workflow, f"it is already running in this chain: {' → '.join((*ctx.chain, workflow))}"
        )
    arguments = call.args
    if substitute_references:
        resolved = substitute_typed(arguments, ctx.state.values)
        if isinstance(resolved, Unresolved):
            raise _refuse(
                "unresolved-param",
                workflow,
                f"${{{{{resolved.reference}}}}} cannot be filled in: {resolved.why}; $${{{{…}}}} stays literal",
            )
        if too_deep(resolved):
            raise _refuse("invalid-param", workflow, f"nested more than {MAX_DEPTH} levels deep")
        arguments = resolved
    call.rewritten = call.rewritten or arguments != call.args
    call.args = arguments
    mock = mocked(ctx, call)
    spec = ctx.assembly.library.usable(workflow)
    if spec is None:
        if mock is not None:
            return Target(workflow, None, None), arguments, mock
        raise _refuse("unknown-workflow", workflow, "no such workflow in this workspace, or it does not load")
    trigger = spec.trigger(MANUAL)
    if trigger is None:
        raise _refuse("not-delegatable", workflow, "it declares no trigger 'manual'")
    if spec.disabled:
        raise _refuse("disabled", workflow, "it is disabled")
    await _check_arguments(ctx, workflow, trigger, arguments)
    return Target(workflow, spec, trigger), arguments, mock


async def _check_arguments(ctx: TurnContext, workflow: str, trigger: Trigger, arguments: JsonObject) -> None:
    issues = signature_value_issues(trigger.requires, {**arguments, "trigger": MANUAL})
    missing = [issue.name for issue in issues if issue.kind == "missing"]
    if missing:
        raise _refuse(
            "missing-param", workflow, f"missing: {', '.join(missing)}; pass every required argument"
        )
    problems = [issue.message for issue in issues if issue.kind == "invalid"]
    for name, value in arguments.items():
        if name == "trigger":
            problems.append("'trigger' is set by the runtime")
        elif not variable_name_ok(name):
            problems.append(f"'{name}' is no variable name")
        elif name == "title" and (problem := title_problem(value)):
            problems.append(problem)
    problems += await file_issues(ctx, trigger.requires, arguments)
    if problems:
        raise _refuse("invalid-param", workflow, "; ".join(problems))


async def carried_files(
    ctx: TurnContext, trigger: Trigger | None, arguments: Mapping[str, Any]
) -> JsonObject:
    """The content of the files `file` arguments name under the session zone, by path (04 §12)."""
    carried: JsonObject = {}
    for entry in trigger.requires if trigger is not None else ():
        value = arguments.get(entry.name)
        if entry.type != "file" or not isinstance(value, str):
            continue
        path = canonical(value).text
        if ctx.assembly.mounts.mount_of(path) is not None:
            continue
        body = await ctx.workspace.files.read(path)
        if body is not None:
            carried[path] = {"data": base64.b64encode(body).decode("ascii")}
    return carried


def refuse_result(ctx: TurnContext, call: Call, error: SubWorkflowError) -> Result:
    """A refused dispatch is visible, takes no number and leaves no trace in the trail (04 §4.1)."""
    dispatch_id = f"refused-{uuid.uuid4().hex[:12]}"
    start_event(ctx, error.workflow, dispatch_id, call.id)
    result_event(ctx, error.workflow, dispatch_id, call.id, "error", reason=error.problem)
    return Result(error.problem, ok=False, blocked=True, rule_id=error.kind)


def answer_mock(
    ctx: TurnContext, call: Call, target: Target, arguments: JsonObject, mock: MockResult
) -> Result:
    """A mocked delegation: events and trail as for a real child, no session, no number (04 §10, 06 §8.1)."""
    workflow, child = target.workflow, mocked_child(mock.value)
    dispatch_id = f"mock-{uuid.uuid4().hex[:12]}"
    start_event(ctx, workflow, dispatch_id, call.id)
    trigger = target.trigger
    declared = [entry.name for entry in trigger.returns] if trigger is not None else list(child.returns)
    issues = signature_value_issues(trigger.returns if trigger is not None else (), child.returns)
    wrong = [issue.message for issue in issues if issue.kind == "invalid"]
    answer: JsonObject
    if child.error is not None:
        answer = {"kind": "rejected", "reason": child.error}
    elif wrong:
        answer = {"kind": "rejected", "invalidReturn": True, "reason": "; ".join(wrong)}
    else:
        answer = {"kind": "completed", "message": child.message, "returns": child.returns}
    where = ctx.state.position or ""
    entry = {
        "dispatchId": dispatch_id,
        "state": where,
        "workflow": workflow,
        "arguments": arguments,
        "step": ctx.state.model_steps,
    }
    if answer["kind"] == "completed":
        trail_step(ctx.rec, where, "sub-workflow", workflow=workflow, status="ok")
        if call.origin == "agent":
            recover(ctx, workflow, where, arguments, ctx.state.model_steps)
        given = [name for name in declared if name in answer["returns"]]
        result_event(ctx, workflow, dispatch_id, call.id, "ok", returns=given or None)
        return Result(success_text(answer["message"], declared, answer["returns"]))
    message = failure_text(workflow, answer)
    trail_step(ctx.rec, where, "sub-workflow", message, workflow=workflow, status="error")
    if call.origin == "agent":
        record_failure(ctx, entry, message)
    result_event(ctx, workflow, dispatch_id, call.id, "error", reason=message)
    return Result(message, ok=False)


async def dispatch(
    ctx: TurnContext, call: Call, *, caller: Caller, frame: str | None = None, seq: int | None = None
) -> Result | ChildCall:
    """Check a call that governance has allowed; a refusal, a mock's answer, or the child to run.

    Announces the call unless it is refused: a blocked call has no `tool-called`.
    """
    try:
        target, arguments, mock = await check_call(
            ctx, call, substitute_references=caller in ("agent", "grader")
        )
    except SubWorkflowError as error:
        return refuse_result(ctx, call, error)
    announce(ctx, call)
    if mock is not None:
        return answer_mock(ctx, call, target, arguments, mock)
    files = await carried_files(ctx, target.trigger, arguments)
    child = new_child(
        ctx,
        workflow=target.workflow,
        arguments=arguments,
        files=files,
        caller=caller,
        call_id=call.id,
        frame=frame,
        seq=seq,
    )
    start_event(ctx, target.workflow, child.dispatch_id, call.id)
    return child


async def dispatch_agent_call(ctx: TurnContext, call: Call) -> None:
    """A delegation call of the agent's message: answered now, or deferred to the message's one suspension."""
    outcome = await dispatch(ctx, call, caller="agent")
    if isinstance(outcome, ChildCall):
        ctx.deferred.append(outcome)
        return
    settle(ctx, call, outcome)
