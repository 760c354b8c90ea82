"""Canonical workspace paths: the one spelling that rules, zones and guards compare.

Contract 02 §10.1 and 05 §1.1: leading slashes are stripped, empty and `.` segments dropped, `..` applied. A `..`
that would leave the root stays in front and marks the path as escaping.
"""

from __future__ import annotations

from typing import NamedTuple


class CanonicalPath(NamedTuple):
    """`text` has no leading slash; it is empty for the root."""

    text: str
    escaping: bool

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.text.split("/")) if self.text else ()


def canonical(path: str) -> CanonicalPath:
    """Reduce any spelling of a workspace path to its canonical form. Never raises; idempotent."""
    kept: list[str] = []
    climbed = 0
    for segment in path.split("/"):
        if segment in ("", "."):
            continue
        if segment == "..":
            if kept:
                kept.pop()
            else:
                climbed += 1
            continue
        kept.append(segment)
    return CanonicalPath("/".join([".."] * climbed + kept), climbed > 0)


def is_within(path: str, prefix: str) -> bool:
    """Whether canonical `path` is `prefix` or lies below it. An empty prefix holds everything."""
    return not prefix or path == prefix or path.startswith(prefix + "/")
