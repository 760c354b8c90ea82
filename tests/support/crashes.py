"""Crash cases: a worker that dies at a named place of a known turn, and what must be true once the turn has ended.

Each case has workflows of its own whose queues only its victim takes. When the victim is dead the spare worker is told to
take them, as the other workers of a fleet would have done all along, so the victim is sure to be the one that begins.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from dataclasses import dataclass

from core.jsontext import JsonObject
from storage.sessionlog import HeadMoved
from tests.support.workers import Worker, WorkerFleet, until
from worker.celery_app import child_queue, create_app, turn_queue
from worker.protocol.accept import delete_session
from worker.protocol.reader import read_session_head
from worker.redis_leases import LIST_LOCK

#: how long a dead worker's turn may lie: its lease, one sweep and the way through the queue, on a crowded machine
RECOVERY_SECONDS = 120

PLAIN = """
title: Plain
instructions: Leave marks.
tools: {{ allow_always: [quick] }}
states:
  plain:
    triggers: {{ manual: }}
    instructions: Leave marks.
    transitions: [ {{ to: done, description: all marks are left }} ]
  done:
    instructions: Say so.
"""
FAN = """
title: Fan
instructions: Call.
tools: {{ allow_always: [quick] }}
states:
  fan:
    triggers: {{ manual: }}
    instructions: Call all.
    tools: {{ allow: [archmax_workflow_{leaf}] }}
"""
LEAF = """
title: Leaf
instructions: Leave a mark.
tools: {{ allow_always: [quick] }}
states:
  leaf:
    triggers: {{ manual: }}
    instructions: Leave a mark.
"""
SCRIPT = """
title: Script
instructions: Run.
tools: {{ allow_always: [quick] }}
states:
  code:
    type: code
    script: scripts/run.js
    triggers: {{ manual: }}
    tools: {{ allow: [quick, archmax_workflow_{leaf}] }}
    transitions: [ {{ to: said }} ]
  said:
    instructions: Say so.
