"""Failures: classes, routing, clearing, budgets, the recursion limit, turns that throw (03 §13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storage.memory import MemoryStore
from storage.objects import StoreUnavailable
from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    tools: { allow_always: [] }
    states:
      intake:
        triggers: { manual: }
        on_error: rescue
        budget: { maxTurns: 3 }
        tools: { allow: [touch, { tool: stamp, args: { name: ["${{folder}}/*"] } }] }
        transitions: [{ to: work, description: go on }]
      work:
        tools: { allow: [touch, { tool: write_file, args: { file_path: ["scratchpad/*"] } }] }
        transitions: [{ to: intake, description: back }]
      rescue:
"""
TOUCH = do(call("touch", n=1))
UNRESOLVED = do(call("stamp", name="a/b"))


async def test_a_failed_tool_is_an_error_answer_and_never_routes(bench: Make) -> None:
    """03 §13.1: the error's message, one `tool-result` error; the state goes on."""
    b = bench(SPEC, [do(call("touch", n=-1)), say("so be it")])
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("completed", "intake")
    message = next(m for m in outcome.transcript if m["role"] == "tool")
    assert "no negative touch: -1" in message["text"] and message["status"] == "error"
    assert b.one("tool-result")["status"] == "error" and not b.of("tool-blocked")


async def test_a_store_that_fails_under_a_tool_is_no_answer_of_the_tool(bench: Make) -> None:
    """03 §13.4: nothing is told or recorded, and whoever takes the session up finds its last commit."""

    class Full(MemoryStore):
        full = True

        async def put(self, key: str, body: bytes, **conditions: Any) -> str | None:
            if self.full and "/blob/" in key:
                raise StoreUnavailable("put", key, "full")
            return await super().put(key, body, **conditions)

    store = Full()
    large = do(call("write_file", file_path="scratchpad/x", content="x" * 100_000))
    spec = "states: { work: { triggers: { manual: }, tools: { allow: [write_file] } } }"
    b = bench(spec, [large, large, say("done")], store=store)
    with pytest.raises(StoreUnavailable):
        await b.send()
    assert b.of("tool-result") == []
    store.full = False
    outcome = await b.send("again")
    assert outcome.kind == "completed"
    assert [text[:7] for text in b.results(outcome)] == ["Error: ", "Updated"]
    assert "interrupted" in b.results(outcome)[0] and "blob" not in b.results(outcome)[0]


async def test_a_blocked_call_is_answered_with_tool_blocked_instead_of_the_pair(bench: Make) -> None:
    """03 §13.1, §20."""
    b = bench(
        SPEC,
        [do(advance_to("work")), do(call("write_file", file_path="elsewhere.md", content="x")), say("ok")],
    )
    outcome = await b.send()
    blocked = b.one("tool-blocked")
    assert blocked["level"] == "warn" and blocked["callId"] and blocked["args"]["file_path"] == "elsewhere.md"
    assert not b.of("tool-called", tool="write_file") and not b.of("tool-result", tool="write_file")
    message = [m for m in outcome.transcript if m["role"] == "tool"][-1]
    assert message["status"] == "error" and message["blocked"]


async def test_an_unresolved_reference_refuses_the_call_before_it_runs(bench: Make) -> None:
    """03 §13.1, §14: recoverable; the transcript keeps the reference, the tool gets the value."""
    b = bench(
        SPEC, [do(call("touch", n="${{n}}")), do(setting(n=4)), do(call("touch", n="${{n}}")), say("ok")]
    )
    outcome = await b.send()
    assert outcome.kind == "rejected" or b.touched in ([4], ["4"])
    assert "${{n}}" in b.results(outcome, "touch")[0]


async def test_an_unresolvable_guard_fails_the_state_when_the_agent_stops(bench: Make) -> None:
    """03 §13.2: committed `rejected`; routed once the agent stops."""
    b = bench(SPEC, [UNRESOLVED, say("done"), say("tidied")])
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("completed", "rescue")
    assert b.kinds("state-error-routed", "state-leave", "state-enter")[1:4] == [
        "state-error-routed", "state-leave", "state-enter",
    ]  # fmt: skip
    assert "folder" in b.one("state-error-routed")["reason"]
    state = await b.state()
    assert state.rejected is None and state.status == "completed"


@pytest.mark.parametrize("way", ["move", "park", "raise", "turn"])
async def test_a_committed_rejection_is_cleared_unrouted(bench: Make, way: str) -> None:
    """03 §13.2: by a landed move, a park, a raise or a new turn."""
    spec = SPEC.replace("maxTurns: 3", "maxTurns: 9").replace("        on_error: rescue\n", "")
    after = {
        "move": [do(advance_to("work")), say("done")],
        "park": [do(call("archmax_wait", reason="r"), text="w"), say("done")],
        "raise": [do(call("archmax_raise", code="c", reason="r"))],
        "turn": [{"error": "down"}, say("done")],
    }[way]
    b = bench(spec, [UNRESOLVED, *after])
    outcome = await b.send()
    if way == "park":
        outcome = await b.deliver()
    if way == "turn":
        assert outcome.kind == "failed"
        outcome = await b.send("again")
    assert outcome.kind == ("failed" if way == "raise" else "completed")
    assert (await b.state()).rejected is None


async def test_without_on_error_the_session_ends_rejected(bench: Make) -> None:
    """03 §13.2."""
    b = bench(SPEC.replace("        on_error: rescue\n", ""), [UNRESOLVED, say("done")])
    outcome = await b.send()
    assert (outcome.kind, outcome.status, outcome.state) == ("rejected", "rejected", "intake")
    assert outcome.exit is None and outcome.rejected is not None and "folder" in outcome.rejected


