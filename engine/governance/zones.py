"""Zones: what kind of place a workspace path is, and which mount or bundle holds it (contract 02 §10, 05 §1).

Knows the session's own areas by name; everything authored arrives as mount prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, Generic, TypeVar

from core.paths import canonical

#: the reserved root of the authoring plane: no route leads there (02 §13)
AUTHORING_ROOT: Final = "workflows"
SCRATCHPAD: Final = "scratchpad"
INTERNAL_AREAS: Final = frozenset({"checkpoints", "artifacts", "_specs"})
OFFLOAD_AREAS: Final = frozenset({"large_tool_results", "conversation_history"})

T = TypeVar("T")


class Zone(StrEnum):
    ESCAPES = "escapes"  #: climbs above the workspace root
    ROOT = "root"  #: the workspace root itself
    AUTHORED = "authored"  #: under a mount the host serves read-only
    RUN_INTERNAL = "run-internal"  #: the runtime's own: no agent reaches it
    RUN_OFFLOAD = "run-offload"  #: written by the runtime, readable everywhere
    RUN_OPEN = "run-open"  #: the scratchpad
    RUN = "run"  #: other session files, and writable mounts


class PrefixTable(Generic[T]):
    """Values by folder; a path belongs to the longest folder equal to it or above it."""

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        """Later entries win over earlier ones of the same prefix. Prefixes are read canonically."""
        self._entries = {canonical(prefix).text: value for prefix, value in entries}
        self._first_segments = frozenset(prefix.partition("/")[0] for prefix in self._entries)
        self._depths = tuple(
            sorted({prefix.count("/") + 1 for prefix in self._entries if prefix}, reverse=True)
        )

    def find(self, path: str) -> T | None:
        """The value of the longest prefix of canonical `path`."""
        if path.partition("/")[0] not in self._first_segments:
            return self._entries.get("")
        for depth in self._depths:
            found = self._entries.get(_leading(path, depth))
            if found is not None:
                return found
        return self._entries.get("")


def _leading(path: str, depth: int) -> str:
    """The first `depth` segments of `path`; a value no table holds when it has fewer."""
    at = -1
    for taken in range(1, depth + 1):
        at = path.find("/", at + 1)
        if at < 0:
            return path if taken == depth else "\0"
    return path[:at]


@dataclass(frozen=True)
class MountPrefixes:
    """Names from the resolved mount table, without outer slashes (02 §12.1).

    `dirs` and `files` name every mount; the others are subsets: what the host serves writable, what a state reaches
    only by grant, what a search from above skips.
    """

    dirs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    writable: frozenset[str] = frozenset()
    governed: frozenset[str] = frozenset()
    unsearchable: frozenset[str] = frozenset()

    @cached_property
    def _folders(self) -> PrefixTable[str]:
        return PrefixTable((name, name) for name in self.dirs)

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(self.files)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every mount, directories first."""
        return (*self.dirs, *self.files)

    @cached_property
    def ancestors(self) -> dict[str, tuple[str, ...]]:
        """Folders that exist only because mounts lie below them → those mounts."""
        found: dict[str, list[str]] = {}
        for name in self.names:
            parts = name.split("/")
            for depth in range(1, len(parts)):
                found.setdefault("/".join(parts[:depth]), []).append(name)
        return {folder: tuple(names) for folder, names in found.items()}

    def mount_of(self, path: str) -> str | None:
        """The mount canonical `path` lies in: an exact file, else the longest directory."""
        return path if path in self._exact else self._folders.find(path)


def classify(path: str, mounts: MountPrefixes) -> Zone:
    """The zone of any spelling of a path; first match in the order of 02 §10.2. Blank text names the root."""
    place = canonical(path)
    text = place.text if place.text.strip() else ""
    return zone_of(text, place.escaping, mounts.mount_of(text), mounts)


def zone_of(text: str, escaping: bool, mount: str | None, mounts: MountPrefixes) -> Zone:
    """As `classify`, of a canonical path whose mount is known."""
    if escaping:
        return Zone.ESCAPES
    if not text:
        return Zone.ROOT
    if mount is not None and mount not in mounts.writable:
        return Zone.AUTHORED
    first = text.partition("/")[0]
    if first in INTERNAL_AREAS:
        return Zone.RUN_INTERNAL
    if first in OFFLOAD_AREAS:
        return Zone.RUN_OFFLOAD
    return Zone.RUN_OPEN if first == SCRATCHPAD else Zone.RUN


def in_authoring_plane(text: str) -> bool:
    """Whether a canonical path is `workflows` or below it."""
    return text == AUTHORING_ROOT or text.startswith(AUTHORING_ROOT + "/")
