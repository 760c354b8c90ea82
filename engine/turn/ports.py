"""The turn's ports: where its records go, and who tells it to stop."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Protocol

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from storage.objects import StoreUnavailable
from storage.sessionlog import TurnFenced

__all__ = ["NOT_THE_TURNS", "Stop", "TurnFenced", "TurnLog", "TurnReleased"]


class Stop(StrEnum):
    """Why a turn must not go on."""

    CANCELLED = "cancelled"  #: the host cancelled it: ends `failed`, `turn-cancelled`
    DEADLINE = "deadline"  #: it spent its active time: ends `failed`, `turn-deadline`
    DRAIN = "drain"  #: this process is leaving: stops at its next commit, another goes on
    LOST = "lost"  #: another worker owns the session: stop, write nothing, tell nobody


class TurnReleased(ArchmaxError):
    """The turn stopped at a commit because its process drains; it goes on elsewhere."""

    code: ClassVar[str] = "turn-released"


#: errors that say nothing of the turn: it is left as it was committed, for whoever goes on with it
NOT_THE_TURNS = (TurnFenced, TurnReleased, StoreUnavailable)


class TurnLog(Protocol):
    """One turn's place in the step log. Everything raises `TurnFenced` once another worker owns the turn."""

    session_id: str
    turn: int

    async def commit(self, record: JsonObject) -> None:
        """Durable when it returns."""
        ...

    async def end(self, record: JsonObject, outcome: JsonObject) -> None:
        """The turn's last record and its outcome in one write."""
        ...

    async def suspend(self, record: JsonObject, calls: Sequence[JsonObject], width: int) -> None:
        """Commit a suspension that names the children to run, `width` at a time."""
        ...

    async def put_blob(self, body: bytes) -> str: ...

    async def get_blob(self, name: str) -> bytes | None: ...

    def stop(self) -> Stop | None:
        """Asked between steps."""
        ...

    async def interrupted(self) -> Stop:
        """Returns when a step in flight must be cut off: `CANCELLED`, `DEADLINE` or `LOST`."""
        ...
