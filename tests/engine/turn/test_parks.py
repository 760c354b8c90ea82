"""Parks: the handoff message, replies, decisions, deliveries, edited specs (03 §10, 05 §4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.errors import InvalidDecisionTargetError, ParkedStateRemovedError
from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    states:
      intake:
        triggers: { manual: }
        tools: { allow: [touch] }
        on_error: review
        budget: { maxTurns: 3 }
        transitions: [{ to: review, description: ask }, { to: second, description: ask twice }]
      review:
        type: human
        title: First look
        instructions: SECRET CRITERIA
        transitions:
          - { to: second, description: more, type: approve }
          - { to: intake, description: again, type: refine }
          - { to: done, description: done, type: none }
      second:
        type: human
        instructions: Look twice.
        transitions: [{ to: done, description: yes }]
      done:
"""
WAIT = call("archmax_wait", reason="the mail")


# -- when a handoff message is spent (10.5) ----------------------------------------------------------------------------


async def test_a_move_into_a_human_state_always_spends_one_handoff_call(bench: Make) -> None:
    """03 §10.5: also when the agent has spoken; its text is the park's reply, last."""
    b = bench(SPEC, [do(advance_to("review"), text="All is ready."), say("Please look.")])
    outcome = await b.send()
    assert len(b.seen) == 2
    assert outcome.reply == "All is ready.\n\nPlease look."
    assert b.kinds()[-2:] == ["agent-text", "model-usage"]


async def test_the_handoff_request_is_reply_only(bench: Make) -> None:
    """03 §10.5, §17.4: the clock, the parked block and the state's label; no instructions, no current state."""
    b = bench(SPEC, [do(advance_to("review")), say("Please look.")])
    await b.send()
    seen = b.seen[-1]
    assert "## This run is parked" in seen.system and "`review` (First look)" in seen.system
    assert "SECRET CRITERIA" not in seen.system and "## Current state" not in seen.system
    assert "handed" in seen.system and seen.state == "review"
    assert "archmax_advance" in seen.tools


async def test_an_on_error_route_and_a_decision_spend_one_each(bench: Make) -> None:
    """03 §10.5; the parked block says it was routed here by a note."""
    work = do(call("touch", n=1))
    b = bench(SPEC, [work, work, work, say("It failed."), say("Once more.")])
    outcome = await b.send()
    assert (outcome.state, outcome.reply) == ("review", "It failed.")
    assert "routed" in b.seen[-1].system
    outcome = await b.decide("second")
    assert (outcome.kind, outcome.state, outcome.reply) == ("parked", "second", "Once more.")
    assert outcome.pending is not None and outcome.pending["seq"] == 2


@pytest.mark.parametrize(
    ("spoken", "calls"),
    [({"text": "I wait."}, 1), ({}, 2)],
)
async def test_a_wait_spends_one_only_after_silence(bench: Make, spoken: dict[str, str], calls: int) -> None:
    """03 §10.5: since a person's message."""
    b = bench(SPEC, [do(WAIT, **spoken), say("Waiting.", optional=True)])
    await b.send()
    assert len(b.seen) == calls


async def test_a_note_opens_the_silence_window_like_a_person(bench: Make) -> None:
    """03 §10.5, §12: after a delivery's note, a silent second wait owes a message."""
    b = bench(SPEC, [do(WAIT, text="I wait."), do(WAIT), say("Still waiting.")])
    await b.send()
    outcome = await b.deliver()
    assert outcome.reply == "Still waiting."
    assert "waiting for something from outside: the mail" in b.seen[-1].system


async def test_text_said_earlier_in_the_same_window_counts(bench: Make) -> None:
    """03 §10.5: any text since the last thing it was told."""
    b = bench(SPEC, [do(call("touch", n=1), text="On it."), do(WAIT)])
    assert (await b.send()).kind == "parked"
    assert len(b.seen) == 2


async def test_calls_of_a_handoff_are_refused_and_answered_and_there_is_no_second_call(bench: Make) -> None:
    """03 §10.5: rule `tool.reply-only`; nothing runs; the park stands without its message."""
    b = bench(SPEC, [do(advance_to("review")), do(call("touch", n=1), call("nothing"), advance_to("done"))])
    outcome = await b.send()
    assert (outcome.kind, outcome.state, outcome.reply) == ("parked", "review", "")
    assert b.touched == [] and len(b.seen) == 2
    refused = [m for m in outcome.transcript if m["role"] == "tool"][1:]
    assert [m["status"] for m in refused] == ["error"] * 3
    assert all(m.get("blocked") for m in refused)
    assert len(b.of("tool-blocked")) == 3


