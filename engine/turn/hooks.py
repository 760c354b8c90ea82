"""A host's middleware at work on one turn: the four node hooks, and wrapped model and tool calls.

What a middleware sees as state is the session's transcript and the fields in force; what it changes becomes records of
the log, so that another process goes on from it. `jump_to`, message updates and `Command.update` mean what they mean in
LangChain; what only a graph can do is refused by name.

A module nobody imports without middleware: LangChain's agents are slow to import.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command

from core.jsontext import JsonObject, detached, dumps, loads
from engine.errors import MiddlewareError
from engine.models.scope import CallScope
from engine.session.messages import assistant_message, new_id, text_of, user_message
from engine.turn.calls import AT_MOST_ONCE, Call, Result, judge, settle
from engine.turn.context import TurnContext
from engine.turn.host_tools import host_tool, result_text
from engine.turn.middleware import OWN_FIELDS, MiddlewareChain, name_of, overrides
from engine.turn.tools import Tool, ToolCallContext
from engine.workspace.tools import ToolResult

Jump: TypeAlias = Literal["end", "model", "tools"]
#: makes a model call: model, messages, tools, further arguments of the provider's request
ModelCall: TypeAlias = Callable[
    [Any, list[BaseMessage], list[JsonObject], Mapping[str, Any]], Awaitable[AIMessage]
]
#: what a wrap is given to go on with: a request, and what came of it
Handler: TypeAlias = Callable[[Any], Awaitable[Any]]

_NOT_RUN = "Error: this call did not run, because the turn was stopped before it."


@dataclass
class Answered:
    """A model's answer after every `after_model` hook, and what else the hooks said."""

    answer: AIMessage
    #: results hooks gave to calls of the answer: call id → message
    results: dict[str, ToolMessage] = field(default_factory=dict)
    more: list[AIMessage] = field(default_factory=list)
    jump: Jump | None = None


