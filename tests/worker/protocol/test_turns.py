"""Accept, claim, run, end, take over: one session's turns (docs/protocol.md §3, §4, §10)."""

from __future__ import annotations

import pytest

from storage.limits import MAX_ATTEMPTS
from storage.objects import StoreUnavailable
from storage.records import InboxEntry
from storage.sessionlog import TurnFenced
from tests.support.protocol_fleet import HandFleet, steps
from worker.ports import BrokerUnavailable, HandBack, Stop
from worker.protocol.accept import Draft, IdempotencyKey, OnBusy, accept
from worker.protocol.cancel import cancel
from worker.protocol.errors import ChildSession, KeyReused, SessionBusy, TurnOver, TurnUnknown
from worker.protocol.open_turn import OpenTurn, TurnMisuse
from worker.protocol.reader import TurnStatus, read_history, read_session_head, read_turn
from worker.protocol.sweep import sweep_inbox, sweep_keys, sweep_watch
from worker.protocol.visit import attend


def message(session: str = "s", count: int = 1, *, minted: bool = False) -> Draft:
    return Draft(session, "flow", "message", {"steps": count}, minted=minted)


async def test_a_plain_turn_of_five_model_and_four_tool_steps_costs_fourteen_requests() -> None:
    """docs/protocol.md §10."""
    fleet = HandFleet()
    await accept(fleet.fleet, message(count=9))
    await fleet.work()
    assert fleet.requests() == 14
    assert (await read_turn(fleet.fleet, "s", 1)).status is TurnStatus.ENDED


async def test_a_minted_session_saves_the_head_read() -> None:
    """docs/protocol.md §10."""
    fleet = HandFleet()
    await accept(fleet.fleet, message(count=9, minted=True))
    await fleet.work()
    assert fleet.requests() == 13


async def test_cleaning_removes_a_turns_log_at_once_and_its_entry_two_minutes_later() -> None:
    """docs/protocol.md §6: the entry goes last, at least `KEEP` after the turn was seen over."""
    fleet = HandFleet()
    await accept(fleet.fleet, message(count=3))
    await fleet.work()
    await fleet.pass_time(1)
    assert not [key for key in fleet.stored() if "/log." in key]
    assert fleet.stored("_inbox/") == ["_inbox/s/00000001"]
    await fleet.pass_time(118)
    assert fleet.stored("_inbox/")
    await fleet.pass_time(2)
    assert not fleet.stored("_inbox/")


