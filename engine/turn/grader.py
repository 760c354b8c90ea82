"""A grader's run: an isolated loop that judges work from records and decides (03 §11.6).

Its transcript is its own and lives in its frame, so a run cut off goes on with the answers it had. None of its words
enter the session's transcript or stream.
"""

from __future__ import annotations

import asyncio

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from core.jsontext import JsonObject
from engine.delegation.calls import ChildCall
from engine.delegation.dispatch import dispatch
from engine.governance.names import GET_HISTORY
from engine.models.factory import requested_id
from engine.models.scope import CallScope
from engine.session.frames import Frame
from engine.session.messages import assistant_message, tool_message
from engine.spec.model import State
from engine.turn.automated import Ran
from engine.turn.calls import Result, announce, judge, kind_of, run_tool, settle, written_call
from engine.turn.clock import clock_line
from engine.turn.context import TurnContext
from engine.turn.model_step import usage_change
from engine.turn.ports import NOT_THE_TURNS
from engine.turn.prompt import grader_prompt, grader_task
from engine.turn.rendering import with_images
from engine.turn.scripts import service_automated, session_history


async def run_grader(ctx: TurnContext, state: State, frame_id: str) -> Ran:
    """Drive the grader to its end. A failure is the state's, not the turn's."""
    if not (state.instructions or "").strip():
        return Ran(error=f"grader state '{state.slug}' has no criteria (instructions)")
    frame = ctx.state.frames[frame_id]
    remaining = ctx.remaining_ms(state)
    bound = asyncio.timeout(None if remaining is None else max(remaining, 0) / 1000)
    try:
        async with bound:
            return await _loop(ctx, state, frame)
    except NOT_THE_TURNS:
        raise
    except Exception as error:
        if isinstance(error, TimeoutError) and bound.expired():
            why = f"spent its budget of {state.budget.timeout_ms} ms (timeoutMs)"
            return Ran(error=f"grader state '{state.slug}' {why}")
        return Ran(error=f"grader state '{state.slug}': {str(error) or type(error).__name__}")


async def _loop(ctx: TurnContext, state: State, frame: Frame) -> Ran:
    history: str | None = None
    while True:
        pending = _unanswered(frame)
        if pending:
            if history is None and any(call["name"] == GET_HISTORY for call in pending):
                history = session_history(ctx, frame)
            await _work(ctx, state, frame, pending, history)
            if any(child.frame == frame.id for child in ctx.deferred):
                return Ran(waiting=True)
            continue
        asked = sum(1 for message in frame.messages if message["role"] == "assistant")
        if (
            frame.messages
            and not frame.messages[-1].get("calls")
            and frame.messages[-1]["role"] == "assistant"
        ):
            return Ran()
        if state.budget.max_turns is not None and asked >= state.budget.max_turns:
            return Ran(
                error=f"grader state '{state.slug}' spent its budget of {state.budget.max_turns} model calls (maxTurns)"
            )
        if asked >= ctx.recursion_limit:
            return Ran(
                error=f"grader state '{state.slug}' reached its limit of {ctx.recursion_limit} model calls"
            )
        await _ask(ctx, state, frame)


def _unanswered(frame: Frame) -> list[JsonObject]:
    answered: set[str] = set()
    for message in reversed(frame.messages):
        if message["role"] == "tool":
            answered.add(message["id"])
        elif message["role"] == "assistant":
            return [call for call in message.get("calls") or () if call["id"] not in answered]
    return []


async def _ask(ctx: TurnContext, state: State, frame: Frame) -> None:
    assembly = ctx.assembly
    options = assembly.wiring.options
    messages: list[BaseMessage] = [
        SystemMessage(
            content=[
                {"type": "text", "text": grader_prompt(state)},
                {"type": "text", "text": clock_line(ctx.clock(), options.zone, options.zone_name)},
            ]
        ),
        HumanMessage(grader_task(assembly.spec, state)),
    ]
    messages.extend(await with_images(ctx, frame.messages))
    request = assembly.request(
        "grader", requested_id(assembly.spec, state.slug), messages, list(assembly.offered(state.slug))
    )
    scope = CallScope("grader", workflow=assembly.spec.slug, state=state.slug, play=ctx.play)
    try:
        answer = await assembly.call(ctx, request, scope=scope, on_text_delta=None)
    except BaseException:
        if scope.taken:
            ctx.rec.add("usage", add={}, used=list(scope.taken))
        raise
    taken = {call["id"] for message in frame.messages for call in message.get("calls") or ()}
    used = (answer.response_metadata or {}).get("scripted", {}).get("used")
    ctx.rec.add("frame-message", frame=frame.id, m=assistant_message(answer, taken_ids=taken), used=used)
    ctx.rec.add("usage", **usage_change(ctx, answer))


async def _work(
    ctx: TurnContext, state: State, frame: Frame, pending: list[JsonObject], history: str | None
) -> None:
    """Work one message's calls in order; a grader's calls are few, and the first decision counts."""
    for written in pending:
        position = f"{frame.id}/{len(frame.messages)}"
        call = written_call(ctx, written, state, origin="grader", position=position)
        if isinstance(call, Result):
            _answer(ctx, frame, written["id"], written["name"], call)
            continue
        verdict = judge(ctx, call)
        if verdict.decision == "block":
            blocked = Result(verdict.reason, ok=False, blocked=True, rule_id=verdict.rule_id)
            settle(ctx, call, blocked)
            _answer(ctx, frame, written["id"], call.name, blocked)
            continue
        kind = kind_of(call.name)
        if kind == "delegation":
            outcome = await dispatch(ctx, call, caller="grader", frame=frame.id, seq=0)
            if isinstance(outcome, ChildCall):
                ctx.deferred.append(outcome)
            else:
                settle(ctx, call, outcome)
                _answer(ctx, frame, written["id"], call.name, outcome)
            continue
        announce(ctx, call)
        if call.name == GET_HISTORY:
            result = Result(history or session_history(ctx, frame))
        elif kind == "control":
            result = await service_automated(ctx, frame, state, call)
        else:
            tool = ctx.assembly.tools[call.name]
            result = await run_tool(ctx, tool, call)
            if ctx.reaches_outside(tool, call.args):
                settle(ctx, call, result)
                _answer(ctx, frame, written["id"], call.name, result)
                await ctx.rec.flush()
                continue
        settle(ctx, call, result)
        _answer(ctx, frame, written["id"], call.name, result)


def _answer(ctx: TurnContext, frame: Frame, call_id: str, name: str, result: Result) -> None:
    ctx.rec.add(
        "frame-message",
        frame=frame.id,
        m=tool_message(call_id, name, result.text, error=not result.ok, blocked=result.blocked),
    )
