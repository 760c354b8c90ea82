"""The fold: idempotent, refusing what it does not know, results in call order (03 §5, rulings 13, 15)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.jsontext import JsonObject, dumps, loads
from engine.session.events import events_of, preview
from engine.session.state import SessionState, UnknownChange, fold
from tests.support.engine import Bench, advance_to, call, do, say, setting

Make = Callable[..., Bench]
SPEC = """
    states:
      intake:
        triggers: { manual: }
        tools: { allow: [touch, write_file] }
        transitions: [{ to: gate, description: g }]
      gate: { type: human, instructions: L, transitions: [{ to: end, description: e }, { to: intake, description: i }] }
      end:
"""
ANSWERS = [
    do(
        setting(a=1),
        call("touch", n=1),
        call("nothing"),
        call("write_file", file_path="scratchpad/a.md", content="x"),
    ),
    do(call("archmax_wait", reason="r"), text="w"),
    do(advance_to("gate")),
    say("look"),
    say("again"),
    say("end"),
    say("more"),
]


async def played(b: Bench) -> None:
    await b.send()
    await b.deliver("ping", {"b": 2}, "hello")
    await b.reply("who?")
    await b.decide("end", "fine")
    await b.send("once more")


async def test_a_state_is_the_fold_of_its_stored_records_however_often_they_are_met(bench: Make) -> None:
    """Ruling 13: from scratch, doubled, and through JSON."""
    b = bench(SPEC, ANSWERS)
    await played(b)
    records = [loads(dumps(record)) for record in await b.records()]
    numbered = [((1, 1, n), record) for n, record in enumerate(records, 1)]
    whole = fold("s1", "main", numbered)
    assert whole == fold("s1", "main", [entry for entry in numbered for _ in range(3)])
    stored = await b.state()
    whole.last_commit = stored.last_commit
    assert whole == stored
    assert (whole.status, whole.position, whole.values["b"]) == ("completed", "end", 2)


async def test_events_are_given_again_by_the_records_alone(bench: Make) -> None:
    """03 §20: the same types, states and texts in the same order as they were told, deltas apart."""
    b = bench(SPEC, ANSWERS)
    await played(b)
    state = SessionState("s1", "main")
    again: list[JsonObject] = []
    for record in await b.records():
        for change in record["changes"]:
            state.apply(change)
            again.extend(events_of(change, state))
    told = [e for e in b.events if e["type"] != "agent-text-delta"]
    envelope = ("ts", "seq", "level", "sessionId")
    assert [{k: v for k, v in e.items() if k not in envelope} for e in told] == [
        {k: v for k, v in e.items() if k not in envelope} for e in again
    ]
    assert all(e["sessionId"] == "s1" for e in told)
    assert [e["seq"] for e in b.events] == sorted({e["seq"] for e in b.events})


def test_an_unknown_change_or_a_newer_record_is_refused() -> None:
    """05 §4: a reader that skipped it would go on from a wrong state."""
    state = SessionState("s", "w")
    with pytest.raises(UnknownChange):
        state.apply({"t": "teleport"})
    with pytest.raises(UnknownChange):
        state.apply_record({"v": 99, "changes": []})


def test_results_stand_after_their_message_in_call_order_whatever_order_they_came_in() -> None:
    """03 §13.4: and a second result of one call changes nothing."""
    state = SessionState("s", "w")
    calls = [{"id": i, "name": "touch", "args": {}} for i in "abc"]
    state.apply({"t": "message", "m": {"role": "assistant", "id": "m", "text": "", "calls": calls}})
    for call_id in ("c", "a", "c", "b", "unknown"):
        state.apply({"t": "result", "id": call_id, "tool": "touch", "ok": True, "text": call_id})
    assert [m["id"] for m in state.messages] == ["m", "a", "b", "c"] and state.unanswered == []


def test_pending_children_are_a_union_by_identity_and_failures_do_not_conflict() -> None:
    """03 §5: rules 1, 2 and 5."""
    state = SessionState("s", "w")
    for entry in ({"identity": 1}, {"identity": 2}, {"identity": 1}):
        state.apply({"t": "pend", "entry": entry})
    for entry in ({"id": "a"}, {"id": "b"}, {"id": "a"}):
        state.apply({"t": "failed-call", "entry": entry})
    assert len(state.pending_delegations) == len(state.failed_delegations) == 2
    state.apply({"t": "recovered", "id": "a"})
    assert state.failed_delegations == [{"id": "b"}]


def test_a_locked_variable_is_kept_unless_the_host_seeds_it() -> None:
    """03 §5 rule 3, OP-16."""
    state = SessionState("s", "w")
    state.apply({"t": "vars", "set": {"a": 1}, "lock": True, "host": True})
    state.apply({"t": "vars", "set": {"a": 2, "b": 2}})
    assert state.values == {"a": 1, "b": 2}
    state.apply({"t": "vars", "set": {"a": 3}, "lock": True, "host": True})
    assert state.values["a"] == 3


def test_two_equal_looking_steps_of_the_trail_stay_two() -> None:
    """03 §5 rule 4."""
    state = SessionState("s", "w")
    step = {"to": "a", "kind": "sub-workflow", "workflow": "w", "status": "ok", "ts": 1}
    state.apply({"t": "trail", "step": step})
    state.apply({"t": "trail", "step": {**step, "status": "error"}})
    assert len(state.trail) == 2


def test_a_preview_is_four_kilobytes_of_whole_characters() -> None:
    """03 §20."""
    text, cut = preview("é" * 3000)
    assert cut and text == "é" * 2048
    assert preview("x" * 4096) == ("x" * 4096, False)
