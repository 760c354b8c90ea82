"""One tool call of an agent or grader, from the name it was written with to its recorded result (03 §14, 02 §2).

`prepare` takes a call as far as its verdict; `run_tool` runs an allowed tool; `settle` records what came of it. Scripts
come in at the verdict: their arguments are not substituted (ruling 2).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig

from core.errors import ArchmaxError
from core.jsontext import JsonObject, clean, text, well_formed
from engine.governance.calls import Origin
from engine.governance.kernel import ToolCall, Verdict, decide
from engine.governance.names import CONTROL_TOOLS, NotATool, delegation_target, resolve_name
from engine.governance.redaction import visibility
from engine.governance.references import Unresolved, substitute, substitute_typed
from engine.spec.model import State
from engine.turn.context import MockResult, TurnContext, idempotency_key
from engine.turn.ports import NOT_THE_TURNS
from engine.turn.tools import Tool, ToolCallContext

#: characters of unreadable arguments quoted back to the model
EXCERPT = 120
AT_MOST_ONCE = (
    "Error: this call had started before the process was lost, and it may not be repeated (at most once). "
    "Find out what it did before going on."
)


@dataclass
class Call:
    """A call on its way: `args` are the resolved ones once they have been substituted."""

    id: str
    name: str
    args: JsonObject
    state: State
    origin: Origin = "agent"
    #: the arguments differ from what the transcript holds, so events need them
    rewritten: bool = False
    reply_only: bool = False
    #: where in the turn this call stands; never changes, whoever makes the call again
    position: str = ""
    started: float = field(default_factory=time.monotonic)

    @property
    def origin_mark(self) -> str | None:
        return None if self.origin == "agent" else self.origin

    @property
    def elapsed_ms(self) -> int:
        return round((time.monotonic() - self.started) * 1000)


@dataclass(frozen=True)
class Result:
    """What a call came to. `blocked` for kernel verdicts and refused delegations."""

    text: str
    ok: bool = True
    blocked: bool = False
    refused: bool = False
    #: not announced by `tool-called`, so no event tells its end
    quiet: bool = False
    rule_id: str | None = None
    #: kept on the tool message: which image it shows
    mark: JsonObject | None = None


Kind = Literal["tool", "control", "delegation"]


def excerpt(raw: str) -> str:
    shown = " ".join(raw.split())
    return shown if len(shown) <= EXCERPT else f"{shown[:EXCERPT]}…"


def written_call(
    ctx: TurnContext, call: Mapping[str, Any], state: State, *, origin: Origin, position: str
) -> Call | Result:
    """A transcript call as far as its arguments, or why it goes no further (stages 1 and 2 of 02 §2)."""
    if "raw" in call:
        return Result(
            f"Error: the arguments of '{call['name']}' are not a JSON object: {excerpt(call['raw'])} "
            f"({call.get('fault', 'unreadable')}). The tool did not run. Call it again with valid arguments.",
            ok=False,
            quiet=True,
        )
    resolved = resolve_name(call["name"], ctx.assembly.registered)
    if isinstance(resolved, NotATool):
        return Result(f"Error: {resolved.message}", ok=False, quiet=True)
    args: JsonObject = call["args"]
    if delegation_target(resolved) is not None:
        return Call(call["id"], resolved, args, state, origin, position=position)
    substituted = substitute(args, ctx.state.values)
    if isinstance(substituted, Unresolved):
        return Result(
            f"Error: the reference ${{{{{substituted.reference}}}}} cannot be filled in: {substituted.why}. Nothing was "
            f"done. Write $${{{{…}}}} for the literal text.",
            ok=False,
            quiet=True,
        )
    return Call(
        call["id"], resolved, substituted, state, origin, rewritten=substituted != args, position=position
    )


def judge(ctx: TurnContext, call: Call) -> Verdict:
    """The kernel's verdict against the state the call was written in (stage 3).

    Guards of a delegation see the resolved arguments (04 OP-9); one that cannot be resolved is the dispatch's to refuse.
    """
    args = call.args
    if call.origin in ("agent", "grader") and delegation_target(call.name) is not None:
        resolved = substitute_typed(args, ctx.state.values)
        args = args if isinstance(resolved, Unresolved) else resolved
    verdict = decide(
        ctx.assembly.machine,
        ToolCall(
            state=call.state.slug,
            tool=call.name,
            args=args,
            origin=call.origin,
            reply_only=call.reply_only,
        ),
        variables=ctx.state.values,
        consumer_rules=ctx.assembly.policy_rules,
    )
    if verdict.decision == "block" and args is not call.args:  # one structure serves verdict and event
        call.args, call.rewritten = args, True
    return verdict


def kind_of(name: str) -> Kind:
    if name in CONTROL_TOOLS:
        return "control"
    return "delegation" if delegation_target(name) is not None else "tool"


def block(ctx: TurnContext, call: Call, verdict: Verdict) -> Result:
    """A blocked call's answer; a terminal verdict commits a rejection that routes when the agent stops (03 §13.2)."""
    if verdict.terminal and call.origin == "agent":
        ctx.rec.add("reject", value=verdict.reason)
    return Result(verdict.reason or "blocked", ok=False, blocked=True, rule_id=verdict.rule_id)


