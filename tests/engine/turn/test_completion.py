"""How a turn completes, and the `returns` it owes (03 §4)."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    states:
      intake:
        requires: [never_set]
        triggers:
          manual:
          mail: { returns: [ answer, { name: copies, type: integer }, { name: sheet, type: file } ] }
        tools: { allow: [touch, write_file] }
        on_error: rescue
        transitions: [{ to: work, description: go on }]
      work:
      rescue:
"""
GOOD = setting(answer=None, copies=2, sheet="scratchpad/a.md")
WRITE = call("write_file", file_path="scratchpad/a.md", content="x")


async def test_text_without_a_call_completes_in_any_agent_state(bench: Make) -> None:
    """03 §4.2: the position stays; `requires` gates leaving, not finishing; state-leave to the same slug."""
    b = bench(SPEC, [do(call("touch", n=1), text="first"), say("second")])
    outcome = await b.send()
    assert (outcome.kind, outcome.status, outcome.state) == ("completed", "completed", "intake")
    assert outcome.exit == {"success": True}
    assert (b.one("state-leave")["state"], b.one("state-leave")["next"]) == ("intake", "intake")
    assert b.kinds()[-1] == "state-leave"
    assert outcome.reply == "first\n\nsecond"


async def test_text_and_usage_are_told_before_the_calls_run(bench: Make) -> None:
    """03 §4.2: agent-text, model-usage, then the tools."""
    b = bench(SPEC, [do(call("touch", n=1), text="first"), say("second")])
    await b.send()
    kinds = b.kinds("agent-text", "model-usage", "tool-called")
    assert kinds == ["agent-text", "model-usage", "tool-called", "agent-text", "model-usage"]
    outcome = await b.state()
    ids = [m["id"] for m in outcome.messages if m["role"] == "assistant"]
    assert [event["messageId"] for event in b.of("agent-text")] == ids


async def test_unset_returns_reject_a_top_level_session_naming_them(bench: Make) -> None:
    """03 §4.3: state, names and trigger; no second attempt, `on_error` is not asked."""
    b = bench(SPEC, [do(setting(answer=1)), say("done")])
    outcome = await b.send(trigger="mail")
    assert (outcome.kind, outcome.state, outcome.exit) == ("rejected", "intake", None)
    assert outcome.rejected is not None
    for part in ("'intake'", "'copies'", "'sheet'", "'mail'"):
        assert part in outcome.rejected
    assert "'answer'" not in outcome.rejected
    assert len(b.seen) == 2 and not b.of("state-error-routed")


async def test_null_is_a_value_an_untyped_return_may_have(bench: Make) -> None:
    """03 §4.3, 01 §8.3."""
    b = bench(SPEC, [do(WRITE, GOOD), do(GOOD), say("done")])
    assert (await b.send(trigger="mail")).kind == "completed"


async def test_a_mistyped_return_is_refused_at_the_write(bench: Make) -> None:
    """03 §9.6: a typed return of the turn's trigger; nothing is written."""
    b = bench(SPEC, [do(setting(answer=1, copies="2")), say("done")])
    outcome = await b.send(trigger="mail")
    assert b.values(outcome) == {}
    assert "copies" in b.results(outcome)[0] and "Nothing was written" in b.results(outcome)[0]
    assert not b.of("variables-set")


async def test_a_file_return_must_name_a_file_that_is_there(bench: Make) -> None:
    """03 §4.3, 01 §8.5: at the write and again at completion."""
    gone = do(call("delete", file_path="scratchpad/a.md"))
    spec = SPEC.replace("write_file]", "write_file, delete]")
    b = bench(spec, [do(setting(sheet="scratchpad/a.md")), do(WRITE), do(GOOD), gone, say("done")])
    outcome = await b.send(trigger="mail")
    assert "sheet" in b.results(outcome)[0]
    if any("delete" in seen.tools for seen in b.seen):
        assert outcome.kind == "rejected" and outcome.rejected is not None and "sheet" in outcome.rejected


async def test_a_held_value_of_a_wrong_kind_rejects(bench: Make) -> None:
    """03 §4.3: names variable and type."""
    b = bench(SPEC, [do(WRITE), do(setting(answer=1, sheet="scratchpad/a.md")), say("done")])
    outcome = await b.send(trigger="mail", variables={"copies": "two"})
    assert outcome.rejected is not None
    assert "copies" in outcome.rejected and "integer" in outcome.rejected


async def test_returns_are_not_asked_at_a_park_or_after_a_raise(bench: Make) -> None:
    """03 §4.3."""
    b = bench(
        SPEC,
        [do(call("archmax_wait", reason="r"), text="w"), do(call("archmax_raise", code="x", reason="y"))],
    )
    assert (await b.send(trigger="mail")).kind == "parked"
    assert (await b.deliver("timer")).kind == "failed"


async def test_the_trigger_that_opened_the_turn_binds_after_a_delivery(bench: Make) -> None:
    """03 OP-21."""
    b = bench(SPEC, [do(call("archmax_wait", reason="r"), text="w"), say("done")])
    await b.send(trigger="mail")
    outcome = await b.deliver("timer")
    assert outcome.kind == "rejected" and outcome.rejected is not None and "'mail'" in outcome.rejected
    assert outcome.variables["trigger"]["value"] == "timer"


async def test_a_rejected_session_opens_again_at_its_position(bench: Make) -> None:
    """03 §2.2, §3.3."""
    b = bench(SPEC, [say("short"), say("fine")])
    await b.send(trigger="mail")
    outcome = await b.send("again")
    assert outcome.kind == "completed" and (await b.state()).rejected is None


async def test_statuses_are_open_or_finished(bench: Make) -> None:
    """03 §4.1."""
    b = bench(
        SPEC,
        [
            do(call("archmax_wait", reason="r"), text="w"),
            do(setting(never_set=1), advance_to("work")),
            say("x"),
        ],
    )
    await b.send()
    summary = await b.agent.sessions.get("s1")
    assert summary is not None and summary["classification"] == "open"
    await b.deliver()
    summary = await b.agent.sessions.get("s1")
    assert summary is not None and (summary["status"], summary["classification"]) == ("completed", "finished")
