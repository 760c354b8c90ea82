"""A long session's next turn costs what is new: its state is remembered, and never anybody else's to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from engine.host.agent import Agent
from engine.host.session_folder import SessionFolder
from engine.session.state import Commit, SessionState
from engine.session.state_cache import StateCache
from engine.turn.recorder import EventStream
from tests.support.engine import Bench, bench

__all__ = ["bench"]
Make = Callable[..., Bench]

SPEC = """
title: Desk
states: { work: { triggers: { manual: } } }
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
    assert await fresh.sessions.state("s1") == await b.agent.folder.look("s1")


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
    b = bench(SPEC, [AIMessage("one"), AIMessage("two")])
    await b.agent.send("s1", message="hello")
    assert await b.agent.sessions.delete("s1")
    assert await b.agent.folder.look("s1") is None


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
