"""Beat as it runs: real processes over a real Redis and a directory store (ruling 10, H4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from archmax.local.redis import EmbeddedRedis
from core.jsontext import loads
from engine.spec.loader import usable_workflow
from engine.spec.tree import DirectoryTree
from storage.records import InboxEntry
from tests.support.command import command_environment
from tests.support.workers import until
from worker.schedules import LATE_MS, Planned, Schedules, ScheduleState, schedules_of
from worker.service import FleetService
from worker.settings import FleetSettings


def workflow(schedule: str, *, disabled: bool = False) -> str:
    return (
        f"disabled: {'true' if disabled else 'false'}\n"
        "states:\n"
        "  open:\n"
        "    instructions: Write the digest.\n"
        "    triggers:\n"
        f"      tick: {{ schedule: {{ {schedule} }} }}\n"
    )


class Beats:
    """A workspace with one workflow, its fleet's door, and as many beats as a test starts. No worker: inputs stay."""

    def __init__(self, folder: Path, redis: EmbeddedRedis, database: int) -> None:
        self.folder, self.root = folder, folder / "workspace"
        self.url = f"{redis.url.rsplit('/', 1)[0]}/{database}"
        self.service = FleetService(FleetSettings(root=self.root, redis_url=SecretStr(self.url)))
        self._processes: list[subprocess.Popen[bytes]] = []

    def write(self, text: str) -> None:
        directory = self.root / "workflows" / "digest"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "workflow.yaml").write_text(text)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"beat-{len(self._processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *(command or ("archmax", "beat", "--root", str(self.root)))],
                cwd=self.folder,
                env=command_environment({"ARCHMAX_REDIS_URL": self.url, "ARCHMAX_ROOT": str(self.root)}),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self._processes.append(process)
        return process

    def log(self, index: int = 0) -> str:
        return (self.folder / f"beat-{index}.log").read_text(errors="replace")

    async def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        await self.service.close()

    async def entries(self) -> list[InboxEntry]:
        """Every accepted input, oldest first."""
        files = self.service.client.fleet.files
        found: list[InboxEntry] = []
        for item in await files.listing("_inbox/"):
            stored = await files.read(item.key)
            assert stored is not None
            found.append(InboxEntry.read(item.key, stored.body, stored.etag, stored.modified_ms))
        return sorted(found, key=lambda entry: entry.at_ms)

    async def state(self) -> ScheduleState | None:
        found = await self.service.client.fleet.files.read("_schedules/digest/tick")
        if found is None:
            return None
        shown = loads(found.body)
        return ScheduleState(shown["last"], shown["plan"], tuple(shown["firing"]), found.etag)

    def planned(self) -> Planned:
        return schedules_of(usable_workflow(DirectoryTree(self.root), "digest"))[0]

    async def rewind(self, state: ScheduleState) -> None:
        """Put the schedule where it would stand had beat last run some time ago."""
        files = self.service.client.fleet.files
        stored = await files.read(self.planned().key)
        w = files.new_id()
        if stored is None:
            await files.create(self.planned().key, state.body(w), w)
        else:
            await files.replace(self.planned().key, state.body(w), w, stored.etag)


@pytest.fixture
async def beats(tmp_path: Path, redis_server: EmbeddedRedis) -> AsyncGenerator[Beats]:
    made = Beats(tmp_path, redis_server, 15)
    await made.service.open()
    yield made
    await made.close()


def now_ms() -> int:
    return int(time.time() * 1000)


async def test_two_beats_fire_every_planned_time_once_and_a_third_goes_on(beats: Beats) -> None:
    """H4: two beats do no harm. Ruling 10: every second counted from the epoch."""
    beats.write(workflow("every: 1s, message: The digest please, variables: { region: north }"))
    first, second = beats.start(), beats.start()

    async def fired(count: int) -> bool:
        return len(await beats.entries()) >= count

    await until(lambda: fired(4), what="four firings")
    for process in (first, second):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    state = await beats.state()
    assert state is not None
    assert state.firing == ()
    seen = len(await beats.entries())
    third = beats.start()
    await until(lambda: fired(seen + 2), what="two firings of the third beat")
    third.send_signal(signal.SIGTERM)
    assert third.wait(60) == 0  # it has logged what it fired
    entries = await beats.entries()
    assert len({entry.session for entry in entries}) == len(entries)
    assert entries[0].workflow == "digest"
    assert entries[0].input == {
        "message": "The digest please",
        "trigger": "tick",
        "variables": {"region": "north"},
    }
    logged = [line for index in range(3) for line in beats.log(index).splitlines() if "planned for" in line]
    times = [line.split("planned for ")[1].split(" ")[0] for line in logged]
    assert len(times) == len(set(times)) == len(entries)