def announce(ctx: TurnContext, call: Call) -> None:
    batch = ctx.state.batch
    if call.origin == "agent" and batch is not None and call.id in batch.announced:
        return  # by a process that is gone
    ctx.rec.add(
        "called",
        id=call.id,
        tool=call.name,
        origin=call.origin_mark,
        args=clean(call.args) if call.rewritten or call.origin != "agent" else None,
    )


def settle(ctx: TurnContext, call: Call, result: Result, *, tool_name: str | None = None) -> None:
    """Record a call's result: the tool message of an agent's call, and its event."""
    ctx.rec.add(
        "result",
        id=call.id,
        tool=tool_name or call.name,
        ok=result.ok,
        text=well_formed(result.text),
        ms=call.elapsed_ms,
        origin=call.origin_mark,
        blocked=result.blocked or None,
        refused=result.refused or None,
        quiet=result.quiet or None,
        mark=result.mark,
        args=clean(call.args) if result.blocked and (call.rewritten or call.origin != "agent") else None,
    )


def mocked(ctx: TurnContext, call: Call) -> MockResult | None:
    return ctx.mock(call.name, call.args) if ctx.mock is not None else None


def mock_text(value: Any) -> str:
    """A mock's result as the tool's text (06 §8)."""
    return value if isinstance(value, str) else text(value)


async def run_tool(ctx: TurnContext, tool: Tool, call: Call) -> Result:
    """Run an allowed tool, or its mock. A raising tool is an error answer, never the end of the turn (03 §13.1)."""
    mock = mocked(ctx, call)
    if mock is not None:
        return Result(mock_text(mock.value))
    key = idempotency_key(ctx, call.position)
    if tool.at_most_once:
        if key in ctx.state.started_calls:
            return Result(AT_MOST_ONCE, ok=False)
        ctx.rec.add("started", key=key)
        await ctx.rec.flush()
    context = ToolCallContext(
        session_id=ctx.state.session_id,
        call_id=call.id,
        idempotency_key=key,
        origin=call.origin,
        state=call.state.slug,
        workspace=ctx.workspace,
        visible=visibility(ctx.assembly.machine, call.state.slug, ctx.state.values),
        config=_tool_config(ctx, call, key),
    )
    try:
        answer = await (
            ctx.assembly.run_tool(tool, call.args, context)
            if ctx.hooks is None
            else ctx.hooks.tool_call(tool, call, context)
        )
    except NOT_THE_TURNS:
        raise
    except ArchmaxError as error:
        return Result(f"Error: {error}", ok=False)
    except Exception as error:
        return Result(f"Error: {_said(error)}", ok=False)
    if answer.todos is not None:
        ctx.rec.add("todos", value=answer.todos)
    return Result(answer.text, mark={"image": answer.image.to_json()} if answer.image is not None else None)


def _said(error: Exception) -> str:
    message = str(error).strip()
    return message or type(error).__name__


def _tool_config(ctx: TurnContext, call: Call, key: str) -> RunnableConfig:
    config = ctx.config.copy()
    config["configurable"] = {
        **config.get("configurable", {}),
        "thread_id": ctx.state.session_id,
        "session_id": ctx.state.session_id,
        "tool_call_id": call.id,
        "idempotency_key": key,
    }
    return config