class Hooks:
    """The middleware of one turn."""

    def __init__(self, chain: MiddlewareChain, ctx: TurnContext) -> None:
        self.chain, self.ctx = chain, ctx
        #: values no log can hold: they last as long as this process works on the turn
        self._loose: dict[str, Any] = {}
        self._attempted: set[str] = set()

    @property
    def edits_answers(self) -> bool:
        """Whether an answer may be changed after the model wrote it: then no piece of it is shown before."""
        return bool(self.chain.having("after_model"))

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self, *more: BaseMessage) -> dict[str, Any]:
        """What hooks are given: the transcript and the fields in force."""
        messages = [_addressable(message) for message in self.ctx.transcript()]
        # Theirs to change: what counts is what they return.
        fields = {name: detached(value) for name, value in self.ctx.state.middleware.items()}
        return {"messages": [*messages, *more], **fields, **self._loose}

    def _update(self, owner: str, update: Mapping[str, Any]) -> None:
        """Fold what a hook set beside messages and jumps. Raises: `MiddlewareError` for an undeclared field."""
        kept: JsonObject = {}
        for name, value in update.items():
            if name in OWN_FIELDS:
                continue
            declared = self.chain.fields.get(name)
            if declared is None:
                raise MiddlewareError(owner, f"it sets {name!r}, which no state_schema declares")
            held = self._loose.get(name, detached(self.ctx.state.middleware.get(name)))
            if declared.reducer is not None and held is not None:
                value = declared.reducer(held, value)
            try:
                kept[name] = loads(dumps(value))
                self._loose.pop(name, None)
            except (TypeError, ValueError):
                self._loose[name] = value
        if kept:
            self.ctx.rec.add("middleware", set=kept)

    def _edit(self, message: BaseMessage) -> bool:
        """Replace the text of a message the transcript has. False when it has none with that id."""
        identity = message.id or ""
        for entry in reversed(self.ctx.state.messages):
            if _address(entry) == identity:
                text = text_of(message.content)
                if text != entry["text"]:
                    self.ctx.rec.add("edit", role=entry["role"], id=entry["id"], text=text)
                return True
        return False

    # -- node hooks ----------------------------------------------------------------------------------------------

    async def before_model(self) -> Jump | None:
        """`before_agent` at the turn's first call, then `before_model`, in order. A jump skips the rest."""
        s = self.ctx.state
        if s.middleware_turn != s.turn:
            spent = [name for name, declared in self.chain.fields.items() if declared.run]
            self.ctx.rec.add("middleware", drop=[n for n in spent if n in s.middleware], turn=s.turn)
            jump = await self._run("before_agent", self.chain.having("before_agent"))
            if jump is not None:
                return jump
        return await self._run("before_model", self.chain.having("before_model"))

    async def after_agent(self) -> Jump | None:
        """The agent stopped: in reverse order, as LangChain does."""
        return await self._run("after_agent", self.chain.having("after_agent")[::-1])

    async def _run(self, hook: str, chain: Iterable[AgentMiddleware[Any, Any, Any]]) -> Jump | None:
        for middleware in chain:
            update = await _call_hook(middleware, hook, self.state())
            if not update:
                continue
            self._update(name_of(middleware), update)
            for message in _messages(update):
                self._insert(name_of(middleware), message)
            jump = _jump(middleware, update)
            if jump is not None:
                return jump
        return None

    def _insert(self, owner: str, message: BaseMessage) -> None:
        known = isinstance(message, HumanMessage | AIMessage | ToolMessage)
        if known and message.id and self._edit(message):
            return
        rec = self.ctx.rec
        match message:
            case HumanMessage():
                rec.add("message", m=user_message(text_of(message.content)))
            case AIMessage():
                rec.add("message", m=assistant_message(message, taken_ids=self.ctx.state.call_ids))
            case ToolMessage() if self.ctx.state.call(message.tool_call_id) is not None:
                self.answer_call(message)
            case _:
                raise MiddlewareError(
                    owner,
                    f"it gives a {type(message).__name__} the transcript has no place for; messages are only "
                    "added and edited here, never removed",
                )

    def answer_call(self, message: ToolMessage) -> None:
        """A hook's own result for a call that has none yet."""
        written = self.ctx.state.call(message.tool_call_id)
        if written is not None:
            self._settle(written, text_of(message.content), ok=message.status != "error")

    def stop_calls(self) -> None:
        """Answer every call a jump leaves undone: a provider refuses a transcript with open calls."""
        for written in self.ctx.state.unanswered:
            self._settle(written, _NOT_RUN, ok=False)

    def _settle(self, written: JsonObject, text: str, *, ok: bool) -> None:
        call = Call(written["id"], written["name"] or "unknown", {}, self.ctx.current)
        settle(self.ctx, call, Result(text, ok=ok, quiet=True))

    async def after_model(self, answer: AIMessage) -> Answered:
        """What the hooks make of an answer that is not recorded yet; in reverse order, as LangChain does."""
        seen = Answered(_identified(answer, self.ctx.state.call_ids))
        for middleware in self.chain.having("after_model")[::-1]:
            shown = self.state(seen.answer, *seen.results.values(), *seen.more)
            update = await _call_hook(middleware, "after_model", shown)
            if not update:
                continue
            owner = name_of(middleware)
            self._update(owner, update)
            open_calls = {call["id"] for call in seen.answer.tool_calls}
            for message in _messages(update):
                if isinstance(message, AIMessage) and message.id == seen.answer.id:
                    seen.answer = message
                elif isinstance(message, ToolMessage) and message.tool_call_id in open_calls:
                    seen.results.setdefault(message.tool_call_id, message)
                elif isinstance(message, AIMessage) and not (message.id and self._edit(message)):
                    seen.more.append(message)
                elif not isinstance(message, AIMessage):
                    self._insert(owner, message)
            jump = _jump(middleware, update)
            if jump is not None:
                seen.jump = jump
                break
        return seen

    # -- wrapped calls -------------------------------------------------------------------------------------------

    async def model_call(
        self,
        model: Any,
        messages: Sequence[BaseMessage],
        tools: Sequence[JsonObject],
        scope: CallScope,
        call: ModelCall,
    ) -> AIMessage:
        """One model call through every `wrap_model_call`. Raises: what the model or a middleware raises."""
        if not self.chain.having("wrap_model_call"):
            return await call(model, list(messages), list(tools), {})
        system = messages[0] if messages and isinstance(messages[0], SystemMessage) else None
        talk = list(messages[1:] if system is not None else messages)
        request: ModelRequest[Any] = ModelRequest(
            model=model,
            messages=cast(Any, talk),
            system_message=system,
            tools=[dict(tool) for tool in tools],
            state=cast(Any, {**self.state(), "messages": talk}),
            runtime=Runtime(),
        )

        async def base(asked: ModelRequest[Any]) -> ModelResponse[Any]:
            if asked.response_format is not None:
                raise MiddlewareError("wrap_model_call", "structured answers of an agent are not supported")
            said = [*([asked.system_message] if asked.system_message is not None else []), *asked.messages]
            shapes = [t if isinstance(t, dict) else convert_to_openai_tool(t) for t in asked.tools]
            settings = dict(asked.model_settings)
            if asked.tool_choice is not None:
                settings["tool_choice"] = asked.tool_choice
            return ModelResponse(result=[await call(asked.model, list(said), shapes, settings)])

        answer = self._answer_of(await self._wrapped("wrap_model_call", base)(request))
        if scope.taken:
            answer.response_metadata = {
                **answer.response_metadata,
                "scripted": {"used": list(scope.taken)},
            }
        return answer

    def _answer_of(self, said: Any) -> AIMessage:
        if isinstance(said, ExtendedModelResponse):
            self._command("wrap_model_call", said.command)
            said = said.model_response
        if isinstance(said, ModelResponse):
            said = next((m for m in reversed(said.result) if isinstance(m, AIMessage)), None)
        if not isinstance(said, AIMessage):
            raise MiddlewareError("wrap_model_call", f"it answered with {type(said).__name__}, no message")
        return said

    def _command(self, owner: str, command: Command[Any] | None) -> list[BaseMessage]:
        """Fold a command's update; its messages are the caller's. Raises: `MiddlewareError` for a graph's moves."""
        if command is None:
            return []
        update = _update_of(owner, command)
        self._update(owner, update)
        return _messages(update)

    def _wrapped(self, method: str, base: Handler) -> Handler:
        """`base` inside every middleware that has `method`: what the outermost is called with goes through all."""
        handler = base
        for middleware in reversed(self.chain.having(method)):
            handler = self._around(middleware, method, handler)
        return handler

    def _around(self, middleware: AgentMiddleware[Any, Any, Any], method: str, inner: Handler) -> Handler:
        async def around(request: Any) -> Any:
            if overrides(middleware, f"a{method}"):
                return await getattr(middleware, f"a{method}")(request, normal)
            return await _in_thread(getattr(middleware, method), request, normal)

        async def normal(request: Any) -> Any:
            said = await inner(request)
            if method == "wrap_model_call" and not isinstance(said, ModelResponse):
                return ModelResponse(result=[self._answer_of(said)])
            return said

        return around

    async def tool_call(self, tool: Tool, call: Call, context: ToolCallContext) -> ToolResult:
        """One allowed tool call through every `wrap_tool_call`. Raises: what the tool or a middleware raises."""
        if not self.chain.having("wrap_tool_call"):
            return await self.ctx.assembly.run_tool(tool, call.args, context)
        held: dict[int, tuple[ToolMessage, ToolResult]] = {}

        async def base(asked: ToolCallRequest) -> ToolMessage:
            result = await self._repeatable(tool, call, asked, context)
            message = ToolMessage(result.text, tool_call_id=call.id, name=tool.name)
            held[id(message)] = (message, result)
            return message

        said = await self._wrapped("wrap_tool_call", base)(self._tool_request(call, context))
        if isinstance(said, Command):
            answers = self._command("wrap_tool_call", said)
            said = next((m for m in answers if isinstance(m, ToolMessage)), None)
        if not isinstance(said, ToolMessage):
            raise MiddlewareError("wrap_tool_call", f"it answered with {type(said).__name__}, no tool result")
        if said.status == "error":
            raise RuntimeError(text_of(said.content) or "the tool failed")
        known = held.get(id(said))
        return known[1] if known is not None else ToolResult(result_text(said.content))

    def _tool_request(self, call: Call, context: ToolCallContext) -> ToolCallRequest:
        state = self.state()
        return ToolCallRequest(
            tool_call={"name": call.name, "args": dict(call.args), "id": call.id, "type": "tool_call"},
            tool=self.ctx.assembly.host_tools.get(call.name),
            state=state,
            runtime=ToolRuntime(
                state=state,
                context=None,
                config=context.config,
                stream_writer=_no_stream,
                tool_call_id=call.id,
                store=None,
            ),
        )

    async def _repeatable(
        self, tool: Tool, call: Call, asked: ToolCallRequest, context: ToolCallContext
    ) -> ToolResult:
        """Run what the innermost middleware asks for: the same tool, under the kernel's word when arguments changed."""
        written = asked.tool_call
        if written["name"] != call.name:
            raise MiddlewareError("wrap_tool_call", f"it turned {call.name!r} into {written['name']!r}")
        if written["args"] != call.args:
            verdict = judge(self.ctx, Call(call.id, call.name, written["args"], call.state, call.origin))
            if verdict.decision == "block":
                raise RuntimeError(verdict.reason or "blocked")
        if tool.at_most_once:
            if context.idempotency_key in self._attempted:
                raise RuntimeError(AT_MOST_ONCE.removeprefix("Error: "))
            self._attempted.add(context.idempotency_key)
        given = self.ctx.assembly.host_tools.get(call.name)
        if asked.tool is not None and asked.tool is not given:
            tool = host_tool(asked.tool, self.ctx.assembly.wiring.options.call_timeout_ms)
        return await self.ctx.assembly.run_tool(tool, dict(written["args"]), context)


