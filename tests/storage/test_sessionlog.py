"""The session log: claims, fences, lost replies, seals, segments (docs/protocol.md §1-§4, §8).

It stands where the contract has a checkpointer (05 §6, ruling 13).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from core.jsontext import JsonObject
from storage.directory import DirectoryStore
from storage.limits import SEAL_MS
from storage.logstore import Conflict, Landed, LogStore
from storage.memory import MemoryStore
from storage.objects import ObjectStore, StoreUnavailable
from storage.records import InboxEntry, LogKind, NewerFormat, Why, pack, unpack
from storage.sessionlog import HeadMoved, OpenLog, SessionLog, TurnFenced


class QuickClock:
    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    async def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


class Flaky:
    """A real store whose replies are lost where `loses` says so; `before` acts between the write and its re-read."""

    def __init__(self, store: MemoryStore) -> None:
        self.inner = store
        self.loses: Callable[[str], bool] = lambda key: False
        self.silently_retries: Callable[[str], bool] = lambda key: False
        self.after_loss: Callable[[], Awaitable[None]] | None = None
        self.get = store.get
        self.list = store.list
        self.delete = store.delete
        self.close = store.close

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        etag = await self.inner.put(key, body, if_absent=if_absent, if_match=if_match)
        if self.silently_retries(key):
            return await self.inner.put(key, body, if_absent=if_absent, if_match=if_match)
        if self.loses(key):
            if self.after_loss is not None:
                await self.after_loss()
            raise StoreUnavailable("put", key, "reply lost")
        return etag


def session_log(store: ObjectStore, clock: QuickClock | None = None, session: str = "s") -> SessionLog:
    return SessionLog(LogStore(store, clock=clock or QuickClock()), session)


async def accepted(log: SessionLog, n: int) -> InboxEntry:
    entry = InboxEntry(log.session, n, f"id{n}", "message", "flow", {}, 0, w=f"w{n}")
    await log.files.create(log.keys.inbox(n), entry.body(), entry.w)
    found = await log.entry(n)
    assert found is not None
    return found


async def opened(log: SessionLog, n: int) -> OpenLog:
    turn = await log.claim(await log.head(), await accepted(log, n), by="fleet")
    assert turn is not None
    return turn


async def taken_over(log: SessionLog) -> OpenLog:
    head = await log.head()
    assert head is not None
    entry = await log.entry(head.turn)
    assert entry is not None
    turn = await log.take_over(head, entry, await log.read_chain(head), by="fleet")
    assert turn is not None
    return turn


async def ran(log: SessionLog, n: int, records: int = 2) -> OpenLog:
    turn = await opened(log, n)
    for i in range(records - 1):
        await turn.commit({"turn": n, "i": i})
    await turn.end({"turn": n, "i": records - 1}, {"kind": "completed"})
    return turn


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else DirectoryStore(tmp_path)


async def test_a_session_is_its_turns_records_in_order(store: ObjectStore) -> None:
    """docs/protocol.md §2, on every kind of store."""
    log = session_log(store, session="a session/with ünïcode~")
    for n in range(1, 12):
        await ran(log, n)
    fresh = session_log(store, session="a session/with ünïcode~")
    head = await fresh.head()
    assert head is not None
    end = await fresh.over(head)
    assert end is not None
    records = [*await fresh.history(head), *end.records]
    assert records == [{"turn": n, "i": i} for n in range(1, 12) for i in (0, 1)]


async def test_of_two_claims_one_wins(store: ObjectStore) -> None:
    """docs/protocol.md §3 claim, step 2."""
    log = session_log(store)
    entry = await accepted(log, 1)
    first, second = await log.claim(None, entry, by="fleet"), await log.claim(None, entry, by="fleet")
    assert first is not None
    assert second is None
    await first.end(None, {"kind": "completed"})


async def test_of_two_takers_one_wins_and_both_leave_the_same_seals(store: ObjectStore) -> None:
    """docs/protocol.md §4."""
    log = session_log(store)
    await opened(log, 1)
    head = await log.head()
    entry = await log.entry(1)
    assert head is not None and entry is not None
    chains = [await log.read_chain(head), await log.read_chain(head)]
    takers = [await log.take_over(head, entry, chain, by="fleet") for chain in chains]
    assert [taker is None for taker in takers] == [False, True]
    after = await log.head()
    assert after is not None and after.fence == 2


async def test_a_taker_adopts_what_was_committed_before_its_seal() -> None:
    """docs/protocol.md §4: records it commits before step 4 are simply part of the chain."""
    log = session_log(MemoryStore())
    first = await opened(log, 1)
    head, entry = await log.head(), await log.entry(1)
    assert head is not None and entry is not None
    chain = await log.read_chain(head)
    await first.commit({"i": 1})
    taker = await log.take_over(head, entry, chain, by="fleet")
    assert taker is not None and taker.records == [{"i": 1}]
    with pytest.raises(TurnFenced):
        await first.commit({"i": 2})


async def test_a_turn_suspended_while_it_is_being_taken_over_is_left_suspended() -> None:
    """docs/protocol.md §4 step 2: a suspension leads out only through its join."""
    log = session_log(MemoryStore())
    first = await opened(log, 1)
    head, entry = await log.head(), await log.entry(1)
    assert head is not None and entry is not None
    chain = await log.read_chain(head)
    await first.suspend({"i": 1}, [{"child": "s~1"}], 1)
    assert await log.take_over(head, entry, chain, by="fleet") is None
    assert (await log.read_chain(head)).suspension is not None


async def test_a_takeover_of_one_suspension_does_not_resume_the_next() -> None:
    """docs/protocol.md §9.6: the answers that were read belong to the suspension that was read (seed 5004810)."""
    log = session_log(MemoryStore())
    await (await opened(log, 1)).suspend({"i": 1}, [{"child": "s~1"}], 1)
    second = await taken_over(log)
    head, entry = await log.head(), await log.entry(1)
    assert head is not None and entry is not None
    chain = await log.read_chain(head)
    await second.join({"i": 2}, [{"a": 1}])
    await second.suspend({"i": 3}, [{"child": "s~2"}, {"child": "s~3"}], 2)
    assert await log.take_over(head, entry, chain, by="fleet") is None
    suspension = (await log.read_chain(head)).suspension
    assert suspension is not None and [call["child"] for call in suspension.calls] == ["s~2", "s~3"]


async def test_an_end_beats_a_takeover_that_comes_too_late() -> None:
    """docs/protocol.md §4 step 3: a real end there, visit again."""
    log = session_log(MemoryStore())
    first = await opened(log, 1)
    head, entry = await log.head(), await log.entry(1)
    assert head is not None and entry is not None
    chain = await log.read_chain(head)
    await first.end(None, {"kind": "completed"})
    assert await log.take_over(head, entry, chain, by="fleet") is None
    assert await log.over(head) is not None


async def test_attempts_count_the_deaths_in_the_next_step() -> None:
    """docs/protocol.md §4 "Attempts"."""
    log = session_log(MemoryStore())
    assert (await opened(log, 1)).attempts == 1
    second = await taken_over(log)
    third = await taken_over(log)
    assert (second.attempts, third.attempts) == (2, 3)
    await third.commit({"i": 1})
    fourth = await taken_over(log)
    assert fourth.attempts == 2, "its predecessor got on, and died in the step after that"
    await fourth.release()
    fifth = await taken_over(log)
    assert fifth.attempts == 2, "a drain is no death"
    assert [part.why for part in fifth.head.parts][-2:] == [Why.LOST, Why.RELEASED]
    await fifth.commit({"i": 2})
    await fifth.release()
    assert (await taken_over(log)).attempts == 1


async def test_a_lost_reply_is_found_again_by_the_writes_own_id() -> None:
    """docs/protocol.md §1: landed after loss, and the head still names the worker."""
    flaky = Flaky(MemoryStore())
    log = session_log(flaky)
    turn = await opened(log, 1)
    flaky.loses = lambda key: "/log." in key or "/end." in key
    await turn.commit({"i": 1})
    end = await turn.end({"i": 2}, {"kind": "completed"})
    assert list(end.records) == [{"i": 1}, {"i": 2}]


async def test_a_clients_silent_retry_is_a_lost_reply() -> None:
    """docs/protocol.md §1: 412 may be my own earlier write."""
    flaky = Flaky(MemoryStore())
    flaky.silently_retries = lambda key: "_inbox" not in key
    log = session_log(flaky)
    turn = await opened(log, 1)
    await turn.commit({"i": 1})
    await turn.end({"i": 2}, {"kind": "completed"})
    head = await log.head()
    assert head is not None and head.w == turn.head.w


async def test_a_record_that_a_successor_adopted_does_not_let_its_writer_go_on() -> None:
    """docs/protocol.md §1: after any loss the head is read again."""
    flaky = Flaky(MemoryStore())
    log = session_log(flaky)
    other = session_log(flaky.inner)
    turn = await opened(log, 1)

    async def steal() -> None:
        successor = await taken_over(other)
        assert successor.records == [{"i": 1}]
        await successor.end(None, {"kind": "completed"})

    flaky.loses = lambda key: "/log." in key
    flaky.after_loss = steal
    with pytest.raises(TurnFenced):
        await turn.commit({"i": 1})


async def test_a_retry_into_a_cleaned_slot_does_not_let_its_writer_go_on() -> None:
    """docs/protocol.md §1: create-if-absent succeeds in an emptied log, and proves nothing."""
    flaky = Flaky(MemoryStore())
    log = session_log(flaky)
    other = session_log(flaky.inner)
    turn = await opened(log, 1)

    async def steal_and_clean() -> None:
        flaky.loses = lambda key: False
        successor = await taken_over(other)
        end = await successor.end(None, {"kind": "completed"})
        await other.files.delete(end.litter(other.keys.life(turn.head.life)))

    flaky.loses = lambda key: "/log." in key
    flaky.after_loss = steal_and_clean
    with pytest.raises(TurnFenced):
        await turn.commit({"i": 1})
    with pytest.raises(TurnFenced):
        await turn.end(None, {"kind": "completed"})


async def test_an_unknown_write_is_retried_and_then_given_up() -> None:
    """docs/protocol.md §1: three answers, and unknown is never taken for one of the others."""
    store = MemoryStore()
    clock = QuickClock()
    files = LogStore(store, clock=clock)
    body = pack({"w": "mine"})
    assert isinstance(await files.create("a/b", body, "mine"), Landed)
    again = await files.create("a/b", body, "mine")
    assert isinstance(again, Landed) and again.lost
    other = await files.create("a/b", pack({"w": "other"}), "other")
    assert isinstance(other, Conflict) and other.found is not None
    gone = await files.replace("a/c", body, "mine", "etag")
    assert gone == Conflict(None)


async def test_equal_content_is_not_the_same_write() -> None:
    """docs/protocol.md §1: an etag is a hash of content, so every body carries a write id."""
    log = session_log(MemoryStore())
    await opened(log, 1)
    before = await log.head()
    assert before is not None
    await taken_over(log)
    stale = await log.files.replace(log.keys.head, before.body(), before.w + "x", before.etag)
    assert isinstance(stale, Conflict)


async def test_a_worker_frozen_for_half_the_seals_life_does_not_write() -> None:
    """docs/protocol.md §9, limits: it must exit on waking, by its own clock."""
    clock = QuickClock()
    turn = await opened(session_log(MemoryStore(), clock), 1)
    clock.ms += SEAL_MS // 2 + 1
    with pytest.raises(TurnFenced):
        await turn.commit({"i": 1})


async def test_eight_segments_become_one_and_eight_of_those_the_next() -> None:
    """docs/protocol.md §3 claim, step 1."""
    store = MemoryStore()
    log = session_log(store)
    for n in range(1, 66):
        turn = await ran(log, n)
        await log.files.delete(turn.garbage)
    head = await log.head()
    assert head is not None
    assert [(ref.first, ref.last) for ref in head.segs] == [(1, 64)]
    life = log.keys.life(head.life)
    ends = [key for key in store._keys if "/end." in key or "/seg." in key]
    assert ends == [life.end(65, 1), life.merged(1, 64)]
    records = await session_log(store).history(head)
    assert [record["turn"] for record in records] == [n for n in range(1, 65) for _ in (0, 1)]


async def test_the_head_stays_small_over_hundreds_of_turns() -> None:
    """docs/protocol.md §10: at most 8 references a level."""
    store = MemoryStore()
    log = session_log(store)
    for n in range(1, 300):
        await ran(log, n, records=1)
    head = await log.head()
    assert head is not None and len(head.segs) <= 8 * 3
    stored = await store.get(log.keys.head)
    assert stored is not None and len(stored.body) < 1024


async def test_bytes_stored_stay_near_the_content() -> None:
    """docs/protocol.md §10; H15: a 60-step turn with one big value and 1 KB a step."""
    store = MemoryStore()
    log = session_log(store)
    written = 0
    put = store.put

    async def counted(
        key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        nonlocal written
        written += len(body)
        return await put(key, body, if_absent=if_absent, if_match=if_match)

    store.put = counted  # type: ignore[method-assign]
    turn = await opened(log, 1)
    big = bytes(range(256)) * 4096
    name = await turn.put_blob(big)
    assert await turn.put_blob(big) == name
    for step in range(60):
        await turn.commit({"step": step, "text": f"{step:04d}" * 256, "file": name})
    await turn.end(None, {"kind": "completed"})
    assert await turn.get_blob(name) == big
    unique = len(big) + 60 * 1024
    assert written < 3 * unique


async def test_old_seals_go_with_the_merge_that_takes_in_their_turn() -> None:
    """docs/protocol.md §8: older than `SEAL` by the store's own dates, and never sooner."""
    now = [1_700_000_000_000]
    store = MemoryStore(now_ms=lambda: now[0])
    log = session_log(store)
    await opened(log, 1)
    await (await taken_over(log)).end(None, {"kind": "completed"})
    for n in range(2, 9):
        await ran(log, n)
    young = await opened(log, 9)
    assert not [key for key in young.garbage if "/log." in key]
    await young.end(None, {"kind": "completed"})
    for n in range(10, 65):
        await ran(log, n)
    now[0] += SEAL_MS + 1
    old = await opened(log, 65)
    life = log.keys.life(old.head.life)
    assert life.log(1, 1, 1) in old.garbage
    assert life.end(1, 1) in old.garbage


