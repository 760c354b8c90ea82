"""Timers, retention, deletes (docs/protocol.md §7, §8)."""

from __future__ import annotations

import pytest

from storage.limits import TOMB_MS
from storage.records import Head
from storage.sessionlog import SessionLog
from tests.support.protocol_fleet import HandFleet, steps
from worker.ports import Stop
from worker.protocol.accept import Draft, accept, accept_record, delete_session
from worker.protocol.cancel import cancel
from worker.protocol.deliveries import ParkOver, deliver, sweep_timers
from worker.protocol.errors import SessionGone
from worker.protocol.keyed import read_record
from worker.protocol.open_turn import OpenTurn
from worker.protocol.reader import TurnStatus, read_turn
from worker.protocol.timers import set_timer
from worker.protocol.visit import attend


async def parks(turn: OpenTurn) -> None:
    """A message parks with a timer in 90 s; everything else ends."""
    if turn.entry.kind == "message":
        at = await turn._fleet.clock.now_ms() + 90_000
        await turn.end(
            {"turn": turn.turn}, {"kind": "parked"}, [{"due": "timer", "at": at, "workflow": "flow"}]
        )
    else:
        await turn.end({"turn": turn.turn, "kind": turn.entry.kind}, {"kind": "completed"})


async def park(fleet: HandFleet) -> None:
    await accept(fleet.fleet, Draft("s", "flow", "message", {}))
    await fleet.work()


async def test_a_timer_is_delivered_once_when_it_is_due() -> None:
    """docs/protocol.md §7: two sweeps make one delivery."""
    fleet = HandFleet(parks)
    await park(fleet)
    assert await sweep_timers(fleet.fleet) == 0
    await fleet.pass_time(150)
    key = fleet.stored("_timers/")[0]
    await sweep_timers(fleet.fleet)
    await deliver(fleet.fleet, key, await fleet.clock.now_ms())
    await sweep_timers(fleet.fleet)
    await fleet.work()
    assert fleet.runner.ran == [("s", 1, 1), ("s", 2, 1)]
    assert (await read_turn(fleet.fleet, "s", 2)).records == ({"turn": 2, "kind": "timer"},)
    assert fleet.stored("_timers/") == []


async def test_a_timer_set_again_by_a_slow_repeat_of_dues_is_no_second_delivery() -> None:
    """docs/protocol.md §9.4: one input, one turn, although a slow sweep found it acceptable before (seed 206089)."""
    fleet = HandFleet(parks)
    await park(fleet)
    await fleet.pass_time(150)
    key = fleet.stored("_timers/")[0]
    record = await read_record(fleet.fleet, key)
    assert record is not None and record.due is not None and record.life is not None
    due, life = record.due, record.life

    async def overtaken(log: SessionLog, head: Head | None) -> None:
        if head is None or head.turn != 1:
            raise ParkOver("s")
        # Found acceptable; meanwhile another delivers it, its turn runs, and a repeat of dues sets the timer again.
        await sweep_timers(fleet.fleet)
        await fleet.work()
        await set_timer(fleet.fleet, "s", life, 1, due)

    with pytest.raises(ParkOver):
        await accept_record(fleet.fleet, record, Draft("s", "flow", "timer", {}), check=overtaken)
    await sweep_timers(fleet.fleet)
    await fleet.work()
    assert fleet.runner.ran == [("s", 1, 1), ("s", 2, 1)]
    assert fleet.stored("_timers/") == []


async def test_a_timer_set_again_while_its_delivery_waits_behind_another_input_is_no_second_delivery() -> (
    None
):
    """docs/protocol.md §9.4: the input keeps the number it waits under (seed 3003203)."""
    fleet = HandFleet(parks)
    await park(fleet)
    await fleet.pass_time(150)
    record = await read_record(fleet.fleet, fleet.stored("_timers/")[0])
    assert record is not None and record.due is not None and record.life is not None
    await accept(fleet.fleet, Draft("s", "flow", "decision", {}))
    await sweep_timers(fleet.fleet)
    await set_timer(fleet.fleet, "s", record.life, 1, record.due)
    await sweep_timers(fleet.fleet)
    assert fleet.stored("_timers/") == []
    waiting = [key for key in fleet.stored("_inbox/") if not key.endswith("00000001")]
    assert [key[-8:] for key in waiting] == ["00000002", "00000003"]
    await fleet.work()
    assert fleet.runner.ran == [("s", 1, 1), ("s", 2, 1), ("s", 3, 1)]


