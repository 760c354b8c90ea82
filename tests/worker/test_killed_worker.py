"""Workers that are killed, drained or crowded: nothing accepted is lost, nothing committed runs twice."""

from __future__ import annotations

import asyncio
import signal

from tests.support.workers import WorkerFleet, until
from worker.redis_leases import lease_key

WORKFLOW = """
title: Marks
instructions: Leave marks.
tools:
  allow_always: [quick, slow, suicide]
states:
  work:
    triggers: { manual: }
    instructions: Leave marks.
    transitions: [ { to: done, description: all marks are left } ]
  done:
    instructions: Say so.
"""

MODEL = """
- tool_calls: [ { name: quick, args: { ref: one } } ]
- tool_calls: [ { name: quick, args: { ref: two } } ]
- tool_calls: [ { name: slow, args: { ref: three, seconds: 4 } } ]
- tool_calls: [ { name: archmax_advance, args: { to: done, reason: marks } } ]
- text: All marks are left.
"""


async def test_a_turn_whose_worker_is_killed_goes_on_elsewhere_from_its_last_commit(
    worker_fleet: WorkerFleet,
) -> None:
    """Design "Recover": another worker goes on within 10 s, no committed call runs again (known fault H2)."""
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": MODEL})
    workers = [worker_fleet.start_worker(), worker_fleet.start_worker()]
    for worker in workers:
        await worker_fleet.ready(worker)
    await worker_fleet.send("s", "marks")
    await until(lambda: "begin:three" in worker_fleet.marked(), what="the third tool to begin")
    holder = worker_fleet.pid_of("begin:three")
    next(worker for worker in workers if worker.process.pid == holder).kill()
    end = await worker_fleet.settled(
        "s", seconds=30 + 4
    )  # ten on an idle machine (the bench measures it), four for the tool
    assert end.outcome["kind"] == "completed", end.outcome
    marks = worker_fleet.marked()
    assert marks.count("quick:one") == 1
    assert marks.count("quick:two") == 1
    assert marks.count("end:three") == 1
    begins = {key for mark, key in worker_fleet.marked_keys() if mark == "begin:three"}
    assert len(begins) == 1, "every attempt at a call has the same idempotency key"
    state = await worker_fleet.state("s")
    assert [step["to"] for step in state.trail] == ["work", "done"]


async def test_a_turn_that_kills_every_worker_ends_worker_lost(worker_fleet: WorkerFleet) -> None:
    """Protocol "Attempts": after three deaths at one step the turn ends `failed`, `worker-lost` (known fault H3)."""
    worker_fleet.write(
        {
            "workflows/marks/workflow.yaml": WORKFLOW,
            "model.yaml": "- tool_calls: [ { name: suicide, args: { ref: x } } ]\n",
        }
    )
    await worker_fleet.send("s", "marks")
    for attempt in range(1, 4):
        worker = worker_fleet.start_worker()
        await until(lambda n=attempt: worker_fleet.marked().count("suicide:x") >= n)
        worker.process.wait(60)
    last = worker_fleet.start_worker()
    end = await worker_fleet.settled("s")
    assert end.outcome["kind"] == "failed"
    assert end.outcome["exit"]["code"] == "worker-lost"
    assert worker_fleet.marked() == ["suicide:x"] * 3
    assert last.process.poll() is None


async def test_a_worker_frozen_between_two_steps_does_not_begin_what_its_successor_has_committed(
    worker_fleet: WorkerFleet,
) -> None:
    """Protocol §3, "Between steps: lease still mine": stopped past its lease, continued when the turn is over."""
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": MODEL})
    # The third step is the answer that asks for the second tool: frozen right before the call.
    frozen = worker_fleet.start_worker(ARCHMAX_FAILPOINT="put-step.after:3:freeze")
    await worker_fleet.ready(frozen)
    await worker_fleet.send("s", "marks")
    await until(lambda: "quick:one" in worker_fleet.marked(), what="the first call")
    worker_fleet.start_worker()
    end = await worker_fleet.settled("s")
    assert (end.fence, end.outcome["kind"]) == (2, "completed")

    async def let_go() -> bool:
        return not await worker_fleet.client.redis.exists(lease_key("s"))

    await until(
        let_go, what="the successor to let go"
    )  # or the woken one finds another's lease by its renewal
    frozen.signal(signal.SIGCONT)
    await until(lambda: " succeeded in " in frozen.log, what="the woken worker to let go")
    assert worker_fleet.marked() == ["quick:one", "quick:two", "begin:three", "end:three"]


async def test_a_turn_taken_over_gets_no_new_deadline(worker_fleet: WorkerFleet) -> None:
    """Design "Concurrency model": the active time is the turn's, whoever has it."""
    script = """
- { after_tool: slow, tool_calls: [ { name: slow, args: { ref: two, seconds: 10 } } ] }
- { tool_calls: [ { name: slow, args: { ref: one, seconds: 10 } } ] }
"""
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": script})
    first = worker_fleet.start_worker(ARCHMAX_TURN_DEADLINE_SECONDS="18")
    await worker_fleet.ready(first)
    await worker_fleet.send("s", "marks")
    await until(lambda: "begin:two" in worker_fleet.marked(), what="the second call to begin")
    first.kill()
    worker_fleet.start_worker(ARCHMAX_TURN_DEADLINE_SECONDS="18")
    end = await worker_fleet.settled("s")
    assert end.fence == 2
    assert end.outcome["exit"]["code"] == "turn-deadline", end.outcome
    assert worker_fleet.marked() == ["begin:one", "end:one", "begin:two", "begin:two"]


