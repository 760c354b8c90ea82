"""Heartbeats: alive is said by the loops that work, and an outage of the broker ends nothing (known faults H7, H27)."""

from __future__ import annotations

from pathlib import Path

from tests.support.workers import WorkerFleet, until
from worker.health import BEAT_SECONDS, ConsumerPulse, Heartbeat, touch
from worker.ports import BrokerUnavailable, Message


class Broker:
    def __init__(self) -> None:
        self.away = False

    async def alive(self) -> None:
        if self.away:
            raise BrokerUnavailable("away")


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def heartbeat(file: Path) -> tuple[Heartbeat, ConsumerPulse, Broker, Clock]:
    clock, broker, pulse = Clock(), Broker(), ConsumerPulse()
    pulse.at = clock.at
    return Heartbeat(file, pulse, broker.alive, stuck_seconds=90, clock=clock), pulse, broker, clock


async def test_a_consumer_that_stands_still_under_a_broker_that_answers_goes_stale(tmp_path: Path) -> None:
    """Known fault H7: connected, and taking nothing."""
    file = tmp_path / "heartbeat"
    beat, pulse, _broker, clock = heartbeat(file)
    await beat.beat()
    assert file.exists()
    file.unlink()
    clock.at += 91
    await beat.beat()
    assert not file.exists()
    pulse.at = clock.at
    await beat.beat()
    assert file.exists()


async def test_a_broker_that_is_away_restarts_nothing_however_long(tmp_path: Path) -> None:
    """Known fault H27: the consumer may stand still as long as its broker does, and a while longer to come back."""
    file = tmp_path / "run" / "heartbeat"
    beat, _pulse, broker, clock = heartbeat(file)
    broker.away = True
    for _ in range(5):
        clock.at += 60
        await beat.beat()
        assert file.exists()
        file.unlink()
    broker.away = False
    clock.at += 80
    await beat.beat()
    assert file.exists()


def test_a_heartbeat_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    touch(tmp_path / "file" / "heartbeat")
    assert BEAT_SECONDS > 0


async def test_a_worker_beats_before_its_broker_answers_and_after_it_has_gone(
    worker_fleet: WorkerFleet, tmp_path: Path
) -> None:
    """Known fault H27: with Redis away at its start a worker waits, alive."""
    worker_fleet.write(
        {
            "workflows/w/workflow.yaml": "title: W\ninstructions: x\nstates: { a: { triggers: { manual: }, instructions: x } }\n"
        }
    )
    file = tmp_path / "heartbeat"
    away = worker_fleet.start_worker(
        ARCHMAX_HEARTBEAT_FILE=str(file), ARCHMAX_REDIS_URL="redis://127.0.0.1:1/0"
    )
    await until(file.exists, what="a heartbeat without a broker")
    assert away.process.poll() is None, away.log


async def test_a_working_worker_keeps_its_heartbeat_fresh(worker_fleet: WorkerFleet, tmp_path: Path) -> None:
    worker_fleet.write(
        {
            "workflows/w/workflow.yaml": "title: W\ninstructions: x\nstates: { a: { triggers: { manual: }, instructions: x } }\n"
        }
    )
    file = tmp_path / "heartbeat"
    worker = worker_fleet.start_worker(ARCHMAX_HEARTBEAT_FILE=str(file))
    await worker_fleet.ready(worker)
    await until(file.exists, what="the heartbeat")
    first = file.stat().st_mtime_ns
    await until(lambda: file.stat().st_mtime_ns > first, what="the next beat")


async def test_a_worker_whose_workspace_is_not_there_yet_takes_nothing_until_it_is(
    worker_fleet: WorkerFleet,
) -> None:
    """It would fail every turn that the shared queue brings it."""
    workflow = "title: W\ninstructions: x\nstates: { a: { triggers: { manual: }, instructions: x } }\n"
    worker = worker_fleet.start_worker()
    await worker_fleet.ready(worker)
    assert "no workflow under" in worker.log
    await worker_fleet.send("s", "w")
    # what the sweep does, which does not know the workflow
    await worker_fleet.client.queue.send([Message("s", 0)])
    assert await worker_fleet.client.redis.llen("archmax.shared") == 1
    assert await worker_fleet.ended("s", 1) is None
    worker_fleet.write({"workflows/w/workflow.yaml": workflow, "model.yaml": "- text: done\n"})
    end = await worker_fleet.settled("s")
    assert end.outcome["kind"] == "completed", end.outcome
