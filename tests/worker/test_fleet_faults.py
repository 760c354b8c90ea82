"""Redis away, flushed, frozen; workers frozen; messages doubled and out of order: time is lost, nothing else.

One fleet of two workers for the whole module. Each test has sessions of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from itertools import count

import pytest
import pytest_asyncio
from kombu.transport.redis import QoS

from tests.support.redis import RestartableRedis
from tests.support.workers import WorkerFleet, until
from worker.celery_app import create_app
from worker.ports import BrokerUnavailable, Message

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

WORKFLOW = """
title: Marks
instructions: Leave marks.
tools: { allow_always: [quick, slow] }
states:
  work:
    triggers: { manual: }
    instructions: Leave marks.
    transitions: [ { to: done, description: all marks are left } ]
  done:
    instructions: Say so.
"""
MODEL = """
- { when_state: work, when_contains: "long", after_tool: quick, tool_calls: [ { name: slow, args: { ref: two, seconds: 6 } } ] }
- { when_state: work, after_tool: quick, tool_calls: [ { name: slow, args: { ref: two, seconds: 0.3 } } ] }
- { when_state: work, after_tool: slow, tool_calls: [ { name: archmax_advance, args: { to: done, reason: marks } } ] }
- { when_state: work, tool_calls: [ { name: quick, args: { ref: one } } ] }
- { when_state: done, repeat: true, text: All marks are left. }
"""

_numbers = count(1)


def new_session() -> str:
    return f"f{next(_numbers)}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def redis() -> AsyncGenerator[RestartableRedis]:
    server = RestartableRedis()
    yield server
    server.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    redis: RestartableRedis, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[WorkerFleet]:
    async with WorkerFleet(tmp_path_factory.mktemp("faults"), redis) as made:
        made.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": MODEL})
        for worker in [made.start_worker(concurrency=4) for _ in range(2)]:
            await made.ready(worker)
        yield made


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def every_worker_lives(fleet: WorkerFleet) -> AsyncGenerator[None]:
    """No fault of a test may have ended one: the other would hide it."""
    yield
    assert [worker.log[-3000:] for worker in fleet.workers if worker.process.poll() is not None] == []


def marks_of(fleet: WorkerFleet, session: str) -> Counter[str]:
    return Counter(mark for mark, key in fleet.marked_keys() if key.startswith(f"{session}/"))


async def check_once(fleet: WorkerFleet, session: str) -> None:
    """The turn ended, and what it did was done once."""
    end = await fleet.settled(session)
    assert end.outcome["kind"] == "completed", end.outcome
    assert marks_of(fleet, session) == {"quick:one": 1, "begin:two": 1, "end:two": 1}
    state = await fleet.state(session)
    assert [step["to"] for step in state.trail] == ["work", "done"]


async def began(fleet: WorkerFleet, session: str) -> None:
    await until(lambda: marks_of(fleet, session)["begin:two"] == 1, what="the slow tool to begin")


async def test_a_redis_that_is_killed_and_comes_back_empty_loses_no_turn(
    fleet: WorkerFleet, redis: RestartableRedis
) -> None:
    """Design "Durability": the running turn goes on, the queued one is sent again, the next one is taken (H7)."""
    running, queued, later = new_session(), new_session(), new_session()
    await fleet.send(running, "marks", "long")
    await began(fleet, running)
    redis.kill()
    with pytest.raises(BrokerUnavailable):
        await fleet.send(queued, "marks")
    assert await fleet.client.fleet.log(queued).entry(1) is None, "a refused input was written"
    await asyncio.sleep(1)
    redis.start()
    await check_once(fleet, running)
    await fleet.send(later, "marks")
    await check_once(fleet, later)


async def test_a_flushed_redis_is_rebuilt_from_the_store(fleet: WorkerFleet) -> None:
    """Protocol §6: `boot` is gone, so the inbox is listed and every accepted turn is sent again."""
    running, *queued = [new_session() for _ in range(8)]
    await fleet.send(running, "marks", "long")
    await began(fleet, running)
    for session in queued:
        await fleet.send(session, "marks")
    await fleet.client.redis.flushall()
    for session in (running, *queued):
        await check_once(fleet, session)


async def test_a_frozen_redis_refuses_new_turns_soon_and_stops_no_running_one(
    fleet: WorkerFleet, redis: RestartableRedis
) -> None:
    """Design "Accept": 503 within a fixed bound when the broker is silent; running turns do not need it (H6)."""
    running, refused, later = new_session(), new_session(), new_session()
    await fleet.send(running, "marks", "long")
    await began(fleet, running)
    redis.freeze()
    try:
        async with asyncio.timeout(25):
            with pytest.raises(BrokerUnavailable):
                await fleet.send(refused, "marks")
        assert await fleet.client.fleet.log(refused).entry(1) is None
        await check_once(fleet, running)
    finally:
        redis.thaw()
    await fleet.send(later, "marks")
    await check_once(fleet, later)


async def test_workers_whose_connections_are_cut_take_turns_again(fleet: WorkerFleet) -> None:
    """Known fault H7: cut three times within seconds; the next turn runs without a restart."""
    for _ in range(3):
        await fleet.client.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
        await asyncio.sleep(1)
    session = new_session()

    async def sent() -> bool:
        try:
            await fleet.send(session, "marks")
        except BrokerUnavailable:
            return False
        return True

    await until(sent)
    await check_once(fleet, session)
    # Both take turns again: one that stood still would hide behind the other.
    seen: set[str] = set()

    async def both() -> bool:
        each = [new_session() for _ in range(8)]
        for session in each:
            await fleet.send(session, "marks")
        for session in each:
            await fleet.settled(session)
        seen.update(
            line.split()[2]
            for line in fleet.marks.read_text().splitlines()
            if line.split()[1].split("/")[0] in each
        )
        return len(seen) == 2

    await until(both, what="both workers to take turns")


async def test_messages_that_come_doubled_early_and_out_of_order_change_nothing(fleet: WorkerFleet) -> None:
    """Protocol §3: a message means "look at the session" and carries no truth (H1)."""
    session = new_session()
    queue = fleet.client.fleet.queue
    await queue.send([Message(session, n, "marks") for n in (3, 1, 2)])
    for text in ("long", "go on", "and on"):
        await fleet.send(session, "marks", text)
    for _ in range(5):
        await queue.send([Message(session, n, "marks", child=n == 2) for n in (3, 2, 1, 0)])
        await asyncio.sleep(0.3)
    ends = [await fleet.settled(session, n) for n in (1, 2, 3)]
    assert [end.outcome["kind"] for end in ends] == ["completed"] * 3
    assert marks_of(fleet, session) == {"quick:one": 1, "begin:two": 1, "end:two": 1}
    state = await fleet.state(session)
    people = [message["text"] for message in state.messages if message["role"] == "user"]
    assert people == ["long", "go on", "and on"]


async def test_a_message_given_out_again_while_its_turn_runs_changes_nothing(fleet: WorkerFleet) -> None:
    """Known fault H1: what kombu does with a message that is not acknowledged within the visibility timeout."""
    session = new_session()
    await fleet.send(session, "marks", "long")
    await began(fleet, session)

    def received() -> int:
        return sum(worker.log.count(f"Task archmax.turn[{session}.1:") for worker in fleet.workers)

    assert received() == 1
    app = create_app(fleet.settings)
    with app.connection_for_write() as connection:
        qos = connection.default_channel.qos
        assert isinstance(qos, QoS)
        for tag in await fleet.client.redis.hkeys("unacked"):
            qos.restore_by_tag(tag)
    await until(lambda: received() > 1, what="the message to come again")
    assert marks_of(fleet, session) == {"quick:one": 1, "begin:two": 1}, "the first holder is still at it"
    await check_once(fleet, session)


async def test_a_worker_frozen_past_its_lease_changes_nothing_when_it_wakes(fleet: WorkerFleet) -> None:
    """Protocol §4: its successor has sealed the keys it would write next, whatever Redis said meanwhile."""
    session = new_session()
    await fleet.send(session, "marks", "long")
    await began(fleet, session)
    pid = fleet.pid_of("begin:two")
    os.kill(pid, signal.SIGSTOP)
    try:
        end = await fleet.settled(session)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert end.fence == 2
    # The frozen call ends now; its record must not be in the log.
    await until(lambda: marks_of(fleet, session)["end:two"] == 2)
    await asyncio.sleep(1)
    again = await fleet.settled(session)
    assert again.w == end.w
    assert marks_of(fleet, session) == {"quick:one": 1, "begin:two": 2, "end:two": 2}
    keys = {key for mark, key in fleet.marked_keys() if mark == "begin:two" and key.startswith(f"{session}/")}
    assert len(keys) == 1, "both attempts at the call had one idempotency key"
    state = await fleet.state(session)
    assert [step["to"] for step in state.trail] == ["work", "done"]
    assert sum(message["role"] == "tool" and "slowly" in message["text"] for message in state.messages) == 1


async def test_a_worker_runs_turn_after_turn_without_a_closed_loop(fleet: WorkerFleet) -> None:
    """Known fault H10: all turns of a process share one loop and its clients."""
    session = new_session()
    for n in range(1, 5):
        await fleet.send(session, "marks", f"message {n}")
        assert (await fleet.settled(session, n)).outcome["kind"] == "completed"
    assert all("loop is closed" not in worker.log for worker in fleet.workers)
