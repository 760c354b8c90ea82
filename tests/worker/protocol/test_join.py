"""Suspension, children, join (docs/protocol.md §5)."""

from __future__ import annotations

from typing import Any

import pytest

from core.jsontext import JsonObject
from storage.records import EndedTurn, LogKind, Parent
from storage.sessionlog import OpenLog
from tests.support.protocol_fleet import HandFleet
from worker.ports import Stop
from worker.protocol import dues, join
from worker.protocol.accept import Draft, accept
from worker.protocol.cancel import cancel
from worker.protocol.fleet import Fleet
from worker.protocol.open_turn import OpenTurn
from worker.protocol.reader import TurnStatus, read_turn
from worker.protocol.sweep import sweep_watch


def calls(turn: OpenTurn, count: int, *, depth: int = 0, n: int = 1, first: int = 1) -> list[JsonObject]:
    return [
        {
            "child": f"{turn.session_id}~{i}",
            "n": n,
            "workflow": "flow",
            "kind": "start",
            "input": {"depth": depth, "i": i},
        }
        for i in range(first, first + count)
    ]


async def delegate(turn: OpenTurn) -> None:
    """`input.children` children of which each has as many again, `input.depth` deep."""
    given = turn.entry.input
    if (reason := turn.stop()) is not None:
        await turn.end(None, {"kind": "cancelled", "reason": reason})
    elif turn.joined is not None:
        await turn.commit({"answers": [answer["outcome"]["of"] for answer in turn.joined]})
        await turn.end(None, {"kind": "completed", "of": turn.session_id})
    elif given.get("depth", 0) > 0:
        children = calls(turn, given.get("children", 2), depth=given["depth"] - 1)
        await turn.suspend({"calls": len(children)}, children, given.get("width", 4))
    else:
        await turn.end(None, {"kind": "completed", "of": turn.session_id})


async def start(fleet: HandFleet, **given: int) -> None:
    await accept(fleet.fleet, Draft("s", "flow", "message", dict(given)))


async def test_one_slot_finishes_any_depth_of_delegation() -> None:
    """docs/protocol.md §5; H9: the parent frees the slot its children need."""
    fleet = HandFleet(delegate)
    await start(fleet, depth=4, children=2)
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None and view.end.outcome == {"kind": "completed", "of": "s"}
    assert view.records[1] == {"answers": ["s~1", "s~2"]}
    assert len({session for session, _, _ in fleet.runner.ran}) == 1 + 2 + 4 + 8 + 16


async def test_no_more_children_run_than_the_width_allows() -> None:
    """docs/protocol.md §5: `width` counted fleet-wide."""
    waiting: list[int] = []

    async def watched(turn: OpenTurn) -> None:
        if turn.entry.parent is not None:
            alive = {key.split("/")[1] for key in fleet.stored("_inbox/s~")}
            joined = len([key for key in fleet.stored("s/") if "/join." in key])
            waiting.append(len(alive) - joined)
        await delegate(turn)

    fleet = HandFleet(watched)
    await start(fleet, depth=1, children=9, width=3)
    await fleet.work()
    assert max(waiting) == 3
    assert len(waiting) == 9


async def test_a_suspended_turn_says_so_and_holds_no_lease() -> None:
    """docs/protocol.md §5, §11."""
    fleet = HandFleet(delegate)
    await start(fleet, depth=1)
    children: list[TurnStatus] = []

    async def look(turn: OpenTurn) -> None:
        if turn.entry.parent is not None:
            children.append((await read_turn(fleet.fleet, "s", 1)).status)
        await delegate(turn)

    fleet.runner._run = look
    await fleet.work()
    assert children == [TurnStatus.SUSPENDED] * 2
    assert fleet.leases.held == {}


async def test_lost_messages_of_children_and_parent_are_found_by_the_sweep() -> None:
    """docs/protocol.md §5: if that message dies, the parent's entry is still there."""
    fleet = HandFleet(delegate)
    await start(fleet, depth=2, children=3)
    for _ in range(60):
        if not fleet.queue.messages:
            break
        fleet.queue.loses = True
        await fleet.work()
        fleet.queue.loses = False
        await fleet.pass_time(31)
        await fleet.sweep()
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None and view.end.outcome["kind"] == "completed"


