"""The clock line every model call begins with (03 §15), rounded so that a turn does not re-price its transcript."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

BUCKET_MINUTES = 10
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def clock_line(now: datetime, zone: tzinfo | None = None, zone_name: str | None = None) -> str:
    """`now` is aware. The host's zone is added only when it is not UTC."""
    utc = now.astimezone(UTC)
    utc = utc.replace(minute=utc.minute - utc.minute % BUCKET_MINUTES, second=0, microsecond=0)
    line = (
        f"Now: {utc:%Y-%m-%d %H:%M} UTC ({_DAYS[utc.weekday()]}), rounded down to {BUCKET_MINUTES} minutes."
    )
    if zone is None or zone_name in (None, "UTC", "Etc/UTC"):
        return line
    local = utc.astimezone(zone)
    date = f"{local:%Y-%m-%d} " if local.date() != utc.date() else ""
    return f"{line} Local time here: {date}{local:%H:%M} ({zone_name})."
