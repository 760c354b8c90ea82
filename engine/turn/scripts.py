"""Scripts of a session: `archmax_eval`, `archmax_run` and code states, in the sandbox (03 §11.5, §19).

Every `tools.*` call of a script goes through the kernel like a model's, is journalled, and is answered once whatever is
replayed. Delegation calls are deferred: when nothing else can run, the frame is dropped until the children have answered.
The agent's REPL lives for the turn; a code state's serves its one evaluation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core.jsontext import JsonObject, text
from engine.delegation.calls import ChildCall
from engine.governance.names import (
    ADVANCE,
    EVAL,
    GET_HISTORY,
    GET_VARIABLES,
    RAISE,
    SET_VARIABLES,
    delegation_target,
)
from engine.governance.surface import offered_tools, script_tools
from engine.session.frames import Frame
from engine.session.messages import history_entry
from engine.spec.model import State
from engine.turn.calls import Call, Result, announce, judge, kind_of, run_tool, settle
from engine.turn.controls import (
    Answer,
    advanced_text,
    check_advance,
    get_variables,
    raise_arguments,
    write_variables,
)
from engine.turn.tools import Origin
from sandbox import (
    DEFAULT_MAX_CALLS,
    DEFAULT_MAX_RESULT_CHARS,
    DEFAULT_MEMORY_LIMIT_BYTES,
    DEFERRED,
    CallRecord,
    Deferred,
    Evaluation,
    HostAnswer,
    HostCall,
    HostRepl,
    HostSandbox,
    Journal,
    Repl,
    Sandbox,
    Status,
)
from sandbox import Result as Evaluated

if TYPE_CHECKING:
    from engine.turn.automated import Ran
    from engine.turn.context import TurnContext

GOVERNANCE_ERROR = "PtcGovernanceError"


class SessionScripts:
    """One turn's scripts. `release` frees its REPLs; what they held is rebuilt from the journals if it is needed again."""

    def __init__(self, sandbox: Sandbox | HostSandbox) -> None:
        self._sandbox = sandbox
        self._repl: Repl | HostRepl | None = None
        self._lock = asyncio.Lock()

    async def release(self) -> None:
        if self._repl is not None:
            await self._repl.close()
            self._repl = None

    # -- the agent's scripts ---------------------------------------------------------------------------------------

    async def run_agent_script(self, ctx: TurnContext, call: Call) -> Result | None:
        """An `archmax_eval` or `archmax_run` call. None: it waits for children."""
        s, rec = ctx.state, ctx.rec
        frame = s.frames.get(call.id)
        if frame is None:
            prepared = await self._prepare(ctx, call)
            if isinstance(prepared, Result):
                return prepared
            source, args = prepared
            journal = Journal.begin().to_json()
            del journal["calls"]
            rec.add(
                "frame",
                id=call.id,
                kind="script",
                state=s.position,
                source=source,
                args=args,
                journal=journal,
            )
            frame = s.frames[call.id]
        async with self._lock:  # evaluations share the REPL: one after another, in the order of their calls
            repl = await self._agent_repl(ctx, frame)
            evaluated = await repl.evaluate(
                _request(ctx, frame, call.state, origin="script", filename=_filename(call))
            )
        _keep(ctx, frame, evaluated)
        if evaluated.status is Status.SUSPENDED:
            return None
        rec.add("frame-end", id=frame.id, lost=evaluated.lost_state or None)
        return Result(evaluated.formatted, ok=True)

    async def _prepare(self, ctx: TurnContext, call: Call) -> Result | tuple[str, Any]:
        if call.name == EVAL:
            code = call.args.get("code")
            if not isinstance(code, str):
                return Result("Error: archmax_eval needs `code`, a string", ok=False)
            return code, None
        path, given = call.args.get("file_path", call.args.get("path")), call.args.get("args")
        if not isinstance(path, str):
            return Result("Error: archmax_run needs `file_path`, a string", ok=False)
        if given is not None and not isinstance(given, dict):
            return Result("Error: `args` of archmax_run is an object", ok=False)
        answer = await ctx.workspace.read(path)
        if "error" in answer:
            return Result(f"Error: {answer['error']}", ok=False)
        return answer.get("content", ""), {**(given or {}), "variables": ctx.state.values}

    async def _agent_repl(self, ctx: TurnContext, frame: Frame) -> Repl | HostRepl:
        if self._repl is None:
            self._repl = await self._sandbox.repl(memory_limit_bytes=_memory(ctx))
        if self._repl.fresh:
            for earlier in [
                held
                for held in ctx.state.frames.values()
                if held.kind == "script" and held.done and not held.lost
            ]:
                if earlier.id != frame.id:
                    await self._repl.evaluate(
                        replace(_request(ctx, earlier, ctx.current, origin="script"), on_console=None)
                    )
        return self._repl

    # -- code states -----------------------------------------------------------------------------------------------

    async def run_code_state(self, ctx: TurnContext, state: State, frame_id: str) -> Ran:
        """One visit of a code state, in a REPL of its own."""
        from engine.turn.automated import Ran

        s, rec = ctx.state, ctx.rec
        frame = s.frames[frame_id]
        if not frame.journal:
            path = f"workflows/{ctx.assembly.spec.slug}/{state.script}"
            body = ctx.assembly.library.tree.read(path)
            if body is None:
                return Ran(error=f"code state '{state.slug}': script '{state.script}' is missing")
            journal = Journal.begin().to_json()
            del journal["calls"]
            args: JsonObject = {"state": state.slug, "trigger": s.trigger, "variables": s.values}
            source = body.decode("utf-8", "replace").removeprefix("\ufeff")
            rec.add(
                "frame", id=frame_id, kind="code", state=state.slug, source=source, args=args, journal=journal
            )
            frame = s.frames[frame_id]
        repl = await self._sandbox.repl(memory_limit_bytes=_memory(ctx))
        try:
            evaluated = await repl.evaluate(
                _request(ctx, frame, state, origin="code", filename=state.script or "script.js")
            )
        finally:
            await repl.close()
        _keep(ctx, frame, evaluated)
        if evaluated.status is Status.SUSPENDED:
            return Ran(waiting=True)
        if evaluated.status is Status.ERROR:
            return Ran(error=f"code state '{state.slug}' failed: {evaluated.error}")
        return Ran()


