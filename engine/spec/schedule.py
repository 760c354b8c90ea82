"""Schedules: when a trigger's `schedule:` wants it fired. Pure functions over epoch milliseconds.

A `cron` is read on the wall clock of its time zone. Where clocks are put forward, a time that does not exist is taken
as long after midnight as it would have been (02:30 happens at 03:30); where they are put back, a time that exists twice
is taken once. A schedule that names every hour means every one of them instead: it skips what does not exist and takes
both of what exists twice, so that "every 15 minutes" stays evenly spaced.

Contract: ruling 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from core.jsontext import Json, JsonObject
from engine.spec.paths import is_blank, title_problem, variable_name_ok
from engine.spec.report import kind_phrase

SCHEDULE_KEY: Final = "schedule"
SCHEDULE_KEYS: Final = ("cron", "every", "timezone", "missed", "message", "variables")
MISSED: Final[tuple[Missed, ...]] = ("skip", "once", "all")
#: the 29th of February can be eight years away (1896 to 1904, 2096 to 2104)
_HORIZON_DAYS: Final = 366 * 8 + 2
_MAX_EVERY_MS: Final = 366 * 86_400_000

Missed: TypeAlias = Literal["skip", "once", "all"]

_EVERY = re.compile(r"([0-9]{1,9})([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(?:(\*)|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class ScheduleProblem(ValueError):
    """A `schedule:` that says no time."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields, each the set of its values; `day_or` when both day fields are restricted: either suffices."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    day_or: bool

    @property
    def hourly(self) -> bool:
        return len(self.hours) == 24

    def on(self, day: date) -> bool:
        """Whether any time of that day is meant."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_day or by_weekday) if self.day_or else (by_day and by_weekday)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When, what to do about times that passed unseen, and what the firing carries."""

    cron: Cron | None = None
    every_ms: int | None = None
    timezone: str = "UTC"
    missed: Missed = "once"
    message: str | None = None
    variables: JsonObject = field(default_factory=dict)


def schedule_problem(value: Json) -> str | None:
    """Why `value` is no schedule, or None."""
    try:
        parse_schedule(value)
    except ScheduleProblem as problem:
        return str(problem)
    return None


def parse_schedule(value: Json) -> Schedule:
    """Read a trigger's `schedule`. Raises: `ScheduleProblem`."""
    if not isinstance(value, dict):
        raise ScheduleProblem(f"a schedule is a mapping with cron or every, not {kind_phrase(value)}")
    unknown = next((key for key in value if key not in SCHEDULE_KEYS), None)
    if unknown is not None:
        raise ScheduleProblem(f"unknown key {unknown[:60]!r}; known: {', '.join(SCHEDULE_KEYS)}")
    if ("cron" in value) == ("every" in value):
        raise ScheduleProblem("a schedule has either cron or every")
    timezone = value.get("timezone", "UTC")
    _zone(timezone)
    missed = next((known for known in MISSED if known == value.get("missed", "once")), None)
    if missed is None:
        raise ScheduleProblem(f"missed is one of {', '.join(MISSED)}, not {kind_phrase(value['missed'])}")
    if "message" in value and is_blank(value["message"]):
        raise ScheduleProblem("message must be a non-empty string")
    return Schedule(
        parse_cron(value["cron"]) if "cron" in value else None,
        _parse_every(value["every"]) if "every" in value else None,
        timezone,
        missed,
        value.get("message"),
        _variables(value.get("variables", {})),
    )


def _zone(name: Json) -> ZoneInfo:
    if isinstance(name, str) and name:
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    raise ScheduleProblem(f"timezone must be an IANA name such as Europe/Berlin, not {kind_phrase(name)}")


