"""Each example client, as its page says to run it, against a real fleet: a refund is enqueued, followed and decided."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from celery import Celery
from celery.events import EventReceiver

from archmax.local.ports import free_port
from tests.support.desk import ADMIN, bearer
from tests.support.fleet import REPOSITORY, TEST_SECRET, Process, RunningFleet, eventually, settled, sse

CLIENTS = REPOSITORY / "examples" / "clients"
CUSTOMER, WHY = "orders@harborbakery.example", "The bread tins of SO-4101 are dented, please refund them."


@asynccontextmanager
async def shop(desk: RunningFleet, key: str, *command: str, **more: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A web application of the examples as a process of its own; `{port}` in the command is its port."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = await asyncio.to_thread(
        _started, desk, key, [word.format(port=port) for word in command], url, more
    )
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:

            async def answers() -> bool:
                assert process.process.poll() is None, process.words()
                try:
                    return (await client.get("/nothing-here")).status_code == 404
                except httpx.TransportError:
                    return False

            await eventually(answers)
            yield client
    finally:
        await asyncio.to_thread(process.stop)


def environment(desk: RunningFleet, key: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCHMAX_")}
    named = {"ARCHMAX_URL": desk.url, "ARCHMAX_KEY": key, "PYTHONPATH": str(REPOSITORY)}
    return {**kept, **named, **more}


def _started(desk: RunningFleet, key: str, command: list[str], url: str, more: dict[str, str]) -> Process:
    log = desk.root.parent / f"shop-{command[-1]}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=CLIENTS,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(desk, key, SHOP_URL=url, **more),
        )
    return Process(process, log)


async def test_a_fastapi_shop_enqueues_passes_events_on_decides_and_is_told(
    desk: RunningFleet, key: str
) -> None:
    command = ("-m", "uvicorn", "fastapi_app:app", "--host", "127.0.0.1", "--port", "{port}")
    async with shop(desk, key, *command, ARCHMAX_WEBHOOK_SECRET=TEST_SECRET) as client:
        asked = {"customer": CUSTOMER, "why": WHY}
        first = await client.post("/refunds/SO-4104", json=asked)
        again = await client.post("/refunds/SO-4104", json=asked)
        assert first.status_code == 202, first.text
        assert first.json() == again.json() == {"order": "SO-4104", "turn": "refund-SO-4104.1"}

        parked = await _followed(client, "refund-SO-4104.1")
        assert parked[-1]["data"]["outcome"]["kind"] == "parked"
        shown = (await client.get("/refunds/SO-4104")).json()
        assert shown["status"] == "awaiting_decision"
        assert {"to": "refund-closed", "means": "The decision stands."} in shown["ways"]

        wrong = await client.post("/refunds/SO-4104/decision", json={"to": "nowhere"})
        assert wrong.status_code == 409
        assert "nowhere" in wrong.json()["detail"]
        decided = await client.post(
            "/refunds/SO-4104/decision", json={"to": "refund-closed", "comment": "for Maria"}
        )
        assert decided.json()["turn"] == "refund-SO-4104.2"
        rest = await _followed(client, "refund-SO-4104.2", after=parked[-1]["id"])
        assert {item["data"]["turnId"] for item in rest} == {"refund-SO-4104.2"}
        assert rest[-1]["data"]["outcome"]["kind"] == "completed"
        assert (await client.get("/refunds/SO-4104")).json() == {
            "order": "SO-4104",
            "status": "completed",
            "ways": [],
        }

        async def told() -> bool:
            return "refund-SO-4104.1" in (await client.get("/told")).json()

        await eventually(told)
        event = (await client.get("/told")).json()["refund-SO-4104.1"]
        assert (event["type"], event["sessionId"]) == ("turn.parked", "refund-SO-4104")
        forged = await client.post("/hooks/fleet", json=event, headers={"Archmax-Signature": "t=1,v1=00"})
        assert forged.status_code == 401
        assert (await client.get("/refunds/SO-9999")).status_code == 404
        assert (await client.get("/refunds/SO-9999/events")).status_code == 404


async def _followed(
    client: httpx.AsyncClient, turn: str, *, after: str | None = None
) -> list[dict[str, Any]]:
    """What a browser's `EventSource` is sent up to the end of a turn."""
    headers = {"Last-Event-ID": after} if after else {}
    found: list[dict[str, Any]] = []
    async with client.stream("GET", "/refunds/SO-4104/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for item in sse(answer):
            if "comment" in item:
                continue
            found.append(item)
            if item["event"] == "turn-settled" and item["data"]["turnId"] == turn:
                break
    return found


async def test_a_django_shop_waits_for_the_turn_and_decides_by_a_form(desk: RunningFleet, key: str) -> None:
    async with shop(desk, key, "django_app.py", "runserver", "--noreload", "127.0.0.1:{port}") as client:
        fields = _hidden((await client.get("/refunds/")).text)
        asked = {**fields, "order": "SO-4102", "customer": CUSTOMER, "why": WHY}
        assert (
            await client.post("/refunds/", data={**asked, "csrfmiddlewaretoken": "x" * 32})
        ).status_code == 403
        assert (await client.post("/refunds/", data={**asked, "order": "../x"})).status_code == 400
        first = await client.post("/refunds/", data=asked)
        again = await client.post("/refunds/", data=asked)
        assert first.status_code == 302, first.text
        assert first.headers["location"] == again.headers["location"] == "/refunds/SO-4102/refund-SO-4102.1/"

        page = await _over(client, first.headers["location"])
        assert "SO-4102: parked" in page
        assert '<button name="to" value="refund-closed">The decision stands.</button>' in page
        press = {**_hidden(page), "to": "refund-closed", "comment": "<b>checked</b>"}
        decided = await client.post(first.headers["location"], data=press)
        assert decided.headers["location"] == "/refunds/SO-4102/refund-SO-4102.2/"
        page = await _over(client, decided.headers["location"])
        assert "SO-4102: completed" in page
        late = await client.post(first.headers["location"], data=press)
        assert late.status_code == 409, "it is decided"
        assert (await client.get("/refunds/SO-4102/other.1/")).status_code == 404
    async with desk.client(headers=bearer(ADMIN)) as fleet:
        trail = (await fleet.get("/v1/sessions/refund-SO-4102/trail")).json()["items"]
        assert trail[-1]["reason"] == "<b>checked</b>"


def _hidden(page: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', page))


async def _over(client: httpx.AsyncClient, path: str) -> str:
    """The page once it does not ask the browser to come again."""
    page = ""

    async def over() -> bool:
        nonlocal page
        page = (await client.get(path)).text
        return "http-equiv" not in page

    await eventually(over)
    return page


def test_a_shell_with_curl_asks_follows_reads_and_decides(desk: RunningFleet, key: str) -> None:
    run = subprocess.run(
        ["sh", "refund.sh", "SO-4101"],
        cwd=CLIENTS,
        env=environment(desk, key) | {"no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    accepted, parked, evidence, decided, done = [json.loads(line) for line in run.stdout.splitlines() if line]
    assert accepted["turnId"] == parked["turnId"]
    assert (parked["outcome"]["kind"], evidence["decision"]) == ("parked", "approved")
    assert decided["turnId"] == done["turnId"]
    assert done["outcome"]["kind"] == "completed"
    refused = subprocess.run(
        ["sh", "refund.sh", "SO-4101"],
        cwd=CLIENTS,
        env=environment(desk, "amx_wrong") | {"no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert refused.returncode != 0
    assert "unauthenticated" in refused.stdout


async def test_a_celery_producer_enqueues_and_no_monitor_sees_what(desk: RunningFleet) -> None:
    """Flower shows what Celery's events carry, and what a worker answers to an inspection."""
    seen: list[dict[str, Any]] = []
    watcher = Celery("watcher", broker=desk.redis.url, set_as_current=False)

    def watch() -> None:
        with watcher.connection() as connection:
            receiver = EventReceiver(connection, handlers={"*": seen.append}, app=watcher)
            for _ in receiver.itercapture(limit=None, timeout=60, wakeup=True):
                if _enqueued(seen) == 3:
                    return

    watching = asyncio.create_task(asyncio.to_thread(watch))
    async with desk.client(headers=bearer(ADMIN)) as fleet:

        async def watched() -> bool:
            return any(event["type"] == "worker-heartbeat" for event in seen)

        await eventually(watched)
        for _ in range(2):
            run = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "celery_producer.py", "SO-4103"],
                cwd=CLIENTS,
                env=environment(desk, "", ARCHMAX_REDIS_URL=desk.redis.url),
                capture_output=True,
                text=True,
                timeout=250,
                check=False,
            )
            assert (run.returncode, run.stdout) == (0, "refund-SO-4103\n"), run.stderr

        # a producer that forgot `kwargsrepr`
        asked = {"workflow": "order-desk", "sessionId": "careless", "message": "bread from harborbakery"}
        await asyncio.to_thread(
            watcher.send_task,
            "archmax.turn.enqueue",
            kwargs=asked,
            queue="archmax.intake",
            ignore_result=True,
        )

        async def accepted() -> bool:
            found = [await fleet.get(f"/v1/turns/{turn}.1") for turn in ("refund-SO-4103", "careless")]
            return all(answer.status_code == 200 for answer in found)

        await eventually(accepted)
        await settled(fleet, "careless.1")
        turn = await settled(fleet, "refund-SO-4103.1")
        assert turn["outcome"]["kind"] == "completed"
        assert (await fleet.get("/v1/turns/refund-SO-4103.2")).status_code == 404, (
            "the same order is the same turn"
        )
    await watching
    received = [event for event in seen if event["type"] == "task-received"]
    assert "archmax.turn.enqueue" in {event["name"] for event in received}
    assert "bread" not in str(seen)
    assert "harborbakery" not in str(seen)
    watcher.close()


def _enqueued(seen: list[dict[str, Any]]) -> int:
    done = {event["uuid"] for event in seen if event["type"] == "task-succeeded"}
    received = {event["uuid"] for event in seen if event.get("name") == "archmax.turn.enqueue"}
    return len(done & received)


@pytest.mark.parametrize("file", sorted(path.name for path in CLIENTS.iterdir() if path.is_file()))
def test_every_file_is_named_on_the_page_of_the_examples(file: str) -> None:
    assert file == "README.md" or f"`{file}`" in (CLIENTS / "README.md").read_text("utf-8")
