"""A webhook asked for over HTTP, delivered by a real worker."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import httpx
import pytest

from core.jsontext import loads
from tests.support.fleet import RunningFleet, run_turn


async def test_the_worker_tells_the_address_of_a_park_and_of_an_end(client: httpx.AsyncClient) -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        told.put_nowait(loads(await reader.readexactly(length)))
        assert "archmax-signature: t=" in head
        writer.write(b"HTTP/1.1 204 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        asked = {"message": "x", "webhook": {"url": url}}
        turn = await run_turn(client, "/v1/workflows/refund/sessions", asked)
        parked = await told.get()
        assert parked["type"] == "turn.parked" and parked["turnId"] == turn["turnId"]
        path = f"/v1/sessions/{turn['sessionId']}/decisions"
        await run_turn(client, path, {"to": "pay", "webhook": {"url": url}})
        settled = await told.get()
        assert settled["type"] == "turn.settled" and settled["outcome"]["kind"] == "completed"


async def test_a_webhook_that_cannot_be_is_refused_before_anything_is_written(
    fleet: RunningFleet, client: httpx.AsyncClient
) -> None:
    path = "/v1/workflows/chat/sessions"
    answer = await client.post(path, json={"message": "x", "webhook": {"url": "ftp://x.example"}})
    assert answer.status_code == 422 and answer.json()["code"] == "webhook"
    process, url = await asyncio.to_thread(
        fleet.start_api,
        ARCHMAX_AUTH_DISABLED="1",
        ARCHMAX_WEBHOOK_SECRET="",
        ARCHMAX_WEBHOOK_ALLOW_PRIVATE="0",
    )
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as bare:
        answer = await bare.post(path, json={"message": "x", "webhook": {"url": "https://hooks.example/"}})
        assert answer.status_code == 422 and "ARCHMAX_WEBHOOK_SECRET" in answer.json()["detail"]
    await asyncio.to_thread(process.stop)


async def test_dead_letters_can_be_listed(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/webhooks/dead")
    assert answer.status_code == 200 and answer.json()["items"] == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/",
        "http://localhost/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://169.254.169.254/latest/meta-data",
        "https://user:pass@hooks.example/",
    ],
)
async def test_a_private_target_is_refused_on_every_way_in(
    fleet: RunningFleet, client: httpx.AsyncClient, public: str, url: str
) -> None:
    turn = await run_turn(client, "/v1/workflows/refund/sessions", {"message": "x"})
    session, webhook = turn["sessionId"], {"webhook": {"url": url}}
    start = {"op": "start", "workflow": "chat", "message": "x", **webhook}
    async with httpx.AsyncClient(base_url=public, trust_env=False, timeout=30) as api:
        for path, body in (
            ("/v1/workflows/chat/sessions", {"message": "x"}),
            (f"/v1/sessions/{session}/turns", {"message": "x"}),
            (f"/v1/sessions/{session}/replies", {"message": "x"}),
            (f"/v1/sessions/{session}/decisions", {"to": "pay"}),
        ):
            answer = await api.post(path, json={**body, **webhook})
            assert (answer.status_code, answer.json()["code"]) == (422, "webhook"), path
        batch = (await api.post("/v1/batch", json={"items": [start]})).json()["items"]
        assert batch[0]["problem"]["code"] == "webhook"
        assert (await api.get(f"/v1/sessions/{session}")).json()["status"] == "awaiting_decision"


@pytest.fixture(scope="module")
def public(fleet: RunningFleet) -> Generator[str]:
    """An API that lets webhooks go to public addresses only."""
    process, url = fleet.start_api(ARCHMAX_AUTH_DISABLED="1", ARCHMAX_WEBHOOK_ALLOW_PRIVATE="0")
    yield url
    process.stop()
