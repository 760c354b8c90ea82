"""Cancellation of a turn, by its host and by its driver (03 §16, §13.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from langchain_core.tools import StructuredTool

from engine.turn import host_tools
from engine.turn.ports import Stop
from tests.support.engine import Bench, advance_to, call, do, say, setting
from tests.support.worlds import World

Make = Callable[..., Bench]
SPEC = """
    settings: { timeoutMs: 20000 }
    states:
      intake:
        triggers: { manual: }
        on_error: rescue
        tools: { allow: [touch, stamp] }
        transitions: [{ to: check, description: c }, { to: gate, description: g }]
      check:
        type: code
        script: scripts/c.js
        on_error: rescue
        tools: { allow: [stamp] }
        transitions: [{ to: rescue }]
      gate: { type: human, instructions: Look., transitions: [{ to: rescue, description: ok }] }
      rescue:
"""


async def cancelled(b: Bench, when: Callable[[], bool], *, reply: bool = False) -> None:
    """Run a turn and cancel it once a condition holds."""
    b.clear()
    turn = asyncio.create_task(b.reply("hello?") if reply else b.send())
    while not when():
        assert not turn.done(), turn
        await asyncio.sleep(0.005)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn


async def test_cancelling_a_model_call_fails_the_turn_and_keeps_what_was_committed(bench: Make) -> None:
    """03 §16, §13.4: `failed`, `turn-cancelled`; what was committed stays; nothing more is answered."""
    b = bench(SPEC, [do(setting(a=1), call("touch", n=1)), {**say("never"), "delay_ms": 20000}, say("fresh")])
    await cancelled(b, lambda: len(b.seen) == 2)
    state = await b.state()
    assert (state.status, state.position, state.values["a"]) == ("failed", "intake", 1)
    assert state.exit is not None and state.exit["code"] == "turn-cancelled"
    outcome = await b.send("again")
    assert (outcome.kind, outcome.reply) == ("completed", "fresh")
    assert b.results(outcome, "touch") == ["touched 1"]


async def test_a_call_that_was_cut_off_gets_no_answer_of_its_own(bench: Make) -> None:
    """03 §16: the next turn says it was interrupted, so that providers accept the transcript."""
    hang = asyncio.Event()

    async def slow() -> str:
        """Never ends."""
        await hang.wait()
        return "late"

    spec = SPEC.replace("touch, stamp", "touch, slow")
    tools = [StructuredTool.from_function(coroutine=slow, name="slow")]
    b = bench(spec, [do(call("touch", n=1), call("slow")), say("fresh")], tools=tools)
    await cancelled(b, lambda: bool(b.of("tool-result", tool="touch") and b.of("tool-called", tool="slow")))
    state = await b.state()
    assert [m["tool"] for m in state.messages if m["role"] == "tool"] == ["touch"]
    outcome = await b.send("again")
    assert "interrupted" in b.results(outcome, "slow")[0]
    announced = {e["callId"] for e in b.of("tool-called")}
    assert announced == {e["callId"] for e in b.of("tool-result")}


@pytest.mark.parametrize("alone", [True, False])
async def test_a_tool_that_swallows_its_cancellation_holds_up_nothing(
    bench: Make, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """03 §16: whatever a tool swallows; what it answers afterwards is nobody's."""
    monkeypatch.setattr(host_tools, "GRACE_SECONDS", 0.01)
    begun, let_go, went_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        """Does not let itself be stopped."""
        begun.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        went_on.set()
        return "late"

    spec = SPEC.replace("touch, stamp", "touch, stubborn")
    tools = [StructuredTool.from_function(coroutine=stubborn, name="stubborn")]
    calls = [call("stubborn")] if alone else [call("touch", n=1), call("stubborn")]
    b = bench(spec, [do(*calls), say("fresh")], tools=tools)
    await cancelled(b, begun.is_set)
    assert (await b.state()).status == "failed"
    let_go.set()
    await went_on.wait()
    outcome = await b.send("again")
    assert outcome.reply == "fresh"
    assert "interrupted" in b.results(outcome, "stubborn")[0]


