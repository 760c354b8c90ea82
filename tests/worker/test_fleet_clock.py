"""Clocks: machines that are twenty minutes off set and judge due times like the others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from archmax.local.redis import EmbeddedRedis
from engine.turn.until import to_ms
from tests.support.workers import WorkerFleet
from worker.ports import BrokerUnavailable
from worker.redis_clock import RedisClock

WAITS = """
title: Waits
instructions: Wait.
states:
  work: { triggers: { manual: }, instructions: Wait. }
"""
MODEL = """
- { after_tool: archmax_wait, repeat: true, text: going on }
- { text: a moment, tool_calls: [ { name: archmax_wait, args: { reason: tea, until: 2s } } ] }
- { repeat: true, text: awake }
"""
OFF_SECONDS = 1200


@pytest.mark.parametrize("off", [OFF_SECONDS, -OFF_SECONDS], ids=["ahead", "behind"])
async def test_a_machine_whose_clock_is_wrong_sets_and_judges_due_times_like_the_others(
    worker_fleet: WorkerFleet, off: int
) -> None:
    """Protocol §1: no clock orders anything; `until` counts from the fleet's clock, and the sweep judges by it."""
    worker_fleet.write({"workflows/waits/workflow.yaml": WAITS, "model.yaml": MODEL})
    worker = worker_fleet.start_worker(TEST_CLOCK_SHIFT_SECONDS=str(off), ARCHMAX_RETENTION_DAYS="1")
    await worker_fleet.ready(worker)
    sent = await worker_fleet.client.clock.now_ms()
    await worker_fleet.send("s", "waits")
    end = await worker_fleet.settled("s")
    due = to_ms(end.outcome["pending"]["resumeAt"])
    assert sent + 2_000 <= due <= await worker_fleet.client.clock.now_ms() + 2_000
    woken = await worker_fleet.settled("s", 2)
    assert await worker_fleet.client.clock.now_ms() >= due
    assert woken.outcome["kind"] == "completed"
    # It did run on a wrong clock: what it writes for people says so.
    assert abs(woken.outcome["at"] - sent - off * 1000) < 300_000
    retention = next(due for due in woken.dues if due["due"] == "retention")
    assert abs(retention["at"] - sent - 86_400_000) < 300_000


async def test_the_clock_goes_on_by_the_processs_own_while_redis_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Redis ever answered there is only the machine's clock; after it, that one is not asked any more."""
    server = EmbeddedRedis.start()
    redis = Redis.from_url(server.url, decode_responses=True)
    try:
        clock = RedisClock(redis)
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + OFF_SECONDS * 1_000_000_000)
        assert abs(clock.told_ms() - real() // 1_000_000 - OFF_SECONDS * 1000) < 10_000
        now = await clock.now_ms()
        server.stop()
        with pytest.raises(BrokerUnavailable):
            await clock.now_ms()
        assert 0 <= clock.told_ms() - now < 60_000
        assert clock.moment().timestamp() * 1000 >= now
    finally:
        await redis.aclose()
        server.stop()
