"""`archmax_wait`'s `until`: relative or absolute, normalised to an absolute UTC instant (03 §9.3)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_RELATIVE = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_ABSOLUTE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?\s*([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
ACCEPTED = (
    "'<number><ms|s|m|h|d>' such as '30m', or an ISO-8601 date or date-time such as '2031-05-09T10:00:00Z'"
)


def resume_at(until: str, now: datetime) -> str | None:
    """The instant as `YYYY-MM-DDTHH:MM:SS.mmmZ`, or None when `until` has none of the accepted forms.

    A date-time without a zone is UTC; an instant in the past stays as it is: it means "due now".
    """
    value = until.strip()
    relative = _RELATIVE.fullmatch(value)
    try:
        if relative:
            amount = int(relative[1])
            if amount < 1:
                return None
            return render(now + timedelta(milliseconds=amount * _UNIT_MS[relative[2]]))
        absolute = _ABSOLUTE.fullmatch(value)
        if absolute is None:
            return None
        year, month, day, hour, minute, second, fraction, zone = absolute.groups()
        micro = int(((fraction or "0") + "000000")[:6])
        moment = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micro, UTC
        )
        if zone and zone not in "Zz":
            digits = zone[1:].replace(":", "")
            hours, minutes = int(digits[:2]), int(digits[2:])
            if hours > 23 or minutes > 59:
                return None
            offset = timedelta(hours=hours, minutes=minutes)
            moment = moment - offset if zone[0] == "+" else moment + offset
        return render(moment)
    except (ValueError, OverflowError):
        return None


def render(moment: datetime) -> str:
    moment = moment.astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def to_ms(instant: str) -> int:
    """Epoch milliseconds of a rendered instant."""
    return int(datetime.fromisoformat(instant).timestamp() * 1000)