def _variables(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise ScheduleProblem(f"variables must be a mapping, not {kind_phrase(value)}")
    bad = next((name for name in value if not variable_name_ok(name)), None)
    if bad is not None:
        raise ScheduleProblem(f"variables: {bad[:60]!r} is no variable name")
    if "trigger" in value:
        raise ScheduleProblem("variables: 'trigger' is set by the runtime")
    problem = title_problem(value["title"]) if "title" in value else None
    if problem is not None:
        raise ScheduleProblem(f"variables.title: {problem}")
    return value


def _parse_every(value: Json) -> int:
    match = _EVERY.fullmatch(value) if isinstance(value, str) else None
    length = int(match[1]) * _UNIT_MS[match[2]] if match else 0
    if not 0 < length <= _MAX_EVERY_MS:
        raise ScheduleProblem(f"every is a number and s, m, h or d, such as 15m, not {kind_phrase(value)}")
    return length


def parse_cron(value: Json) -> Cron:
    """Read five cron fields: minute, hour, day of month, month, day of week. Raises: `ScheduleProblem`.

    A field is `*`, a number or a range, each with an optional `/step`, several separated by commas; months and
    weekdays may be named by three letters, Sunday is 0 or 7.
    """
    fields = value.lower().split() if isinstance(value, str) and len(value) <= 500 else []
    if len(fields) != 5:
        raise ScheduleProblem(
            f"cron has five fields (minute hour day month weekday), not {kind_phrase(value)}"
        )
    minutes = _cron_field("minute", fields[0], 0, 59)
    hours = _cron_field("hour", fields[1], 0, 23)
    days = _cron_field("day", fields[2], 1, 31)
    months = _cron_field("month", fields[3], 1, 12, _MONTHS)
    weekdays = frozenset(day % 7 for day in _cron_field("weekday", fields[4], 0, 7, _DAYS))
    day_or = not fields[2].startswith("*") and not fields[4].startswith("*")
    if not day_or and all(min(days) > _LONGEST_MONTHS[month - 1] for month in months):
        raise ScheduleProblem(f"cron {value!r} never comes: those months have no such day")
    return Cron(tuple(sorted(minutes)), tuple(sorted(hours)), days, months, weekdays, day_or)


def _cron_field(name: str, text: str, low: int, high: int, words: tuple[str, ...] = ()) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or (match[4] and not match[1] and not match[3]):
            raise ScheduleProblem(f"cron: {part[:20]!r} is no {name} (forms: *, 5, 1-5, */10, 1-30/2, 1,15)")
        first = low if match[1] else _cron_value(name, match[2], low, words)
        last = high if match[1] else _cron_value(name, match[3] or match[2], low, words)
        step = int(match[4]) if match[4] else 1
        if not (low <= first <= last <= high and step):
            raise ScheduleProblem(f"cron: {part[:20]!r} is outside {low}-{high} for the {name}")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _cron_value(name: str, text: str, low: int, words: tuple[str, ...]) -> int:
    if text.isdecimal():
        return int(text)
    if text in words:
        return words.index(text) + low
    raise ScheduleProblem(f"cron: {text!r} is no {name}")


def planned_times(schedule: Schedule, after_ms: int, until_ms: int) -> Iterator[int]:
    """The planned times in `(after_ms, until_ms]`, ascending, produced as they are asked for."""
    if schedule.every_ms is not None:
        every = schedule.every_ms
        yield from range((after_ms // every + 1) * every, until_ms + 1, every)
    elif schedule.cron is not None:
        zone = _zone(schedule.timezone)
        day = _local_day(after_ms, zone) - timedelta(days=1)
        end = _local_day(until_ms, zone) + timedelta(days=1)
        last = after_ms
        while day <= end:
            for at in _times_of_day(schedule.cron, day, zone):
                if last < at <= until_ms:
                    yield at
                    last = at
            day += timedelta(days=1)


def next_time(schedule: Schedule, after_ms: int) -> int | None:
    """The first planned time after `after_ms`; None when none comes within eight years."""
    return next(planned_times(schedule, after_ms, after_ms + _HORIZON_DAYS * 86_400_000), None)


def previous_time(schedule: Schedule, at_ms: int) -> int | None:
    """The last planned time at or before `at_ms`; None when there was none within eight years."""
    if schedule.every_ms is not None:
        return at_ms // schedule.every_ms * schedule.every_ms
    if schedule.cron is None:
        return None
    zone = _zone(schedule.timezone)
    day = _local_day(at_ms, zone) + timedelta(days=1)
    for _ in range(_HORIZON_DAYS):
        times = [at for at in _times_of_day(schedule.cron, day, zone) if at <= at_ms]
        if times:
            return times[-1]
        day -= timedelta(days=1)
    return None


def _local_day(at_ms: int, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(at_ms / 1000, zone).date()


def _times_of_day(cron: Cron, day: date, zone: ZoneInfo) -> list[int]:
    """The planned instants of one local day, ascending."""
    if not cron.on(day):
        return []
    found: set[int] = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            instant = wall.astimezone(UTC)
            if cron.hourly:
                again = wall.replace(fold=1).astimezone(UTC)
                real = [
                    at
                    for at in (instant, again)
                    if at.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None)
                ]
                found.update(int(at.timestamp()) * 1000 for at in real)
            else:
                found.add(int(instant.timestamp()) * 1000)
    return sorted(found)
