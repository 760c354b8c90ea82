"""Ways into a session and the opening of a turn (03 §2, §3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import (
    EmptyMessageError,
    InvalidDecisionTargetError,
    InvalidTitleError,
    InvalidVariableNameError,
    MissingDeliveryTriggerError,
    SessionNotAwaitingInputError,
    SessionNotParkedError,
    UnknownSessionTriggerError,
    UnknownTriggerError,
    WorkflowDisabledError,
)
from engine.turn.inputs import check_input
from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    states:
      intake:
        triggers:
          manual: { requires: [ { name: copies, type: integer } ] }
          mail:
        transitions: [{ to: work, description: go on }, { to: review, description: ask }]
      work:
        triggers: { direct: }
      review:
        type: human
        instructions: Look.
        transitions: [{ to: work, description: fine }]
"""
FREE = SPEC.replace("{ requires: [ { name: copies, type: integer } ] }", "")


async def test_a_first_turn_opens_at_its_triggers_state_with_the_events_in_order(bench: Make) -> None:
    """03 §3.3: workflow-reset, advance from __start__ without a call id, title-set, state-enter; one trail step."""
    b = bench(FREE, [say("done")])
    outcome = await b.send(trigger="direct", variables={"title": " Two books ", "n": 1})
    assert b.kinds()[:4] == ["workflow-reset", "advance", "title-set", "state-enter"]
    opened = b.one("advance")
    assert (opened["from"], opened["to"]) == ("__start__", "work") and "callId" not in opened
    assert b.one("workflow-reset")["entry"] == "work"
    assert outcome.audit_trail[0] | {"ts": 0} == {
        "to": "work",
        "kind": "trigger",
        "reason": "direct",
        "ts": 0,
    }
    assert outcome.variables["trigger"] == {"value": "direct", "locked": True}
    assert outcome.variables["n"] == {"value": 1, "locked": True}
    assert outcome.variables["title"] == {"value": "Two books", "locked": False}


async def test_a_later_turn_keeps_the_position_whatever_its_trigger(bench: Make) -> None:
    """03 §2.2, §3.1: no reset event; the entry state is never changed; a held title beats a seeded one."""
    b = bench(FREE, [do(setting(title="Mine"), advance_to("work")), say("a"), say("b")])
    await b.send()
    b.clear()
    outcome = await b.send(trigger="mail", variables={"title": "Theirs"})
    assert (outcome.state, (await b.state()).entry_state) == ("work", "intake")
    assert b.kinds()[:2] == ["advance", "state-enter"]
    assert outcome.variables["title"]["value"] == "Mine"
    assert outcome.variables["trigger"]["value"] == "mail"


async def test_host_seeds_replace_locked_values_in_order(bench: Make) -> None:
    """03 §3.1, §7.3, OP-16: the assembly's variables, then this firing's, then `trigger`."""
    b = bench(FREE, [say("a"), say("b")], variables={"a": 1, "b": 1, "trigger": "forged"})
    await b.send(variables={"b": 2})
    outcome = await b.send(variables={"a": 3})
    assert b.values(outcome) == {"a": 3, "b": 1}
    assert outcome.variables["trigger"]["value"] == "manual"


async def test_a_position_the_spec_lost_reopens_at_the_start_with_a_warning(bench: Make) -> None:
    """03 §3.1, §3.3."""
    first = bench(FREE, [do(advance_to("work")), say("a")])
    await first.send()
    b = bench(FREE.replace("work", "labour"), [say("b")], store=first.store)
    outcome = await b.send()
    assert outcome.state == "intake"
    assert b.kinds()[:4] == ["warning", "workflow-reset", "advance", "state-enter"]
    assert "'work'" in b.one("warning")["message"]


