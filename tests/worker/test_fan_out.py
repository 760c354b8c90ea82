"""Fan-out over real workers: the parent's slot is free, the width holds fleet-wide, and the join comes once.

One fleet of two workers for the whole module; every test has workflows and sessions of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from archmax.local.redis import EmbeddedRedis
from core.jsontext import JsonObject
from storage.records import EndedTurn, Why
from tests.support.workers import WorkerFleet, until, was_cancelled
from worker.celery_app import child_queue
from worker.ports import Message
from worker.protocol.cancel import cancel
from worker.protocol.reader import TurnStatus, read_turn

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

WIDTH = 3


def caller(slug: str, *targets: str) -> str:
    allowed = ", ".join(f"archmax_workflow_{target}" for target in targets)
    return f"""
title: {slug}
instructions: Call.
states:
  call:
    triggers: {{ manual: }}
    instructions: Call all.
    tools: {{ allow: [{allowed}] }}
"""


LEAF = """
title: Leaf
instructions: Leave marks.
tools: { allow_always: [slow] }
states:
  leaf:
    triggers: { manual: }
    instructions: Leave marks.
"""
#: a child for each way to end
MIXED = {
    "well": LEAF,
    "raises": """
title: Raises
instructions: Raise.
states:
  only: { triggers: { manual: }, instructions: Raise. }
""",
    "asks": """
title: Asks
instructions: Wait.
states:
  only: { triggers: { manual: }, instructions: Wait. }
""",
    "needs": """
title: Needs
instructions: Never runs.
states:
  only:
    triggers: { manual: { requires: [ { name: order, type: string } ] } }
    instructions: Never.
""",
    "long": LEAF,
}
SCRIPT = """
title: Script
instructions: Run.
settings: { maxPtcCalls: 600 }
states:
  code:
    type: code
    script: scripts/run.js
    triggers: { manual: }
    tools: { allow: [archmax_workflow_echo] }
    transitions: [ { to: said } ]
  said:
    instructions: Say so.
"""
RUN = """
export default async function run() {
  const answers = await Promise.all(Array.from({ length: COUNT }, () => tools.archmax_workflow_echo({})));
  await tools.archmax_advance({ to: 'said', reason: `${answers.length} answers` });
}
"""
ECHO = """
title: Echo
instructions: Answer.
states:
  echo: { triggers: { manual: }, instructions: Answer. }
"""


def calls(target: str, count: int) -> str:
    return json.dumps([{"name": f"archmax_workflow_{target}"}] * count)


MODEL = f"""
- {{ when_workflow: wide, tool_calls: {calls("leaf", 8)} }}
- {{ when_workflow: wide, text: wide done }}
- {{ when_workflow: leaf, when_contains: did, repeat: true, text: leaf done }}
- {{ when_workflow: leaf, repeat: true, tool_calls: [ {{ name: slow, args: {{ ref: leaf, seconds: 0.4 }} }} ] }}
- when_workflow: mixed
  tool_calls: {json.dumps([{"name": f"archmax_workflow_{slug}"} for slug in MIXED])}
