"""One turn on real workers, from acceptance to its end: cancels, busy sessions, keys, deadlines, timers, retention.

One fleet for the whole module. A test that needs workers of another kind (none, or with a deadline) uses a workflow whose
queues the module's own workers leave alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import count

import pytest
import pytest_asyncio

from archmax.local.redis import EmbeddedRedis
from storage.limits import TOMB_MS
from storage.logstore import LogStore
from tests.support.workers import WorkerFleet, until, was_cancelled
from worker.protocol.cancel import cancel
from worker.protocol.deliveries import sweep_timers
from worker.protocol.errors import KeyReused, SessionBusy, SessionGone, TurnOver
from worker.protocol.fleet import Fleet
from worker.protocol.reader import TurnStatus, read_turn
from worker.redis_clock import RedisClock
from worker.requests import DecisionRequest, MessageRequest, StartRequest
from worker.service import Caller

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

CALLER = Caller("tests", "Ada")
MARKS = """
title: Marks
instructions: Leave marks.
tools: { allow_always: [quick, slow] }
states:
  work: { triggers: { manual: }, instructions: Leave marks. }
"""
REVIEWED = """
title: Reviewed
instructions: Leave marks.
tools: { allow_always: [quick] }
states:
  work:
    triggers: { manual: }
    instructions: Leave marks.
    transitions: [ { to: review, description: ready } ]
  review:
    type: human
    title: Review it
    transitions: [ { to: done, type: approve, description: good } ]
  done: { instructions: Say so. }
"""
WAITS = """
title: Waits
instructions: Wait.
states:
  work: { triggers: { manual: }, instructions: Wait. }
"""
CALLS = """
title: Calls
instructions: Call.
states:
  work:
    triggers: { manual: }
    instructions: Call.
    tools: { allow: [archmax_workflow_waits] }