@pytest.mark.parametrize("key", [None, IdempotencyKey("caller", "k", "digest")], ids=["plain", "keyed"])
async def test_an_accept_whose_reply_comes_after_its_turn_is_answered_with_that_turn(
    monkeypatch: pytest.MonkeyPatch, key: IdempotencyKey | None
) -> None:
    """docs/protocol.md §9.4: also where another slow accept has met the emptied slot (seed 5013637)."""
    fleet = HandFleet()
    put = fleet.store.put
    slept: list[str] = []

    async def sleeps(
        key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        stored = await put(key, body, if_absent=if_absent, if_match=if_match)
        if key != "_inbox/s/00000001" or slept:
            return stored
        slept.append(key)
        await fleet.sweep()
        await fleet.work()
        await fleet.pass_time(1)
        await fleet.pass_time(180)
        assert not fleet.stored("_inbox/")
        other = InboxEntry("s", 1, "other", "message", "flow", {}, 0, w="w")
        await put(key, other.body(), if_absent=True)
        raise StoreUnavailable("put", key, "reply lost")

    monkeypatch.setattr(fleet.store, "put", sleeps)
    accepted = await accept(fleet.fleet, message(), key=key)
    assert (slept, accepted.n) == (["_inbox/s/00000001"], 1)
    await fleet.work()
    assert fleet.runner.ran == [("s", 1, 1)]


async def test_numbers_are_given_in_the_order_of_acceptance_and_turns_run_in_it() -> None:
    """docs/protocol.md §3; H14: two messages on one session both run, one after the other."""
    fleet = HandFleet()
    numbers = [(await accept(fleet.fleet, message(count=2))).n for _ in range(4)]
    assert numbers == [1, 2, 3, 4]
    await fleet.work()
    assert [turn for _, turn, _ in fleet.runner.ran] == numbers
    _, history = await read_history(fleet.fleet, "s")
    assert [(r["turn"], r["step"]) for r in history] == [(t, s) for t in numbers for s in (1, 2)]


async def test_without_a_broker_nothing_is_written() -> None:
    """docs/protocol.md §3 accept, step 1; H6."""
    fleet = HandFleet()
    fleet.queue.up = False
    with pytest.raises(BrokerUnavailable):
        await accept(fleet.fleet, message())
    assert fleet.stored() == []


async def test_an_accepted_turn_whose_message_was_lost_is_sent_by_the_sweep() -> None:
    """docs/protocol.md §3: after 2-4, accepted but unanswered; the sweep runs it."""
    fleet = HandFleet()
    fleet.queue.loses = True
    await accept(fleet.fleet, message())
    fleet.queue.loses = False
    assert await sweep_inbox(fleet.fleet) == 0, "just sent: not again within 30 s"
    await fleet.pass_time(31)
    assert await sweep_watch(fleet.fleet) == 1
    await fleet.work()
    assert (await read_turn(fleet.fleet, "s", 1)).status is TurnStatus.ENDED


async def test_a_flushed_redis_loses_no_accepted_turn() -> None:
    """docs/protocol.md §6: everything is rebuilt from the inbox."""
    fleet = HandFleet()
    for session in ("a", "b"):
        await accept(fleet.fleet, message(session))
    fleet.queue.messages.clear()
    fleet.leases.deadlines.clear()
    assert await sweep_inbox(fleet.fleet) == 2
    await fleet.work()
    assert {session for session, _, _ in fleet.runner.ran} == {"a", "b"}


async def test_reject_refuses_while_a_turn_waits_or_runs() -> None:
    """docs/protocol.md §3 accept, step 3."""

    async def insistent(turn: OpenTurn) -> None:
        with pytest.raises(SessionBusy):
            await accept(fleet.fleet, message(), on_busy=OnBusy.REJECT)
        await steps(turn)

    fleet = HandFleet(insistent)
    await accept(fleet.fleet, message())
    with pytest.raises(SessionBusy):
        await accept(fleet.fleet, message(), on_busy=OnBusy.REJECT)
    await fleet.work()
    assert (await accept(fleet.fleet, message(), on_busy=OnBusy.REJECT)).n == 2


async def test_interrupt_cancels_the_turns_before_it_and_runs_after_them() -> None:
    """docs/protocol.md §7."""

    async def interrupted(turn: OpenTurn) -> None:
        if turn.turn == 1:
            await turn.commit({"turn": 1, "step": 1})
            assert (await accept(fleet.fleet, message(), on_busy=OnBusy.INTERRUPT)).n == 3
            assert turn.stop() == Stop.INTERRUPTED
        await steps(turn)

    fleet = HandFleet(interrupted)
    await accept(fleet.fleet, message(count=5))
    await accept(fleet.fleet, message(count=5))
    await fleet.work()
    kinds = [(await read_turn(fleet.fleet, "s", n)).end for n in (1, 2, 3)]
    assert [end and end.outcome["kind"] for end in kinds] == ["cancelled", "cancelled", "completed"]


async def test_an_idempotency_key_is_one_turn_for_ever() -> None:
    """docs/protocol.md §7."""
    fleet = HandFleet()
    key = IdempotencyKey("me", "k", "digest")
    first = await accept(fleet.fleet, message(), key=key)
    again = await accept(fleet.fleet, message(), key=key)
    await fleet.work()
    await fleet.pass_time(300)
    late = await accept(fleet.fleet, message(), key=key)
    assert (first.n, first.repeated) == (1, False)
    assert (again.n, again.repeated) == (late.n, late.repeated) == (1, True)
    assert len(fleet.runner.ran) == 1


async def test_a_key_whose_number_was_taken_moves_on_once() -> None:
    """docs/protocol.md §7: the number only moves after its slot is provably another's."""
    fleet = HandFleet()
    await accept(fleet.fleet, message())
    key = IdempotencyKey("me", "k", "digest")
    assert (await accept(fleet.fleet, message(), key=key)).n == 2
    assert (await accept(fleet.fleet, message(), key=key)).n == 2
    await fleet.work()
    assert len(fleet.runner.ran) == 2


async def test_a_repeat_is_answered_where_a_new_request_would_be_refused() -> None:
    """docs/protocol.md §7: same key, same answer."""
    fleet = HandFleet()

    async def check(log: object, head: object) -> None:
        if head is not None:
            raise SessionBusy("not now")

    key = IdempotencyKey("me", "k", "digest")
    await accept(fleet.fleet, message(), key=key, check=check)
    await fleet.work()
    assert (await accept(fleet.fleet, message(), key=key, check=check)).n == 1
    with pytest.raises(SessionBusy):
        await accept(fleet.fleet, message(), check=check)


async def test_a_key_used_for_another_request_is_refused() -> None:
    """docs/protocol.md §7: other hash, 409."""
    fleet = HandFleet()
    await accept(fleet.fleet, message(), key=IdempotencyKey("me", "k", "one"))
    with pytest.raises(KeyReused):
        await accept(fleet.fleet, message(), key=IdempotencyKey("me", "k", "two"))
    assert (await accept(fleet.fleet, message(), key=IdempotencyKey("you", "k", "two"))).n == 2


async def test_keys_are_forgotten_after_a_day() -> None:
    """docs/protocol.md §2: `_keys` go after their retention."""
    fleet = HandFleet()
    await accept(fleet.fleet, message(), key=IdempotencyKey("me", "k", "one"))
    assert await sweep_keys(fleet.fleet) == 0
    fleet.clock.ms += 86_400_001
    assert await sweep_keys(fleet.fleet) == 1


async def test_a_child_session_takes_no_direct_input() -> None:
    """docs/protocol.md §5."""
    with pytest.raises(ChildSession):
        await accept(HandFleet().fleet, message("s~1"))


async def test_a_turn_of_a_dead_worker_goes_on_from_its_last_commit() -> None:
    """docs/protocol.md §4; H2: within a lease and a sweep, not a visibility timeout."""

    async def dies_once(turn: OpenTurn) -> None:
        if turn.fence == 1:
            await turn.commit({"turn": 1, "step": 1})
            raise RuntimeError("killed")
        assert turn.records == [{"turn": 1, "step": 1}]
        await steps(turn)

    fleet = HandFleet(dies_once)
    await accept(fleet.fleet, message(count=3))
    with pytest.raises(RuntimeError):
        await fleet.work()
    assert (await read_turn(fleet.fleet, "s", 1)).status is TurnStatus.RUNNING
    await fleet.pass_time(6)
    assert await sweep_watch(fleet.fleet) == 1
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert [record["step"] for record in view.records] == [1, 2, 3]
    assert view.fence == 2


async def test_a_turn_that_kills_its_workers_ends_worker_lost() -> None:
    """docs/protocol.md §4 "Attempts"; H3: never a loop, never a silent loss."""

    async def poison(turn: OpenTurn) -> None:
        assert turn.attempts == turn.fence
        raise RuntimeError("killed")

    fleet = HandFleet(poison)
    await accept(fleet.fleet, message())
    for _ in range(MAX_ATTEMPTS):
        with pytest.raises(RuntimeError):
            await fleet.work()
        await fleet.pass_time(6)
        await sweep_watch(fleet.fleet)
    await fleet.work()
    assert len(fleet.runner.ran) == MAX_ATTEMPTS
    end = (await read_turn(fleet.fleet, "s", 1)).end
    assert end is not None and end.outcome["code"] == "worker-lost"


async def test_draining_hands_the_turn_on_without_counting_a_death() -> None:
    """docs/protocol.md §4 "Drain"."""
    attempts: list[int] = []

    async def drained(turn: OpenTurn) -> None:
        attempts.append(turn.attempts)
        if turn.fence < 6:
            fleet.draining = True
            assert turn.stop() == Stop.DRAIN
            fleet.draining = False
            raise HandBack("drain")
        await steps(turn)

    fleet = HandFleet(drained)
    await accept(fleet.fleet, message())
    await fleet.work()
    assert attempts == [1] * 6


async def test_a_draining_worker_opens_nothing() -> None:
    """docs/protocol.md §4 "Drain": it takes no new turn."""
    fleet = HandFleet()
    await accept(fleet.fleet, message())
    fleet.draining = True
    await attend(fleet.fleet, fleet.runner, "s", 1)
    assert fleet.runner.ran == []
    fleet.draining = False
    await fleet.work()
    assert len(fleet.runner.ran) == 1


async def test_a_stale_worker_can_neither_commit_nor_end() -> None:
    """docs/protocol.md §4; H1: a second worker took over while the first slept."""
    other: HandFleet

    async def sleeps(turn: OpenTurn) -> None:
        await turn.commit({"turn": 1, "step": 1})
        await attend(other.fleet, other.runner, "s", 1)
        with pytest.raises(TurnFenced):
            await turn.commit({"turn": 1, "step": 2})
        with pytest.raises(TurnFenced):
            await turn.end(None, {"kind": "stale"})
        await turn.commit({"turn": 1, "step": 2})

    fleet = HandFleet(sleeps)
    other = HandFleet(store=fleet.store, clock=fleet.clock)
    await accept(fleet.fleet, message(count=3))
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None and view.end.outcome == {"kind": "completed"}
    assert [record["step"] for record in view.records] == [1, 2, 3]


async def test_a_stale_worker_is_stopped_also_after_the_log_was_cleaned() -> None:
    """docs/protocol.md §4: seals outlive the clean-up."""
    other: HandFleet

    async def sleeps(turn: OpenTurn) -> None:
        await turn.commit({"turn": 1, "step": 1})
        await attend(other.fleet, other.runner, "s", 1)
        await other.pass_time(3600)
        with pytest.raises(TurnFenced):
            await turn.commit({"turn": 1, "step": 2})
        raise TurnFenced("s", 1, 1)

    fleet = HandFleet(sleeps)
    other = HandFleet(store=fleet.store, clock=fleet.clock)
    await accept(fleet.fleet, message(count=3))
    await fleet.work()
    left = [key for key in fleet.stored("s/") if "/log." in key]
    assert [key.rpartition("log.")[2] for key in left] == ["00000001.00000001.00000002"]


async def test_a_cancel_before_the_claim_lets_no_step_run() -> None:
    """docs/protocol.md §7; H8: cancelled while no worker was up."""
    fleet = HandFleet()
    await accept(fleet.fleet, message(count=3))
    await cancel(fleet.fleet, "s", 1)
    fleet.leases.hints.clear()
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None and view.end.outcome == {"kind": "cancelled", "reason": "cancelled"}
    assert view.records == ()


async def test_a_cancel_whose_hint_was_lost_is_seen_within_ten_seconds() -> None:
    """docs/protocol.md §3 step 3: every 10 s of a turn the entry is read again."""

    async def slow(turn: OpenTurn) -> None:
        await turn.commit({"turn": 1, "step": 1})
        await cancel(fleet.fleet, "s", 1)
        fleet.leases.hints.clear()
        assert turn.stop() is None
        fleet.clock.ms += 10_001
        await turn.commit({"turn": 1, "step": 2})
        await steps(turn)

    fleet = HandFleet(slow)
    await accept(fleet.fleet, message(count=9))
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None and view.end.outcome["kind"] == "cancelled"


async def test_an_ended_turn_cannot_be_cancelled_and_an_unknown_one_is_named() -> None:
    """docs/protocol.md §7."""
    fleet = HandFleet()
    await accept(fleet.fleet, message())
    await fleet.work()
    with pytest.raises(TurnOver) as over:
        await cancel(fleet.fleet, "s", 1)
    assert over.value.outcome == {"kind": "completed"}
    with pytest.raises(TurnUnknown):
        await cancel(fleet.fleet, "s", 2)


async def test_an_input_that_waited_too_long_is_not_begun() -> None:
    """docs/protocol.md §7: queue expiry takes the cancel's path."""
    fleet = HandFleet()
    now = await fleet.clock.now_ms()
    await accept(fleet.fleet, Draft("s", "flow", "message", {"steps": 2}, expires_ms=now + 1000))
    fleet.clock.ms += 2000
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None and view.end.outcome == {"kind": "cancelled", "reason": "expired"}


async def test_a_reader_tells_a_turns_life() -> None:
    """docs/protocol.md §11."""
    seen: list[TurnStatus] = []

    async def watched(turn: OpenTurn) -> None:
        seen.append((await read_turn(fleet.fleet, "s", 1)).status)
        await steps(turn)

    fleet = HandFleet(watched)
    with pytest.raises(TurnUnknown):
        await read_turn(fleet.fleet, "s", 1)
    await accept(fleet.fleet, message())
    seen.append((await read_turn(fleet.fleet, "s", 1)).status)
    await fleet.work()
    seen.append((await read_turn(fleet.fleet, "s", 1)).status)
    assert seen == [TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.ENDED]
    assert (await read_session_head(fleet.fleet, "s")).status is TurnStatus.ENDED
    with pytest.raises(TurnUnknown):
        await read_turn(fleet.fleet, "s", 0)


async def test_a_webhook_is_repeated_until_it_answers_and_not_after() -> None:
    """docs/protocol.md §6: at least once, and the entry stays while it is owed."""

    async def told(turn: OpenTurn) -> None:
        await turn.end(None, {"kind": "completed"}, [{"due": "webhook", "url": "https://example.test"}])

    fleet = HandFleet(told)
    fleet.told.answers = False
    await accept(fleet.fleet, message())
    await fleet.work()
    await fleet.pass_time(400)
    assert fleet.stored("_inbox/"), "still owed"
    fleet.told.answers = True
    await sweep_inbox(fleet.fleet)
    await fleet.work()
    await fleet.pass_time(31)
    fleet.leases.deadlines.clear()
    await sweep_inbox(fleet.fleet)
    await fleet.work()
    assert len(fleet.told.posts) == 2
    await fleet.pass_time(300)
    assert not fleet.stored("_inbox/")


async def test_a_runner_that_does_not_finish_is_found_out() -> None:
    """One `end` or one `suspend`, and nothing after it."""

    async def forgets(turn: OpenTurn) -> None:
        await turn.commit({"step": 1})

    fleet = HandFleet(forgets)
    await accept(fleet.fleet, message())
    with pytest.raises(TurnMisuse):
        await fleet.work()


async def test_an_outage_of_the_store_leaves_the_turn_to_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/protocol.md §1: an unknown write is never built upon."""

    async def unlucky(turn: OpenTurn) -> None:
        if turn.fence == 1:
            await turn.commit({"turn": 1, "step": 1})
            put = fleet.store.put
            monkeypatch.setattr(fleet.store, "put", broken)
            with pytest.raises(StoreUnavailable):
                await turn.commit({"turn": 1, "step": 2})
            monkeypatch.setattr(fleet.store, "put", put)
            with pytest.raises(TurnFenced):
                await turn.commit({"turn": 1, "step": 2})
            raise StoreUnavailable("put", "log", "away")
        await steps(turn)

    async def broken(key: str, body: bytes, **_: object) -> str | None:
        raise StoreUnavailable("put", key, "away")

    fleet = HandFleet(unlucky)
    await accept(fleet.fleet, message(count=3))
    with pytest.raises(StoreUnavailable):
        await fleet.work()
    await fleet.pass_time(6)
    await sweep_watch(fleet.fleet)
    await fleet.work()
    assert [r["step"] for r in (await read_turn(fleet.fleet, "s", 1)).records] == [1, 2, 3]


async def test_the_active_time_of_a_turn_goes_on_with_whoever_takes_it_over() -> None:
    """Design "Concurrency model": so much active time a turn; not each of its workers anew."""
    spent: list[int] = []

    async def dies_twice(turn: OpenTurn) -> None:
        spent.append(turn.spent_ms)
        if turn.fence == 3:
            await turn.end({"last": True}, {"kind": "completed"})
            return
        fleet.clock.ms += 40_000
        await turn.commit({"fence": turn.fence})
        fleet.clock.ms += 7_000  # in a step that its worker does not live to commit
        raise RuntimeError("died")

    fleet = HandFleet(dies_twice)
    await accept(fleet.fleet, message())
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await fleet.work()
        await fleet.pass_time(600)
        await sweep_watch(fleet.fleet)
    await fleet.work()
    assert spent == [0, 40_000, 80_000]
    assert (await read_turn(fleet.fleet, "s", 1)).status is TurnStatus.ENDED
