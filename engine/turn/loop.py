"""The turn loop: a short list of named steps over a state that is a fold of its log.

What comes next is read off the state alone (`next_step`), so a turn goes on the same whoever holds it: the worker that
began it, one that took it over, or the driver that brings the children's answers. A step is a model call, the tool calls
of one message, or an automated state; each ends in one commit, and the last one rides in the turn's end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, Self

from core.jsontext import JsonObject
from engine.delegation.answers import answer_of, present_head, settle_child, settle_resumed
from engine.models.errors import ModelCallError
from engine.session.messages import tool_message
from engine.session.outcome import Outcome, outcome_of
from engine.session.state import SessionState
from engine.spec.model import Spec
from engine.turn.automated import automated_step, recorded_raise
from engine.turn.calls import Call, Result, settle
from engine.turn.context import TurnContext
from engine.turn.model_step import agent_step, handoff_step, malformed_too_often, spent_time
from engine.turn.moves import park_for_decision, route_failure, tell_parked
from engine.turn.opening import open_turn
from engine.turn.ports import NOT_THE_TURNS, Stop, TurnFenced, TurnReleased
from engine.turn.tool_step import run_batch
from sandbox import HostAnswer


class Step(StrEnum):
    """What a turn does next."""

    OPEN = "open"  #: apply the input
    TOOLS = "tools"  #: work the calls of the last assistant message
    HANDOFF = "handoff"  #: the one reply-only call of a park
    SUSPEND = "suspend"  #: nothing is owed any more: the park is this turn's outcome
    PRESENT = "present"  #: show a waiting child's park as the session's own
    DECISION = "decision"  #: the turn opened in a human state
    AUTOMATED = "automated"  #: run the code or grader state the session stands in
    MODEL = "model"  #: call the session's agent
    CHILDREN = "children"  #: wait for the children of a committed suspension
    SETTLE = "settle"  #: the turn has its outcome


#: the steps the recursion limit counts
COUNTED = frozenset({Step.TOOLS, Step.HANDOFF, Step.AUTOMATED, Step.MODEL})


@dataclass(frozen=True)
class Settled:
    """The turn is over."""

    outcome: Outcome


@dataclass(frozen=True)
class Suspended:
    """The turn goes on once these children have answered: `advance` again with `answers` in this order."""

    calls: tuple[JsonObject, ...]


class _Cut(Exception):
    """A step in flight was cut off."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop)
        self.stop = stop


def next_step(spec: Spec, s: SessionState, turn: int) -> Step:
    """What the turn does next. Pure: it reads the fold and nothing else."""
    if s.turn < turn:
        return Step.OPEN
    if s.suspended is not None:  # before the rest: a park handed down to its child still stands meanwhile
        return Step.CHILDREN
    if s.settled:
        return Step.SETTLE
    if s.unanswered and not s.reply_only:
        return Step.TOOLS
    if s.park_phase == "closing":
        return Step.HANDOFF
    if s.park_phase == "suspend":
        return Step.SUSPEND
    if s.pending_delegations and s.pending_decision is None and s.pending_input is None:
        return Step.PRESENT
    state = spec.states[s.position or ""]
    if state.automated:
        return Step.AUTOMATED
    if state.type == "human":
        return Step.DECISION
    return Step.MODEL


async def advance(
    ctx: TurnContext, body: JsonObject, *, answers: Sequence[JsonObject] | None = None
) -> Settled | Suspended:
    """Drive the turn to its outcome or to a suspension.

    `body` is the turn's input; `answers` are the children's, when this call resumes a suspension. Raises `TurnFenced`
    and `TurnReleased` (nothing may be told), `StoreUnavailable`, and `asyncio.CancelledError` after the turn has been
    ended `failed`, `turn-cancelled`.
    """
    try:
        if answers is not None:
            await _join(ctx, answers)
        async with _Watch(ctx) as watch:
            return await _drive(ctx, body, watch)
    except _Cut as cut:
        return await _stopped(ctx, cut.stop)
    except (TurnFenced, TurnReleased):
        raise
    except asyncio.CancelledError:
        await asyncio.shield(cancel(ctx))
        raise
    finally:
        await ctx.scripts.release()


async def cancel(ctx: TurnContext) -> None:
    """End a turn its host cancelled; nothing happens when it has come to its outcome already (03 §16)."""
    if ctx.state.turn < ctx.log.turn or ctx.state.suspended is not None or not ctx.state.settled:
        await _stopped(ctx, Stop.CANCELLED)


