"""Folded sessions a process remembers, so that a long session's next turn does not fold its history again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from engine.session.state import SessionState
from storage.logstore import held_bytes

#: folded sessions kept, by messages held: a bound on memory (three or four KiB each, rendered), not on sessions
CACHED_MESSAGES = 5_000
#: what a folded session takes beside all that is counted, in messages
_SESSION_WEIGHT = 4
_MESSAGE_BYTES = 4096

#: the session, its life, and the turn whose history it is
HistoryKey: TypeAlias = tuple[str, str, int]


class StateCache:
    """Folded states by what they are the fold of: a turn's history never changes within a life.

    Those used longest ago go first. The newest stays, however long: its turn has had it in memory anyway.
    """

    def __init__(self, max_messages: int = CACHED_MESSAGES) -> None:
        self._max = max_messages
        self._held: OrderedDict[HistoryKey, tuple[int, SessionState]] = OrderedDict()
        self._messages = 0

    def get(self, key: HistoryKey) -> SessionState | None:
        """To look at, before anything else runs: whoever changes it takes it."""
        held = self._held.get(key)
        if held is None:
            return None
        self._held.move_to_end(key)
        return held[1]

    def take(self, key: HistoryKey) -> SessionState | None:
        """Removed, because the turn that takes it changes it."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        self._messages -= held[0]
        return held[1]

    def put(self, key: HistoryKey, state: SessionState) -> None:
        self.take(key)
        weight = _weight(state)
        self._held[key] = weight, state
        self._messages += weight
        while self._messages > self._max and len(self._held) > 1:
            _, (dropped, _) = self._held.popitem(last=False)
            self._messages -= dropped


def _weight(state: SessionState) -> int:
    """In messages of usual length. Long texts count by their length, and so do files kept in the log and values."""
    length = sum(len(message.get("text") or "") for message in state.messages)
    length += sum(len(ref.get("text") or ref.get("data") or "") for ref in state.files.values())
    length += held_bytes([state.values, state.middleware, state.pending_decision, state.pending_input])
    entries = len(state.messages) + (len(state.trail) + len(state.files)) // 4
    return entries + length // _MESSAGE_BYTES + _SESSION_WEIGHT
