"""The API while Redis is refused or silent: refused within two seconds, nothing half-made, reads go on (H6)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from tests.support.fleet import RunningFleet, free_port, run_turn


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
            assert (
                time.monotonic() - started < 10
            )  # far from any default time-out; the bound itself is a setting
            for answer in answers:
                assert answer.status_code == 503 and answer.json()["code"] == "broker-unavailable"
                assert answer.headers["retry-after"]
            assert inbox(fleet) == before
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
