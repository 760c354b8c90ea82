"""Sessions of a library's or command's process (ruling 11; 05 §8)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from storage.directory import DirectoryStore
from storage.local import (
    FileHolds,
    HeldByFleet,
    HeldLocally,
    LocalSession,
    ProcessHolds,
    SessionDeleted,
    held,
)
from storage.logstore import LogStore
from storage.memory import MemoryStore
from storage.records import InboxEntry
from tests.support.protocol_fleet import HandFleet, steps
from worker.protocol.accept import Draft, accept, delete_session
from worker.protocol.cancel import cancel
from worker.protocol.errors import SessionHeldLocally
from worker.protocol.open_turn import OpenTurn
from worker.protocol.reader import TurnStatus, read_history, read_turn
from worker.protocol.sweep import sweep_inbox


async def local_turn(files: LogStore, session: str = "s", *, dies: bool = False) -> None:
    async with held(files, ProcessHolds(), session) as local:
        assert await local.dead_turn() is None
        opened = await local.open("flow", 0)
        assert opened is not None
        await opened.commit({"input": "hello"})
        if dies:
            return
        end = await opened.end({"answer": "hi"}, {"kind": "completed"})
        await local.close(opened, end)


async def test_command_and_fleet_see_the_same_session() -> None:
    """design "Configuration": command and fleet see the same sessions."""
    fleet = HandFleet()
    await local_turn(fleet.files)
    accepted = await accept(fleet.fleet, Draft("s", "flow", "message", {"steps": 1}))
    assert accepted.n == 2
    await fleet.work()
    await local_turn(fleet.files)
    _, records = await read_history(fleet.fleet, "s")
    assert records == [
        {"input": "hello"},
        {"answer": "hi"},
        {"turn": 2, "step": 1},
        {"input": "hello"},
        {"answer": "hi"},
    ]


async def test_a_dead_local_turn_is_taken_over_by_the_next_holder() -> None:
    """Ruling 11: it is settled `failed` / `turn-error`, never run again."""
    files = LogStore(MemoryStore())
    await local_turn(files, dies=True)
    async with held(files, ProcessHolds(), "s") as local:
        dead = await local.dead_turn()
        assert dead is not None and dead.records == [{"input": "hello"}]
        end = await dead.end({"error": "the process died"}, {"kind": "failed", "code": "turn-error"})
        await local.close(dead, end)
        assert await local.dead_turn() is None
        assert await local.history() == [{"input": "hello"}, {"error": "the process died"}]


async def test_a_local_process_that_died_before_its_claim_leaves_a_turn_to_settle() -> None:
    """Ruling 11, between the number and the head."""
    files = LogStore(MemoryStore())
    local = LocalSession(files, "s")

    async def dies(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    local.log.claim = dies  # type: ignore[assignment, method-assign]
    with pytest.raises(RuntimeError):
        await local.open("flow", 0)
    local = LocalSession(files, "s")
    assert await local.dead_turn() is None, "the head knows nothing of it"
    assert await local.open("flow", 0) is None and not local.at_rest
    dead = await local.dead_turn()
    assert dead is not None and dead.turn == 1 and dead.records == []


async def test_a_turn_in_a_fleets_hands_is_refused() -> None:
    """Ruling 11: a waiting or running fleet turn."""

    async def meanwhile(turn: OpenTurn) -> None:
        with pytest.raises(HeldByFleet):
            await LocalSession(fleet.files, "s").dead_turn()
        await steps(turn)

    fleet = HandFleet(meanwhile)
    await accept(fleet.fleet, Draft("s", "flow", "message", {}))
    local = LocalSession(fleet.files, "s")
    assert await local.dead_turn() is None and await local.open("flow", 0) is None
    with pytest.raises(HeldByFleet):
        await local.dead_turn()
    await fleet.work()
    assert fleet.runner.ran == [("s", 1, 1)]


async def test_a_turn_that_a_fleet_opens_while_a_local_process_looks_is_refused() -> None:
    """Protocol §9.3: turn t+1 opens only after t has ended, however slow its opener is (seed 100699)."""
    fleet = HandFleet()
    async with held(fleet.files, ProcessHolds(), "s") as local:
        assert await local.dead_turn() is None
        entry = InboxEntry("s", 1, "input", "message", "flow", {}, 0, w="w")
        opened = await fleet.fleet.log("s").claim(None, entry, by="fleet")
        assert opened is not None
        assert await local.open("flow", 0) is None
        assert fleet.stored("_inbox/") == [], "nothing was left"
        with pytest.raises(HeldByFleet):
            await local.dead_turn()


async def test_a_head_read_before_the_hold_is_read_again_once_it_proves_old() -> None:
    """05 §8: one writer a session; between the look and the hold another local turn, or a fleet's, may have run."""
    fleet = HandFleet()
    looked = LocalSession(fleet.files, "s", found=(None,))
    await local_turn(fleet.files)
    assert looked.at_rest and await looked.open("flow", 0) is None
    assert await looked.dead_turn() is None and looked.at_rest
    opened = await looked.open("flow", 0)
    assert opened is not None and opened.turn == 2
    await looked.close(opened, await opened.end({"answer": "two"}, {"kind": "completed"}))
    old = LocalSession(fleet.files, "s", found=(opened.head,))
    await accept(fleet.fleet, Draft("s", "flow", "message", {"steps": 1}))
    await fleet.work()
    assert await old.open("flow", 0) is None and await old.dead_turn() is None
    after = await old.open("flow", 0)
    assert after is not None and after.turn == 4
    await after.end({}, {"kind": "completed"})
    await fleet.store.delete(fleet.stored(""))
    gone = LocalSession(fleet.files, "s", found=(replace(after.head, turn=4),))
    assert await gone.open("flow", 0) is None and fleet.stored("_inbox/") == [], "its number is given back"
    anew = await gone.dead_turn() or await gone.open("flow", 0)
    assert anew is not None and anew.turn == 1