async def test_a_restart_after_missed_periods_fires_once_by_default(beats: Beats) -> None:
    """Ruling 10: `missed` defaults to `once`; the last planned time is the store's, not beat's or Redis's."""
    beats.write(workflow("every: 1h, message: Digest"))
    hour = 3_600_000
    newest = now_ms() // hour * hour
    await beats.rewind(ScheduleState(newest - 5 * hour, beats.planned().plan))
    await Schedules(beats.service).run_due()
    assert len(await beats.entries()) == 1
    await Schedules(beats.service).run_due()
    assert len(await beats.entries()) == 1
    state = await beats.state()
    assert state is not None
    assert state.last == newest


async def test_all_missed_periods_are_fired_when_the_schedule_asks_for_it(beats: Beats) -> None:
    """Ruling 10: `missed: all`."""
    beats.write(workflow("every: 1h, missed: all, message: Digest"))
    hour = 3_600_000
    newest = now_ms() // hour * hour
    await beats.rewind(ScheduleState(newest - 5 * hour, beats.planned().plan))
    await Schedules(beats.service).run_due()
    assert len(await beats.entries()) == 5


async def test_missed_periods_are_skipped_when_the_schedule_asks_for_it(beats: Beats) -> None:
    """Ruling 10: `missed: skip`."""
    late = (now_ms() - LATE_MS - 90_000) // 60_000
    minute, hour = late % 60, late // 60 % 24
    beats.write(workflow(f"cron: '{minute} {hour} * * *', missed: skip, message: Digest"))
    await beats.rewind(ScheduleState(now_ms() - 86_400_000, beats.planned().plan))
    await Schedules(beats.service).run_due()
    assert await beats.entries() == []
    state = await beats.state()
    assert state is not None
    assert state.last == late * 60_000


async def test_what_a_beat_claimed_and_did_not_fire_is_fired_by_the_next(beats: Beats) -> None:
    """A beat killed between its claim and its firing loses nothing; killed after it, repeats nothing."""
    beats.write(workflow("every: 1h, message: Digest"))
    hour = 3_600_000
    newest = now_ms() // hour * hour
    claimed = ScheduleState(newest, beats.planned().plan, (newest,))
    await beats.rewind(claimed)
    await Schedules(beats.service).run_due()
    assert len(await beats.entries()) == 1
    await beats.rewind(claimed)
    await Schedules(beats.service).run_due()
    assert len(await beats.entries()) == 1
    state = await beats.state()
    assert state is not None
    assert state.firing == ()


async def test_a_new_schedule_begins_now_and_a_changed_one_misses_nothing_of_its_past(beats: Beats) -> None:
    """No planned time before a schedule was first seen was missed."""
    beats.write(workflow("every: 1h, missed: all, message: Digest"))
    before = now_ms()
    await Schedules(beats.service).run_due()
    state = await beats.state()
    assert state is not None
    assert state.last >= before - 5_000
    late = (now_ms() - LATE_MS - 90_000) // 60_000
    await beats.rewind(replace(state, last=before - 86_400_000, etag=""))
    beats.write(workflow(f"cron: '{late % 60} {late // 60 % 24} * * *', missed: all, message: Digest"))
    await Schedules(beats.service).run_due()
    assert await beats.entries() == []


async def test_a_disabled_workflow_is_not_fired_and_owes_nothing_later(beats: Beats) -> None:
    """Its planned times pass; enabling it again starts from then."""
    beats.write(workflow("every: 1h, missed: all, message: Digest", disabled=True))
    hour = 3_600_000
    newest = now_ms() // hour * hour
    await beats.rewind(ScheduleState(newest - 5 * hour, beats.planned().plan))
    await Schedules(beats.service).run_due()
    beats.write(workflow("every: 1h, missed: all, message: Digest"))
    await Schedules(beats.service).run_due()
    assert await beats.entries() == []


async def test_a_firing_the_workflow_refuses_is_logged_and_does_not_stop_the_schedule(
    beats: Beats, caplog: pytest.LogCaptureFixture
) -> None:
    """03 §2.3: a trigger's `requires` is checked before anything is written."""
    beats.write(
        "states:\n"
        "  open:\n"
        "    instructions: Work.\n"
        "    triggers:\n"
        "      tick: { schedule: { every: 1h }, requires: [region] }\n"
    )
    hour = 3_600_000
    newest = now_ms() // hour * hour
    await beats.rewind(ScheduleState(newest - hour, beats.planned().plan))
    await Schedules(beats.service).run_due()
    assert await beats.entries() == []
    assert "was refused" in caplog.text
    state = await beats.state()
    assert state is not None
    assert (state.last, state.firing) == (newest, ())


async def test_the_scheduler_runs_under_celery_beat_itself(beats: Beats) -> None:
    """design: beat fires schedules."""
    beats.write(workflow("every: 1s, message: Digest"))
    process = beats.start("celery", "beat", "--scheduler", "worker.beat:FleetScheduler")

    async def fired() -> bool:
        assert process.poll() is None, beats.log()
        return len(await beats.entries()) >= 2

    await until(fired, what="two firings")
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert not [name for name in os.listdir(beats.folder) if name.startswith("celerybeat-schedule")]