"""
MODEL = """
- { when_contains: "endless", tool_calls: [ { name: slow, args: { ref: endless, seconds: 110 } } ] }
- { when_workflow: marks, when_contains: "second", text: answered the second }
- { when_workflow: marks, repeat: true, text: answered }
- { when_workflow: unserved, repeat: true, text: answered }
- { when_workflow: bounded, tool_calls: [ { name: slow, args: { ref: bounded, seconds: 110 } } ] }
- { when_workflow: stubborn, tool_calls: [ { name: stubborn, args: { seconds: 600 } } ] }
- { when_workflow: reviewed, when_state: work, after_tool: quick, tool_calls: [ { name: archmax_advance, args: { to: review, reason: r } } ] }
- { when_workflow: reviewed, when_state: work, tool_calls: [ { name: quick, args: { ref: reviewed } } ] }
- { when_workflow: reviewed, when_state: done, text: approved }
- { when_workflow: waits, after_tool: archmax_wait, repeat: true, text: going on }
- { when_workflow: waits, text: a moment, tool_calls: [ { name: archmax_wait, args: { reason: tea, until: 2s } } ] }
- { when_workflow: waits, repeat: true, text: awake }
- { when_workflow: kept, tool_calls: [ { name: archmax_workflow_marks } ] }
- { when_workflow: kept, repeat: true, text: kept }
- { when_workflow: calls, tool_calls: [ { name: archmax_workflow_waits } ] }
- { when_workflow: calls, repeat: true, text: it waits }
"""
_numbers = count(1)


def new_session() -> str:
    return f"t{next(_numbers)}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    tmp_path_factory: pytest.TempPathFactory, redis_server: EmbeddedRedis
) -> AsyncGenerator[WorkerFleet]:
    async with WorkerFleet(tmp_path_factory.mktemp("lifecycle"), redis_server, database=13) as made:
        workflows = {
            "marks": MARKS,
            "unserved": MARKS,
            "bounded": MARKS,
            "stubborn": MARKS.replace("slow", "stubborn"),
            "kept": CALLS.replace("workflow_waits", "workflow_marks"),
            "reviewed": REVIEWED,
            "waits": WAITS,
            "calls": CALLS,
        }
        made.write({f"workflows/{slug}/workflow.yaml": text for slug, text in workflows.items()})
        made.write({"model.yaml": MODEL})
        # Two, because a timer or a join must come once whoever sweeps.
        for worker in [
            made.start_worker(ARCHMAX_WORKFLOWS="!unserved,!bounded,!kept,!stubborn") for _ in range(2)
        ]:
            await made.ready(worker)
        yield made


async def running(fleet: WorkerFleet, session: str) -> None:
    def begun() -> bool:
        return any(key.startswith(f"{session}/") for _, key in fleet.marked_keys())

    await until(begun, what=f"the tool of {session} to begin")


# -- cancel ------------------------------------------------------------------------------------------------------------


async def test_a_turn_cancelled_while_no_worker_is_up_ends_without_a_model_call(fleet: WorkerFleet) -> None:
    """Known fault H8: the flag is in the stored input; a worker that starts later reads it at the claim."""
    session = new_session()
    await fleet.send(session, "unserved", "endless")
    await cancel(fleet.client.fleet, session, 1)
    assert (await read_turn(fleet.client.fleet, session, 1)).status is TurnStatus.QUEUED
    await fleet.client.redis.delete(f"archmax:cancel:{session}.1")  # the hint is lost, the flag is not
    worker = fleet.start_worker(ARCHMAX_WORKFLOWS="unserved")
    end = await fleet.settled(session)
    worker.kill()
    assert was_cancelled(end), end.outcome
    assert not any(
        "message" in str(change) and "assistant" in str(change)
        for r in end.records
        for change in r["changes"]
    )
    assert not any(key.startswith(f"{session}/") for _, key in fleet.marked_keys())


async def test_a_cancel_cuts_off_the_call_that_runs_and_the_session_goes_on(fleet: WorkerFleet) -> None:
    """Design "Cancel": read between steps, and a call in flight is cut off."""
    session = new_session()
    await fleet.send(session, "marks", "endless")
    await running(fleet, session)
    await cancel(fleet.client.fleet, session, 1)
    end = await fleet.settled(session)
    assert was_cancelled(end), end.outcome
    await fleet.send(session, "marks", "the second")
    assert (await fleet.settled(session, 2)).outcome["reply"] == "answered the second"
    marks = [mark for mark, key in fleet.marked_keys() if key.startswith(f"{session}/")]
    assert marks == ["begin:endless"]


async def test_a_turn_that_is_over_can_not_be_cancelled(fleet: WorkerFleet) -> None:
    """Protocol §7: the one `end` object decides, and the answer says how the turn ended."""
    session = new_session()
    await fleet.send(session, "marks")
    end = await fleet.settled(session)
    with pytest.raises(TurnOver) as refused:
        await cancel(fleet.client.fleet, session, 1)
    assert refused.value.outcome == end.outcome
    assert (await fleet.settled(session)).outcome["kind"] == "completed"


# -- busy sessions, keys -------------------------------------------------------------------------------------------------


async def test_a_busy_session_queues_rejects_or_interrupts_as_asked(fleet: WorkerFleet) -> None:
    """Design "Surfaces", `onBusy` (known fault H14)."""
    session = new_session()
    await fleet.send(session, "marks", "endless")
    await running(fleet, session)
    queued = await fleet.service.send(session, MessageRequest(message="waiting"), CALLER)
    with pytest.raises(SessionBusy):
        await fleet.service.send(session, MessageRequest(message="no", on_busy="reject"), CALLER)
    last = await fleet.service.send(
        session, MessageRequest(message="the second", on_busy="interrupt"), CALLER
    )
    assert (queued.n, last.n) == (2, 3)
    ends = [await fleet.settled(session, n, seconds=100) for n in (1, 2, 3)]  # less than the call would take
    assert [was_cancelled(end) for end in ends] == [True, True, False]
    assert (await fleet.settled(session, 3)).outcome["reply"] == "answered the second"


async def test_one_idempotency_key_is_one_turn_however_often_it_is_sent(fleet: WorkerFleet) -> None:
    """Protocol §7: the same answer each time, also at once and after the end; another body is refused."""
    request = StartRequest(message="hello")
    at_once = await asyncio.gather(
        *(fleet.service.start("marks", request, CALLER, key="key-1") for _ in range(6))
    )
    session = at_once[0].session
    assert {(accepted.session, accepted.n) for accepted in at_once} == {(session, 1)}
    await fleet.settled(session)
    later = await fleet.service.start("marks", request, CALLER, key="key-1")
    assert (later.session, later.n, later.repeated) == (session, 1, True)
    with pytest.raises(KeyReused):
        await fleet.service.start("marks", StartRequest(message="other"), CALLER, key="key-1")
    await asyncio.sleep(1)
    assert await fleet.ended(session, 2) is None


# -- deadline, expiry ----------------------------------------------------------------------------------------------------


async def test_a_turn_past_its_deadline_ends_turn_deadline(fleet: WorkerFleet) -> None:
    """Design "Concurrency model": active time of one turn."""
    session = new_session()
    worker = fleet.start_worker(ARCHMAX_WORKFLOWS="bounded", ARCHMAX_TURN_DEADLINE_SECONDS="2")
    await fleet.ready(worker)
    await fleet.send(session, "bounded")
    end = await fleet.settled(session)
    worker.kill()
    assert end.outcome["kind"] == "failed"
    assert end.outcome["exit"]["code"] == "turn-deadline"
    assert "end:bounded" not in fleet.marked()


async def test_a_tool_that_swallows_its_cancellation_does_not_hold_up_the_turn(fleet: WorkerFleet) -> None:
    """Part 5.5: the deadline stops work whatever a tool swallows."""
    session = new_session()
    worker = fleet.start_worker(ARCHMAX_WORKFLOWS="stubborn", ARCHMAX_TURN_DEADLINE_SECONDS="2")
    await fleet.ready(worker)
    await fleet.send(session, "stubborn")
    end = await fleet.settled(session, seconds=100)  # less than a call may take
    assert end.outcome["exit"]["code"] == "turn-deadline", end.outcome
    worker.kill()


async def test_a_turn_that_waited_too_long_is_not_begun(fleet: WorkerFleet) -> None:
    """Queue expiry: judged by the fleet's clock at the claim."""
    session = new_session()
    settings = fleet.settings.model_copy(update={"queue_expiry_seconds": 0.5})
    fleet.service.settings, before = settings, fleet.service.settings
    try:
        await fleet.service.start("unserved", StartRequest(session_id=session, message="endless"), CALLER)
    finally:
        fleet.service.settings = before
    await asyncio.sleep(1)
    worker = fleet.start_worker(ARCHMAX_WORKFLOWS="unserved")
    end = await fleet.settled(session)
    worker.kill()
    assert was_cancelled(end), end.outcome
    assert not any(key.startswith(f"{session}/") for _, key in fleet.marked_keys())