async def test_a_draining_worker_hands_its_turn_on_after_the_step_it_is_in(worker_fleet: WorkerFleet) -> None:
    """Design "Drain": TERM stops the turn at its next commit, interrupts no call, and counts as no death (H26)."""
    script = MODEL.replace("seconds: 4", "seconds: 20")
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": script})
    first = worker_fleet.start_worker()
    await worker_fleet.ready(first)
    await worker_fleet.send("s", "marks")
    await until(lambda: "begin:three" in worker_fleet.marked())
    code = await asyncio.to_thread(first.terminate, 90)
    assert code == 0, first.log
    assert worker_fleet.marked().count("end:three") == 1
    second = worker_fleet.start_worker()
    await worker_fleet.ready(second)
    end = await worker_fleet.settled("s")
    assert end.outcome["kind"] == "completed"
    assert worker_fleet.marked() == ["quick:one", "quick:two", "begin:three", "end:three"]


async def test_two_turns_of_one_session_run_in_the_order_they_were_accepted(
    worker_fleet: WorkerFleet,
) -> None:
    """Design "Lease": one turn per session at a time, in order of acceptance; none is lost (known fault H14)."""
    script = """
- { when_contains: "one", text: answer one, delay_ms: 300 }
- { when_contains: "two", text: answer two, delay_ms: 100 }
- { when_contains: "three", text: answer three }
"""
    workflow = "instructions: Talk.\nstates:\n  talk: { triggers: { manual: }, instructions: Answer. }\n"
    worker_fleet.write({"workflows/talk/workflow.yaml": workflow, "model.yaml": script})
    for _ in range(2):
        await worker_fleet.ready(worker_fleet.start_worker())
    for text in ("one", "two", "three"):
        await worker_fleet.send("s", "talk", text)
    await worker_fleet.settled("s", 3)
    state = await worker_fleet.state("s")
    assert [message["text"] for message in state.messages] == [
        "one",
        "answer one",
        "two",
        "answer two",
        "three",
        "answer three",
    ]


async def test_one_slot_finishes_a_delegation_two_levels_deep(worker_fleet: WorkerFleet) -> None:
    """Design "One engine, two drivers": a waiting parent holds no slot (known fault H9)."""

    def caller(slug: str, target: str | None) -> str:
        grant = f"\n    tools: {{ allow: [archmax_workflow_{target}] }}" if target else ""
        return (
            f"title: {slug}\ninstructions: Call down.\nstates:\n  only:\n    triggers: {{ manual: }}\n"
            f"    instructions: Call.{grant}\n"
        )

    worker_fleet.write(
        {
            "workflows/top/workflow.yaml": caller("top", "middle"),
            "workflows/middle/workflow.yaml": caller("middle", "bottom"),
            "workflows/bottom/workflow.yaml": caller("bottom", None),
            "model.yaml": """
- { when_workflow: top, tool_calls: [ { name: archmax_workflow_middle }, { name: archmax_workflow_middle } ] }
- { when_workflow: middle, tool_calls: [ { name: archmax_workflow_bottom } ] }
- { when_workflow: bottom, text: bottom done }
- { when_workflow: middle, text: middle done }
- { when_workflow: top, text: top done }
""",
        }
    )
    await worker_fleet.ready(worker_fleet.start_worker(concurrency=1))
    await worker_fleet.send("s", "top")
    end = await worker_fleet.settled("s")
    assert end.outcome["kind"] == "completed", end.outcome
    assert end.outcome["reply"] == "top done"
    state = await worker_fleet.state("s")
    answers = [message["text"] for message in state.messages if message["role"] == "tool"]
    assert answers == ["middle done", "middle done"]
    assert [step["kind"] for step in state.trail] == ["trigger", "sub-workflow", "sub-workflow"]
    for child in ("s~1", "s~2", "s~1~1", "s~2~1"):
        assert (await worker_fleet.state(child)).status == "completed"


async def test_an_idle_worker_takes_what_waits_behind_a_busy_one(worker_fleet: WorkerFleet) -> None:
    """Late acknowledgement and a prefetch of one: a busy slot reserves nothing it cannot run (known fault H5)."""
    script = """
- { when_contains: "busy", tool_calls: [ { name: slow, args: { ref: busy, seconds: 110 } } ] }
- { repeat: true, text: quick }
"""
    worker_fleet.write({"workflows/marks/workflow.yaml": WORKFLOW, "model.yaml": script})
    await worker_fleet.ready(worker_fleet.start_worker(concurrency=1))
    await worker_fleet.send("busy", "marks", "busy")
    await until(lambda: "begin:busy" in worker_fleet.marked())
    for number in range(3):
        await worker_fleet.send(f"short{number}", "marks")
    await worker_fleet.ready(worker_fleet.start_worker(concurrency=1))
    for number in range(3):
        assert (await worker_fleet.settled(f"short{number}")).outcome["reply"] == "quick"
    assert await worker_fleet.ended("busy", 1) is None