async def _drive(ctx: TurnContext, body: JsonObject, watch: _Watch) -> Settled | Suspended:
    s, rec, spec, turn = ctx.state, ctx.rec, ctx.assembly.spec, ctx.log.turn
    while True:
        if s.turn == turn and not s.settled and s.position not in spec.states:
            # the workflow was edited under a turn that another process began
            rec.add("fail", code="turn-error", reason=f"state '{s.position}' is gone from the workflow")
        step = next_step(spec, s, turn)
        if step is Step.SETTLE:
            return Settled(await _end(ctx))
        if step is Step.CHILDREN:
            assert s.suspended is not None
            return Suspended(tuple(s.suspended["calls"]))
        if step in COUNTED or step is Step.OPEN:
            _check_stop(ctx)
        if step in COUNTED:
            if s.steps >= ctx.recursion_limit:
                rec.add(
                    "fail",
                    code="recursion-limit",
                    reason=f"the turn reached its limit of {ctx.recursion_limit} steps",
                )
                continue
            rec.add("step")
        try:
            await watch.step(_perform(ctx, step, body))
        except (*NOT_THE_TURNS, _Cut):
            raise
        except ModelCallError as error:
            _fail(ctx, str(error), error)
        except Exception as error:
            _fail(ctx, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, error)
        if ctx.deferred:
            return await _suspend(ctx)
        if step in COUNTED and next_step(spec, s, turn) not in (Step.SETTLE, Step.SUSPEND):
            await rec.flush()


def _fail(ctx: TurnContext, reason: str, error: Exception) -> None:
    ctx.error = error
    ctx.deferred.clear()
    ctx.tell_partial()
    if ctx.state.turn < ctx.log.turn:  # the opening itself failed: the turn must still be this one's
        ctx.rec.add("resume", turn=ctx.log.turn, disposition="turn")
    ctx.rec.add("fail", code="turn-error", reason=reason)


def _check_stop(ctx: TurnContext) -> None:
    stop = ctx.log.stop()
    if stop is Stop.LOST:
        raise TurnFenced(ctx.log.session_id, ctx.log.turn, 0)
    if stop is Stop.DRAIN:
        raise TurnReleased(ctx.log.session_id)
    if stop is not None:
        raise _Cut(stop)


async def _perform(ctx: TurnContext, step: Step, body: JsonObject) -> None:
    match step:
        case Step.OPEN:
            await open_turn(ctx, body)
        case Step.TOOLS:
            await run_batch(ctx)
            await _after_tools(ctx)
        case Step.HANDOFF:
            await handoff_step(ctx)
        case Step.SUSPEND:
            ctx.rec.add("phase", phase="suspended", problem=ctx.state.problem)
        case Step.PRESENT:
            present_head(ctx)
        case Step.DECISION:
            park_for_decision(ctx.rec, ctx.current)
            tell_parked(ctx.rec)
        case Step.AUTOMATED:
            await automated_step(ctx)
        case Step.MODEL:
            await agent_step(ctx)
        case Step.CHILDREN | Step.SETTLE:
            raise AssertionError(step)


async def _after_tools(ctx: TurnContext) -> None:
    """Budgets are looked at once the tools have settled: one already running is left to finish (03 §13.2)."""
    s = ctx.state
    if ctx.deferred or s.status != "running" or s.park_phase is not None or s.pending_delegations:
        return
    state = ctx.assembly.spec.states[s.position or ""]
    if state.automated or state.type == "human" or await malformed_too_often(ctx):
        return
    remaining = ctx.remaining_ms(state)
    if remaining is not None and remaining <= 0:
        route_failure(ctx.rec, ctx.assembly.spec, spent_time(state))


