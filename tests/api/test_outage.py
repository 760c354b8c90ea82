"""The API while Redis is refused or silent: refused within two seconds, nothing half-made, reads go on (H6)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from archmax.local.ports import free_port
from tests.support.fleet import RunningFleet, eventually, run_turn
from tests.support.redis import RestartableRedis


@pytest.fixture
def silent() -> Generator[int]:
    """A port that accepts and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield int(listener.getsockname()[1])


def inbox(fleet: RunningFleet) -> set[Path]:
    return set((fleet.root / "sessions" / "_inbox").rglob("*"))


@pytest.mark.parametrize("how", ["refused", "silent"])
async def test_an_enqueue_without_a_broker_is_refused_soon_and_others_are_served(
    fleet: RunningFleet, client: httpx.AsyncClient, silent: int, how: str
) -> None:
    """known-faults H6."""
    turn = await run_turn(client, "/v1/workflows/refund/sessions", {"message": "x"})
    port = silent if how == "silent" else free_port()
    process, url = await asyncio.to_thread(
        fleet.start_api, ARCHMAX_AUTH_DISABLED="1", ARCHMAX_REDIS_URL=f"redis://127.0.0.1:{port}/0"
    )
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as broken:
            before = inbox(fleet)
            started = time.monotonic()
            posts = [
                asyncio.create_task(broken.post("/v1/workflows/chat/sessions", json={"message": "x"}))
                for _ in range(20)
            ]
            read = await broken.get(f"/v1/sessions/{turn['sessionId']}")
            assert read.status_code == 200 and read.json()["status"] == "awaiting_decision"
            answers = await asyncio.gather(*posts)
            # far from any default time-out, on a busy machine too; the bound itself is a setting
            assert time.monotonic() - started < 25
            for answer in answers:
                assert answer.status_code == 503 and answer.json()["code"] == "broker-unavailable"
                assert answer.headers["retry-after"]
            assert inbox(fleet) <= before, "nothing was accepted"
            shown = await broken.get(f"/v1/turns/{turn['turnId']}")
            assert shown.status_code == 200 and shown.json()["outcome"]["kind"] == "parked"
            events = await broken.get(turn["links"]["events"])
            assert events.status_code == 200 and "turn-settled" in events.text
            listed = await broken.get("/v1/sessions")
            assert listed.status_code == 503 and listed.json()["code"] == "index-unavailable"
            ready = await broken.get("/readyz")
            assert ready.status_code == 503 and ready.json()["problems"] == ["broker"]
            assert (await broken.get("/healthz")).status_code == 200
    finally:
        await asyncio.to_thread(process.stop)


async def test_a_broker_that_falls_silent_in_the_middle_is_refused_soon_and_used_again_when_it_speaks(
    fleet: RunningFleet, client: httpx.AsyncClient
) -> None:
    """known-faults H6: its connections stay open, the kernel accepts more, and nothing ever answers (SIGSTOP)."""
    turn = await run_turn(client, "/v1/workflows/refund/sessions", {"message": "x"})
    redis = RestartableRedis()
    process, url = await asyncio.to_thread(
        fleet.start_api, ARCHMAX_AUTH_DISABLED="1", ARCHMAX_REDIS_URL=redis.url
    )
    path = "/v1/workflows/chat/sessions"
    limits = httpx.Limits(max_connections=200)
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30, limits=limits) as api:
            assert (await api.post(path, json={"message": "x"})).status_code == 202
            assert (await api.get("/v1/fleet")).status_code == 200
            redis.freeze()
            before = inbox(fleet)
            began = time.monotonic()
            # as many looks at the fleet as would fill every thread of the process, and then some
            looks = [asyncio.create_task(api.get("/v1/fleet")) for _ in range(60)]
            posts = [asyncio.create_task(api.post(path, json={"message": "x"})) for _ in range(20)]
            for read in (
                f"/v1/sessions/{turn['sessionId']}",
                f"/v1/turns/{turn['turnId']}",
                f"/v1/sessions/{turn['sessionId']}/files/scratchpad/note.txt",
                "/v1/workflows/refund",
                "/healthz",
            ):
                assert (await api.get(read)).status_code == 200, read
            reads = time.monotonic() - began
            refused = await asyncio.gather(*posts)
            posted = time.monotonic() - began
            assert {answer.status_code for answer in refused} == {503}
            assert {answer.json()["code"] for answer in refused} == {"broker-unavailable"}
            assert {answer.status_code for answer in await asyncio.gather(*looks)} == {503}
            assert inbox(fleet) <= before, "nothing was accepted"
            # far from every default time-out; the bounds themselves are settings
            assert posted < 25 and reads < 25, (posted, reads)
            redis.thaw()

            async def again() -> bool:
                return (await api.post(path, json={"message": "x"})).status_code == 202

            await eventually(again)
    finally:
        await asyncio.to_thread(process.stop)
        redis.close()
