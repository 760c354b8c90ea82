"""A make-believe engine: it works through the plan in its input, one record an item, and trusts only the log.

A plan is a list of items: `{"do": "step", "ms": …}`, `{"do": "fan", "width": …, "plans": […]}`, `{"do": "again"}` (the
children that parked take another turn) and, as the last one, `{"do": "park", "wake": seconds | null}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.jsontext import JsonObject
from tests.simulation.oracle import Oracle
from tests.simulation.scheduler import Scheduler, Wait
from worker.ports import Clock, HandBack, Stop
from worker.protocol.open_turn import OpenTurn


class Poisoned(Exception):
    """A step that raises what nobody expected."""


class Engine:
    def __init__(self, scheduler: Scheduler, oracle: Oracle, clock: Clock) -> None:
        self._scheduler = scheduler
        self._oracle = oracle
        self._clock = clock

    async def run(self, turn: OpenTurn) -> None:
        chance = self._scheduler.random
        history = await turn.history()
        self._oracle.check_history(turn.session_id, turn.life, turn.turn, history)
        plan: list[JsonObject] = turn.entry.input.get("plan", [])
        if turn.entry.kind == "timer" and not _is_parked(history, turn.entry.input.get("park", 0)):
            await turn.end({"void": True, "turn": turn.turn}, {"kind": "void"})
            return
        if turn.joined is not None:
            self._oracle.check_joined(turn.session_id, turn.life, turn.turn, turn.joined)
            if turn.stop() is None:
                await turn.commit({"joined": turn.joined, "turn": turn.turn})
        done = sum("op" in record for record in turn.records)
        while True:
            reason = turn.stop()
            if reason in (Stop.DRAIN, Stop.LEASE_LOST):
                raise HandBack(str(reason))
            if reason is not None:
                await turn.end({"cancelled": reason, "turn": turn.turn}, {"kind": "cancelled", "why": reason})
                return
            if done >= len(plan):
                await turn.end({"turn": turn.turn}, {"kind": "completed"})
                return
            item = plan[done]
            record: JsonObject = {"op": done, "turn": turn.turn}
            self._oracle.begin_step(turn.session_id, turn.life, turn.turn, turn.fence, done)
            await Wait(item.get("ms", 5))
            if item.get("poison") and chance.random() < item["poison"]:
                raise Poisoned
            if item["do"] in ("fan", "again"):
                calls = self._calls(turn, item, history)
                if calls:
                    record["kids"] = [call["child"] for call in calls if call["n"] == 1]
                    await turn.suspend(record, calls, item.get("width", 2))
                    return
            if item["do"] == "park":
                await turn.end(record, {"kind": "parked"}, await self._dues(item))
                return
            if done == len(plan) - 1:
                await turn.end(
                    record, {"kind": "completed"}, [{"due": "webhook"}] if item.get("hook") else []
                )
                return
            await turn.commit(record)
            done += 1

    async def worker_lost(self, turn: OpenTurn) -> tuple[JsonObject | None, JsonObject, Sequence[JsonObject]]:
        return {"lost": True, "turn": turn.turn}, {"kind": "failed", "why": "worker-lost"}, []

    async def _dues(self, item: JsonObject) -> list[JsonObject]:
        if item.get("wake") is None:
            return []
        return [{"due": "timer", "at": await self._clock.now_ms() + item["wake"] * 1000, "workflow": "w"}]

    def _calls(self, turn: OpenTurn, item: JsonObject, history: list[JsonObject]) -> list[JsonObject]:
        records = [*history, *turn.records]
        if item["do"] == "again":
            latest: dict[str, Any] = {}
            for record in turn.records:
                for answer in record.get("joined", ()):
                    latest[answer["session"]] = answer
            plan = [{"do": "step"}]
            return [
                {
                    "child": child,
                    "n": answer["n"] + 1,
                    "workflow": "w",
                    "kind": "deliver",
                    "input": {"plan": plan},
                }
                for child, answer in sorted(latest.items())
                if answer["outcome"]["kind"] == "parked"
            ]
        born = sum(len(record.get("kids", ())) for record in records)
        return [
            {
                "child": f"{turn.session_id}~{born + i + 1}",
                "n": 1,
                "workflow": "w",
                "kind": "start",
                "input": {"plan": plan},
            }
            for i, plan in enumerate(item["plans"])
        ]


def _is_parked(history: list[JsonObject], turn: int) -> bool:
    """Whether the newest turn is still `turn`, which parked."""
    return bool(history) and history[-1]["turn"] == turn