async def test_a_handoff_without_text_leaves_the_park_without_a_message(bench: Make) -> None:
    """03 §10.5: and what a provider is sent later holds no empty message."""
    b = bench(SPEC, [do(advance_to("review")), say(""), say("fine")])
    assert (await b.send()).kind == "parked"
    outcome = await b.decide("done")
    assert outcome.reply == "fine"
    assert all(m.text or getattr(m, "tool_calls", None) for m in b.seen[-1].messages)


async def test_a_handoff_that_throws_leaves_the_park_untouched(bench: Make) -> None:
    """03 OP-13."""
    b = bench(
        SPEC, [do(advance_to("review")), {"error": "no model today"}, {"error": "still none"}, say("done")]
    )
    outcome = await b.send()
    assert (outcome.kind, outcome.status) == ("parked", "awaiting_decision")
    assert outcome.problem is not None and "no model today" in outcome.problem["message"]
    before = outcome.pending
    outcome = await b.reply("hello?")
    assert outcome.pending == before and outcome.problem is not None
    assert (await b.decide("done")).kind == "completed"


# -- replies (10.6) ----------------------------------------------------------------------------------------------------


async def test_a_reply_keeps_the_same_record_trail_and_status(bench: Make) -> None:
    """03 §10.6: as often as wanted; inbound and outbound; the agent may not decide."""
    b = bench(SPEC, [do(advance_to("review")), say("look"), say("one"), say("two")])
    first = await b.send()
    b.clear()
    for text, answer in (("who decides?", "one"), ("[event] when?", "two")):
        outcome = await b.reply(text)
        assert (outcome.kind, outcome.disposition, outcome.parked_channel) == ("parked", "reply", "decision")
        assert outcome.reparked and outcome.reply == answer
        assert outcome.pending == first.pending and outcome.audit_trail == first.audit_trail
    assert [(e["direction"], e["text"]) for e in b.of("park-message")][:2] == [
        ("inbound", "who decides?"),
        ("outbound", "one"),
    ]
    told = b.kinds("park-message", "agent-text", "model-usage")
    assert told == ["park-message", "agent-text", "model-usage", "park-message"] * 2
    assert not b.of("parked") and not b.of("state-enter")
    assert "someone else is deciding" in b.seen[-1].system
    state = await b.state()
    assert [m["role"] for m in state.messages if m["text"] == "[event] when?"] == ["user"]


# -- decisions (10.7) --------------------------------------------------------------------------------------------------


async def test_a_decision_routes_with_its_note_step_and_events(bench: Make) -> None:
    """03 §10.7."""
    b = bench(SPEC, [do(advance_to("review")), say("look"), say("I shall.")])
    await b.send()
    b.clear()
    outcome = await b.decide("intake", "use the other card")
    assert (outcome.kind, outcome.state, outcome.disposition) == ("completed", "intake", "decide")
    assert b.kinds()[:3] == ["decided", "state-leave", "state-enter"]
    decided = b.one("decided")
    assert (decided["state"], decided["to"], decided["sessionId"]) == ("review", "intake", "s1")
    step = outcome.audit_trail[-1]
    assert (step["kind"], step["to"], step["reason"]) == ("human", "intake", "use the other card")
    kind, text = b.notes(outcome)[-1]
    assert kind == "decision" and text.startswith("[decision]")
    for part in ("refine", "'intake'", "use the other card"):
        assert part in text
    assert (await b.state()).pending_decision is None


async def test_a_decision_without_label_or_comment_names_neither(bench: Make) -> None:
    """03 §10.7, OP-17."""
    b = bench(SPEC, [do(advance_to("review")), say("look"), say("done")])
    await b.send()
    outcome = await b.decide("done")
    assert "none" not in b.notes(outcome)[-1][1] and "reason" not in outcome.audit_trail[-1]
    assert b.steps(outcome)[-1] == ("human", "done")


async def test_a_decision_continues_the_open_turn(bench: Make) -> None:
    """03 §2.4: no opening; no trigger step; the turn's own counters go on."""
    b = bench(SPEC, [do(advance_to("review")), say("look"), say("done")])
    await b.send()
    outcome = await b.decide("done")
    assert [kind for kind, _ in b.steps(outcome)] == ["trigger", "agent", "human"]


