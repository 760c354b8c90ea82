"""Two minutes of the soak, which the whole check runs as `make soak MINUTES=2`; marked `long` to keep the suite quick."""

from __future__ import annotations

from pathlib import Path

import pytest

from archmax.local.redis import EmbeddedRedis
from tests.worker.soak import soak


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_two_minutes_of_mixed_load_under_dying_workers_lose_nothing_and_leave_nothing(
    tmp_path: Path, redis_server: EmbeddedRedis
) -> None:
    """Design "Durability": nothing lost, nothing twice, nothing piled up."""
    await soak(tmp_path, redis_server, minutes=2, seed=20, database=11)
