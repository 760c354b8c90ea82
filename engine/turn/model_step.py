"""The agent's model call, and what its answer leads to (03 §4.2, §10.5, §13).

Broken answers have rules: unreadable calls are answered and may be corrected three messages in a row; an answer with
nothing in it is asked for again twice; one cut off by its length is continued twice; a refusal is told as a warning.
None of them ends a turn silently.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, SystemMessage

from core.jsontext import JsonObject
from engine.models.scope import CallScope
from engine.session.messages import assistant_message, note_message, refusal_of
from engine.spec.model import State
from engine.spec.signatures import signature_value_issues
from engine.turn.calls import Call, Result, judge, settle
from engine.turn.context import TurnContext
from engine.turn.controls import spoke_since_told
from engine.turn.moves import complete, failure_reason, route_failure
from engine.turn.ports import TurnFenced, TurnReleased
from engine.turn.tool_step import MAX_MALFORMED, all_malformed
from engine.turn.value_files import file_issues

if TYPE_CHECKING:
    from engine.turn.hooks import Answered, Jump

#: times an empty answer is asked for again, and a cut one continued
MAX_UNFINISHED = 2
#: what providers call an answer that its length limit cut, and one that the model or a filter refused
_CUT = frozenset({"length", "max_tokens", "max_output_tokens"})
_REFUSED = frozenset(
    {
        *("refusal", "content_filter", "content_filtered", "guardrail_intervened"),
        *("safety", "recitation", "blocklist", "prohibited_content", "spii"),
    }
)


def stop_reason(answer: AIMessage) -> str:
    """Why the answer ends, as its provider says it, in lower case; `refusal` for one that carries a refusal."""
    if refusal_of(answer):
        return "refusal"
    metadata: dict[str, Any] = answer.response_metadata or {}
    named = (metadata.get(key) for key in ("finish_reason", "stop_reason", "stopReason"))
    incomplete = (metadata.get("incomplete_details") or {}).get("reason")
    return str(next(filter(None, (*named, incomplete)), "")).lower()


async def agent_step(ctx: TurnContext) -> None:
    """One call of the session's agent in its active state."""
    s, rec, spec, state = ctx.state, ctx.rec, ctx.assembly.spec, ctx.current
    if state.budget.max_turns is not None and s.state_turns >= state.budget.max_turns:
        route_failure(
            rec,
            spec,
            f"state '{state.slug}' spent its budget of {state.budget.max_turns} model calls (maxTurns)",
        )
        return
    remaining = ctx.remaining_ms(state)
    if remaining is not None and remaining <= 0:
        route_failure(rec, spec, spent_time(state))
        return
    bound = asyncio.timeout(None if remaining is None else remaining / 1000)
    try:
        async with bound:
            jump = None if ctx.hooks is None else await ctx.hooks.before_model()
            if jump is not None:
                await _jumped(ctx, jump)
                return
            answer = await ask_agent(ctx, state, reply_only=False)
            hooked = None if ctx.hooks is None else await ctx.hooks.after_model(answer)
    except TimeoutError:
        if not bound.expired():  # a hook's own
            raise
        ctx.streamed.clear()  # the unfinished message is dropped (03 §4.2)
        route_failure(rec, spec, spent_time(state))
        return
    if hooked is not None:
        answer = hooked.answer
        _show_whole(ctx, answer)
    message = record_answer(ctx, answer, counted=True)
    if hooked is not None and _said_more(ctx, hooked):
        await _jumped(ctx, hooked.jump or "model")
        return
    if message is None:
        return
    if message.get("calls"):
        _count_malformed(ctx, message)
        return
    await finish(ctx, stop_reason(answer))


def _said_more(ctx: TurnContext, hooked: Answered) -> bool:
    """Record what `after_model` hooks added to an answer. True when they also say where to go on."""
    assert ctx.hooks is not None
    for result in hooked.results.values():
        ctx.hooks.answer_call(result)
    if hooked.more:
        ctx.hooks.stop_calls()  # what follows is another message
    for message in hooked.more:
        ctx.rec.add("message", m=assistant_message(message, taken_ids=ctx.state.call_ids))
    return hooked.jump is not None or bool(hooked.more)


