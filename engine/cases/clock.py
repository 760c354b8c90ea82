"""A case's `clock`: a calendar day or an RFC 3339 date-time (06 §7.4)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?([Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)


def clock_ms(text: str) -> int | None:
    """Epoch milliseconds, a day being its midnight in UTC; None when malformed."""
    if _DAY.fullmatch(text):
        return _epoch_ms(f"{text}T00:00:00+00:00", "")
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    zone = "+00:00" if found[4] in "Zz" else found[4]
    if int(zone[4:]) > 59:
        return None
    return _epoch_ms(f"{found[1]}T{found[2]}{zone}", found[3] or "")


def _epoch_ms(text: str, fraction: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
        seconds = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None
    return seconds * 1000 + int(fraction[:3].ljust(3, "0"))
