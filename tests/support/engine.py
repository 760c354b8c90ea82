"""A workflow, a scripted model and a session in memory: the real engine in one call.

    bench = bench_of(SPEC, MODEL)           # or the `bench` fixture, which closes the sandbox afterwards
    outcome = await bench.send("hello")

`events`, `requests` (what the model saw) and `tool_calls` (host tool `touch`) collect everything that happened.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_asyncio
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import PrivateAttr
from typing_extensions import override

from core.jsontext import JsonObject
from engine.delegation.calls import Bounds
from engine.host.agent import Agent
from engine.host.driver import TurnOptions
from engine.host.session_folder import SessionFolder, fold_session
from engine.host.wiring import wire
from engine.models.factory import ModelFactory
from engine.models.scope import current_scope
from engine.models.script import ModelScript
from engine.models.scripted import ScriptedChatModel
from engine.session.outcome import Outcome
from engine.session.state import SessionState
from engine.spec.tree import MemoryTree
from engine.turn.assembly import HostOptions, assemble
from engine.turn.context import MockResult
from engine.turn.recorder import EventStream
from sandbox import Sandbox
from storage.memory import MemoryStore
from storage.sessionlog import SessionLog


@dataclass(frozen=True)
class Seen:
    """One request a model was sent."""

    role: str
    workflow: str
    state: str
    messages: list[BaseMessage]
    tools: list[str]

    @property
    def system(self) -> str:
        return str(self.messages[0].text)

    @property
    def text(self) -> str:
        return "\n".join(str(message.text) for message in self.messages[1:])


class WatchedModel(ScriptedChatModel):
    """The scripted model, remembering its requests."""

    _seen: list[Seen] = PrivateAttr(default_factory=list)

    def _look(self, messages: list[BaseMessage], tools: Sequence[JsonObject]) -> None:
        scope = current_scope.get()
        assert scope is not None
        names = [tool["function"]["name"] for tool in tools]
        self._seen.append(Seen(scope.role, scope.workflow, scope.state, list(messages), names))
        check_answered(messages)

    @override
    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self._look(messages, kwargs.get("tools", ()))
        return await super()._agenerate(messages, *args, **kwargs)

    @override
    async def _astream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self._look(messages, kwargs.get("tools", ()))
        async for chunk in super()._astream(messages, *args, **kwargs):
            yield chunk


class RawModel(BaseChatModel):
    """Answers with the messages it was given, in order: for answers a script cannot write."""

    answers: list[Any]
    _seen: list[Seen] = PrivateAttr(default_factory=list)

    @property
    @override
    def _llm_type(self) -> str:
        return "raw"

    @override
    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    @override
    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        scope = current_scope.get()
        assert scope is not None
        self._seen.append(Seen(scope.role, scope.workflow, scope.state, list(messages), []))
        check_answered(messages)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ChatResult(generations=[ChatGeneration(message=answer)])


def raw_call(name: str, call_id: str | None = None, **args: Any) -> AIMessage:
    """An answer of `RawModel` that makes one call."""
    return AIMessage(
        "", tool_calls=[{"name": name, "args": args, "id": call_id or f"{name}-{args}", "type": "tool_call"}]
    )


def check_answered(messages: Sequence[BaseMessage]) -> None:
    """Every call has exactly one result, right after its message: what providers insist on."""
    open_calls: list[str] = []
    known: set[str] = set()
    for message in messages:
        if message.type == "tool":
            call_id = getattr(message, "tool_call_id", "")
            assert call_id in open_calls, f"a result without its call: {call_id}"
            open_calls.remove(call_id)
            continue
        assert not open_calls, f"calls without a result: {open_calls}"
        if isinstance(message, AIMessage):
            open_calls = [str(call["id"]) for call in message.tool_calls]
            assert not known.intersection(open_calls), "a call id used twice"
            known.update(open_calls)
    assert not open_calls, f"calls without a result: {open_calls}"


@dataclass
class Bench:
    """One assembled workflow over memory. Host tools `touch(n)` and `stamp(name)` note their calls in `touched`."""

    agent: Agent
    store: MemoryStore
    seen: list[Seen]
    events: list[JsonObject]
    touched: list[Any]
    sandbox: Sandbox
    files: MemoryTree
    listeners: list[Callable[[JsonObject], None]]
    default_id: str = "s1"

    def watch(self, listener: Callable[[JsonObject], None]) -> None:
        """Call `listener` with every event from now on."""
        self.listeners.append(listener)

    # -- driving -------------------------------------------------------------------------------------------------

    async def send(self, message: str | None = "go", session: str | None = None, **more: Any) -> Outcome:
        return await self.agent.send(session or self.default_id, message=message, **more)

    async def decide(self, to: str, comment: str | None = None, session: str | None = None) -> Outcome:
        return await self.agent.decide(session or self.default_id, to, comment)

    async def reply(self, message: str, session: str | None = None) -> Outcome:
        return await self.agent.reply(session or self.default_id, message)

    async def deliver(
        self,
        trigger: str = "ping",
        variables: Mapping[str, Any] | None = None,
        message: str | None = None,
        session: str | None = None,
    ) -> Outcome:
        return await self.agent.deliver(session or self.default_id, trigger, variables, message)

    async def state(self, session: str | None = None) -> SessionState:
        state = await self.agent.folder.load(session or self.default_id)
        assert state is not None
        return state

    # -- reading -------------------------------------------------------------------------------------------------

    def kinds(self, *only: str, session: str | None = None) -> list[str]:
        """Types of the events of the (root) session, in order; `only` those when given."""
        wanted = session or self.default_id
        return [
            event["type"]
            for event in self.events
            if event.get("sessionId") == wanted and (not only or event["type"] in only)
        ]

    def of(self, kind: str, session: str | None = None, **fields: Any) -> list[JsonObject]:
        return [
            event
            for event in self.events
            if event["type"] == kind
            and (session is None or event.get("sessionId") == session)
            and all(event.get(key) == value for key, value in fields.items())
        ]

    def one(self, kind: str, session: str | None = None, **fields: Any) -> JsonObject:
        found = self.of(kind, session, **fields)
        assert len(found) == 1, f"{len(found)} events {kind} {fields}: {found}"
        return found[0]

    def clear(self) -> None:
        self.events.clear()
        self.seen.clear()

    def results(self, outcome: Outcome, tool: str | None = None) -> list[str]:
        """Texts of the tool messages, in transcript order."""
        return [
            message["text"]
            for message in outcome.transcript
            if message["role"] == "tool" and tool in (None, message["tool"])
        ]

    def notes(self, outcome: Outcome) -> list[tuple[str, str]]:
        return [(m["kind"], m["text"]) for m in outcome.transcript if m["role"] == "note"]

    def steps(self, outcome: Outcome) -> list[tuple[str, str]]:
        return [(step["kind"], step["to"]) for step in outcome.audit_trail]

    def values(self, outcome: Outcome) -> dict[str, Any]:
        return {name: held["value"] for name, held in outcome.variables.items() if name != "trigger"}

    async def records(self, session: str | None = None) -> list[JsonObject]:
        """Every committed record of a session that rests."""
        log = SessionLog(self.agent.folder.files, session or self.default_id)
        head = await log.head()
        assert head is not None
        ended = await log.over(head)
        assert ended is not None
        return [*(await log.history(head)), *ended.records]

    async def folded(self, session: str | None = None) -> SessionState:
        log = SessionLog(self.agent.folder.files, session or self.default_id)
        head = await log.head()
        assert head is not None
        return await fold_session(log, head)


def call(name: str, /, **args: Any) -> JsonObject:
    """A tool call of a scripted answer."""
    return {"name": name, "args": args}


def advance_to(state: str, reason: str = "ready", **more: Any) -> JsonObject:
    return call("archmax_advance", to=state, reason=reason, **more)


def do(*calls: JsonObject, **more: Any) -> JsonObject:
    """A scripted answer that makes calls."""
    return {"tool_calls": list(calls), **more}


def say(text: str, **more: Any) -> JsonObject:
    return {"text": text, **more}


def setting(**variables: Any) -> JsonObject:
    return call("archmax_set_variables", variables=variables)


def fee(**args: Any) -> JsonObject:
    """A call of the sub-workflow `fee`."""
    return call("archmax_workflow_fee", **args)


def in_main(answer: JsonObject) -> JsonObject:
    """The answer, for sessions of the workflow `main` alone."""
    return {**answer, "when_workflow": "main"}


def in_fee(answer: JsonObject) -> JsonObject:
    """The answer, for sessions of the sub-workflow `fee` alone."""
    return {**answer, "when_workflow": "fee"}


def by_grader(answer: JsonObject) -> JsonObject:
    """The answer, for graders alone."""
    return {**answer, "role": "grader"}


def bench_of(
    spec: str | Mapping[str, str],
    model: str | Sequence[Any] | RawModel = "[]",
    *,
    files: Mapping[str, str] | None = None,
    mounts: Mapping[str, object] | None = None,
    root: Path | None = None,
    tools: Sequence[BaseTool] = (),
    mock: Callable[[str, Mapping[str, Any]], Any] | None = None,
    bounds: Bounds = Bounds(),
    recursion_limit: int = 400,
    trigger: str | None = None,
    variables: Mapping[str, Any] | None = None,
    on_event: Callable[[JsonObject], None] | None = None,
    store: MemoryStore | None = None,
    sandbox: Sandbox | None = None,
    **options: Any,
) -> Bench:
    """Assemble workflow `main`. `spec`: its YAML, or YAML by slug; `model`: a script, or the answers themselves."""
    specs = {"main": spec} if isinstance(spec, str) else spec
    texts = {f"workflows/{slug}/workflow.yaml": textwrap.dedent(body) for slug, body in specs.items()}
    tree = MemoryTree({**texts, **(files or {})})
    chat: WatchedModel | RawModel
    if isinstance(model, RawModel):
        chat = model
    elif isinstance(model, str) or all(isinstance(answer, dict) for answer in model):
        script = textwrap.dedent(model) if isinstance(model, str) else json.dumps(model)
        chat = WatchedModel(script=ModelScript.parse("model.yaml", script))
    else:
        chat = RawModel(answers=list(model))
    touched: list[Any] = []

    async def touch(n: int = 0) -> str:
        """Counts its calls."""
        touched.append(n)
        if n < 0:
            raise ValueError(f"no negative touch: {n}")
        return f"touched {n}"

    async def stamp(name: str) -> str:
        """Stamps a name."""
        touched.append(name)
        return f"stamped {name}"

    events: list[JsonObject] = []

    listeners = [on_event] if on_event is not None else []

    def sink(event: JsonObject) -> None:
        events.append(event)
        for listener in listeners:
            listener(event)

    sandbox = sandbox or Sandbox(spare_processes=1)
    wiring = wire(
        root or Path("/nonexistent-workspace"),
        models=ModelFactory(instance=chat),
        sandbox=sandbox,
        options=HostOptions(
            tools=[
                StructuredTool.from_function(coroutine=touch, name="touch"),
                StructuredTool.from_function(coroutine=stamp, name="stamp"),
                *tools,
            ],
            bounds=bounds,
            **options,
        ),
        mounts=mounts or {},
        authoring=tree,
    )
    assembly = assemble(wiring, "main", trigger=trigger, variables=variables)
    store = store or MemoryStore()
    agent = Agent(
        assembly,
        SessionFolder(store),
        EventStream(sink),
        options=TurnOptions(
            recursion_limit=recursion_limit,
            mock=_mock(mock) if mock is not None else None,
        ),
    )
    return Bench(agent, store, chat._seen, events, touched, sandbox, tree, listeners)


def _mock(
    answer: Callable[[str, Mapping[str, Any]], Any],
) -> Callable[[str, Mapping[str, Any]], MockResult | None]:
    def mock(tool: str, args: Mapping[str, Any]) -> MockResult | None:
        value = answer(tool, args)
        return None if value is None else MockResult(value)

    return mock


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*args: Any, **kwargs: Any) -> Bench:
        made.append(bench_of(*args, **kwargs))
        return made[-1]

    yield make
    for item in made:
        await item.sandbox.close()
