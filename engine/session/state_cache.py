"""Folded sessions a process remembers, so that a long session's next turn does not fold its history again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from engine.session.state import SessionState

#: folded sessions kept, by messages held: a bound on memory (three or four KiB each, rendered), not on sessions
CACHED_MESSAGES = 5_000
#: what a folded session takes beside its messages, in messages
_SESSION_WEIGHT = 4

#: the session, its life, and the turn whose history it is
HistoryKey: TypeAlias = tuple[str, str, int]


class StateCache:
    """Folded states by what they are the fold of: a turn's history never changes within a life.

    Those used longest ago go first. The newest stays, however long: its turn has had it in memory anyway.
    """

    def __init__(self, max_messages: int = CACHED_MESSAGES) -> None:
        self._max = max_messages
        self._held: OrderedDict[HistoryKey, SessionState] = OrderedDict()
        self._messages = 0

    def get(self, key: HistoryKey) -> SessionState | None:
        """To look at, before anything else runs: whoever changes it takes it."""
        state = self._held.get(key)
        if state is not None:
            self._held.move_to_end(key)
        return state

    def take(self, key: HistoryKey) -> SessionState | None:
        """Removed, because the turn that takes it changes it."""
        state = self._held.pop(key, None)
        if state is not None:
            self._messages -= _weight(state)
        return state

    def put(self, key: HistoryKey, state: SessionState) -> None:
        self.take(key)
        self._held[key] = state
        self._messages += _weight(state)
        while self._messages > self._max and len(self._held) > 1:
            _, dropped = self._held.popitem(last=False)
            self._messages -= _weight(dropped)


def _weight(state: SessionState) -> int:
    return len(state.messages) + _SESSION_WEIGHT