async def test_an_old_head_is_told_from_a_lost_segment() -> None:
    """docs/protocol.md §2: a segment key that holds nothing means the head read was old."""
    log = session_log(MemoryStore())
    for n in range(1, 9):
        await ran(log, n)
    old = await log.head()
    assert old is not None
    turn = await opened(log, 9)
    await log.files.delete(turn.garbage)
    with pytest.raises(HeadMoved):
        await session_log(log.files.store).history(old)


async def test_a_newer_format_is_handed_back_not_guessed() -> None:
    """design: readers take every older version, a worker that meets a newer one hands the turn back."""
    store = MemoryStore()
    log = session_log(store)
    await opened(log, 1)
    stored = await store.get(log.keys.head)
    assert stored is not None
    newer: JsonObject = {**unpack("head", stored.body), "v": 2}
    await store.put(log.keys.head, pack(newer).replace(b'"v":1', b'"v":2'))
    with pytest.raises(NewerFormat):
        await log.head()


async def test_a_suspension_and_its_join_are_kept_in_the_end() -> None:
    """docs/protocol.md §4: a resume's first record is `joined` with all answers."""
    log = session_log(MemoryStore())
    first = await opened(log, 1)
    await first.suspend({"i": 0}, [{"child": "s~1"}, {"child": "s~2"}], 1)
    with pytest.raises(TurnFenced):
        await first.commit({"i": 1})
    second = await taken_over(log)
    await second.join({"i": 1}, [{"a": 1}, {"a": 2}])
    end = await second.end({"i": 2}, {"kind": "completed"})
    assert [o.kind for o in second.objects] == [LogKind.SUSPEND, LogKind.JOINED]
    assert list(end.records) == [{"i": 0}, {"i": 1}, {"i": 2}]
    litter = set(end.litter(log.keys.life(second.head.life)))
    life = log.keys.life(second.head.life)
    assert {life.join(1, 1, 1, 0), life.join(1, 1, 1, 1), life.log(1, 1, 1), life.log(1, 2, 1)} == litter
    assert not litter & set(end.seals(life))
