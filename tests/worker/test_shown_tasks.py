"""What an operator sees of tasks: in Flower, and in the log; which turn, never what is in it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from archmax.local.fleet import flower_part
from archmax.local.ports import free_port
from tests.support.workers import WorkerFleet, until
from worker.celery_app import ENQUEUE_TASK, INTAKE_QUEUE, create_app
from worker.shown_tasks import shown_input

SECRET = "a message nobody else should read"
WORKFLOW = f"""
title: Marks
instructions: Leave marks.
tools:
  allow_always: [quick, slow, suicide]
states:
  work:
    triggers: {{ manual: }}
    instructions: Leave marks. {SECRET}
"""
MODEL = f"""
- {{ when_contains: die, after_tool: suicide, text: "{SECRET}" }}
- {{ when_contains: die, tool_calls: [ {{ name: suicide, args: {{ ref: "{SECRET}", seconds: 8 }} }} ] }}
- {{ tool_calls: [ {{ name: slow, args: {{ ref: "{SECRET}", seconds: 3 }} }} ] }}
- {{ text: "{SECRET}" }}
"""


@contextmanager
def process(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Generator[None]:
    with log.open("wb") as file:
        running = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        yield
    finally:
        running.terminate()
        running.wait()


@pytest.fixture
async def flower(worker_fleet: WorkerFleet, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Flower over the fleet's Redis, as `archmax up` starts it."""
    port = free_port()
    part = flower_part(worker_fleet.redis_url, port, prefix="ops", auth="admin:pass")
    client = httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}/ops", auth=("admin", "pass"), trust_env=False, timeout=60
    )

    async def healthy() -> bool:
        try:
            return (await client.get("/healthcheck")).status_code == 200
        except httpx.TransportError:
            return False

    with process(part.command, {**os.environ, **part.environment}, tmp_path / "flower.log"):
        async with client:
            await until(healthy, what="Flower")
            yield client


async def shown(flower: httpx.AsyncClient, name: str) -> list[dict[str, Any]]:
    tasks: dict[str, dict[str, Any]] = (await flower.get("/api/tasks")).json()
    return [task for task in tasks.values() if task["name"] == name]


async def test_flower_names_workflow_session_turn_and_attempt_and_shows_nothing_of_what_was_said(
    worker_fleet: WorkerFleet, flower: httpx.AsyncClient
) -> None:
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": MODEL})
    worker = worker_fleet.start_worker()
    await worker_fleet.ready(worker)
    await worker_fleet.send("s/1", "marks", SECRET)
    producer = create_app(worker_fleet.settings)
    fields = {"workflow": "marks", "sessionId": "from-celery", "message": SECRET}
    await asyncio.to_thread(producer.send_task, ENQUEUE_TASK, kwargs=fields, queue=INTAKE_QUEUE)
    pages = ["/workers", "/tasks", "/broker", "/api/tasks", "/api/workers?refresh=1"]
    seen: list[str] = []

    async def look() -> None:
        names = [f"/worker/{worker.name}"]
        names += [f"/task/{task['uuid']}" for task in await shown(flower, "archmax.turn")]
        names += [f"/task/{task['uuid']}" for task in await shown(flower, ENQUEUE_TASK)]
        seen.extend([(await flower.get(name)).text for name in [*pages, *names]])

    async def both_shown() -> bool:
        await look()  # while they run, too
        turns = {task["args"] for task in await shown(flower, "archmax.turn")}
        inputs = {task["kwargs"] for task in await shown(flower, ENQUEUE_TASK)}
        return inputs == {"workflow=marks session=from-celery"} and turns >= {
            "workflow=marks session=s/1 turn=1 attempt=1",
            "workflow=marks session=from-celery turn=1 attempt=1",
        }

    await until(both_shown, what="both turns and the input in Flower")
    await worker_fleet.settled("s/1")
    await worker_fleet.settled("from-celery")
    await look()
    assert any("session=s/1" in text for text in seen)
    assert not [text for text in seen if SECRET in text]


async def test_flower_counts_the_attempts_of_a_step_that_kills_its_workers(
    worker_fleet: WorkerFleet, flower: httpx.AsyncClient
) -> None:
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": MODEL})
    worker = worker_fleet.start_worker()
    await worker_fleet.ready(worker)
    await worker_fleet.send("s", "marks", "die")
    await until(lambda: worker.process.poll() is not None, what="the first death")
    await worker_fleet.ready(worker_fleet.start_worker())

    async def second() -> bool:
        return any(task["args"].endswith(" attempt=2") for task in await shown(flower, "archmax.turn"))

    await until(second, what="the second attempt")


@pytest.mark.parametrize(
    ("kwargs", "told"),
    [
        ({"workflow": "w", "sessionId": "s", "message": SECRET}, "workflow=w session=s"),
        ({"workflow": {"x": SECRET}, "sessionId": 7}, ""),
        (None, ""),
        ({"workflow": "w" * 500}, f"workflow={'w' * 120}"),
    ],
)
def test_of_an_input_only_names_are_shown(kwargs: object, told: str) -> None:
    assert shown_input(kwargs) == told


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line]


async def test_with_json_every_line_of_every_process_is_an_object_and_those_about_a_turn_carry_its_ids(
    worker_fleet: WorkerFleet, tmp_path: Path
) -> None:
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": MODEL})
    worker = worker_fleet.start_worker(ARCHMAX_LOG_FORMAT="json", ARCHMAX_LOG_LEVEL="debug")
    environment = worker_fleet.environment(ARCHMAX_LOG_FORMAT="json", ARCHMAX_AUTH_DISABLED="1")
    port = free_port()
    command = [sys.executable, "-m", "archmax", "api", "--root", str(worker_fleet.root), "--port", str(port)]
    log = tmp_path / "api.log"
    await worker_fleet.ready(worker)
    with process(command, environment, log):
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60
        ) as client:

            async def accepted() -> bool:
                try:
                    body = {"message": SECRET, "sessionId": "s"}
                    answer = await client.post("/v1/workflows/marks/sessions", json=body)
                except httpx.TransportError:
                    return False
                assert answer.status_code == 202, answer.text
                return True

            await until(accepted, what="the API")
        await worker_fleet.settled("s")
    assert worker.terminate() == 0
    told = lines(worker.log)
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in told))
    about = [line for line in told if "archmax.turn[" in line["message"]]
    assert about
    for line in about:
        assert (line["session"], line["turn"]) == ("s", 1), line
    assert any(line["logger"].startswith("uvicorn") for line in lines(log.read_text()))
    assert SECRET not in worker.log
    assert SECRET not in log.read_text()