- {{ when_workflow: mixed, text: mixed done }}
- {{ when_workflow: well, after_tool: slow, text: well done }}
- {{ when_workflow: well, tool_calls: [ {{ name: slow, args: {{ ref: well, seconds: 0.1 }} }} ] }}
- {{ when_workflow: raises, tool_calls: [ {{ name: archmax_raise, args: {{ code: no-luck, reason: out of luck }} }} ] }}
- {{ when_workflow: asks, text: "Which one?", tool_calls: [ {{ name: archmax_wait, args: {{ reason: a choice }} }} ] }}
- {{ when_workflow: long, tool_calls: [ {{ name: slow, args: {{ ref: long, seconds: 110 }} }} ] }}
- {{ when_workflow: held, tool_calls: {calls("long", 5)} }}
- {{ when_workflow: few, tool_calls: {calls("echo", 40)} }}
- {{ when_workflow: few, text: few done }}
- {{ when_workflow: many, tool_calls: {calls("echo", 500)} }}
- {{ when_workflow: many, text: many done }}
- {{ when_state: said, text: script done }}
- {{ when_workflow: grouped, tool_calls: {calls("unserved", 3)} }}
- {{ when_workflow: echo, repeat: true, text: echo }}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    tmp_path_factory: pytest.TempPathFactory, redis_server: EmbeddedRedis
) -> AsyncGenerator[WorkerFleet]:
    folder = tmp_path_factory.mktemp("fan-out")
    environment = {"ARCHMAX_MAX_CONCURRENT_CHILDREN": str(WIDTH)}
    async with WorkerFleet(folder, redis_server, database=14, **environment) as made:
        workflows = {
            "wide": caller("wide", "leaf"),
            "leaf": LEAF,
            "mixed": caller("mixed", *MIXED),
            "held": caller("held", "long"),
            "few": caller("few", "echo"),
            "many": caller("many", "echo"),
            "echo": ECHO,
            "script-few": SCRIPT,
            "script-many": SCRIPT,
            "grouped": caller("grouped", "unserved"),
            "unserved": ECHO,
            **MIXED,
        }
        made.write({f"workflows/{slug}/workflow.yaml": text for slug, text in workflows.items()})
        for slug, number in (("script-few", 40), ("script-many", 500)):
            made.write({f"workflows/{slug}/scripts/run.js": RUN.replace("COUNT", str(number))})
        made.write({"model.yaml": MODEL})
        for worker in [made.start_worker(ARCHMAX_WORKFLOWS="!grouped,!unserved") for _ in range(2)]:
            await made.ready(worker)
        yield made


async def suspended(fleet: WorkerFleet, session: str) -> None:
    async def waits() -> bool:
        return (await read_turn(fleet.client.fleet, session, 1)).status is TurnStatus.SUSPENDED

    await until(waits, what=f"{session} to wait for its children")


def joins(end: EndedTurn) -> int:
    return sum(part.why == Why.JOINED for part in end.parts)


def most_at_once(events: list[str]) -> int:
    """Of `begin:…` and `end:…` marks in order."""
    now = most = 0
    for event in events:
        now += 1 if event.startswith("begin:") else -1
        most = max(most, now)
    return most


async def answers_of(fleet: WorkerFleet, session: str) -> list[str]:
    state = await fleet.state(session)
    return [message["text"] for message in state.messages if message["role"] == "tool"]


async def test_no_more_children_run_at_once_than_the_width_whatever_the_workers(fleet: WorkerFleet) -> None:
    """Design "One engine, two drivers": `max_concurrent` counts fleet-wide; answers come in call order."""
    await fleet.send("wide", "wide")
    end = await fleet.settled("wide")
    assert end.outcome["reply"] == "wide done", end.outcome
    events = [mark for mark, key in fleet.marked_keys() if key.startswith("wide~")]
    assert Counter(events) == {"begin:leaf": 8, "end:leaf": 8}
    assert 1 < most_at_once(events) <= WIDTH
    assert joins(end) == 1
    assert await answers_of(fleet, "wide") == ["leaf done"] * 8


async def test_children_that_succeed_fail_refuse_park_and_are_cancelled_all_answer_in_call_order(
    fleet: WorkerFleet,
) -> None:
    """Protocol §5: any outcome settles a child, and the parent goes on once with all of them."""
    await fleet.send("mixed", "mixed")
    long = f"mixed~{len(MIXED) - 1}"

    async def long_runs() -> bool:
        return any(mark == "begin:long" and key.startswith("mixed~") for mark, key in fleet.marked_keys())

    await until(long_runs, what="the child to be cancelled to begin")
    key = next(key for mark, key in fleet.marked_keys() if mark == "begin:long" and key.startswith("mixed~"))
    long = key.partition("/")[0]
    await cancel(fleet.client.fleet, long, 1)
    end = await fleet.settled("mixed")
    assert end.outcome["reply"] == "mixed done", end.outcome
    assert joins(end) == 1
    well, raises, asks, needs, cancelled = await answers_of(fleet, "mixed")
    assert well == "well done"
    assert "no-luck" in raises and "out of luck" in raises
    assert "stopped for an outside event" in asks
    assert "order" in needs
    assert "cancel" in cancelled.lower()