async def test_unmet_requires_refuse_the_start_before_any_model_call(bench: Make) -> None:
    """03 §3.2: fixed beginning; status, position, entry, hash and trigger committed; one warning, no trail step."""
    b = bench(SPEC, "[]")
    missing = await b.send()
    assert (missing.kind, missing.status, missing.state) == ("rejected", "rejected", "intake")
    assert missing.rejected is not None
    assert (
        missing.rejected.startswith("Refusing to start: trigger 'manual' ") and "copies" in missing.rejected
    )
    assert b.one("warning")["message"] == missing.rejected
    assert b.kinds() == ["warning"] and missing.audit_trail == [] and missing.exit is None
    state = await b.state()
    assert (state.entry_state, state.trigger, state.spec_hash) == (
        "intake",
        "manual",
        b.agent.assembly.spec_hash,
    )
    mistyped = await b.send(session="s2", variables={"copies": "4"})
    assert mistyped.rejected is not None and "integer" in mistyped.rejected


async def test_requires_are_met_by_what_the_session_holds(bench: Make) -> None:
    """03 OP-1, ruling 1."""
    b = bench(SPEC, [say("a"), say("b")])
    await b.send(variables={"copies": 4})
    assert (await b.send("more")).kind == "completed"
    assert (await b.send("worse", variables={"copies": "x"})).kind == "rejected"


async def test_a_disabled_workflow_starts_nothing_and_finishes_parked_work(bench: Make) -> None:
    """03 §2.2, §2.4, §3.2: `send` raises; a raw turn is rejected in the fixed words; a decision passes."""
    first = bench(FREE, [do(advance_to("review")), say("look")])
    await first.send()
    spec = "disabled: true\n" + FREE.replace("\n    ", "\n")
    b = bench(spec, [say("used"), say("used"), say("done")], store=first.store)
    assert (await b.decide("work")).kind == "completed"
    with pytest.raises(WorkflowDisabledError):
        await b.send()
    raw = await b.agent.invoke({"message": "hi"}, "s9")
    assert raw.rejected == "Refusing to start: workflow 'main' is disabled."


async def test_checks_before_a_turn_come_in_the_contracts_order(bench: Make) -> None:
    """03 §2.2: unknown trigger on a fresh session, disabled, empty message, unknown trigger."""
    b = bench(FREE, [say("done")])
    with pytest.raises(UnknownSessionTriggerError):
        await b.send(" ", trigger="nowhere")
    mail_only = bench(FREE.replace("manual", "post"), [])
    with pytest.raises(UnknownSessionTriggerError):  # the default trigger is no exception
        await mail_only.send()
    with pytest.raises(UnknownSessionTriggerError):
        check_input(mail_only.agent.assembly.spec, None, {"kind": "message", "message": "x"}, session_id="s")
    with pytest.raises(EmptyMessageError):
        await b.send("  \n")
    with pytest.raises(InvalidVariableNameError):
        await b.send(variables={"Bad.Name": 1})
    with pytest.raises(InvalidTitleError):
        await b.send(variables={"title": "two\nlines"})
    assert await b.agent.sessions.get("s1") is None
    await b.send()
    with pytest.raises(EmptyMessageError):
        await b.send(" ", trigger="nowhere")
    with pytest.raises(UnknownTriggerError) as unknown:
        await b.send("hello", trigger="nowhere")
    assert set(unknown.value.available) == {"manual", "mail", "direct"}


async def test_a_raw_turn_with_an_undeclared_trigger_raises_before_it_runs(bench: Make) -> None:
    """03 OP-14."""
    b = bench(FREE, "[]")
    with pytest.raises(UnknownTriggerError):
        await b.agent.invoke({"message": "hi", "trigger": "nowhere"}, "s1")
    assert await b.agent.sessions.get("s1") is None


