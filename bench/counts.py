"""What a turn does, counted: store requests, bytes, messages, Redis commands, processes, prompt text.

Counts are the same on any machine, however busy: the test suite holds them (`tests/bench/test_counts.py`).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field
from typing_extensions import override

from bench.figures import Figures
from bench.fleet import REPOSITORY, BenchFleet, bench_fleet, family
from bench.prompt_prefix import prefixes
from bench.turns import bench_agent, bench_workspace, run_turn
from bench.workload import message, wire
from storage.memory import MemoryStore
from storage.objects import ListedObject, ObjectStore, StoredObject
from worker.events import SESSIONS

#: what Python tells an audit hook when it makes a process
_SPAWNS: Final = {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen"}

_TIMED: Final = ("EVALSHA", "GET", "EXPIRE", "PUBLISH")

MOVES = """
title: Moves
instructions: Move.
states:
  here:
    triggers: { manual: }
    instructions: Go there.
    transitions: [ { to: there, description: go } ]
  there:
    instructions: Come back.
    transitions: [ { to: here, description: come back } ]
"""


@dataclass
class CountingStore:
    """A store that counts what is asked of `inner` and adds up the bytes written."""

    inner: ObjectStore = field(default_factory=MemoryStore)
    requests: Counter[str] = field(default_factory=Counter)
    written: int = 0

    async def get(self, key: str) -> StoredObject | None:
        self.requests["get"] += 1
        return await self.inner.get(key)

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        self.requests["put"] += 1
        self.written += len(body)
        return await self.inner.put(key, body, if_absent=if_absent, if_match=if_match)

    def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        self.requests["list"] += 1
        return self.inner.list(prefix, after=after)

    async def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        if wanted:
            self.requests["delete"] += 1
            await self.inner.delete(wanted)

    async def close(self) -> None:
        await self.inner.close()


@dataclass(frozen=True)
class TurnCounts:
    """One turn in process: requests to the store by kind, bytes written, processes begun."""

    requests: dict[str, int]
    written: int
    spawned: int


async def count_turn() -> TurnCounts:
    """The plain turn (five model calls, four tool calls) of a new session, not the first of its process."""
    spawned = Counter[str]()
    counting = False

    def hook(event: str, _arguments: tuple[Any, ...]) -> None:
        if counting and event in _SPAWNS:
            spawned[event] += 1

    sys.addaudithook(hook)
    store = CountingStore()
    async with bench_workspace() as (root, sandbox):
        agent = await bench_agent(root, store, sandbox)
        await run_turn(agent, "warm", message("warm"))
        store.requests.clear()
        store.written = 0
        counting = True
        await run_turn(agent, "counted", message("counted"))
        counting = False
    return TurnCounts(dict(store.requests), store.written, spawned.total())


async def count_session(turns: int) -> tuple[int, int]:
    """Bytes written by all turns of one session, and bytes its store holds in the end."""
    store = CountingStore()
    async with bench_workspace() as (root, sandbox):
        agent = await bench_agent(root, store, sandbox)
        await run_turn(agent, "warm", message("warm"))
        store.written = 0
        for number in range(turns):
            await run_turn(agent, "long", message("long", number))
        held = [listed.size async for listed in store.list("long/")]
    return store.written, sum(held)


@dataclass(frozen=True)
class FleetCounts:
    """One turn through queue and worker: Redis commands that name the session, by command; messages sent; processes.

    `kept`: bytes of the keys that name the session, and its line in the list of sessions, once the turn is over.
    """

    commands: dict[str, int]
    messages: int
    spawned: int
    kept: int

    @property
    def total(self) -> int:
        return sum(self.commands.values())

    @property
    def steady(self) -> int:
        """Without what grows with the time a turn takes: lease renewals, and how many round trips tell its events."""
        return self.total - sum(self.commands.get(name, 0) for name in _TIMED)


async def count_fleet_turn(*, fan: int = 0) -> FleetCounts:
    """A plain turn, or one with `fan` children, counted at the Redis server."""
    async with bench_fleet(store_fsync=False) as fleet:
        worker = await fleet.start_worker()
        await fleet.ended("warm", await fleet.send("warm", message("warm", fan=min(fan, 1))))
        alive = set(family(worker.pid))
        session = "counted-one"
        async with _monitored(fleet) as seen:
            await fleet.ended(session, await fleet.send(session, message(session, fan=fan)))
            await fleet.all_ended()
            await asyncio.sleep(0.5)  # what is told behind the end
        named = [words for words in seen if any(session in word for word in words)]
        kept = await _kept(fleet, session)
        commands = Counter(words[0].upper() for words in named)
        sent = sum(words[0].upper() == "LPUSH" and words[1].startswith("archmax.") for words in named)
        spawned = len(set(family(worker.pid)) - alive)
    return FleetCounts(dict(commands), sent, spawned, kept)


async def _kept(fleet: BenchFleet, session: str) -> int:
    redis = fleet.client.redis
    keys = [key async for key in redis.scan_iter(match=f"*{session}*", count=1000)]
    held = [await redis.memory_usage(key, samples=0) or 0 for key in keys]
    return sum(held) + await redis.hstrlen(SESSIONS, session)


@asynccontextmanager
async def _monitored(fleet: BenchFleet) -> AsyncGenerator[list[list[str]]]:
    """The words of every command clients send meanwhile; what scripts call by themselves is left out."""
    seen: list[list[str]] = []
    async with fleet.client.redis.monitor() as monitor:

        async def listen() -> None:
            async for command in monitor.listen():
                if command["client_type"] != "lua":
                    seen.append(command["command"].split(" "))  # noqa: PERF401 - seen as they come

        task = asyncio.create_task(listen())
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class MovingModel(BaseChatModel):
    """Moves to the other state with each turn; keeps the first block of every system message it gets."""

    seen: list[str] = Field(default_factory=list)

    @property
    @override
    def _llm_type(self) -> str:
        return "moving"

    @override
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    @override
    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)

    @override
    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        content = messages[0].content
        first = content if isinstance(content, str) else content[0]
        self.seen.append(first if isinstance(first, str) else str(first["text"]))
        answered = 0
        for item in reversed(messages):
            if isinstance(item, HumanMessage):
                break
            answered += isinstance(item, AIMessage)
        turns = sum(isinstance(item, HumanMessage) for item in messages)
        if answered:
            return ChatResult(generations=[ChatGeneration(message=AIMessage(content="moved"))])
        to = "there" if turns % 2 else "here"
        call = {"name": "archmax_advance", "args": {"to": to, "reason": "on"}, "id": f"m{turns}"}
        message_ = AIMessage(content="", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message_)])


async def static_blocks(turns: int = 3) -> list[str]:
    """The first block of the system message of every model call of one session that moves between two states."""
    model = MovingModel()
    async with bench_workspace() as (root, sandbox):
        (root / "workflows/bench/workflow.yaml").write_text(MOVES)
        agent = await bench_agent(root, MemoryStore(), sandbox, {**wire(None), "model": model})
        for _ in range(turns):
            await run_turn(agent, "s", "Go on.")
    return model.seen


async def measure(figures: Figures, _quick: bool) -> None:
    """Always in full: counting is quick, and it is what a quick run is good for."""
    turn = await count_turn()
    for kind, count in sorted(turn.requests.items()):
        figures.add("counts", "a turn in process", f"store requests: {kind}", "1/turn", [count])
    figures.add("counts", "a turn in process", "store requests", "1/turn", [sum(turn.requests.values())])
    figures.add("counts", "a turn in process", "bytes written", "bytes", [turn.written])
    figures.add("counts", "a turn in process", "processes spawned", "1/turn", [turn.spawned])
    turns = 40
    written, held = await count_session(turns)
    figures.add("counts", f"{turns} turns on one session", "bytes written", "bytes", [written])
    figures.add("counts", f"{turns} turns on one session", "bytes kept", "bytes", [held])
    for variant, fan in (("a turn in the fleet", 0), ("50 children in the fleet", 50)):
        fleet = await count_fleet_turn(fan=fan)
        figures.add("counts", variant, "Redis commands naming it", "1/turn", [fleet.total])
        figures.add("counts", variant, "the same whatever the time", "1/turn", [fleet.steady])
        figures.add("counts", variant, "messages sent", "1/turn", [fleet.messages])
        figures.add("counts", variant, "processes spawned", "1/turn", [fleet.spawned])
        if not fan:
            figures.add("counts", variant, "kept in Redis for a day", "bytes", [fleet.kept])
    blocks = await static_blocks()
    same = 100 * sum(block == blocks[0] for block in blocks) / len(blocks)
    figures.add("prompt", "a session that moves", "static block identical", "%", [same], "higher")
    for prefix in prefixes(Path(REPOSITORY) / "examples/order-desk"):
        figures.add("prompt", f"prefix of {prefix.workflow}", "characters", "chars", [prefix.total])