async def _jumped(ctx: TurnContext, jump: Jump) -> None:
    """Go where a hook points: on with the tools, to another model call, or to the end of the agent's work."""
    assert ctx.hooks is not None
    if jump == "tools":
        return
    ctx.hooks.stop_calls()
    if jump == "end":
        await finish(ctx)


def _show_whole(ctx: TurnContext, answer: AIMessage) -> None:
    """An answer that hooks may have changed is shown once they are done, in one piece."""
    if ctx.hooks is not None and ctx.hooks.edits_answers and answer.text:
        ctx.rec.live(
            {
                "type": "agent-text-delta",
                "state": ctx.state.position,
                "text": str(answer.text),
                "messageId": answer.id,
            }
        )


def spent_time(state: State) -> str:
    return f"state '{state.slug}' spent its budget of {state.budget.timeout_ms} ms (timeoutMs)"


async def ask_agent(ctx: TurnContext, state: State, *, reply_only: bool) -> AIMessage:
    """Assemble the request and make the call. Raises: `ModelCallError`."""
    s, assembly = ctx.state, ctx.assembly
    request = await assembly.agent_request(ctx, state, reply_only=reply_only)
    scope = CallScope("agent", workflow=assembly.spec.slug, state=state.slug, play=ctx.play)

    def told(piece: str, message_id: str) -> None:
        ctx.streamed.setdefault(message_id, []).append(piece)
        ctx.rec.live(
            {"type": "agent-text-delta", "state": s.position, "text": piece, "messageId": message_id}
        )

    ctx.streamed.clear()
    held_back = ctx.hooks is not None and ctx.hooks.edits_answers
    try:
        answer = await assembly.call(ctx, request, scope=scope, on_text_delta=None if held_back else told)
        ctx.streamed.clear()
        return answer
    except BaseException:
        if scope.taken:  # a script's answers are used up when the request arrives, read or not (09 §2)
            ctx.rec.add("usage", add={}, used=list(scope.taken))
        raise


def record_answer(ctx: TurnContext, answer: AIMessage, *, counted: bool) -> JsonObject | None:
    """Record the message, its text event and its usage. None when the answer was empty and is to be asked for again."""
    s, rec = ctx.state, ctx.rec
    message = assistant_message(answer, taken_ids=s.call_ids)
    used = (answer.response_metadata or {}).get("scripted", {}).get("used")
    reason = stop_reason(answer)
    if not message["text"].strip() and not message.get("calls"):
        if reason in _REFUSED:
            rec.event("warning", scope="model-output", message=f"the model refused to answer ({reason})")
        elif counted and not spoke_since_told(s) and s.unfinished < MAX_UNFINISHED:
            rec.event("warning", scope="model-output", message="the model answered with nothing; asked again")
            rec.add("count", unfinished=s.unfinished + 1, asked=True)
            rec.add("usage", used=used, **usage_change(ctx, answer))
            return None
        else:
            rec.event("warning", scope="model-output", message="the model answered with nothing")
    elif reason in _REFUSED:
        rec.event(
            "warning", scope="model-output", message=f"the model's answer was cut by its filter ({reason})"
        )
    rec.add("message", m=message, used=used, counted=counted or None)
    rec.add("usage", **usage_change(ctx, answer))
    return message


def usage_change(ctx: TurnContext, answer: AIMessage) -> JsonObject:
    """The change that adds a call's tokens and cost, with its event; empty when the provider reported none."""
    usage = ctx.assembly.usage_of(answer)
    if usage is None:
        return {"add": {}}
    fields = usage.fields(ctx.assembly.pricing)
    model = fields.pop("model", None)
    return {"add": fields, "model": model or ""}


def _count_malformed(ctx: TurnContext, message: JsonObject) -> None:
    s, rec = ctx.state, ctx.rec
    if not all_malformed(message):
        if s.malformed or s.unfinished:
            rec.add("count", malformed=0, unfinished=0)
        return
    rec.add("count", malformed=s.malformed + 1)


async def malformed_too_often(ctx: TurnContext) -> bool:
    """After a batch: whether the model never got its calls right, which fails the state."""
    s, state = ctx.state, ctx.current
    if s.malformed <= MAX_MALFORMED:
        return False
    route_failure(
        ctx.rec,
        ctx.assembly.spec,
        f"state '{state.slug}': the model wrote unreadable tool calls {s.malformed} times in a row",
    )
    return True