class _Watch:
    """Cuts off the step in flight when the turn is cancelled, out of time, or no longer ours.

    One watcher for all steps, and each runs in the turn's own task, as `asyncio.timeout` would have it: a task per step
    costs more than most steps.
    """

    def __init__(self, ctx: TurnContext) -> None:
        self._ctx = ctx
        self._cut = self._in_step = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._stop = asyncio.ensure_future(self._ctx.log.interrupted())
        self._stop.add_done_callback(self._stopped)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._stop.remove_done_callback(self._stopped)
        self._stop.cancel()

    def _stopped(self, _: asyncio.Future[Stop]) -> None:
        if self._in_step:
            self._cut = True
            self._task.cancel()

    async def step(self, step: Coroutine[Any, Any, None]) -> None:
        if self._stop.done():
            step.close()
            self._raise_stop()
        others = self._task.cancelling()
        self._in_step = True
        try:
            await step
        except asyncio.CancelledError:
            if not self._cut or self._task.uncancel() > others:
                raise
            self._raise_stop()
        except BaseException:
            if self._cut:
                self._task.uncancel()
                self._raise_stop()
            raise
        else:
            if self._cut:  # it swallowed the cancellation, or was done before it arrived
                self._task.uncancel()
                self._raise_stop()
        finally:
            self._in_step = False

    def _raise_stop(self) -> NoReturn:
        stop = self._stop.result()
        if stop is Stop.LOST:
            raise TurnFenced(self._ctx.log.session_id, self._ctx.log.turn, 0)
        raise _Cut(stop)


async def _stopped(ctx: TurnContext, stop: Stop) -> Settled:
    ctx.deferred.clear()
    if ctx.state.turn < ctx.log.turn:  # it never began: the session stays as it was (ruling 22)
        problem = {"code": "turn-cancelled", "message": "cancelled before it began", "cancelled": True}
        ctx.rec.add("refuse", turn=ctx.log.turn, disposition="turn", problem=problem)
        return Settled(await _end(ctx))
    ctx.tell_partial()
    deadline = stop is Stop.DEADLINE
    code = "turn-deadline" if deadline else "turn-cancelled"
    reason = "the turn spent its active time" if deadline else "the turn was cancelled"
    if ctx.state.park_phase == "closing":  # only the message of a committed park is lost (03 OP-13)
        ctx.rec.add("phase", phase="suspended", problem={"code": code, "message": reason})
    elif not recorded_raise(ctx):
        ctx.rec.add("fail", code=code, reason=reason)
    return Settled(await _end(ctx))


async def _end(ctx: TurnContext) -> Outcome:
    s, assembly = ctx.state, ctx.assembly
    outcome = outcome_of(s)
    body = outcome.to_json()
    if s.origin is not None:
        ctx.answer = body["answer"] = await answer_of(
            assembly.spec, s, outcome, ctx.workspace.files, assembly.mounts
        )
    await ctx.rec.end(body)
    return outcome


async def _suspend(ctx: TurnContext) -> Suspended:
    calls = [call.to_json() for call in ctx.deferred]
    ctx.deferred.clear()
    # inputs live in the protocol's part of the record; the fold keeps what an answer is matched with
    ctx.rec.add(
        "suspend", calls=[{key: value for key, value in call.items() if key != "input"} for call in calls]
    )
    await ctx.rec.suspend(calls, ctx.assembly.bounds.max_concurrent)
    return Suspended(tuple(calls))


async def _join(ctx: TurnContext, answers: Sequence[JsonObject]) -> None:
    """Give every waiting call its answer, in call order (04 §4, §9)."""
    s = ctx.state
    if s.suspended is None:
        return
    calls = s.suspended["calls"]
    ctx.rec.add("joined")
    for call, answer in zip(calls, answers, strict=True):
        if call["caller"] == "park":
            await settle_resumed(ctx, call, answer)
            continue
        message, good = await settle_child(ctx, call, answer)
        if call["caller"] == "agent":
            name = f"archmax_workflow_{call['workflow']}"
            settle(ctx, Call(call["callId"], name, {}, ctx.current), Result(message, ok=good))
        else:
            _answer_frame(ctx, call, message, good)
            ctx.rec.add(
                "result",
                id=call["callId"],
                tool=f"archmax_workflow_{call['workflow']}",
                ok=good,
                text=message,
                origin=call["caller"],
            )


def _answer_frame(ctx: TurnContext, call: JsonObject, message: str, good: bool) -> None:
    frame = ctx.state.frames.get(call["frame"])
    if frame is None:
        return
    if frame.kind == "grader":
        ctx.rec.add(
            "frame-message",
            frame=frame.id,
            m=tool_message(call["callId"], f"archmax_workflow_{call['workflow']}", message, error=not good),
        )
        return
    answer = (
        HostAnswer.ok(message)
        if good
        else HostAnswer.failed("SubWorkflowError", message, {"workflow": call["workflow"]})
    )
    ctx.rec.add("frame-answer", frame=frame.id, seq=call["seq"], answer=answer.to_json())
