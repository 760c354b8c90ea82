"""What accepting, cancelling and reading refuse with. The HTTP surface maps each to a status."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import JsonObject


class SessionGone(ArchmaxError):
    """The session was deleted (410)."""

    code: ClassVar[str] = "session-gone"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    @override
    def __str__(self) -> str:
        return f"session {self.session!r} was deleted"


class SessionBusy(ArchmaxError):
    """`onBusy: reject`, and a turn is running or waiting (409)."""

    code: ClassVar[str] = "session-busy"
    retryable: ClassVar[bool] = True

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    @override
    def __str__(self) -> str:
        return f"session {self.session!r} is busy"


class SessionHeldLocally(SessionBusy):
    """A library's or command's process runs a turn of the session, or died in it (409)."""

    code: ClassVar[str] = "session-held-locally"

    @override
    def __str__(self) -> str:
        return f"session {self.session!r} is held by a local process; cancel its turn to take it away"


class ChildSession(ArchmaxError):
    """An input sent directly to a child session, which takes its turns from its parent only (409)."""

    code: ClassVar[str] = "child-session"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    @override
    def __str__(self) -> str:
        return f"session {self.session!r} is a child; address the session that called it"


class KeyReused(ArchmaxError):
    """The idempotency key was used before, for another request (409)."""

    code: ClassVar[str] = "idempotency-key-reused"

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    @override
    def __str__(self) -> str:
        return f"idempotency key {self.key!r} was used for another request"


class TurnOver(ArchmaxError):
    """The turn has ended; `outcome` says how (409)."""

    code: ClassVar[str] = "turn-over"

    def __init__(self, session: str, turn: int, outcome: JsonObject) -> None:
        super().__init__(session, turn, outcome)
        self.session, self.turn, self.outcome = session, turn, outcome

    @override
    def __str__(self) -> str:
        return f"turn {self.session}.{self.turn} has already ended"


class TurnUnknown(ArchmaxError):
    """No such turn was ever accepted (404)."""

    code: ClassVar[str] = "turn-unknown"

    def __init__(self, session: str, turn: int) -> None:
        super().__init__(session, turn)
        self.session, self.turn = session, turn

    @override
    def __str__(self) -> str:
        return f"there is no turn {self.session}.{self.turn}"
