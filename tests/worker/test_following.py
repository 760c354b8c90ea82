"""Following a turn: each event once, in order, at a cost that grows with the turn and not with its square."""

from __future__ import annotations

from typing import Any

from storage.directory import DirectoryStore
from tests.support.workers import WorkerFleet
from worker.events import stream_key
from worker.following import START, Follower, Told
from worker.reading import Reader

STEPS = 12
WORKFLOW = """
title: Marks
instructions: Leave marks.
tools: { allow_always: [slow] }
states:
  work: { triggers: { manual: }, instructions: Leave marks. }
"""
MODEL = "\n".join(
    [
        *(
            f"- tool_calls: [ {{ name: slow, args: {{ ref: '{step}', seconds: 0.2 }} }} ]"
            for step in range(STEPS)
        ),
        "- text: done",
    ]
)


async def followed(fleet: WorkerFleet, session: str) -> tuple[list[Told], int]:
    """The recorded events of the session's first turn, and how many objects were read for them."""
    store = fleet.client.store
    assert isinstance(store, DirectoryStore)
    follower = Follower(fleet.client, Reader(fleet.client))
    before = store.requests["get"]
    try:
        events = [told async for told in follower.follow(session, START, turn=1) if told is not None]
    finally:
        await follower.close()
    return [told for told in events if told.id is not None], store.requests["get"] - before


async def test_a_turn_followed_while_it_runs_is_read_from_redis_alone(worker_fleet: WorkerFleet) -> None:
    """The store is asked for the head and the end, before and behind, however many steps there are between."""
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": MODEL})
    await worker_fleet.ready(worker_fleet.start_worker())
    await worker_fleet.send("s", "marks")
    told, reads = await followed(worker_fleet, "s")
    assert told[-1].event["type"] == "turn-settled"
    assert reads <= STEPS // 2
    again, _ = await followed(worker_fleet, "s")
    assert [item.id for item in told] == [item.id for item in again]


async def test_an_event_that_redis_lost_is_read_from_the_store(worker_fleet: WorkerFleet) -> None:
    """An entry taken out of the stream while it is followed is told all the same, and in its place."""
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": MODEL})
    await worker_fleet.ready(worker_fleet.start_worker())
    await worker_fleet.send("s", "marks")
    whole, _ = await followed(worker_fleet, "s")
    redis, key = worker_fleet.client.redis, stream_key("s")
    entries: Any = await redis.xrange(key)
    lost = [where for where, fields in entries if fields.get("id") in {item.id for item in whole[3:6]}]
    assert len(lost) == 3
    await redis.xdel(key, *lost)
    follower = Follower(worker_fleet.client, Reader(worker_fleet.client))
    # as a reader meets the stream that asked for its end before the turn began
    follower._latest = _from_the_beginning  # type: ignore[method-assign]
    try:
        events = [told async for told in follower.follow("s", (1, 0, 0, 0), turn=1) if told is not None]
    finally:
        await follower.close()
    found = [told.id for told in events if told.id is not None]
    assert found == [item.id for item in whole]


async def _from_the_beginning(_session: str) -> str:
    return "0-0"