"""
RUN = """
export default async function run() {{
  const first = await tools.quick({{ ref: 'one' }});
  const both = await Promise.all([1, 2].map(() => tools['archmax_workflow_{leaf}']({{}})));
  const last = await tools.quick({{ ref: 'two' }});
  await tools.archmax_advance({{ to: 'said', reason: [first, last].concat(both).length + ' marks' }});
}}
"""
MODEL = """
- { when_state: plain, tool_calls: [ { name: quick, args: { ref: one } } ] }
- { when_state: plain, tool_calls: [ { name: quick, args: { ref: two } } ] }
- { when_state: plain, tool_calls: [ { name: archmax_advance, args: { to: done, reason: marks } } ] }
- { when_state: done, text: All marks are left. }
- { when_state: fan, after_tool: quick, tool_calls: [ %s ] }
- { when_state: fan, after_tool: LEAF, text: All have answered. }
- { when_state: fan, tool_calls: [ { name: quick, args: { ref: one } } ] }
- { when_state: leaf, after_tool: quick, text: Left. }
- { when_state: leaf, tool_calls: [ { name: quick, args: { ref: leaf } } ] }
- { when_state: said, text: All marks are left. }
"""


@dataclass(frozen=True)
class Case:
    scenario: str
    failpoint: str

    @property
    def slug(self) -> str:
        return f"v-{self.scenario}-{self.failpoint}".replace(".", "-").replace(":", "-")

    @property
    def session(self) -> str:
        return f"s-{self.slug}"

    @property
    def leaf(self) -> str:
        return f"{self.slug}-leaf"

    def files(self) -> dict[str, str]:
        text = {"plain": PLAIN, "delete": PLAIN, "fan": FAN, "script": SCRIPT}[self.scenario]
        files = {f"workflows/{self.slug}/workflow.yaml": text.format(leaf=self.leaf)}
        if self.scenario in ("fan", "script"):
            files[f"workflows/{self.leaf}/workflow.yaml"] = LEAF.format()
        if self.scenario == "script":
            files[f"workflows/{self.slug}/scripts/run.js"] = RUN.format(leaf=self.leaf)
        return files

    def answers(self) -> str:
        """Of the scripted model: told apart by workflow, because one script answers for all."""
        calls = ", ".join([f"{{ name: archmax_workflow_{self.leaf} }}"] * 3)
        lines = (MODEL % calls).replace("LEAF", f"archmax_workflow_{self.leaf}").strip().splitlines()
        leaf = f"when_workflow: {self.leaf}, repeat: true"
        return "\n".join(
            line.replace(
                "{ when_state",
                f"{{ {leaf if 'when_state: leaf' in line else f'when_workflow: {self.slug}'}, when_state",
                1,
            )
            for line in lines
        )


def point(name: str, *counts: int) -> list[str]:
    """Both places of an operation, at each of its `counts`."""
    return [f"{name}.{moment}:{count}" for count in counts or (1,) for moment in ("before", "after")]


CASES = [
    *(
        Case("plain", name)
        for name in (
            *point("claim"),
            *point("put-spec"),
            *point("put-step", 1, 2, 4, 6),
            *point("put-end"),
            *point("delete"),
        )
    ),
    *(
        Case("fan", name)
        for name in (
            *point("put-suspend"),
            *point("put-child-entry", 1, 2, 3),
            *point("send-children", 1, 2),
            *point("claim", 2),
            *point("put-end", 1, 3, 4),
            *point("put-answer", 1, 3),
            *point("send-wake"),
            *point("seal-end"),
            *point("seal-log"),
            *point("takeover"),
            *point("put-joined"),
        )
    ),
    *(
        Case("script", name)
        for name in (
            *point("put-step", 1, 2, 3),
            *point("put-suspend"),
            *point("put-answer", 2),
            *point("seal-log"),
            *point("takeover"),
            *point("put-joined"),
            *point("put-end", 3),
        )
    ),
    *(Case("delete", name) for name in (*point("put-timer"), *point("tombstone"), *point("delete"))),
]


class Crashes:
    """Runs cases against one fleet and one spare worker, a few victims at a time."""

    def __init__(self, fleet: WorkerFleet, cases: list[Case], *, at_once: int = 6) -> None:
        self._fleet, self._cases, self._at_once = fleet, cases, at_once
        self._results: dict[Case, BaseException | None] = {}
        self._control = create_app(fleet.settings).control
        fleet.write({name: text for case in cases for name, text in case.files().items()})
        fleet.write({"model.yaml": "\n".join(case.answers() for case in cases)})

    async def start(self) -> None:
        self._spare = self._fleet.start_worker(ARCHMAX_WORKFLOWS="!v-*")
        await self._fleet.ready(self._spare)

    async def check(self, case: Case) -> None:
        """Raises what was found wrong with the case."""
        if case not in self._results:
            at = self._cases.index(case)
            await self._run([c for c in self._cases[at : at + self._at_once] if c not in self._results])
        problem = self._results[case]
        if problem is not None:
            raise problem

    async def _run(self, batch: list[Case]) -> None:
        """All victims of a batch die while the spare is frozen, so that no late lease gives it their turns."""
        # A victim that lists the store as it starts would send other cases' messages, and die of its own failpoint.
        await self._fleet.client.redis.set(LIST_LOCK, "1", px=120_000)
        victims = [await self._prepare(case) for case in batch]
        self._spare.signal(signal.SIGSTOP)
        try:
            found = await asyncio.gather(*map(self._die, batch, victims), return_exceptions=True)
        finally:
            self._spare.signal(signal.SIGCONT)
            await self._fleet.client.redis.delete(LIST_LOCK)
        self._results.update(zip(batch, found, strict=True))
        dead = [case for case, problem in zip(batch, found, strict=True) if problem is None]
        for case in dead:
            await self._take_over(case)
        went_on = await asyncio.gather(*map(self._goes_on, dead), return_exceptions=True)
        self._results.update(zip(dead, went_on, strict=True))

    async def _prepare(self, case: Case) -> Worker:
        fleet, session = self._fleet, case.session
        if case.scenario == "delete":
            await self._take_over(case)
            await fleet.send(session, case.slug)
            await fleet.settled(session)
            queue = turn_queue(case.slug)
            await asyncio.to_thread(self._control.cancel_consumer, queue, destination=[self._spare.name])
            await asyncio.sleep(2)  # nothing tells when it has let go
        victim = fleet.start_worker(ARCHMAX_WORKFLOWS=case.slug + "*", ARCHMAX_FAILPOINT=case.failpoint)
        await fleet.ready(victim)
        return victim

    async def _die(self, case: Case, victim: Worker) -> None:
        if case.scenario == "delete":
            await delete_session(self._fleet.client.fleet, case.session)
        else:
            await self._fleet.send(case.session, case.slug)
        try:
            code = await asyncio.to_thread(victim.process.wait, 120)
        except AssertionError:
            victim.kill()
            raise
        assert code == -9, f"{case}: the victim ended with {code}\n{victim.log[-3000:]}"

    async def _goes_on(self, case: Case) -> None:
        if case.scenario == "delete":
            await self._deleted(case.session)
        else:
            await self._fleet.settled(case.session, seconds=RECOVERY_SECONDS)
        await self._check(case, case.session)

    async def _take_over(self, case: Case) -> None:
        """The spare takes the case's queues, which the victim alone had."""
        names = [turn_queue(case.slug), child_queue(case.slug), turn_queue(case.leaf), child_queue(case.leaf)]
        for name in names:
            await asyncio.to_thread(self._control.add_consumer, name, destination=[self._spare.name])

    async def _deleted(self, session: str) -> None:
        async def gone() -> bool:
            view = await read_session_head(self._fleet.client.fleet, session)
            if not view.deleted or view.head is None:
                return False
            keys = [item.key async for item in self._fleet.client.store.list(f"{session}/")]
            return all(key.endswith("checkpoints/head") or "/log." in key or "/end." in key for key in keys)

        await until(gone, seconds=RECOVERY_SECONDS, what=f"{session} to be deleted")

    async def _check(self, case: Case, session: str) -> None:
        marks = Counter(
            (mark, key)
            for mark, key in self._fleet.marked_keys()
            if key.partition("/")[0].split("~")[0] == session
        )
        names = Counter(mark for mark, _ in marks)
        expected = {
            "plain": {"quick:one": 1, "quick:two": 1},
            "delete": {"quick:one": 1, "quick:two": 1},
            "fan": {"quick:one": 1, "quick:leaf": 3},
            "script": {"quick:one": 1, "quick:two": 1, "quick:leaf": 2},
        }[case.scenario]
        assert names == expected, f"{case}: calls made: {names}"
        # Only a call in flight at the death is made again, under the same key: one a session the victim had at work.
        again = sum(count - 1 for count in marks.values())
        in_flight = 3 if case.scenario == "fan" else 2 if case.scenario == "script" else 1
        assert again <= in_flight, f"{case}: {marks}"
        if case.scenario in ("plain", "delete") and ".after" in case.failpoint:
            assert again == 0, f"{case}: a committed call was made again: {marks}"
        if case.scenario == "delete":
            return
        end = await self._fleet.settled(session)
        assert end.outcome["kind"] == "completed", f"{case}: {end.outcome}"
        state = await self._fleet.state(session)
        moves = [(step["kind"], step.get("to")) for step in state.trail]
        assert moves == TRAILS[case.scenario], f"{case}: {moves}"
        answered = Counter(message["id"] for message in results(state.messages))
        assert set(answered.values()) <= {1}, f"{case}: {answered}"
        for child in range(1, {"fan": 3, "script": 2}.get(case.scenario, 0) + 1):
            ended = await self._fleet.settled(f"{session}~{child}")
            assert ended.outcome["kind"] == "completed", f"{case}: {ended.outcome}"
            assert await self._turns(f"{session}~{child}") == 1
        assert await self._turns(session) == 1

    async def _turns(self, session: str) -> int:
        while True:
            try:
                head = await self._fleet.client.fleet.log(session).head()
                return head.turn if head else 0
            except HeadMoved:
                continue


TRAILS: dict[str, list[tuple[str, str | None]]] = {
    "plain": [("trigger", "plain"), ("agent", "done")],
    "fan": [("trigger", "fan"), *[("sub-workflow", "fan")] * 3],
    "script": [("trigger", "code"), *[("sub-workflow", "code")] * 2, ("code", "said")],
}


def results(messages: list[JsonObject]) -> list[JsonObject]:
    return [message for message in messages if message["role"] == "tool"]


__all__ = ["CASES", "Case", "Crashes", "Worker", "point"]
