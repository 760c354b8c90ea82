"""A worker dies at every durable write and every send of a turn: the turn ends elsewhere, each committed step once.

A sample runs with the ordinary suite; the rest is marked `long` (`make crashes`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from archmax.local.redis import EmbeddedRedis
from tests.support.crashes import CASES, Case, Crashes
from tests.support.workers import WorkerFleet

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

SAMPLE = {
    Case("plain", "claim.after:1"),
    Case("plain", "put-step.before:4"),
    Case("plain", "put-end.after:1"),
    Case("fan", "put-child-entry.after:2"),
    Case("fan", "put-answer.after:3"),
    Case("fan", "takeover.after:1"),
    Case("script", "put-suspend.after:1"),
    Case("script", "put-joined.before:1"),
}


def _params() -> list[object]:
    return [
        pytest.param(case, id=case.slug, marks=() if case in SAMPLE else pytest.mark.long) for case in CASES
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crashes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_server: EmbeddedRedis
) -> AsyncGenerator[Crashes]:
    folder: Path = tmp_path_factory.mktemp("crashes")
    chosen: list[Case] = [
        cast(Case, item.callspec.params["case"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    ]
    environment = {"ARCHMAX_MAX_CONCURRENT_CHILDREN": "2", "ARCHMAX_CONCURRENCY": "4"}
    async with WorkerFleet(folder, redis_server, database=15, **environment) as fleet:
        made = Crashes(fleet, chosen)
        await made.start()
        yield made


@pytest.mark.parametrize("case", _params())
async def test_a_turn_whose_worker_dies_there_ends_elsewhere_with_each_step_once(
    crashes: Crashes, case: Case
) -> None:
    """Design "Durability", protocol §3 and §4: every crash point."""
    await crashes.check(case)