async def test_a_child_that_was_never_accepted_is_accepted_by_the_parents_next_visit() -> None:
    """docs/protocol.md §5: a parent's visit fills what a crash left out."""
    fleet = HandFleet(delegate)
    await start(fleet, depth=1, children=3)
    put = fleet.store.put

    async def crash(
        key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        if key.startswith("_inbox/s~2"):
            raise RuntimeError("killed")
        return await put(key, body, if_absent=if_absent, if_match=if_match)

    fleet.store.put = crash  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        await fleet.work()
    fleet.store.put = put  # type: ignore[method-assign]
    await fleet.pass_time(61)
    await fleet.sweep()
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.records[1] == {"answers": ["s~1", "s~2", "s~3"]}


async def test_waking_a_suspended_parent_early_or_twice_joins_once() -> None:
    """docs/protocol.md §5: resume is a takeover; `joined` is created once."""
    fleet = HandFleet(delegate)
    await start(fleet, depth=1, children=2)

    async def eager(turn: OpenTurn) -> None:
        fleet.queue.messages.extend([parent] * 3)
        await delegate(turn)

    parent = fleet.queue.messages[0]
    fleet.runner._run = eager
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert len([r for r in view.records if "answers" in r]) == 1
    assert [turn for turn in fleet.runner.ran if turn[0] == "s"] == [("s", 1, 1), ("s", 1, 2)]


@pytest.mark.parametrize("first_is_sent", [True, False])
async def test_children_that_end_together_send_their_parent_once(
    monkeypatch: pytest.MonkeyPatch, first_is_sent: bool
) -> None:
    """docs/protocol.md §5: who lists all answers sends the parent; the same process needs to only once."""
    fleet = HandFleet(delegate)
    await start(fleet, depth=1, children=3)
    unpaid: list[tuple[Parent, JsonObject]] = []

    async def later(_: Fleet, parent: Parent, answer: JsonObject) -> None:
        unpaid.append((parent, answer))

    with monkeypatch.context() as patched:
        patched.setattr(dues, "settle_child", later)
        await fleet.work()
    assert len(unpaid) == 3 and not fleet.queue.messages
    listed = join.settled_children

    async def all_there(_: Fleet, parent: Parent) -> set[int]:
        """What each lists when all of them wrote before the first listed."""
        return {0, 1, 2}

    monkeypatch.setattr(join, "settled_children", all_there)
    for number, (parent, answer) in enumerate(unpaid):
        fleet.queue.up = first_is_sent or number > 0
        await join.settle_child(fleet.fleet, parent, answer)
    assert [message.session for message in fleet.queue.messages] == ["s"]
    await join.settle_child_again(fleet.fleet, *unpaid[0])
    assert len(fleet.queue.messages) == 2, "whoever paid may have died before it sent"
    monkeypatch.setattr(join, "settled_children", listed)
    await fleet.work()
    assert (await read_turn(fleet.fleet, "s", 1)).status is TurnStatus.ENDED


async def test_a_park_settles_its_child_and_a_later_suspension_goes_on_with_it() -> None:
    """docs/protocol.md §5: going on with a parked child is a suspension with one call."""

    async def parking(turn: OpenTurn) -> None:
        if turn.entry.parent is not None:
            await turn.end(None, {"kind": "parked" if turn.turn == 1 else "completed", "of": turn.session_id})
        elif turn.joined is None:
            await turn.suspend({"first": True}, calls(turn, 1), 4)
        elif turn.joined[0]["outcome"]["kind"] == "parked":
            await turn.commit({"parked": True})
            await turn.suspend({"again": True}, calls(turn, 1, n=turn.joined[0]["n"] + 1), 4)
        else:
            await turn.end({"done": True}, {"kind": "completed"})

    fleet = HandFleet(parking)
    await start(fleet)
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert [next(iter(record)) for record in view.records] == ["first", "parked", "again", "done"]
    child = await read_turn(fleet.fleet, "s~1", 2)
    assert child.status is TurnStatus.ENDED


async def test_a_cancelled_parent_ends_after_all_its_children_did() -> None:
    """docs/protocol.md §5: a suspended turn ends only through its join."""
    ended: list[str] = []

    async def cancels(turn: OpenTurn) -> None:
        if turn.session_id == "s~1":
            await cancel(fleet.fleet, "s", 1)
        if turn.entry.parent is None and turn.joined is not None:
            assert turn.stop() == Stop.CANCELLED
            ended.extend(answer["outcome"].get("reason", "completed") for answer in turn.joined)
            await turn.end(None, {"kind": "cancelled"})
        else:
            await delegate(turn)

    fleet = HandFleet(cancels)
    await start(fleet, depth=1, children=6, width=1)
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None and view.end.outcome == {"kind": "cancelled"}
    assert len(ended) == 6
    assert "parent" in ended


async def test_an_end_right_after_a_resume_still_holds_the_answers() -> None:
    """docs/protocol.md §9 invariant 6: one `joined` per `suspend`."""
    kinds: list[LogKind] = []

    async def curt(turn: OpenTurn) -> None:
        if turn.entry.parent is not None or turn.joined is None:
            await delegate(turn)
            return
        await turn.end(None, {"kind": "completed", "of": "s"})
        kinds.extend(o.kind for o in turn._log.objects)

    fleet = HandFleet(curt)
    await start(fleet, depth=1)
    await fleet.work()
    assert kinds == [LogKind.SUSPEND, LogKind.JOINED]


async def test_answers_joined_by_a_worker_that_died_before_its_first_record_are_handed_over_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/protocol.md §4, §9 invariant 6: the log has the one `joined`, the engine has not seen its answers."""
    given: list[list[JsonObject] | None] = []
    kinds: list[LogKind] = []
    end = OpenLog.end

    async def dies(self: OpenLog, *arguments: Any) -> EndedTurn:
        monkeypatch.setattr(OpenLog, "end", end)
        raise RuntimeError("the worker dies between the join and the end")

    async def curt(turn: OpenTurn) -> None:
        if turn.entry.parent is not None or not (turn.records and turn.session_id == "s"):
            await delegate(turn)
            return
        given.append(turn.joined)
        if len(given) == 1:
            monkeypatch.setattr(OpenLog, "end", dies)
        await turn.end({"answers": len(turn.joined or [])}, {"kind": "completed", "of": "s"})
        kinds.extend(o.kind for o in turn._log.objects)

    fleet = HandFleet(curt)
    await start(fleet, depth=1)
    with pytest.raises(RuntimeError, match="the worker dies"):
        await fleet.work()
    await fleet.pass_time(60)
    await sweep_watch(fleet.fleet)
    await fleet.work()
    assert len(given) == 2
    assert given[0] is not None
    assert given[1] == given[0]
    assert kinds == [LogKind.SUSPEND, LogKind.JOINED]
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None
    assert view.records[-1] == {"answers": 2}


async def test_a_child_whose_worker_died_before_it_paid_is_paid_by_the_next_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/protocol.md §6: within a lease and a sweep, not within the minute of the listing."""
    paid = join.settle_child

    async def dies(*_: Any) -> None:
        monkeypatch.setattr(dues, "settle_child", paid)
        raise RuntimeError("the worker dies before it pays")

    fleet = HandFleet(delegate)
    await start(fleet, depth=1, children=1)
    monkeypatch.setattr(dues, "settle_child", dies)
    with pytest.raises(RuntimeError, match="the worker dies"):
        await fleet.work()
    fleet.clock.ms += 6_000
    await sweep_watch(fleet.fleet)
    await fleet.work()
    assert (await read_turn(fleet.fleet, "s", 1)).status is TurnStatus.ENDED


async def test_join_markers_go_when_the_turn_has_ended() -> None:
    """docs/protocol.md §2: removed when t has ended."""
    fleet = HandFleet(delegate)
    await start(fleet, depth=1, children=5)
    await fleet.work()
    assert [key for key in fleet.stored("s/") if "/join." in key]
    await fleet.pass_time(1)
    assert not [key for key in fleet.stored("s/") if "/join." in key]


async def test_a_child_costs_two_requests_more_than_a_plain_turn() -> None:
    """docs/protocol.md §10: PUT join, LIST join; its input is put by the parent."""

    async def cost(**given: int) -> int:
        fleet = HandFleet(delegate)
        await start(fleet, depth=1, **given)
        await fleet.work()
        return fleet.requests()

    one_more = await cost(children=4, width=9) - await cost(children=3, width=9)
    # put inbox (by the parent), get head, get inbox, put head, put end, put join, list join, and the answer's read
    assert one_more == 8


async def test_a_resumed_turn_goes_on_with_the_active_time_it_had_spent() -> None:
    """Design "Concurrency model": active time; waiting for children is none."""
    spent: list[int] = []

    async def run(turn: OpenTurn) -> None:
        if "~" in turn.session_id:
            fleet.clock.ms += 900_000
            await turn.end(None, {"kind": "completed"})
            return
        spent.append(turn.spent_ms)
        fleet.clock.ms += 30_000
        if turn.joined is None:
            await turn.commit({"step": 1})
            fleet.clock.ms += 5_000
            await turn.suspend({"calls": 2}, calls(turn, 2), 1)
        else:
            await turn.commit({"step": 2})
            spent.append(turn.spent_ms)
            await turn.end(None, {"kind": "completed"})

    fleet = HandFleet(run)
    await start(fleet)
    await fleet.work()
    assert spent == [0, 35_000, 65_000]
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None and view.end.outcome == {"kind": "completed"}