def _memory(ctx: TurnContext) -> int:
    return ctx.assembly.spec.settings.memory_limit_bytes or DEFAULT_MEMORY_LIMIT_BYTES


def _filename(call: Call) -> str:
    path = call.args.get("file_path")
    return path.rpartition("/")[2] if isinstance(path, str) and path else "script.js"


def _request(
    ctx: TurnContext, frame: Frame, state: State, *, origin: Origin, filename: str = "script.js"
) -> Evaluation:
    settings, assembly = ctx.assembly.spec.settings, ctx.assembly
    offered = offered_tools if origin == "code" else script_tools
    calls = _FrameCalls(ctx, frame, state, origin)
    return Evaluation(
        source=frame.source or "",
        kind="module" if origin == "code" else "eval",
        context="code-state" if origin == "code" else "ptc",
        args=frame.args,
        tools=offered(assembly.machine, state.slug, assembly.registered),
        call=calls.answer,
        record=calls.record,
        on_console=(lambda line: ctx.rec.event("code-output", state=state.slug, line=line))
        if origin == "code"
        else None,
        timeout_ms=settings.timeout_ms,
        max_calls=None
        if settings.ptc_unbounded
        else settings.max_ptc_calls
        if settings.max_ptc_calls is not None
        else DEFAULT_MAX_CALLS,
        max_result_chars=settings.max_result_chars or DEFAULT_MAX_RESULT_CHARS,
        journal=Journal.from_json(frame.journal_json()),
        filename=filename,
        session_id=ctx.state.session_id,
    )


def _keep(ctx: TurnContext, frame: Frame, evaluated: Evaluated) -> None:
    """Journal what is not yet: outstanding calls of a suspended run, and the time it has used."""
    journal = evaluated.journal.to_json()
    records = [record for record in journal.pop("calls") if frame.calls.get(record["seq"]) != record]
    if evaluated.status is Status.SUSPENDED:
        if records:
            ctx.rec.add("frame-calls", frame=frame.id, records=records)
        ctx.rec.add("frame-journal", frame=frame.id, journal=journal)
        return
    if records and frame.kind == "script":  # an agent's REPL may have to be rebuilt from this journal
        ctx.rec.add("frame-calls", frame=frame.id, records=records)
    # a run that ended without its children leaves no one to wait for them
    ctx.deferred[:] = [child for child in ctx.deferred if child.frame != frame.id]


