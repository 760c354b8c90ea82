"""Where the protocol's objects lie: one function per kind of key (docs/protocol.md §2).

Numbers have a fixed width, so keys sort as numbers do. `S` is the session id as one safe segment; `~` is kept, so a
listing of `S~` finds a session's descendants and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from storage.keys import encode_segment

INBOX = "_inbox/"
KEYS = "_keys/"
TIMERS = "_timers/"
_WIDTH = 8


def number(value: int) -> str:
    return f"{value:0{_WIDTH}d}"


def key_record(digest: str) -> str:
    """The record of an idempotency key; `digest` is of its scope and text."""
    return f"{KEYS}{digest}"


def timer_minute(due_ms: int) -> str:
    """The folder of all timers due within one minute. Twelve digits: the minutes of an epoch for ages."""
    return f"{TIMERS}{due_ms // 60_000:012d}"


def inbox_place(key: str) -> tuple[str, int] | None:
    """`(S, n)` of an inbox key; None for any other key."""
    parts = key.split("/")
    if len(parts) != 3 or f"{parts[0]}/" != INBOX or not parts[2].isdecimal():
        return None
    return parts[1], int(parts[2])


def life_kind(key: str) -> str:
    """`log`, `end`, `seg`, `join` or `blob` for an object of a session's life; empty for any other key."""
    parts = key.split("/")
    return parts[3].partition(".")[0] if len(parts) > 3 and parts[1] == "checkpoints" else ""


@dataclass(frozen=True)
class SessionKeys:
    """The keys of one session."""

    session: str

    @cached_property
    def segment(self) -> str:
        return encode_segment(self.session)

    @cached_property
    def root(self) -> str:
        """Prefix of everything the session keeps outside the inbox."""
        return f"{self.segment}/"

    @property
    def descendants(self) -> str:
        """Prefix of everything its child sessions keep."""
        return f"{self.segment}~"

    @cached_property
    def head(self) -> str:
        return f"{self.segment}/checkpoints/head"

    @property
    def inbox_prefix(self) -> str:
        return f"{INBOX}{self.segment}/"

    def inbox(self, n: int) -> str:
        return f"{self.inbox_prefix}{number(n)}"

    def timer(self, due_ms: int, turn: int) -> str:
        return f"{timer_minute(due_ms)}/{self.segment}.{number(turn)}"

    def life(self, life: str) -> LifeKeys:
        return LifeKeys(f"{self.segment}/checkpoints/{life}/")


@dataclass(frozen=True, slots=True)
class LifeKeys:
    """The keys of one life of a session: a recreated id is another life, so no late write of the old one meets it.

    They share one folder: where objects are files, each new folder is another thing to force to disk.
    """

    prefix: str

    def log(self, turn: int, fence: int, position: int) -> str:
        return f"{self.prefix}log.{number(turn)}.{number(fence)}.{number(position)}"

    def end(self, turn: int, fence: int) -> str:
        return f"{self.prefix}end.{number(turn)}.{number(fence)}"

    def merged(self, first: int, last: int) -> str:
        return f"{self.prefix}seg.{number(first)}-{number(last)}"

    def joins(self, turn: int, fence: int, position: int) -> str:
        """Prefix of the answers of one suspension."""
        return f"{self.prefix}join.{number(turn)}.{number(fence)}.{number(position)}."

    def join(self, turn: int, fence: int, position: int, index: int) -> str:
        return f"{self.joins(turn, fence, position)}{number(index)}"

    def blob(self, digest: str) -> str:
        return f"{self.prefix}blob/{digest}"