async def test_an_edge_gone_from_the_edited_spec_is_refused_and_stays_parked(bench: Make) -> None:
    """03 OP-15, 05 §4."""
    first = bench(SPEC, [do(advance_to("review")), say("look")])
    await first.send()
    edited = SPEC.replace("          - { to: intake, description: again, type: refine }\n", "")
    b = bench(edited, "[]", store=first.store)
    with pytest.raises(InvalidDecisionTargetError):
        await b.decide("intake")
    assert (await b.state()).status == "awaiting_decision"


async def test_an_edge_new_in_the_edited_spec_is_not_in_the_record(bench: Make) -> None:
    """03 OP-15: the target must be in the record and in the spec."""
    first = bench(
        SPEC.replace("          - { to: intake, description: again, type: refine }\n", ""),
        [do(advance_to("review")), say("look")],
    )
    await first.send()
    b = bench(SPEC, "[]", store=first.store)
    with pytest.raises(InvalidDecisionTargetError):
        await b.decide("intake")


async def test_a_parked_state_gone_from_the_spec_is_refused_by_name(bench: Make) -> None:
    """Ruling 5."""
    first = bench(SPEC, [do(advance_to("review")), say("look")])
    await first.send()
    b = bench(SPEC.replace("review", "audit"), "[]", store=first.store)
    for refused in (b.decide("second"), b.reply("hi")):
        with pytest.raises(ParkedStateRemovedError, match="review"):
            await refused


# -- deliveries (10.8) -------------------------------------------------------------------------------------------------


async def test_a_delivery_seeds_notes_and_resumes_in_order(bench: Make) -> None:
    """03 §10.8."""
    b = bench(SPEC, [do(setting(n=1), WAIT, text="w"), say("thanks")])
    await b.send(variables={"card": "old"})
    b.clear()
    outcome = await b.deliver("mail-in", {"card": "new", "lines": [1, "b"]}, "here it is")
    assert (outcome.kind, outcome.disposition, outcome.state) == ("completed", "deliver", "intake")
    assert b.kinds()[:4] == ["delivered", "variables-set", "park-message", "state-enter"]
    delivered = b.one("delivered")
    assert (delivered["state"], delivered["trigger"], delivered["to"]) == ("intake", "mail-in", "intake")
    assert "callId" not in b.one("variables-set") and set(b.one("variables-set")["names"]) == {
        "card",
        "lines",
    }
    assert outcome.variables["card"] == {"value": "new", "locked": True}
    assert outcome.variables["trigger"]["value"] == "mail-in"
    assert b.steps(outcome)[-1] == ("trigger", "intake") and outcome.audit_trail[-1]["reason"] == "mail-in"
    note, said = outcome.transcript[-3], outcome.transcript[-2]
    assert note["kind"] == "event" and note["text"].startswith("[event]")
    assert 'card="new"' in note["text"] and 'lines=[1,"b"]' in note["text"].replace(", ", ",")
    assert (said["role"], said["text"]) == ("user", "here it is")
    state = await b.state()
    assert (state.entry_state, state.trigger, state.turn_trigger) == ("intake", "mail-in", "manual")


async def test_a_message_to_a_wait_is_its_delivery(bench: Make) -> None:
    """03 §2.2: trigger default `manual`; a blank message is none."""
    b = bench(SPEC, [do(WAIT, text="w"), do(WAIT, text="w"), say("done")])
    await b.send()
    assert (await b.send("  ")).disposition == "deliver"
    outcome = await b.send("the mail", variables={"n": 1})
    assert outcome.kind == "completed" and b.values(outcome) == {"n": 1}
    assert b.one("park-message")["text"] == "the mail"


async def test_a_bad_delivered_title_is_skipped_with_a_warning_and_a_good_one_replaces(bench: Make) -> None:
    """03 §7.2."""
    b = bench(SPEC, [do(setting(title="Mine"), WAIT, text="w"), do(WAIT, text="w"), say("done")])
    await b.send()
    outcome = await b.deliver("ping", {"title": "two\nlines"})
    assert b.values(outcome)["title"] == "Mine" and "title" in b.one("warning")["message"]
    outcome = await b.deliver("ping", {"title": " Theirs "})
    assert outcome.variables["title"] == {"value": "Theirs", "locked": False}


async def test_max_turns_go_on_through_a_delivery_and_restart_with_a_decision(bench: Make) -> None:
    """03 §13.3."""
    touch = do(call("touch", n=1))
    b = bench(SPEC, [touch, do(WAIT, text="w"), touch, say("over"), touch, touch, say("done")])
    await b.send()
    outcome = await b.deliver()  # its third call; a fourth is replaced by the route
    assert (outcome.kind, outcome.state) == ("parked", "review")
    assert len(b.touched) == 2
    assert (await b.decide("intake")).kind == "completed"