class _FrameCalls:
    """Answers one evaluation's `tools.*` calls."""

    def __init__(self, ctx: TurnContext, frame: Frame, state: State, origin: Origin) -> None:
        self._ctx, self._frame, self._state, self._origin = ctx, frame, state, origin
        self._outside: set[int] = set()
        self._history: str | None = None

    async def record(self, records: Sequence[CallRecord]) -> None:
        """Answers on their way to the script: journalled, and durable first when one came from outside the session."""
        self._ctx.rec.add(
            "frame-calls", frame=self._frame.id, records=[record.to_json() for record in records]
        )
        if any(record.seq in self._outside for record in records):
            await self._ctx.rec.flush()

    async def answer(self, made: HostCall) -> HostAnswer | Deferred:
        ctx = self._ctx
        call = Call(
            id=ctx.script_call_id(),
            name=made.tool,
            args=made.args,
            state=self._state,
            origin=self._origin,
            position=f"{self._frame.id}/{made.seq}",
        )
        verdict = judge(ctx, call)
        if verdict.decision == "block":
            settle(ctx, call, Result(verdict.reason, ok=False, blocked=True, rule_id=verdict.rule_id))
            return _refused(call.name, verdict.rule_id, verdict.reason)
        kind = kind_of(call.name)
        if kind == "delegation":
            return await self._delegate(call, made.seq)
        announce(ctx, call)
        result = await (self._control(call) if kind == "control" else self._tool(call, made))
        settle(ctx, call, result)
        if not result.ok or result.refused:
            answer = HostAnswer.failed("ToolError", result.text, {"tool": call.name})
        else:
            answer = HostAnswer.ok(result.text)
        if made.seq in self._outside:
            # beside its result: a sibling's commit must not make the one durable without the other
            ctx.rec.add("frame-answer", frame=self._frame.id, seq=made.seq, answer=answer.to_json())
        return answer

    async def _tool(self, call: Call, made: HostCall) -> Result:
        ctx = self._ctx
        tool = ctx.assembly.tools.get(call.name)
        if tool is None:
            return Result(f"Error: {call.name!r} is not a tool.", ok=False)
        if ctx.reaches_outside(tool, call.args):
            self._outside.add(made.seq)
            issued = CallRecord(made.seq, made.tool, made.args).to_json()
            ctx.rec.add("frame-calls", frame=self._frame.id, records=[issued])
            await ctx.rec.flush()
        return await run_tool(ctx, tool, call)

    async def _delegate(self, call: Call, seq: int) -> HostAnswer | Deferred:
        from engine.delegation.dispatch import dispatch  # the delegation room imports the call pipeline

        ctx = self._ctx
        caller = "code" if self._origin == "code" else "script"
        outcome = await dispatch(ctx, call, caller=caller, frame=self._frame.id, seq=seq)
        if isinstance(outcome, ChildCall):
            ctx.deferred.append(outcome)
            return DEFERRED
        settle(ctx, call, outcome)
        if outcome.blocked:
            return _refused(call.name, outcome.rule_id or "", outcome.text)
        if not outcome.ok:
            return HostAnswer.failed(
                "SubWorkflowError", outcome.text, {"workflow": delegation_target(call.name)}
            )
        return HostAnswer.ok(outcome.text)

    async def _control(self, call: Call) -> Result:
        ctx = self._ctx
        if call.name == GET_HISTORY:
            return Result(self._session_history())
        return await service_automated(ctx, self._frame, self._state, call)

    def _session_history(self) -> str:
        if self._history is None:
            self._history = session_history(self._ctx, self._frame)
        return self._history


def session_history(ctx: TurnContext, frame: Frame) -> str:
    """`archmax_get_history`: the session as it stood when the state was entered (03 §9.7)."""
    s = ctx.state
    messages, steps = frame.seen
    return text(
        {"messages": [history_entry(message) for message in s.messages[:messages]], "trail": s.trail[:steps]}
    )


async def service_automated(ctx: TurnContext, frame: Frame, state: State, call: Call) -> Result:
    """A control call of a code state or grader; the first accepted advance or raise is its decision (03 §11.3)."""
    if call.name == GET_VARIABLES:
        answer = get_variables(ctx.state, call.args)
    elif call.name == SET_VARIABLES:
        answer = await write_variables(ctx, state, call.args, call.id)
    elif call.name in (ADVANCE, RAISE) and frame.decision is not None:
        answer = Answer(f"{call.name} rejected: this run has already decided", refused=True)
    elif call.name == ADVANCE:
        checked = await check_advance(ctx, state, call.args)
        if isinstance(checked, Answer):
            answer = checked
        else:
            decision: JsonObject = {"kind": "advance", "to": checked.to, "reason": checked.reason}
            if checked.evidence:
                decision["evidence"] = list(checked.evidence)
            ctx.rec.add("frame-decision", frame=frame.id, decision=decision)
            answer = Answer(advanced_text(checked))
    elif call.name == RAISE:
        arguments = raise_arguments(call.args)
        if isinstance(arguments, Answer):
            answer = arguments
        else:
            code, reason = arguments
            ctx.rec.add(
                "frame-decision", frame=frame.id, decision={"kind": "raise", "code": code, "reason": reason}
            )
            answer = Answer(f"The session fails with '{code}'.")
    else:
        answer = Answer(f"Error: '{call.name}' is not available here.", ok=False)
    return Result(answer.text, ok=answer.ok, refused=answer.refused)


def _refused(tool: str, rule_id: str, reason: str) -> HostAnswer:
    return HostAnswer.failed(GOVERNANCE_ERROR, reason, {"tool": tool, "ruleId": rule_id, "reason": reason})
