"""The time zone of this machine by its IANA name, for the clock that prompts begin with (03 §15)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LOCALTIME = Path("/etc/localtime")
_MARK = "zoneinfo/"


def local_zone(
    environ: Mapping[str, str] = os.environ, localtime: Path = _LOCALTIME
) -> tuple[tzinfo, str] | None:
    """`TZ` where it names a zone, else what `/etc/localtime` links to. None for UTC and for a zone without a name."""
    name = environ.get("TZ", "").strip().removeprefix(":") or _linked(localtime)
    if not name or name in ("UTC", "Etc/UTC", "Universal", "Zulu", "GMT", "Etc/GMT"):
        return None
    try:
        return ZoneInfo(name), name
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _linked(localtime: Path) -> str:
    try:
        target = os.readlink(localtime)
    except OSError:
        return ""
    return target.partition(_MARK)[2]
