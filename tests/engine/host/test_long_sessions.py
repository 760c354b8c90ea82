"""A long session's next turn costs what is new: its state is remembered, and never anybody else's to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain_core.messages import AIMessage

from core.jsontext import JsonObject
from engine.errors import SessionNotResumableError
from engine.host.agent import Agent
from engine.host.session_folder import SessionFolder
from engine.session.state import Commit, SessionState
from engine.session.state_cache import StateCache
from engine.turn.middleware import MiddlewareChain
from engine.turn.recorder import EventStream, Recorder
from storage.layout import SessionKeys
from storage.records import InboxEntry
from tests.support.engine import Bench, bench, raw_call

__all__ = ["bench"]
Make = Callable[..., Bench]

SPEC = """
title: Desk
states: { work: { triggers: { manual: }, tools: { allow: [touch] } } }
"""


async def test_a_turn_folds_no_record_of_the_turns_before_it(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """03 §5: the state is the fold of the log, however it is come by."""
    b = bench(SPEC, [AIMessage(f"answer {n}") for n in range(8)])
    for _ in range(4):
        await b.send()
    folded: list[Any] = []
    real = SessionState.apply_record

    def counted(state: SessionState, record: Mapping[str, Any], commit: Commit | None = None) -> bool:
        folded.append(record)
        return real(state, record, commit)

    with monkeypatch.context() as patched:
        patched.setattr(SessionState, "apply_record", counted)
        await b.send()
    assert folded == []
    fresh = Agent(b.agent.assembly, SessionFolder(b.agent.folder.files.store), EventStream(None))
    assert await fresh.sessions.state("s1") == (await b.agent.folder.look("s1")).state


async def test_a_turn_of_another_process_is_never_missed(bench: Make) -> None:
    """05 §8: what is remembered is named by the turn it is the history of."""
    b = bench(SPEC, [AIMessage(f"answer {n}") for n in range(8)])
    other = Agent(b.agent.assembly, SessionFolder(b.agent.folder.files.store), EventStream(None))
    for number in range(6):
        agent = b.agent if number % 3 == 0 else other
        outcome = await agent.send("s1", message=f"question {number}")
        said = [message["text"] for message in outcome.transcript]
        assert said == [text for n in range(number + 1) for text in (f"question {n}", f"answer {n}")]


async def test_an_outcome_is_its_owners_to_change(bench: Make) -> None:
    """05 §12: what a host does with an outcome reaches no later turn."""
    b = bench(SPEC, [AIMessage("one"), AIMessage("two")])
    outcome = await b.agent.send("s1", message="hello", variables={"order": {"lines": [1]}})
    outcome.variables["order"]["value"]["lines"].append("forged")
    outcome.transcript[0]["text"] = "forged"
    outcome.transcript.clear()
    outcome.audit_trail.append({})
    for step in outcome.audit_trail:
        step["to"] = "forged"
    after = await b.agent.send("s1", message="again")
    assert [message["text"] for message in after.transcript] == ["hello", "one", "again", "two"]
    assert after.variables["order"]["value"] == {"lines": [1]}
    assert "forged" not in repr(after.audit_trail)


async def test_a_session_made_again_has_nothing_of_the_old_one(bench: Make) -> None:
    """05 §7: a deleted session's id is free for a new one."""
    b = bench(SPEC, [AIMessage("one"), AIMessage("two"), AIMessage("three")])
    await b.agent.send("s1", message="hello")
    await b.agent.send("s1", message="hello again")
    assert await b.agent.sessions.delete("s1")
    assert (await b.agent.folder.look("s1")).state is None
    assert [item.key async for item in b.store.list("") if "s1" in item.key] == []
    outcome = await b.agent.send("s1", message="who are you?")
    assert [message["text"] for message in outcome.transcript] == ["who are you?", "three"]
    assert outcome.kind == "completed"