async def test_a_timer_whose_delivery_was_cut_off_is_still_one_delivery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/protocol.md §7: the record names the number its input is accepted under."""
    fleet = HandFleet(parks)
    await park(fleet)
    await fleet.pass_time(150)
    delete = fleet.store.delete

    async def crash(keys: object) -> None:
        raise RuntimeError("killed before the timer was removed")

    monkeypatch.setattr(fleet.store, "delete", crash)
    with pytest.raises(RuntimeError):
        await sweep_timers(fleet.fleet)
    monkeypatch.setattr(fleet.store, "delete", delete)
    await fleet.work()
    await fleet.pass_time(300)
    assert await sweep_timers(fleet.fleet) == 1
    await fleet.work()
    assert fleet.runner.ran == [("s", 1, 1), ("s", 2, 1)]


async def test_a_timer_of_a_park_that_is_over_is_dropped() -> None:
    """docs/protocol.md §6: session still parked there, or nothing."""
    fleet = HandFleet(parks)
    await park(fleet)
    await accept(fleet.fleet, Draft("s", "flow", "decision", {}))
    await fleet.work()
    await fleet.pass_time(150)
    await sweep_timers(fleet.fleet)
    await fleet.work()
    assert fleet.runner.ran == [("s", 1, 1), ("s", 2, 1)]
    assert fleet.stored("_timers/") == []


async def test_the_timer_of_a_dead_worker_is_set_by_whoever_finds_its_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/protocol.md §6: dues are repeated before the entry goes."""
    fleet = HandFleet(parks)
    put = fleet.store.put

    async def crash(
        key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        if key.startswith("_timers/"):
            raise RuntimeError("killed")
        return await put(key, body, if_absent=if_absent, if_match=if_match)

    monkeypatch.setattr(fleet.store, "put", crash)
    with pytest.raises(RuntimeError):
        await park(fleet)
    monkeypatch.setattr(fleet.store, "put", put)
    assert fleet.stored("_timers/") == []
    await fleet.pass_time(61)
    await fleet.sweep()
    await fleet.work()
    assert len(fleet.stored("_timers/")) == 1


async def test_a_deleted_session_leaves_a_tombstone_and_refuses_everything() -> None:
    """docs/protocol.md §8."""
    fleet = HandFleet()
    for _ in range(3):
        await accept(fleet.fleet, Draft("s", "flow", "message", {"steps": 2}))
    await fleet.work()
    assert (await delete_session(fleet.fleet, "s")).n == 4
    await fleet.work()
    await fleet.pass_time(125)
    assert fleet.stored("s/") == ["s/checkpoints/head"]
    assert not fleet.stored("_inbox/")
    assert (await read_turn(fleet.fleet, "s", 2)).status is TurnStatus.GONE
    with pytest.raises(SessionGone):
        await accept(fleet.fleet, Draft("s", "flow", "message", {}))
    with pytest.raises(SessionGone):
        await cancel(fleet.fleet, "s", 1)


async def test_a_delete_cancels_what_runs_and_waits_for_its_end() -> None:
    """docs/protocol.md §8: it takes its number, so it races no turn."""

    async def deleted(turn: OpenTurn) -> None:
        await turn.commit({"turn": 1, "step": 1})
        await delete_session(fleet.fleet, "s")
        assert turn.stop() == Stop.DELETED
        await steps(turn)

    fleet = HandFleet(deleted)
    await accept(fleet.fleet, Draft("s", "flow", "message", {"steps": 5}))
    await fleet.work()
    head = await fleet.fleet.log("s").head()
    assert head is not None and head.deleted
    assert fleet.told.outcomes[0][2]["kind"] == "cancelled"


async def test_the_seals_of_a_deleted_session_stay_a_day_then_all_is_gone_and_the_id_is_free() -> None:
    """docs/protocol.md §8: seals first, head last; a recreated id is another life."""
    other: HandFleet

    first_life: list[str] = []

    async def stolen(turn: OpenTurn) -> None:
        first_life.append(turn.life)
        await attend(other.fleet, other.runner, "s", 1)
        await turn.end(None, {"kind": "stale"})

    fleet = HandFleet(stolen)
    other = HandFleet(store=fleet.store, clock=fleet.clock)
    await accept(fleet.fleet, Draft("s", "flow", "message", {}))
    await fleet.work()
    await delete_session(fleet.fleet, "s")
    fleet.runner._run = steps
    await fleet.work()
    await fleet.pass_time(125)
    assert sum("/log." in key for key in fleet.stored("s/")) == 1
    assert sum("/end." in key for key in fleet.stored("s/")) == 1
    await sweep_timers(fleet.fleet)
    assert len(fleet.stored("s/")) == 3, "too early"
    fleet.clock.ms += TOMB_MS + 60_000
    await sweep_timers(fleet.fleet)
    assert fleet.stored() == []
    assert (await accept(fleet.fleet, Draft("s", "flow", "message", {}))).n == 1
    await fleet.work()
    head = await fleet.fleet.log("s").head()
    assert isinstance(head, Head) and head.life != first_life[0]


async def test_a_delete_takes_the_child_sessions_with_it() -> None:
    """docs/protocol.md §8; H23: and not the session whose id merely begins alike."""

    async def parent(turn: OpenTurn) -> None:
        if turn.session_id == "s" and turn.joined is None:
            call = {"child": "s~1", "n": 1, "workflow": "flow", "kind": "start", "input": {}}
            await turn.suspend({"turn": 1}, [call], 1)
        else:
            await turn.end(None, {"kind": "completed"})

    fleet = HandFleet(parent)
    await accept(fleet.fleet, Draft("s", "flow", "message", {}))
    await accept(fleet.fleet, Draft("s1", "flow", "message", {}))
    await fleet.work()
    await delete_session(fleet.fleet, "s")
    await fleet.work()
    await fleet.pass_time(125)
    assert [key for key in fleet.stored("s~1/") if not key.endswith("head") and "log" not in key] == []
    child, sibling = await fleet.fleet.log("s~1").head(), await fleet.fleet.log("s1").head()
    assert child is not None and child.deleted
    assert sibling is not None and not sibling.deleted


async def test_a_thousand_leftovers_are_all_removed() -> None:
    """docs/protocol.md §8; H24: listings longer than a page."""

    async def many(turn: OpenTurn) -> None:
        for i in range(1005):
            await turn.put_blob(str(i).encode())
        await turn.end(None, {"kind": "completed"})

    fleet = HandFleet(many)
    await accept(fleet.fleet, Draft("s", "flow", "message", {}))
    await fleet.work()
    assert len(fleet.stored("s/")) > 1005
    await delete_session(fleet.fleet, "s")
    await fleet.work()
    assert fleet.stored("s/") == ["s/checkpoints/head"]


async def test_retention_deletes_a_session_with_no_newer_turn_and_spares_another() -> None:
    """docs/protocol.md §8: a delete with a condition, else void."""

    async def kept(turn: OpenTurn) -> None:
        due = [{"due": "retention", "at": await turn._fleet.clock.now_ms() + 60_000, "workflow": "flow"}]
        await turn.end(None, {"kind": "completed"}, due)

    fleet = HandFleet(kept)
    for session in ("old", "used"):
        await accept(fleet.fleet, Draft(session, "flow", "message", {}))
    await fleet.work()
    await fleet.pass_time(121)
    await accept(fleet.fleet, Draft("used", "flow", "message", {}))
    await sweep_timers(fleet.fleet)
    await fleet.work()
    old, used = await fleet.fleet.log("old").head(), await fleet.fleet.log("used").head()
    assert old is not None and old.deleted
    assert used is not None and not used.deleted
    third = await read_turn(fleet.fleet, "used", 3)
    assert third.end is not None and third.end.outcome == {"kind": "void"}
