"""Schedules: reading them, and the planned times under every clock."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jsontext import Json
from engine.spec.schedule import next_time, parse_schedule, planned_times, previous_time, schedule_problem


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def shown(ms: int, zone: str = "UTC") -> str:
    return datetime.fromtimestamp(ms / 1000, ZoneInfo(zone)).strftime("%m-%d %H:%M %z")


def times(cron: str, after: str, until: str, zone: str = "UTC") -> list[str]:
    schedule = parse_schedule({"cron": cron, "timezone": zone})
    return [shown(ms, zone) for ms in planned_times(schedule, at(after), at(until))]


def test_every_counts_from_the_epoch():
    """Ruling 10."""
    schedule = parse_schedule({"every": "15m"})
    assert list(planned_times(schedule, 1, 2_700_000)) == [900_000, 1_800_000, 2_700_000]
    assert next_time(schedule, 900_000) == 1_800_000
    assert previous_time(schedule, 900_000) == 900_000
    assert previous_time(schedule, 899_999) == 0


@pytest.mark.parametrize(
    ("text", "ms"), [("1s", 1_000), ("2m", 120_000), ("3h", 10_800_000), ("1d", 86_400_000)]
)
def test_every_has_four_units(text: str, ms: int):
    """Ruling 10."""
    assert parse_schedule({"every": text}).every_ms == ms


def test_a_window_is_open_at_its_start_and_closed_at_its_end():
    """Ruling 10: a planned time is handed out once."""
    assert times("0 * * * *", "2031-05-09T10:00", "2031-05-09T12:00") == [
        "05-09 11:00 +0000",
        "05-09 12:00 +0000",
    ]
    assert times("0 * * * *", "2031-05-09T12:00", "2031-05-09T12:30") == []


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 9 * * mon-fri", ["05-09 09:30 +0000", "05-12 09:30 +0000"]),
        ("0 0 1,15 * *", ["05-15 00:00 +0000", "06-01 00:00 +0000"]),
        ("0 0 13 * 5", ["05-09 00:00 +0000", "05-13 00:00 +0000"]),
        ("0 0 * * 7", ["05-11 00:00 +0000", "05-18 00:00 +0000"]),
        ("*/40 23 * * *", ["05-08 23:00 +0000", "05-08 23:40 +0000"]),
        ("0 0 29 feb *", ["02-29 00:00 +0000", "02-29 00:00 +0000"]),
        ("5 10-20/5 * JUN *", ["06-01 10:05 +0000", "06-01 15:05 +0000"]),
        ("0 0 */2 * 1", ["05-19 00:00 +0000", "06-09 00:00 +0000"]),
    ],
)
def test_five_fields_give_the_next_times(cron: str, expected: list[str]):
    """Ruling 10. 2031-05-09 is a Friday. Both day fields restricted: either suffices; a field with * restricts by its step."""
    schedule = parse_schedule({"cron": cron})
    found = islice(planned_times(schedule, at("2031-05-08T12:00"), at("2041-01-01T00:00")), 2)
    assert [shown(ms) for ms in found] == expected


def test_a_time_that_does_not_exist_comes_as_much_later():
    """Ruling 10: Berlin skips 02:00 to 03:00 on 2031-03-30."""
    assert times("30 2 * * *", "2031-03-28T12:00", "2031-03-31T12:00", "Europe/Berlin") == [
        "03-29 02:30 +0100", "03-30 03:30 +0200", "03-31 02:30 +0200",
    ]  # fmt: skip


def test_two_times_that_fall_together_are_one():
    """Ruling 10."""
    assert times("30 2,3 * * *", "2031-03-29T12:00", "2031-03-30T12:00", "Europe/Berlin") == [
        "03-30 03:30 +0200"
    ]


def test_a_time_that_exists_twice_comes_once():
    """Ruling 10: Berlin repeats 02:00 to 03:00 on 2031-10-26."""
    assert times("30 2 * * *", "2031-10-25T12:00", "2031-10-26T12:00", "Europe/Berlin") == [
        "10-26 02:30 +0200"
    ]


def test_a_schedule_of_every_hour_stays_evenly_spaced():
    """Ruling 10."""
    schedule = parse_schedule({"cron": "*/30 * * * *", "timezone": "Europe/Berlin"})
    for day in ("2031-03-30", "2031-10-26"):
        found = list(planned_times(schedule, at(f"{day}T00:00") - 1, at(f"{day}T06:00")))
        assert {later - earlier for earlier, later in pairwise(found)} == {1_800_000}
        assert len(found) == 13


def test_a_day_that_a_zone_skipped_is_no_double():
    """Ruling 10: Samoa had no 2011-12-30."""
    assert times("0 10 * * *", "2011-12-29T12:00", "2012-01-01T12:00", "Pacific/Apia") == [
        "12-29 10:00 -1000", "12-31 10:00 +1400", "01-01 10:00 +1400",
    ]  # fmt: skip


@given(
    st.integers(0, 4_000_000_000),
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 1 1 *", "15 3 * * sun"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
)
def test_previous_and_next_times_agree(second: int, cron: str, zone: str):
    """Ruling 10."""
    schedule = parse_schedule({"cron": cron, "timezone": zone})
    now = second * 1000
    following = next_time(schedule, now)
    assert following is not None
    assert following > now
    assert previous_time(schedule, following) == following
    before = previous_time(schedule, now)
    assert before is not None
    assert before <= now
    assert next_time(schedule, before) == following


def test_a_schedule_carries_message_variables_and_what_to_do_about_missed_times():
    """Ruling 10."""
    schedule = parse_schedule(
        {"every": "1d", "message": "Good morning", "variables": {"a": [1]}, "missed": "all"}
    )
    assert (schedule.message, schedule.variables, schedule.missed) == ("Good morning", {"a": [1]}, "all")
    assert parse_schedule({"every": "1d"}).missed == "once"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "mapping"),
        ("0 * * * *", "mapping"),
        ({}, "either"),
        ({"cron": "* * * * *", "every": "1m"}, "either"),
        ({"every": "1m", "at": 1}, "'at'"),
        ({"every": "0m"}, "every"),
        ({"every": "1w"}, "every"),
        ({"every": "1.5h"}, "every"),
        ({"every": "٣m"}, "every"),
        ({"every": 60}, "every"),
        ({"every": "9999d"}, "every"),
        ({"cron": "* * * *"}, "five"),
        ({"cron": "* * * * * *"}, "five"),
        ({"cron": 5}, "five"),
        ({"cron": "60 * * * *"}, "minute"),
        ({"cron": "* 24 * * *"}, "hour"),
        ({"cron": "* * 0 * *"}, "day"),
        ({"cron": "* * * 13 *"}, "month"),
        ({"cron": "* * * foo *"}, "month"),
        ({"cron": "* * * * 8"}, "weekday"),
        ({"cron": "5/10 * * * *"}, "minute"),
        ({"cron": "*/0 * * * *"}, "minute"),
        ({"cron": "9-5 * * * *"}, "minute"),
        ({"cron": "1,,2 * * * *"}, "minute"),
        ({"cron": "0 0 30 2 *"}, "never"),
        ({"cron": "0 0 31 4,6,9,11 *"}, "never"),
        ({"every": "1m", "timezone": "Europe/Nowhere"}, "timezone"),
        ({"every": "1m", "timezone": "../../etc/passwd"}, "timezone"),
        ({"every": "1m", "timezone": "Europe"}, "timezone"),
        ({"every": "1m", "timezone": ""}, "timezone"),
        ({"every": "1m", "timezone": "a\0b"}, "timezone"),
        ({"every": "1m", "timezone": "x" * 5000}, "timezone"),
        ({"every": "1m", "missed": "never"}, "missed"),
        ({"every": "1m", "message": " "}, "message"),
        ({"every": "1m", "variables": []}, "variables"),
        ({"every": "1m", "variables": {"A": 1}}, "variable name"),
        ({"every": "1m", "variables": {"trigger": "x"}}, "trigger"),
        ({"every": "1m", "variables": {"title": ""}}, "title"),
    ],
)
def test_a_malformed_schedule_is_told_what_is_wrong(value: Json, words: str):
    """Ruling 10, `trigger.schedule`."""
    problem = schedule_problem(value)
    assert problem is not None
    assert words in problem