# -- parks and timers ----------------------------------------------------------------------------------------------------


async def test_what_a_turn_did_before_it_parked_is_not_done_again(fleet: WorkerFleet) -> None:
    """Known fault H16: the decision goes on from the log."""
    session = new_session()
    await fleet.send(session, "reviewed")
    assert (await fleet.settled(session)).outcome["kind"] == "parked"
    await fleet.service.decide(session, DecisionRequest(to="done"), CALLER)
    end = await fleet.settled(session, 2)
    assert end.outcome["reply"] == "approved"
    marks = Counter(mark for mark, key in fleet.marked_keys() if key.startswith(f"{session}/"))
    assert marks == {"quick:reviewed": 1}


async def test_a_session_that_waits_until_a_time_wakes_by_itself_once_also_after_a_flush(
    fleet: WorkerFleet,
) -> None:
    """Design "Timers": two workers sweep, Redis has lost everything, one delivery comes."""
    sessions = [new_session() for _ in range(3)]
    for session in sessions:
        await fleet.send(session, "waits")
    for session in sessions:
        end = await fleet.settled(session)
        assert end.outcome["kind"] == "parked", end.outcome
        assert end.outcome["pending"]["resumeAt"]
    await fleet.client.redis.flushdb()
    for session in sessions:
        woken = await fleet.settled(session, 2)
        assert woken.outcome["kind"] == "completed", woken.outcome
    await asyncio.sleep(2)
    for session in sessions:
        assert await fleet.ended(session, 3) is None
    timers = [item.key async for item in fleet.client.store.list("_timers/")]
    assert not [key for key in timers if key.rpartition("/")[2].split(".")[0] in sessions]


