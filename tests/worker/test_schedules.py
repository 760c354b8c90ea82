"""Which planned times are due, and what of a workflow is a schedule (ruling 10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.spec.loader import usable_workflow
from engine.spec.schedule import Missed, parse_schedule
from engine.spec.tree import DirectoryTree
from worker.schedules import BATCH, LATE_MS, due_times, instant, plan_digest, schedules_of

HOUR = 3_600_000
EVERY_HOUR = parse_schedule({"every": "1h"})


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_planned_time_that_has_just_come_is_fired(missed: Missed) -> None:
    """Ruling 10: `missed` is about planned times that passed unseen."""
    assert due_times(EVERY_HOUR, 4 * HOUR, 5 * HOUR + 40, missed=missed) == ((5 * HOUR,), 5 * HOUR)


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_nothing_is_due_before_the_next_planned_time(missed: Missed) -> None:
    assert due_times(EVERY_HOUR, 4 * HOUR, 5 * HOUR - 1, missed=missed) == ((), 4 * HOUR)


@pytest.mark.parametrize(
    ("missed", "fired"),
    [("skip", ()), ("once", (7 * HOUR,)), ("all", (5 * HOUR, 6 * HOUR, 7 * HOUR))],
)
def test_missed_planned_times_are_skipped_fired_once_or_all_fired(
    missed: Missed, fired: tuple[int, ...]
) -> None:
    """Ruling 10."""
    now = 7 * HOUR + LATE_MS + 1
    assert due_times(EVERY_HOUR, 4 * HOUR, now, missed=missed) == (fired, 7 * HOUR)


def test_skip_still_fires_the_newest_planned_time_while_it_is_fresh() -> None:
    """A beat that is replaced within a minute loses nothing (H4)."""
    assert due_times(EVERY_HOUR, 4 * HOUR, 7 * HOUR + LATE_MS, missed="skip")[0] == (7 * HOUR,)


def test_many_missed_times_come_in_batches_without_a_gap() -> None:
    schedule = parse_schedule({"every": "1s"})
    end = 10_000_000
    last, seen = 0, []
    for _ in range(3):
        times, last = due_times(schedule, last, end, missed="all")
        seen += times
    assert seen == [second * 1000 for second in range(1, 3 * BATCH + 1)]


def test_what_is_fired_does_not_change_the_plan_but_when_does() -> None:
    plan = plan_digest({"cron": "0 9 * * *"})
    assert plan == plan_digest({"cron": "0 9 * * *", "message": "new words", "missed": "all"})
    assert plan != plan_digest({"cron": "0 8 * * *"})
    assert plan != plan_digest({"cron": "0 9 * * *", "timezone": "Europe/Berlin"})


def test_planned_times_are_spelled_in_utc() -> None:
    assert instant(1_900_000_000_000) == "2030-03-17T17:46:40Z"


def test_every_trigger_with_a_schedule_is_found_and_a_malformed_one_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ruling 10: a malformed schedule is a validate error; it never fires."""
    directory = tmp_path / "workflows" / "digest"
    directory.mkdir(parents=True)
    (directory / "workflow.yaml").write_text(
        "disabled: true\n"
        "states:\n"
        "  open:\n"
        "    instructions: Work.\n"
        "    triggers:\n"
        "      manual:\n"
        "      nightly: { schedule: { cron: '0 2 * * *', message: Good night } }\n"
        "      broken: { schedule: { every: often } }\n"
    )
    found = schedules_of(usable_workflow(DirectoryTree(tmp_path), "digest"))
    assert [(planned.trigger, planned.schedule.message, planned.off) for planned in found] == [
        ("nightly", "Good night", True)
    ]
    assert found[0].key == "_schedules/digest/nightly"
    assert "trigger broken of digest is not used: every is a number" in caplog.text
