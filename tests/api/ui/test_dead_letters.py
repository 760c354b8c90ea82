"""Turns that killed their workers: shown with their input, and sent again as a new turn."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Generator
from html import unescape
from pathlib import Path

import pytest
from pydantic import SecretStr

from archmax.local.redis import EmbeddedRedis
from storage.records import EndedTurn
from tests.support.desk import ADMIN, CLERK, KEYS, bearer, form_fields, signed_in
from tests.support.fleet import REPOSITORY, RunningFleet, eventually, settled
from worker.client import FleetClient
from worker.redrive import told_input
from worker.settings import FleetSettings

WORKFLOW = """
title: Mine
tools: { allow_always: [step] }
states:
  work:
    triggers: { manual: { requires: [{ name: place, type: string }] } }
    instructions: Step.
"""
MODEL = """
- { after_tool: step, text: "Nothing happened.", repeat: true }
- { tool_calls: [{ name: step }], repeat: true }
"""
HOST = '''
import os
from langchain_core.tools import tool

@tool
async def step() -> str:
    """Kills its process while the mine is armed."""
    if os.path.exists(os.environ["TEST_MINE"]):
        with open(os.environ["TEST_MINE"], "a") as file:
            file.write("x")
        os.kill(os.getpid(), 9)
    return "went well"

def wire(context):
    return {"tools": [step]}
'''


@pytest.fixture
def mine(tmp_path: Path) -> Generator[RunningFleet]:
    root = tmp_path / "workspace"
    (root / "workflows" / "mine").mkdir(parents=True)
    (root / "workflows" / "mine" / "workflow.yaml").write_text(WORKFLOW)
    (root / "model.yaml").write_text(MODEL)
    (tmp_path / "mine_host.py").write_text(HOST)
    (tmp_path / "armed").touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCHMAX_")}
    with EmbeddedRedis.start() as redis:
        environment = {
            "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{tmp_path}",
            "TEST_MINE": str(tmp_path / "armed"),
            "ARCHMAX_ROOT": str(root),
            "ARCHMAX_REDIS_URL": redis.url,
            "ARCHMAX_MODEL": "scripted:model.yaml",
            "ARCHMAX_HOST": "mine_host:wire",
            "ARCHMAX_STORE_FSYNC": "0",
            "ARCHMAX_API_KEYS": KEYS,
            "ARCHMAX_MAX_ATTEMPTS": "1",
        }
        fleet = RunningFleet(root, redis, {**kept, **environment})
        try:
            fleet.api, fleet.url = fleet.start_api()
            yield fleet
        finally:
            for process in reversed(fleet.extra):
                process.stop()


@pytest.mark.timeout(600)
async def test_a_turn_that_killed_its_workers_is_sent_again_with_the_same_input(
    mine: RunningFleet, tmp_path: Path
) -> None:
    armed = tmp_path / "armed"
    asked = {
        "sessionId": "m-1",
        "message": "Mind the <b>step</b>.",
        "variables": {"place": "cellar"},
        "labels": {"floor": "0"},
    }
    async with mine.client(headers=bearer(ADMIN)) as api:
        accepted = await api.post("/v1/workflows/mine/sessions", json=asked)
        assert accepted.status_code == 202, accepted.text
        workers = [mine.start_worker(), mine.start_worker()]  # one dies, the other finds that out
        lost = await settled(api, "m-1.1")
        assert lost["outcome"]["exit"]["code"] == "worker-lost"
        assert armed.read_text() == "x"
        assert sorted(worker.process.poll() is None for worker in workers) == [False, True]
        async with _ended(mine, 1) as end:
            kept = told_input(end.records)
            assert kept is not None
            assert {name: kept[name] for name in ("kind", "message", "variables", "labels")} == {
                "kind": "message", "message": asked["message"], "variables": asked["variables"], "labels": asked["labels"],
            }  # fmt: skip
        async with signed_in(mine, CLERK) as clerk:

            async def listed() -> bool:
                return "worker-lost" in (await clerk.get("/ui/dead-letters")).text

            await eventually(listed)
            page = unescape((await clerk.get("/ui/dead-letters")).text)
            assert "worker-lost" in page and asked["message"] in page and "cellar" in page
            assert "lacks the scope" in page and "/redrive" not in page
        armed.unlink()
        async with signed_in(mine, ADMIN) as administrator:
            page = (await administrator.get("/ui/dead-letters")).text
            fields = form_fields(page, "/ui/dead-letters/redrive")
            assert fields["turn"] == "m-1.1"
            answers = await asyncio.gather(
                *(administrator.post("/ui/dead-letters/redrive", data=fields) for _ in range(2))
            )
            assert 303 in {answer.status_code for answer in answers}
            again = await settled(api, "m-1.2")
            assert (
                again["outcome"]["kind"] == "completed" and again["outcome"]["reply"] == "Nothing happened."
            )
            session = (await api.get("/v1/sessions/m-1")).json()
            assert session["turn"] == 2 and session["variables"]["place"]["value"] == "cellar"
            assert session["labels"] == {"floor": "0"}

            async def gone() -> bool:
                return "No turn was given up" in (await administrator.get("/ui/dead-letters")).text

            await eventually(gone)
            late = await administrator.post("/ui/dead-letters/redrive", data={**fields, "turn": "m-1.1"})
            assert late.status_code == 409 and "moved on" in late.text
            nothing = await administrator.post("/ui/dead-letters/redrive", data={**fields, "turn": "m-9.1"})
            assert nothing.status_code == 404
            assert "Webhooks given up" in (await administrator.get("/ui/dead-letters")).text
        async with _ended(mine, 2) as end:
            # a turn that recorded its opening tells its input by that
            assert told_input(end.records) == {
                "kind": "message", "trigger": "manual", "message": asked["message"],
                "variables": asked["variables"], "labels": asked["labels"],
            }  # fmt: skip


@contextlib.asynccontextmanager
async def _ended(fleet: RunningFleet, n: int) -> AsyncGenerator[EndedTurn]:
    """Turn `m-1.n` as the store has it."""
    client = FleetClient(FleetSettings(root=fleet.root, redis_url=SecretStr(fleet.redis.url)))
    await client.open()
    try:
        log = client.fleet.log("m-1")
        head = await log.head()
        assert head is not None
        end = await log.ended(head, n)
        assert end is not None
        yield end
    finally:
        await client.close()
