"""The protocol with one rule taken out: each must be caught by some seed, or the simulator sees nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from storage.logstore import Conflict, Landed, LogStore
from storage.records import EndedTurn
from storage.sessionlog import OpenLog
from tests.simulation.redis import Redis
from worker.protocol import accept as accepting
from worker.protocol import cleaner, visit

_create = LogStore.create


def _skip_seals() -> AbstractContextManager[Any]:
    """§4 steps 3 and 4: the predecessor is not stopped."""

    async def create(
        self: LogStore, key: str, body: bytes, w: str, *, mine: Callable[[bytes], bool] | None = None
    ) -> Landed | Conflict:
        if b'"seal"' in body[:80]:
            return Landed("", lost=False)
        return await _create(self, key, body, w, mine=mine)

    return patch.object(LogStore, "create", create)


def _write_over() -> AbstractContextManager[Any]:
    """§3 step 3: records are written without "if absent"."""

    async def create(
        self: LogStore, key: str, body: bytes, w: str, *, mine: Callable[[bytes], bool] | None = None
    ) -> Landed | Conflict:
        if "/log." in key:
            return Landed(await self.store.put(key, body) or "", lost=False)
        return await _create(self, key, body, w, mine=mine)

    return patch.object(LogStore, "create", create)


def _trust_a_retry() -> AbstractContextManager[Any]:
    """§1: after a lost reply the head is not read again."""

    async def still_mine(self: OpenLog) -> bool:
        return True

    return patch.object(OpenLog, "_still_mine", still_mine)


def _ignore_wake() -> AbstractContextManager[Any]:
    """§3: a holder leaves without looking whether somebody came."""
    release = Redis.release

    def blind(self: Redis, lease: Any, watch_ms: int | None, settled: int | None) -> bool:
        self.ignores_wake = True
        return release(self, lease, watch_ms, settled)

    return patch.object(Redis, "release", blind)


def _join_early() -> AbstractContextManager[Any]:
    """§5: a parent resumes before its last child has answered."""
    answers = visit.answers

    async def impatient(fleet: Any, head: Any, suspension: Any) -> Any:
        found = await answers(fleet, head, suspension)
        return found if found is not None else []

    return patch.object(visit, "answers", impatient)


def _clean_seals() -> AbstractContextManager[Any]:
    """§4: an ended turn's log is garbage, seals and all."""
    litter = EndedTurn.litter

    def all_of_it(self: EndedTurn, keys: Any) -> Iterator[str]:
        yield from litter(self, keys)
        yield from self.seals(keys)

    return patch.object(EndedTurn, "litter", all_of_it)


def _forget_entries_at_once() -> AbstractContextManager[Any]:
    """§6: an inbox entry goes with its turn, and a slow accept is given its number again."""
    return patch.object(cleaner, "KEEP_MS", 0)


def _trust_a_slow_accept() -> AbstractContextManager[Any]:
    """§3 accept, step 4: nobody looks whether the slot had been emptied."""

    async def holds(*_: Any) -> bool:
        return True

    return patch.object(accepting, "_holds", holds)


def _forget_dues() -> AbstractContextManager[Any]:
    """§6: a child's answer is not paid again after its worker died."""

    async def nothing(*_: Any) -> bool:
        return True

    return patch("worker.protocol.tidy.pay_again", nothing)


def _start_one_child() -> AbstractContextManager[Any]:
    """§5: whoever sees a suspended parent leaves its missing children to others."""

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    return patch.object(visit, "pump", nothing)


def _local_without_number() -> AbstractContextManager[Any]:
    """§12: a local turn is opened by the head alone."""

    async def create(
        self: LogStore, key: str, body: bytes, w: str, *, mine: Callable[[bytes], bool] | None = None
    ) -> Landed | Conflict:
        if key.startswith("_inbox/") and b'"kind":"local"' in body[:200]:
            return Landed("", lost=False)
        return await _create(self, key, body, w, mine=mine)

    return patch.object(LogStore, "create", create)


@contextmanager
def _forget_lost_messages() -> Generator[None]:
    """§2, §6: whichever message arrives clears the deadline of one that was lost, and listings pass over a session whose
    turn has ended also when a later entry is there. Either alone makes the other good."""
    take, may_send = Redis.take, Redis.may_send

    def forgetful(self: Redis, session: str, n: int) -> int | None:
        for message in [message for message in self.sent if message[0] == session]:
            del self.sent[message]
        return take(self, session, n)

    def blind(self: Redis, session: str, newest: int) -> bool:
        return may_send(self, session, min(newest, self.rest.get(session, (newest, 0))[0]))

    with patch.object(Redis, "take", forgetful), patch.object(Redis, "may_send", blind):
        yield


MUTATIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "takeover without seals": _skip_seals,
    "records written over": _write_over,
    "retry trusted without the head": _trust_a_retry,
    "release without a look at the wake flag": _ignore_wake,
    "resume before the last answer": _join_early,
    "seals removed with the log": _clean_seals,
    "entries removed at once": _forget_entries_at_once,
    "slow accept trusted": _trust_a_slow_accept,
    "dues not repeated": _forget_dues,
    "suspended parent not pumped": _start_one_child,
    "local turn without a number": _local_without_number,
    "lost messages forgotten": _forget_lost_messages,
}


@contextmanager
def mutated(name: str) -> Generator[None]:
    with MUTATIONS[name]():
        yield