async def test_max_turns_is_an_exact_count_and_the_call_beyond_is_never_made(bench: Make) -> None:
    """03 §13.3: in place of the call that would exceed it."""
    b = bench(SPEC, [TOUCH, TOUCH, TOUCH, {**say("tidied"), "when_state": "rescue"}])
    outcome = await b.send()
    assert outcome.state == "rescue" and len(b.touched) == 3
    assert (
        "3" in b.one("state-error-routed")["reason"] and "maxTurns" in b.one("state-error-routed")["reason"]
    )
    exact = bench(SPEC, [TOUCH, TOUCH, say("in time")])
    assert (await exact.send()).state == "intake"


async def test_every_move_restarts_the_count(bench: Make) -> None:
    """03 §13.3: advance, reset, and a new turn."""
    b = bench(
        SPEC,
        [TOUCH, TOUCH, do(advance_to("work")), do(advance_to("intake")), TOUCH, TOUCH,
         do(call("archmax_reset", reason="r")), TOUCH, TOUCH, say("one"), TOUCH, TOUCH, say("two")],
    )  # fmt: skip
    assert (await b.send()).kind == "completed"
    assert (await b.send("more")).state == "intake"


async def test_an_empty_answer_counts_as_a_model_call(bench: Make) -> None:
    """03 §13.3: an exact count of model calls, whatever came back."""
    b = bench(
        SPEC, [TOUCH, say(""), say(""), say("never", optional=True), say("tidied", when_state="rescue")]
    )
    outcome = await b.send()
    assert outcome.state == "rescue"


async def test_a_spent_timeout_routes_after_the_running_tool_has_settled(bench: Make) -> None:
    """03 §13.2, §13.3: the tool's result stands."""
    spec = SPEC.replace("maxTurns: 3", "timeoutMs: 60")
    b = bench(spec, [{**TOUCH, "delay_ms": 0}, {**say("too late"), "delay_ms": 500}, say("tidied")])
    outcome = await b.send()
    assert outcome.state == "rescue"
    assert "timeoutMs" in b.one("state-error-routed")["reason"]
    assert "too late" not in outcome.reply and b.results(outcome) == ["touched 1"]


async def test_the_segment_clock_restarts_on_every_entry(bench: Make) -> None:
    """03 §13.3: two visits that each fit the bound and together do not. The margin is a busy machine's."""
    spec = SPEC.replace("maxTurns: 3", "timeoutMs: 2400")
    slow = {"delay_ms": 1250}
    b = bench(spec, [{**do(advance_to("work")), **slow}, do(advance_to("intake")), {**say("done"), **slow}])
    assert (await b.send()).state == "intake"


async def test_the_recursion_limit_fails_the_session_without_a_route(bench: Make) -> None:
    """03 §13.5: the host's limit wins; `recursion-limit`."""
    spec = SPEC.replace("maxTurns: 3", "maxTurns: 99")
    b = bench(spec, [{**TOUCH, "repeat": True}], recursion_limit=5)
    outcome = await b.send()
    assert outcome.exit is not None and outcome.exit["code"] == "recursion-limit"
    assert (outcome.kind, outcome.state, len(b.touched)) == ("failed", "intake", 2)
    assert not b.of("state-error-routed")


async def test_the_limit_counts_one_invocation(bench: Make) -> None:
    """03 §13.5: each turn afresh."""
    b = bench(SPEC, [TOUCH, say("one"), TOUCH, say("two")], recursion_limit=3)
    assert (await b.send()).kind == "completed"
    assert (await b.send("more")).kind == "completed"


async def test_a_model_failure_fails_the_turn_and_keeps_the_position(bench: Make) -> None:
    """03 §13.4: exit record, `turn-error`; the next message opens a fresh turn at the position."""
    b = bench(SPEC, [do(advance_to("work")), {"error": "it is down"}, say("back")])
    outcome = await b.send()
    assert (outcome.kind, outcome.status, outcome.state) == ("failed", "failed", "work")
    assert (
        outcome.exit is not None
        and outcome.exit["code"] == "turn-error"
        and "it is down" in outcome.exit["reason"]
    )
    state = await b.state()
    assert state.raised is not None and state.raised["state"] == "work"
    again = await b.send("again")
    assert (again.kind, again.state) == ("completed", "work")


async def test_an_on_error_route_clears_park_records_and_goes_on(bench: Make) -> None:
    """03 §13.2: into a human state with a handoff owed; into an automated one, which runs."""
    spec = SPEC.replace("on_error: rescue", "on_error: fix").replace(
        "      rescue:\n",
        "      rescue:\n      fix: { type: code, script: scripts/fix.js, transitions: [{ to: rescue }] }\n",
    )
    fix = "export default async ({ tools }) => { await tools.archmax_advance({ to: 'rescue', reason: 'mended' }) }"
    b = bench(
        spec,
        [TOUCH, TOUCH, TOUCH, say("tidied", when_state="rescue")],
        files={"workflows/main/scripts/fix.js": fix},
    )
    outcome = await b.send()
    assert outcome.state == "rescue"
    assert [kind for kind, _ in b.steps(outcome)] == ["trigger", "on_error", "code"]


async def test_on_error_of_the_error_state_itself_ends_at_the_limit_never_in_a_loop_forever(
    bench: Make,
) -> None:
    """03 §13.5."""
    spec = SPEC.replace(
        "      rescue:\n",
        "      rescue:\n        on_error: intake\n        budget: { maxTurns: 1 }\n        tools: { allow: [touch] }\n",
    )
    b = bench(spec, [{**TOUCH, "repeat": True}], recursion_limit=20)
    outcome = await b.send()
    assert outcome.exit is not None and outcome.exit["code"] == "recursion-limit"