async def test_a_session_that_a_fleet_has_accepted_a_turn_of_is_not_deleted(bench: Make) -> None:
    """Nothing accepted is lost (docs/protocol.md §3)."""
    b = bench(SPEC, [AIMessage("one")])
    await b.agent.send("s1", message="hello")
    entry = InboxEntry("s1", 2, "input", "message", b.agent.assembly.spec.slug, {}, 0, w="w")
    files = b.agent.folder.files
    await files.create(SessionKeys("s1").inbox(2), entry.body(), entry.w)
    with pytest.raises(SessionNotResumableError, match="a fleet has accepted"):
        await b.agent.sessions.delete("s1")
    assert await b.agent.sessions.state("s1") is not None


class Noting(AgentState[Any]):
    notes: list[str]


class Meddles(AgentMiddleware[Any, Any, Any]):
    """Changes all it is given, in place."""

    state_schema = Noting

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        for message in state["messages"]:
            message.content = "forged"
        if "notes" in state:
            state["notes"].append("forged")
            return None
        return {"notes": ["kept"]}


async def test_what_a_hook_changes_in_place_ends_with_its_turn(bench: Make) -> None:
    """05 §13: what counts is what a hook returns."""
    b = bench(SPEC, [AIMessage("one"), AIMessage("two")], middleware=MiddlewareChain((Meddles(),)))
    await b.send("hello")
    await b.send("again")
    state = (await b.agent.folder.look("s1")).state
    assert state is not None and state.middleware == {"notes": ["kept"]}
    assert [message["text"] for message in state.messages] == ["hello", "one", "again", "two"]
    assert state.rendered == []


async def test_what_a_handler_does_to_an_event_reaches_no_state(bench: Make) -> None:
    """05 §7: handlers may redact what they are told."""
    b = bench(SPEC, [raw_call("touch", n=7), AIMessage("one"), AIMessage("two")])

    def redact(event: JsonObject) -> None:
        if "args" in event:
            event["args"].clear()

    b.watch(redact)
    await b.send()
    outcome = await b.send("again")
    calls = [call for message in outcome.transcript for call in message.get("calls", ())]
    assert [call["args"] for call in calls] == [{"n": 7}]


async def test_a_tool_that_outlives_its_turn_changes_nothing(bench: Make) -> None:
    """03 §5: a state is what the log says, and the log of an ended turn is closed."""
    b = bench(SPEC, [AIMessage("one")])
    async with b.agent.folder.hold("late"):
        state, log = await b.agent.folder.open("late", b.agent.assembly.spec.slug)
        rec = Recorder(state, log, EventStream(None))
        rec.add("vars", set={"a": 1})
        await rec.end({"kind": "seeded"})
        with pytest.raises(RuntimeError, match="has ended"):
            rec.add("vars", set={"a": 2})
    assert state.values == {"a": 1} and not rec.pending


def state(messages: int) -> SessionState:
    made = SessionState("s", "w")
    made.messages = [{} for _ in range(messages)]
    return made


def test_what_is_remembered_is_bounded_but_for_the_newest() -> None:
    """Memory follows messages, not sessions."""
    cache = StateCache(max_messages=100)
    for turn in range(5):
        cache.put(("s", "life", turn), state(40))
    assert [turn for turn in range(5) if cache.get(("s", "life", turn))] == [3, 4]
    cache.put(("long", "life", 1), state(1000))
    assert cache.get(("s", "life", 4)) is None
    assert cache.take(("long", "life", 1)) is not None
    assert cache.take(("long", "life", 1)) is None
    cache.put(("s", "life", 9), state(40))
    cache.put(("s", "life", 9), state(40))
    assert cache.get(("s", "life", 9)) is not None
    heavy = state(1)
    heavy.files = {"a": {"text": "x" * 200_000}}
    cache.put(("heavy", "life", 1), heavy)
    cache.put(("heavy", "life", 2), state(80))
    assert cache.get(("heavy", "life", 1)) is None