async def finish(ctx: TurnContext, reason: str = "") -> None:
    """The agent stopped: route what failed, check what was promised, complete (03 §4.2 steps 6–8)."""
    s, rec, spec = ctx.state, ctx.rec, ctx.assembly.spec
    if s.rejected is not None or s.failed_delegations:
        route_failure(rec, spec, failure_reason(s))
        return
    if reason in _REFUSED and not s.messages[-1]["text"].strip():
        route_failure(rec, spec, f"state '{s.position}': the model refused to answer ({reason})")
        return
    if reason in _CUT:
        if s.unfinished < MAX_UNFINISHED:
            rec.add("count", unfinished=s.unfinished + 1)
            rec.add(
                "message",
                m=note_message(
                    "error", "[error] Your answer was cut off by its length limit. Go on where it stopped."
                ),
            )
            return
        rec.event("warning", scope="model-output", message="the answer was cut off by its length limit")
    if ctx.hooks is not None and await ctx.hooks.after_agent() in ("model", "tools"):
        return
    problem = await returns_problem(ctx)
    if problem is not None:
        rec.add("rejected", reason=problem[1], invalidReturn=problem[0] == "invalid" or None)
        return
    complete(rec)


async def returns_problem(ctx: TurnContext) -> tuple[str, str] | None:
    """Why the session may not complete (03 §4.3): (`missing` or `invalid`, reason). A child owes no unset name."""
    s, spec = ctx.state, ctx.assembly.spec
    trigger = spec.trigger(s.turn_trigger or "")
    if trigger is None or not trigger.returns:
        return None
    issues = signature_value_issues(trigger.returns, s.values)
    invalid = [issue.message for issue in issues if issue.kind == "invalid"]
    held = [entry for entry in trigger.returns if entry.name in s.variables]
    invalid = invalid or await file_issues(ctx, held, s.values)
    missing = [issue.name for issue in issues if issue.kind == "missing"]
    if missing and ctx.top_level:
        names = ", ".join(f"'{name}'" for name in missing)
        return (
            "missing",
            f"state '{s.position}' finished without setting {names}, which trigger '{trigger.id}' returns",
        )
    if invalid:
        return (
            "invalid",
            f"state '{s.position}' finished with a wrong return of trigger '{trigger.id}': {'; '.join(invalid)}",
        )
    return None


async def handoff_step(ctx: TurnContext) -> None:
    """The one reply-only call of a park: text for the person, every tool call refused (03 §10.5)."""
    s, rec = ctx.state, ctx.rec
    state = ctx.current
    try:
        if ctx.hooks is not None and await ctx.hooks.before_model() is not None:
            rec.add("phase", phase="suspend")
            return
        answer = await ask_agent(ctx, state, reply_only=True)
        if ctx.hooks is not None:
            answer = (await ctx.hooks.after_model(answer)).answer
            _show_whole(ctx, answer)
    except (TurnFenced, TurnReleased):
        raise
    except Exception as error:  # the park stands whatever became of its message (03 OP-13)
        code = getattr(error, "code", "turn-error")
        ctx.tell_partial()
        rec.event(
            "warning", scope="handoff", message=f"the message of this park could not be written: {error}"
        )
        rec.add("phase", phase="suspend", problem={"code": code, "message": str(error)})
        return
    message = record_answer(ctx, answer, counted=False)
    assert message is not None
    for written in message.get("calls") or ():
        args = written.get("args")
        call = Call(
            written["id"],
            written["name"] or "unknown",
            args if isinstance(args, dict) else {},
            state,
            reply_only=True,
        )
        verdict = judge(ctx, call)
        settle(
            ctx, call, Result(verdict.reason or "refused", ok=False, blocked=True, rule_id=verdict.rule_id)
        )
    if s.disposition == "reply" and message["text"].strip():
        pending = s.pending_decision or {}
        rec.event(
            "park-message",
            state=pending.get("state", s.position),
            sessionId=s.session_id,
            direction="outbound",
            text=message["text"],
        )
    rec.add("phase", phase="suspend")


def system_message(static: str, volatile: str) -> SystemMessage:
    """Two content blocks: the static one first, so that a cache mark can stand between them."""
    return SystemMessage(content=[{"type": "text", "text": static}, {"type": "text", "text": volatile}])
