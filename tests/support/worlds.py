"""Sessions driven as a fleet drives them, whose process may die after any commit: the engine's crash tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.jsontext import JsonObject
from engine.host.driver import turn_context
from engine.session.state import SessionState, fold
from engine.turn.assembly import Assembly
from engine.turn.context import TurnContext
from engine.turn.loop import Suspended, advance
from engine.turn.ports import Stop, TurnFenced
from tests.support.engine import Bench


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
