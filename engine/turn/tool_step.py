"""The tools of one assistant message: judged in the order they were written, run together, moves last (03 §9.1, §14).

Tools that do not move the session run side by side and settle each on its own. Delegation calls then become one
suspension. Only when nothing is outstanding are moves serviced, in call order: the first that lands claims the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from core.jsontext import JsonObject
from engine.delegation.dispatch import dispatch_agent_call
from engine.governance.names import ADVANCE, EVAL, GET_VARIABLES, RAISE, RESET, RUN, SET_VARIABLES, WAIT
from engine.spec.model import State
from engine.turn.calls import (
    Call,
    Result,
    announce,
    block,
    judge,
    kind_of,
    mock_text,
    mocked,
    run_tool,
    settle,
    written_call,
)
from engine.turn.context import TurnContext
from engine.turn.controls import (
    MOVES,
    WAITING_CHILD,
    Answer,
    advanced_text,
    check_advance,
    get_variables,
    land_advance,
    raise_alone,
    refused_move,
    reset,
    wait,
    write_variables,
)
from engine.turn.moves import enter

#: messages in a row whose calls were all unreadable, before the state fails
MAX_MALFORMED = 3


async def run_batch(ctx: TurnContext) -> None:
    """Work the unanswered calls of the last assistant message. Leaves `ctx.deferred` when children must run first."""
    s = ctx.state
    state = ctx.current
    batch = s.batch
    assert batch is not None
    alone = len(batch.calls) == 1
    moves: list[Call] = []
    delegations: list[Call] = []
    jobs: list[Callable[[], Awaitable[None]]] = []
    for written in s.unanswered:
        position = f"{s.model_steps}.{batch.order[written['id']]}"
        call = written_call(ctx, written, state, origin="agent", position=position)
        if isinstance(call, Result):
            settle(ctx, Call(written["id"], written["name"] or "unknown", {}, state), call)
            continue
        verdict = judge(ctx, call)
        if verdict.decision == "block":
            settle(ctx, call, block(ctx, call, verdict))
            continue
        kind = kind_of(call.name)
        if kind == "delegation":
            delegations.append(call)
        elif call.name in MOVES:
            moves.append(call)
        elif kind == "control":
            await _service(ctx, state, call, alone=alone)
            if s.settled:
                return
        else:
            jobs.append(_job(ctx, call))
    await _together(jobs)
    for call in delegations:
        await dispatch_agent_call(ctx, call)
    if not ctx.deferred:
        await _service_moves(ctx, state, moves)


def all_malformed(message: JsonObject) -> bool:
    """Whether every call of a message was unreadable."""
    calls = message.get("calls") or ()
    return bool(calls) and all("raw" in call for call in calls)


def _job(ctx: TurnContext, call: Call) -> Callable[[], Awaitable[None]]:
    if call.name in (EVAL, RUN):
        return lambda: _script(ctx, call)
    return lambda: _tool(ctx, call)


async def _together(jobs: list[Callable[[], Awaitable[None]]]) -> None:
    if len(jobs) == 1:
        await jobs[0]()
        return
    if not jobs:
        return
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(_as_coroutine(job))
    except BaseExceptionGroup as errors:
        # the first is the cause; the others were cut off by it
        raise errors.exceptions[0] from errors


async def _as_coroutine(job: Callable[[], Awaitable[None]]) -> None:
    await job()


async def _tool(ctx: TurnContext, call: Call) -> None:
    tool = ctx.assembly.tools[call.name]
    announce(ctx, call)
    result = await run_tool(ctx, tool, call)
    settle(ctx, call, await ctx.assembly.offload(ctx, tool, call.id, result))
    if ctx.reaches_outside(tool, call.args):
        await ctx.rec.flush()


async def _script(ctx: TurnContext, call: Call) -> None:
    if call.id not in ctx.state.frames:
        announce(ctx, call)
        mock = mocked(ctx, call)
        if mock is not None:  # a default tool, no control: a case may stand in for it (06 §8)
            settle(ctx, call, Result(mock_text(mock.value)))
            return
    result = await ctx.scripts.run_agent_script(ctx, call)
    if result is not None:  # None: it waits for children
        settle(ctx, call, result)


async def _service(ctx: TurnContext, state: State, call: Call, *, alone: bool) -> None:
    announce(ctx, call)
    if call.name == GET_VARIABLES:
        answer = get_variables(ctx.state, call.args)
    elif call.name == SET_VARIABLES:
        answer = await write_variables(ctx, state, call.args, call.id)
    elif call.name == RAISE:
        answer = raise_alone(ctx, call.args, alone=alone, call_id=call.id)
    else:
        answer = Answer(f"Error: '{call.name}' is not available here.", ok=False)
    settle(ctx, call, Result(answer.text, ok=answer.ok, refused=answer.refused))


async def _service_moves(ctx: TurnContext, state: State, moves: list[Call]) -> None:
    landed_in: str | None = None
    finish: Callable[[], Any] | None = None
    for call in moves:
        announce(ctx, call)
        if ctx.state.pending_delegations:  # the position stays the calling state (04 §9.1)
            answer = refused_move(call.name, WAITING_CHILD)
        elif call.name == ADVANCE:
            checked = await check_advance(ctx, state, call.args, landed_in=landed_in)
            if isinstance(checked, Answer):
                answer = checked
            else:
                land_advance(ctx, checked, kind="agent", call_id=call.id)
                answer = Answer(advanced_text(checked), landed=True)
                landed_in = checked.to
                finish = _enter(ctx, checked.to, checked.evidence)
        elif call.name == RESET:
            answer = reset(ctx, call.args, landed_in, call.id)
            if answer.landed and ctx.next_position is not None:
                landed_in = ctx.next_position
                finish = _enter(ctx, ctx.next_position, ())
                ctx.next_position = None
        else:
            assert call.name == WAIT
            answer = wait(ctx, state, call.args, landed_in, call.id)
            if answer.landed:
                landed_in = state.slug
                finish, ctx.after_answer = ctx.after_answer, None
        settle(ctx, call, Result(answer.text, ok=answer.ok, refused=answer.refused))
    if finish is not None:
        finish()


def _enter(ctx: TurnContext, to: str, evidence: tuple[str, ...]) -> Callable[[], None]:
    return lambda: enter(ctx.rec, ctx.assembly.spec, to, evidence)
