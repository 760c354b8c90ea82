"""Runtime notes, their carrier and readers; message forms and history entries (03 §9.7, §12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from engine.session.messages import assistant_message, history_entry, note_message, to_langchain, user_message
from engine.session.notes import (
    is_runtime_note,
    last_agent_text,
    last_turn,
    messages_since,
    opens_turn,
    runtime_note_kind,
)
from tests.support.engine import Bench, advance_to, call, do, say

Make = Callable[..., Bench]


def test_a_note_is_an_assistant_message_with_one_call_and_its_answer() -> None:
    """03 §12: empty text, `archmax_note`, both marked; never a human or system message."""
    asked, told = to_langchain(note_message("decision", "[decision] yes"))
    assert isinstance(asked, AIMessage) and isinstance(told, ToolMessage)
    assert asked.content == "" and [c["name"] for c in asked.tool_calls] == ["archmax_note"]
    assert told.content == "[decision] yes" and told.tool_call_id == asked.tool_calls[0]["id"]
    assert (
        asked.additional_kwargs["archmax"]["note"] == told.additional_kwargs["archmax"]["note"] == "decision"
    )


def test_the_opening_note_alone_has_the_human_role() -> None:
    """03 §12."""
    (message,) = to_langchain(user_message("Begin.", note="opening"))
    assert isinstance(message, HumanMessage) and message.additional_kwargs["archmax"]["note"] == "opening"


FORMS: list[Callable[[Any], Any]] = [lambda m: m, dumpd, lambda m: {"type": m.type, "data": m.model_dump()}]


@pytest.mark.parametrize("form", FORMS)
def test_the_readers_take_messages_in_every_form(form: Callable[[Any], Any]) -> None:
    """03 §12: LangChain objects and serialised forms."""
    note = [form(m) for m in to_langchain(note_message("event", "[event] x"))]
    person = form(HumanMessage("[event] I am a person"))
    opening = form(to_langchain(user_message("Begin.", note="opening"))[0])
    agent = form(AIMessage("hello"))
    assert [runtime_note_kind(m) for m in (*note, opening, person, agent)] == [
        "event",
        "event",
        "opening",
        None,
        None,
    ]
    assert [is_runtime_note(m) for m in (*note, person)] == [True, True, False]
    assert [opens_turn(m) for m in (person, opening, agent, *note)] == [True, True, False, False, False]
    assert last_agent_text([person, agent, *note]) == "hello"
    assert last_turn([person, agent, person, *note]) == [person, *note]
    assert messages_since([person, agent, *note], 2) == note


def test_the_readers_take_role_and_content_mappings() -> None:
    """03 §12: `{role, content}`."""
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "assistant", "content": " "},
    ]
    assert last_agent_text(said) == "yes" and opens_turn(said[0]) and last_turn(said) == said
    assert last_agent_text([]) == "" and last_turn([]) == []


def test_history_entries_have_the_contracts_fields() -> None:
    """03 §9.7: a note pair becomes one `runtime` entry; unreadable arguments are shown as they came."""
    answer = AIMessage(
        "hm",
        tool_calls=[{"name": "touch", "args": {"n": "${{n}}"}, "id": "c1"}],
        invalid_tool_calls=[
            {"name": "touch", "args": "{", "id": "c2", "error": "cut", "type": "invalid_tool_call"}
        ],
    )
    assert history_entry(assistant_message(answer)) == {
        "role": "assistant",
        "text": "hm",
        "toolCalls": [
            {"id": "c1", "name": "touch", "args": {"n": "${{n}}"}},
            {"id": "c2", "name": "touch", "args": "{"},
        ],
    }
    assert history_entry(note_message("code", "[code] x")) == {
        "role": "runtime",
        "text": "[code] x",
        "note": "code",
    }
    assert history_entry(user_message("Begin.", note="opening")) == {
        "role": "runtime",
        "text": "Begin.",
        "note": "opening",
    }
    assert history_entry(user_message("hi")) == {"role": "user", "text": "hi"}


def test_ids_are_never_doubled_and_bad_text_is_made_whole() -> None:
    """A provider's doubled, missing or earlier used id is replaced; lone surrogates become U+FFFD."""
    calls = [{"name": "a", "args": {}, "id": i} for i in ("x", "x", None, "old")]
    message = assistant_message(AIMessage("\ud800", tool_calls=calls), taken_ids={"old"})
    ids = [c["id"] for c in message["calls"]]
    assert ids[0] == "x" and len(set(ids)) == 4 and "old" not in ids and all(ids)
    assert message["text"] == "�"


def test_a_providers_own_call_blocks_never_contradict_the_calls() -> None:
    """03 §14, H12: ids that were replaced and arguments that were refused stand in no other form beside the calls."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    content: list[str | dict[str, Any]] = [
        thought,
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "x", "name": "a", "input": {"n": 1}},
    ]
    answer = AIMessage(content, tool_calls=[{"name": "a", "args": {"n": 1}, "id": "x"}])
    message = assistant_message(answer, taken_ids={"x"})
    assert message["content"] == [thought, {"type": "text", "text": "so"}]
    (shown,) = to_langchain(message)
    assert isinstance(shown, AIMessage) and [call["id"] for call in shown.tool_calls] != ["x"]
    assert "content" not in assistant_message(AIMessage(content[1:], tool_calls=answer.tool_calls))


async def test_notes_are_no_part_of_the_reply_nor_of_the_calls_an_agent_made(bench: Make) -> None:
    """03 §12: in the outcome's messages they are marked; in `reply` they are not."""
    spec = """
        states:
          intake: { triggers: { manual: }, transitions: [{ to: gate, description: g }] }
          gate: { type: human, instructions: L, transitions: [{ to: end, description: e }] }
          end: { budget: { maxTurns: 9 } }
    """
    b = bench(
        spec, [do(advance_to("gate")), say("look"), do(call("archmax_get_variables"), text="a"), say("b")]
    )
    await b.send("hi")
    outcome = await b.decide("end")
    assert outcome.reply == "a\n\nb"
    own = [m for m in outcome.messages if not is_runtime_note(m)]
    names = [c["name"] for m in own if isinstance(m, AIMessage) for c in m.tool_calls]
    assert names == ["archmax_advance", "archmax_get_variables"]
    assert [runtime_note_kind(m) for m in outcome.messages if is_runtime_note(m)] == ["decision", "decision"]