async def test_the_timer_of_a_parked_child_is_presented_and_woken_by_its_parent(fleet: WorkerFleet) -> None:
    """Ruling 17: the parent parks for its child's time, and its own timer goes on with the child, once."""
    session = new_session()
    await fleet.send(session, "calls")
    end = await fleet.settled(session)
    child = await fleet.settled(f"{session}~1")
    assert (end.outcome["kind"], child.outcome["kind"]) == ("parked", "parked")
    assert end.outcome["pending"]["resumeAt"] == child.outcome["pending"]["resumeAt"]
    assert [due["due"] for due in end.dues] == ["timer"]
    assert child.dues == ()
    woken = await fleet.settled(session, 2)
    assert woken.outcome["kind"] == "completed", woken.outcome
    went_on = await fleet.settled(f"{session}~1", 2)
    assert went_on.outcome["reply"] == "awake"
    await asyncio.sleep(2)
    assert await fleet.ended(session, 3) is None
    assert await fleet.ended(f"{session}~1", 3) is None


# -- retention, delete ---------------------------------------------------------------------------------------------------


class LaterClock(RedisClock):
    """The fleet's clock as it will be in a while."""

    def __init__(self, fleet: WorkerFleet, ahead_ms: int) -> None:
        super().__init__(fleet.client.redis)
        self.shift_ms = ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + getattr(self, "shift_ms", 0)

    async def now_ms(self) -> int:
        return await super().now_ms() + self.shift_ms


def later(fleet: WorkerFleet, ahead_ms: int) -> Fleet:
    clock = LaterClock(fleet, ahead_ms)
    files = LogStore(fleet.client.store, clock=clock)
    return replace(fleet.client.fleet, files=files, clock=clock)


async def keys_of(fleet: WorkerFleet, session: str) -> list[str]:
    found = [item.key async for item in fleet.client.store.list("")]
    return [key for key in found if session in key.replace("~", "/").replace(".", "/").split("/")]


async def test_a_finished_session_is_deleted_after_its_retention_with_its_children_and_may_be_made_anew(
    fleet: WorkerFleet,
) -> None:
    """Protocol §8: nothing of it stays, and nothing old shows or fences when its id is used again."""
    session = new_session()
    days = 2 / 86_400
    worker = fleet.start_worker(ARCHMAX_WORKFLOWS="kept", ARCHMAX_RETENTION_DAYS=str(days))
    await fleet.ready(worker)
    await fleet.send(session, "kept")
    end = await fleet.settled(session)
    assert end.outcome["kind"] == "completed", end.outcome
    assert [due["due"] for due in end.dues] == ["retention"]
    assert (await fleet.settled(f"{session}~1")).dues == (), "a child goes with its parent"

    async def deleted() -> bool:
        return (await read_turn(fleet.client.fleet, session, 1)).status is TurnStatus.GONE

    await until(deleted, what="the retention to delete the session")
    with pytest.raises(SessionGone):
        await fleet.send(session, "kept")
    worker.kill()
    # A day later, when its entries have been cleaned: everything goes, the tombstone last.
    tomorrow = later(fleet, TOMB_MS + 600_000)
    log = fleet.client.fleet.log(session)
    entries = [log.keys.inbox(n) for n in (1, 2)] + [fleet.client.fleet.log(f"{session}~1").keys.inbox(1)]
    await fleet.client.store.delete(entries)
    await sweep_timers(tomorrow)
    assert await keys_of(fleet, session) == []
    await fleet.send(session, "marks", "again")
    again = await fleet.settled(session)
    assert (again.turn, again.fence) == (1, 1)
    state = await fleet.state(session)
    assert [message["text"] for message in state.messages] == ["again", "answered"]