def _no_stream(_chunk: Any) -> None:
    """Custom stream output has no listener here."""


async def _call_hook(
    middleware: AgentMiddleware[Any, Any, Any], hook: str, state: dict[str, Any]
) -> Mapping[str, Any]:
    runtime: Runtime[Any] = Runtime()
    if overrides(middleware, f"a{hook}"):
        update = await getattr(middleware, f"a{hook}")(state, runtime)
    else:
        update = await asyncio.to_thread(getattr(middleware, hook), state, runtime)
    if isinstance(update, Command):
        return _update_of(name_of(middleware), update)
    return update if isinstance(update, Mapping) else {}


def _update_of(owner: str, command: Command[Any]) -> Mapping[str, Any]:
    """What a command changes. Raises: `MiddlewareError` for a graph's moves."""
    if command.goto or command.graph or command.resume:
        raise MiddlewareError(owner, "it answers with a command to a graph, and there is none")
    return command.update if isinstance(command.update, Mapping) else {}


async def _in_thread(method: Callable[[Any, Any], Any], request: Any, inner: Handler) -> Any:
    """Run a synchronous wrap in a thread; its handler makes the call on this loop. Cut off together."""
    loop = asyncio.get_running_loop()
    under_way: list[Any] = []

    async def asked(inner_request: Any) -> Any:
        return await inner(inner_request)

    def handler(inner_request: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(asked(inner_request), loop)
        under_way.append(future)
        return future.result()

    try:
        return await asyncio.to_thread(method, request, handler)
    finally:
        for future in under_way:
            future.cancel()


def _messages(update: Mapping[str, Any]) -> list[BaseMessage]:
    found = update.get("messages") or ()
    if isinstance(found, BaseMessage):
        return [found]
    return convert_to_messages(list(found))


def _jump(middleware: AgentMiddleware[Any, Any, Any], update: Mapping[str, Any]) -> Jump | None:
    jump = update.get("jump_to")
    if jump is None:
        return None
    if jump not in ("end", "model", "tools"):
        raise MiddlewareError(name_of(middleware), f"it jumps to {jump!r}; known: end, model, tools")
    return cast(Jump, jump)


def _addressable(message: BaseMessage) -> BaseMessage:
    """With an id a hook's update can name: results have none towards a provider."""
    if isinstance(message, ToolMessage) and message.id is None:
        return message.model_copy(update={"id": f"result:{message.tool_call_id}"})
    return message


def _address(entry: Mapping[str, Any]) -> str:
    return f"result:{entry['id']}" if entry["role"] in ("tool", "note") else str(entry["id"])


def _identified(answer: AIMessage, taken: Iterable[str]) -> AIMessage:
    """The answer with an id for every call that no other call has, so that hooks can answer them."""
    seen = set(taken)
    calls: list[Any] = []
    for call in answer.tool_calls:
        call_id = call.get("id")
        unique = call_id if call_id and call_id not in seen else new_id("call")
        seen.add(unique)
        calls.append({**call, "id": unique})
    return answer.model_copy(update={"tool_calls": calls, "id": answer.id or new_id("a")})