async def test_a_fleet_refuses_and_leaves_alone_what_a_local_process_holds() -> None:
    """Decision 50."""
    fleet = HandFleet()
    async with held(fleet.files, ProcessHolds(), "s") as local:
        opened = await local.open("flow", 0)
        assert opened is not None
        with pytest.raises(SessionHeldLocally):
            await accept(fleet.fleet, Draft("s", "flow", "message", {}))
        await sweep_inbox(fleet.fleet)
        await fleet.work()
        assert (await read_turn(fleet.fleet, "s", 1)).status is TurnStatus.RUNNING
        await opened.end(None, {"kind": "completed"})
    assert fleet.runner.ran == []


async def test_a_cancel_takes_a_local_turn_away() -> None:
    """Decision 50: the operator's way out of a dead command's turn."""
    fleet = HandFleet()
    await local_turn(fleet.files, dies=True)
    await cancel(fleet.fleet, "s", 1)
    await fleet.work()
    view = await read_turn(fleet.fleet, "s", 1)
    assert view.end is not None and view.end.outcome["code"] == "worker-lost"
    assert (await accept(fleet.fleet, Draft("s", "flow", "message", {}))).n == 2


async def test_a_deleted_session_is_refused_locally() -> None:
    """docs/protocol.md §8."""
    fleet = HandFleet()
    await local_turn(fleet.files)
    await delete_session(fleet.fleet, "s")
    await fleet.work()
    with pytest.raises(SessionDeleted):
        await LocalSession(fleet.files, "s").dead_turn()


async def test_local_turns_leave_one_inbox_entry_which_a_sweep_or_a_later_turn_removes() -> None:
    """Decision 50."""
    fleet = HandFleet()
    await local_turn(fleet.files)
    await local_turn(fleet.files)
    await fleet.pass_time(200)
    await local_turn(fleet.files)
    await local_turn(fleet.files)
    assert "_inbox/s/00000001" not in fleet.stored("_inbox/")
    await sweep_inbox(fleet.fleet)
    await fleet.work()
    await fleet.pass_time(125)
    assert fleet.stored("_inbox/") == []
    assert not [key for key in fleet.stored("s/") if "/log." in key]


async def test_only_one_task_or_process_holds_a_session(tmp_path: Path) -> None:
    """05 §8: one writer a session."""
    files = LogStore(DirectoryStore(tmp_path / "sessions"))
    for holds in (ProcessHolds(), FileHolds(tmp_path / "locks")):
        async with held(files, holds, "a/b"):
            with pytest.raises(HeldLocally):
                async with held(files, holds, "a/b"):
                    pass
            async with held(files, holds, "other"):
                pass
        async with held(files, holds, "a/b"):
            pass
