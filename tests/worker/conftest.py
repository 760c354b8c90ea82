"""A Redis for the worker tests, started once; every test has a database and a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from itertools import count
from pathlib import Path

import pytest

from archmax.local.redis import EmbeddedRedis
from tests.support.workers import WorkerFleet

_databases = count()


@pytest.fixture(scope="session")
def redis_server() -> Generator[EmbeddedRedis]:
    server = EmbeddedRedis.start()
    yield server
    server.stop()


@pytest.fixture
async def worker_fleet(tmp_path: Path, redis_server: EmbeddedRedis) -> AsyncGenerator[WorkerFleet]:
    async with WorkerFleet(tmp_path, redis_server, database=next(_databases) % 16) as fleet:
        yield fleet
