"""Celery's task events: each one arrives, and many of them in one message."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from tests.support.workers import WorkerFleet, until

WORKFLOW = """
title: Marks
tools: { allow_always: [quick] }
states: { work: { triggers: { manual: } } }
"""
MODEL = "- { text: done }\n- { text: done }\n"
TURNS = 20


def events_in(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The events a published message of Celery's carries."""
    carried = json.loads(base64.b64decode(json.loads(message["data"])["body"]))
    return carried if isinstance(carried, list) else [carried]


async def test_events_of_one_moment_are_one_message_and_none_is_missing(worker_fleet: WorkerFleet) -> None:
    """A dashboard lives on them; the thread that sends them fetches the turns."""
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": MODEL})
    worker = worker_fleet.start_worker()
    await worker_fleet.ready(worker)
    messages: list[list[dict[str, Any]]] = []

    async with worker_fleet.client.redis.pubsub() as told:
        await told.psubscribe("*celeryev/task.*")

        async def listen() -> None:
            while True:
                message = await told.get_message(ignore_subscribe_messages=True, timeout=1)
                if message is not None:
                    messages.append(events_in(message))

        listening = asyncio.create_task(listen())
        for number in range(TURNS):
            await worker_fleet.send(f"s{number}", "marks", "go")
        for number in range(TURNS):
            await worker_fleet.settled(f"s{number}")

        def told_of() -> dict[str, set[str]]:
            kinds: dict[str, set[str]] = {}
            for event in (event for events in messages for event in events):
                kinds.setdefault(event["type"], set()).add(event["uuid"])
            return kinds

        def all_told() -> bool:
            kinds = told_of()
            ended = kinds.get("task-succeeded", set())
            return len(ended) >= TURNS and kinds["task-received"] == kinds["task-started"] == ended

        await until(all_told, what="the end of every task")
        listening.cancel()
    turns = {uuid.partition(":")[0] for uuid in told_of()["task-succeeded"]}
    assert turns >= {f"s{number}.1" for number in range(TURNS)}
    assert len(messages) < sum(map(len, messages)) / 3
