"""A workflow, a scripted model and a session in memory: the real engine in one call.

    bench = bench_of(SPEC, MODEL)           # or the `bench` fixture, which closes the sandbox afterwards
    outcome = await bench.send("hello")

`events`, `requests` (what the model saw) and `tool_calls` (host tool `touch`) collect everything that happened.
"""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from engine.host.driver import TurnOptions, turn_context
from engine.host.session_folder import SessionFolder, fold_session
from engine.host.wiring import wire
from engine.models.factory import ModelFactory
from engine.models.scope import current_scope
from engine.models.script import ModelScript
from engine.models.scripted import ScriptedChatModel
from engine.session.outcome import Outcome
from engine.session.state import SessionState, fold
from engine.spec.tree import MemoryTree
from engine.turn.assembly import Assembly, HostOptions, assemble
from engine.turn.context import MockResult, TurnContext
from engine.turn.loop import Suspended, advance
from engine.turn.ports import Stop, TurnFenced
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
    default_id: str = "s1"

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

    def sink(event: JsonObject) -> None:
        events.append(event)
        if on_event is not None:
            on_event(event)

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
    return Bench(agent, store, chat._seen, events, touched, sandbox, tree)


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


# -- crashes -------------------------------------------------------------------------------------------------------


@dataclass
class Crash:
    """How many commits of a world still succeed before its process dies, right after the last one."""

    left: int | None = None

    def struck(self) -> bool:
        if self.left is None:
            return False
        self.left -= 1
        return self.left <= 0


@dataclass
class WorldLog:
    """One turn in a world (the `TurnLog` port): records in a list, a crash after any of them."""

    world: World
    session_id: str
    turn: int

    async def commit(self, record: JsonObject) -> None:
        self.world.records.setdefault(self.session_id, []).append(record)
        if self.world.crash.struck():
            raise TurnFenced(self.session_id, self.turn, 0)

    async def end(self, record: JsonObject, outcome: JsonObject) -> None:
        self.world.ends[(self.session_id, self.turn)] = outcome
        await self.commit(record)

    async def suspend(self, record: JsonObject, calls: Sequence[JsonObject], width: int) -> None:
        self.world.calls[self.session_id] = list(calls)
        await self.commit(record)

    async def put_blob(self, body: bytes) -> str:
        name = f"{len(self.world.blobs)}"
        self.world.blobs[name] = body
        return name

    async def get_blob(self, name: str) -> bytes | None:
        return self.world.blobs.get(name)

    def stop(self) -> Stop | None:
        return self.world.stop

    async def interrupted(self) -> Stop:
        await self.world.interrupt.wait()
        return self.world.stop or Stop.CANCELLED


@dataclass
class World:
    """Sessions as lists of records, driven as a fleet drives them: every process may die after any commit."""

    bench: Bench
    records: dict[str, list[JsonObject]] = field(default_factory=dict)
    ends: dict[tuple[str, int], JsonObject] = field(default_factory=dict)
    calls: dict[str, list[JsonObject]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    crash: Crash = field(default_factory=Crash)
    stop: Stop | None = None
    interrupt: asyncio.Event = field(default_factory=asyncio.Event)

    def state(self, session: str = "s1", workflow: str = "main") -> SessionState:
        return fold(
            session,
            workflow,
            [((1, 1, number), record) for number, record in enumerate(self.records.get(session, []), 1)],
        )

    async def turn(self, body: JsonObject, *, session: str = "s1", turn: int = 1) -> JsonObject:
        """Run a turn to its end, again after each crash."""
        while True:
            try:
                return await self._attempt(self.bench.agent.assembly, session, turn, body)
            except TurnFenced:
                self.crash.left = None

    async def _attempt(self, assembly: Assembly, session: str, turn: int, body: JsonObject) -> JsonObject:
        if (session, turn) in self.ends and self._over(session, assembly, turn):
            return self.ends[(session, turn)]
        ctx = self.context(assembly, session, turn)
        result = await advance(ctx, body)
        while isinstance(result, Suspended):
            answers: list[JsonObject] = []
            for call in self.calls[session]:
                child = assembly.child(call["workflow"])
                ended = await self._attempt(child, call["child"], int(call["n"]), call["input"])
                answers.append(ended["answer"])
            result = await advance(ctx, body, answers=answers)
        assert ctx.state == self._comparable(ctx), (
            "the fold of the records is not the state that was worked with"
        )
        return self.ends[(session, turn)]

    def _over(self, session: str, assembly: Assembly, turn: int) -> bool:
        state = self.state(session, assembly.spec.slug)
        return state.turn >= turn and state.settled

    def _comparable(self, ctx: TurnContext) -> SessionState:
        folded = self.state(ctx.state.session_id, ctx.state.workflow)
        folded.last_commit, folded.created_at, folded.updated_at = (
            ctx.state.last_commit,
            ctx.state.created_at,
            ctx.state.updated_at,
        )
        return folded

    def context(self, assembly: Assembly, session: str, turn: int) -> TurnContext:
        return turn_context(
            assembly,
            self.state(session, assembly.spec.slug),
            WorldLog(self, session, turn),
            self.bench.agent._events,
        )