async def test_wake_ups_that_are_early_doubled_or_lost_join_once(fleet: WorkerFleet) -> None:
    """Protocol §5: waking is a hint; the join is the one `joined` record."""
    await fleet.send("woken", "wide")
    await suspended(fleet, "woken")
    early = [Message("woken", 1, "wide", child=True)] * 5
    await fleet.client.fleet.queue.send(early)
    await asyncio.sleep(0.5)
    await fleet.client.redis.flushdb()  # whatever was on its way is lost
    end = await fleet.settled("woken")
    await fleet.client.fleet.queue.send(early)
    assert end.outcome["reply"] == "wide done"
    assert joins(end) == 1
    assert await answers_of(fleet, "woken") == ["leaf done"] * 8
    events = Counter(mark for mark, key in fleet.marked_keys() if key.startswith("woken~"))
    assert events == {"begin:leaf": 8, "end:leaf": 8}


async def test_a_cancelled_parent_takes_its_children_along(fleet: WorkerFleet) -> None:
    """Protocol §5: all children end, also those that had not begun, and then the parent ends `cancelled`."""
    await fleet.send("held", "held")
    await until(
        lambda: any(key.startswith("held~") for _, key in fleet.marked_keys()), what="a child to begin"
    )
    await cancel(fleet.client.fleet, "held", 1)
    end = await fleet.settled("held")
    assert was_cancelled(end), end.outcome
    for child in range(1, 6):
        assert was_cancelled(await fleet.settled(f"held~{child}"))
    marks = [mark for mark, key in fleet.marked_keys() if key.startswith("held~")]
    assert len(marks) <= WIDTH and "end:long" not in marks


@pytest.mark.parametrize(
    ("workflow", "count"),
    [
        pytest.param("few", 40, id="40-of-a-batch"),
        pytest.param("script-few", 40, id="40-of-a-script"),
        pytest.param("many", 500, id="500-of-a-batch", marks=pytest.mark.long),
        pytest.param("script-many", 500, id="500-of-a-script", marks=pytest.mark.long),
    ],
)
async def test_many_children_of_one_call_all_end_and_join_once(
    fleet: WorkerFleet, workflow: str, count: int
) -> None:
    """Design "One engine, two drivers": a parent of 500 children holds no slot."""
    session = f"n-{workflow}"
    await fleet.send(session, workflow)
    end = await fleet.settled(session, seconds=220)
    assert end.outcome["kind"] == "completed", str(end.outcome)
    assert joins(end) == 1
    state = await fleet.state(session)
    assert sum(step["kind"] == "sub-workflow" for step in state.trail) == count
    last = await fleet.settled(f"{session}~{count}")
    assert last.outcome["kind"] == "completed"
    assert await fleet.ended(f"{session}~{count + 1}", 1) is None


async def test_the_children_of_one_suspension_are_a_celery_group_under_their_parents_task(
    fleet: WorkerFleet,
) -> None:
    """Design "One engine, two drivers": the dashboard shows whose children they are."""
    worker = fleet.start_worker(ARCHMAX_WORKFLOWS="grouped")
    await fleet.ready(worker)
    try:
        await fleet.send("grouped", "grouped")
        found: list[JsonObject] = []

        async def three() -> bool:
            found[:] = [json.loads(raw) for raw in await queued(fleet, child_queue("unserved"))]
            return len(found) == 3

        await until(three, what="three messages in the children's queue")
    finally:
        worker.kill()
    headers: list[dict[str, Any]] = [message["headers"] for message in found]
    assert len({header["group"] for header in headers}) == 1
    assert sorted(header["group_index"] for header in headers) == [0, 1, 2]
    assert {header["parent_id"] for header in headers} == {header["root_id"] for header in headers}
    assert headers[0]["parent_id"].startswith("grouped.1:"), headers[0]


async def queued(fleet: WorkerFleet, queue: str) -> list[str]:
    return [str(raw) for raw in await fleet.client.redis.lrange(queue, 0, -1)]