async def test_a_host_tool_that_takes_too_long_is_cut_off_and_the_model_told(bench: Make) -> None:
    """Design "Concurrency model": by default 120 s a tool call."""

    async def slow() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return "late"

    spec = SPEC.replace("touch, stamp", "touch, slow")
    tools = [StructuredTool.from_function(coroutine=slow, name="slow")]
    b = bench(spec, [do(call("slow")), say("too slow")], tools=tools, call_timeout_ms=50)
    outcome = await b.send()
    assert (outcome.kind, outcome.reply) == ("completed", "too slow")
    assert b.results(outcome, "slow") == ["Error: it took longer than 0.05 s"]


@pytest.mark.parametrize("decided", ["advance", "raise"])
async def test_a_stopped_code_state_drops_its_advance_and_keeps_its_raise(bench: Make, decided: str) -> None:
    """03 §16: no `on_error`."""
    made = {
        "advance": "tools.archmax_advance({ to: 'rescue', reason: 'r' })",
        "raise": "tools.archmax_raise({ code: 'mine', reason: 'r' })",
    }[decided]
    code = f"export default async ({{ tools }}) => {{ await {made}; await tools.stamp({{ name: 'x' }}); await new Promise(() => {{}}); }}"
    hang = asyncio.Event()

    async def slow(name: str) -> str:
        """Never ends."""
        await hang.wait()
        return name

    spec = SPEC.replace("allow: [stamp]", "allow: [slow]")
    code = code.replace("tools.stamp", "tools.slow")
    tools = [StructuredTool.from_function(coroutine=slow, name="slow")]
    b = bench(spec, [do(advance_to("check"))], files={"workflows/main/scripts/c.js": code}, tools=tools)
    await cancelled(b, lambda: bool(b.of("tool-called", tool="slow")))
    state = await b.state()
    assert state.exit is not None
    assert state.exit["code"] == ("mine" if decided == "raise" else "turn-cancelled")
    assert (state.position, state.status) == ("check", "failed")
    assert not b.of("state-error-routed")
    assert bool(b.of("raised")) is (decided == "raise")


async def test_a_park_stands_when_its_message_is_cut_off(bench: Make) -> None:
    """03 OP-13: record, status and position untouched; decision 0121."""
    slow = {**say("never"), "delay_ms": 20000}
    b = bench(SPEC, [do(advance_to("gate")), slow, slow, say("done")])
    await cancelled(b, lambda: len(b.seen) == 2)
    first = await b.state()
    assert (first.status, first.settled) == ("awaiting_decision", True)
    await cancelled(b, lambda: len(b.seen) == 1, reply=True)
    assert (await b.state()).pending_decision == first.pending_decision
    assert (await b.decide("rescue")).kind == "completed"


@pytest.mark.parametrize(
    ("stop", "kind", "code"),
    [(Stop.CANCELLED, "cancelled", "turn-cancelled"), (Stop.DEADLINE, "cancelled", "turn-cancelled")],
)
async def test_a_turn_stopped_before_it_began_leaves_the_session_as_it_was(
    bench: Make, stop: Stop, kind: str, code: str
) -> None:
    """Ruling 22."""
    w = World(bench(SPEC, "[]"), stop=stop)
    outcome = await w.turn({"kind": "message", "message": "go"})
    assert (outcome["kind"], outcome["problem"]["code"]) == (kind, code)
    assert w.state().position is None and w.bench.seen == []


@pytest.mark.parametrize(
    ("stop", "code"), [(Stop.CANCELLED, "turn-cancelled"), (Stop.DEADLINE, "turn-deadline")]
)
async def test_a_driver_may_stop_a_step_in_flight(bench: Make, stop: Stop, code: str) -> None:
    """03 §16, ruling 11: the step is cut off and the turn ends under the driver's code."""
    b = bench(SPEC, [{**say("never"), "delay_ms": 20000}])
    w = World(b)
    turn = asyncio.create_task(w.turn({"kind": "message", "message": "go"}))
    while not b.seen:  # noqa: ASYNC110 - the model is asked within the turn
        await asyncio.sleep(0.005)
    w.stop = stop
    w.interrupt.set()
    outcome = await turn
    assert (outcome["kind"], outcome["exit"]["code"]) == ("failed", code)
