"""The root of the one error tree.

Every error this project raises on purpose is an `ArchmaxError`. Each class carries a stable `code` (what
programs compare), and says in its message what is wrong, where, and what would be right. Every argument goes to
`super().__init__`, so that an error survives pickling between processes; a class whose message is its one argument
needs no constructor.
"""

from __future__ import annotations

from typing import ClassVar


class ArchmaxError(Exception):
    """Base of every deliberate error of the project."""

    code: ClassVar[str] = "error"
    #: whether doing the same again later may succeed
    retryable: ClassVar[bool] = False

    @property
    def message(self) -> str:
        """The sentence a person reads."""
        return str(self)