async def test_resumes_are_refused_where_nothing_waits_for_them(bench: Make) -> None:
    """03 §2.3: each refusal leaves the session as it was."""
    b = bench(FREE, [say("done"), do(advance_to("review")), say("look")])
    await b.send()
    for refused in (b.decide("work"), b.reply("hi")):
        with pytest.raises(SessionNotParkedError):
            await refused
    with pytest.raises(SessionNotAwaitingInputError):
        await b.deliver()
    await b.send("more")
    before = await b.state()
    with pytest.raises(InvalidDecisionTargetError) as invalid:
        await b.decide("intake")
    assert invalid.value.valid_targets == ("work",) or list(invalid.value.valid_targets) == ["work"]
    with pytest.raises(EmptyMessageError):
        await b.reply(" ")
    with pytest.raises(SessionNotAwaitingInputError):
        await b.deliver()
    assert await b.state() == before


async def test_a_delivery_needs_a_trigger_id_and_legal_names(bench: Make) -> None:
    """03 §2.3."""
    b = bench(FREE, [do(call("archmax_wait", reason="r"), text="waiting"), say("done")])
    await b.send()
    with pytest.raises(MissingDeliveryTriggerError):
        await b.deliver("  ")
    with pytest.raises(InvalidVariableNameError):
        await b.deliver("ping", {"A": 1})
    with pytest.raises(SessionNotParkedError):
        await b.decide("work")
    assert (await b.deliver("never-declared")).kind == "completed"


@pytest.mark.parametrize("message", ["Yes, approve", "work", '{"target": "work"}'])
async def test_words_never_route(bench: Make, message: str) -> None:
    """03 §2.3: a message alone is a reply."""
    b = bench(FREE, [do(advance_to("review")), say("look"), say("someone decides")])
    await b.send()
    outcome = await b.send(message)
    assert (outcome.disposition, outcome.status) == ("reply", "awaiting_decision")


async def test_earlier_messages_are_seeded_as_text_and_no_part_of_the_reply(bench: Make) -> None:
    """03 §2.4."""
    earlier = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    b = bench(FREE, [say("done")])
    outcome = await b.agent.send("s1", message="go", history=earlier)
    assert [m["text"] for m in outcome.transcript] == ["hi", "hello", "go", "done"]
    assert outcome.reply == "done"
    assert [m.type for m in b.seen[0].messages] == ["system", "human", "ai", "human"]
    assert [event["text"] for event in b.of("agent-text")] == ["done"]  # what another system said is no news


async def test_a_start_without_a_message_opens_with_the_opening_note(bench: Make) -> None:
    """Ruling 16."""
    b = bench(FREE, [say("done")])
    outcome = await b.send(None, variables={"n": 3})
    opening: dict[str, Any] = outcome.transcript[0]
    assert (opening["role"], opening["note"]) == ("user", "opening")
    assert "- n: 3" in opening["text"] and "trigger" not in opening["text"]


async def test_no_message_announces_a_turn(bench: Make) -> None:
    """03 §3.3."""
    b = bench(FREE, [say("done"), say("done")])
    await b.send("one")
    outcome = await b.send("two")
    assert [m["text"] for m in outcome.transcript] == ["one", "done", "two", "done"]
    assert outcome.reply == "done"


async def test_a_turn_may_open_in_a_human_state(bench: Make) -> None:
    """03 §3.4: a fresh record, one handoff call, suspend."""
    spec = FREE.replace("type: human\n", "type: human\n        triggers: { gate: }\n")
    b = bench(spec, [say("please look")])
    outcome = await b.send(trigger="gate")
    assert (outcome.kind, outcome.state, outcome.reply) == ("parked", "review", "please look")
    assert len(b.seen) == 1 and b.one("parked")["state"] == "review"


async def test_a_raw_turn_on_a_parked_session_presents_a_fresh_record(bench: Make) -> None:
    """03 §2.1, §3.4: always a new turn; the next `seq`."""
    b = bench(FREE, [do(advance_to("review")), say("look"), say("look again")])
    await b.send()
    outcome = await b.agent.invoke({"message": "hi"}, "s1")
    assert (outcome.disposition, outcome.kind) == ("turn", "parked")
    assert outcome.pending is not None and outcome.pending["seq"] == 2
