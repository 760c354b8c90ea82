"""Readers of runtime notes for hosts (03 §12): who wrote a message, where a turn opens, what the agent said.

Duck-typed: they take LangChain messages, their serialised forms, `{role, content}` mappings, and the transcript's own
form. The marker decides authorship; brackets in a person's text decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.session.messages import MARK, text_of


def _field(message: Any, name: str) -> Any:
    if isinstance(message, Mapping):
        if name in message:
            return message[name]
        inner = message.get("kwargs") or message.get("data")  # LangChain's serialised forms
        return inner.get(name) if isinstance(inner, Mapping) else None
    return getattr(message, name, None)


def _role(message: Any) -> str:
    role = _field(message, "role") or _field(message, "type") or ""
    if role == "constructor" and isinstance(message, Mapping):
        role = str((message.get("id") or [""])[-1]).removesuffix("Chunk").removesuffix("Message").lower()
    return {"human": "user", "ai": "assistant"}.get(str(role), str(role))


def runtime_note_kind(message: Any) -> str | None:
    """The note's kind, or None when the runtime did not write this message."""
    if isinstance(message, Mapping) and message.get("role") == "note":
        return str(message.get("kind"))
    if isinstance(message, Mapping) and isinstance(message.get("note"), str):
        return str(message["note"])
    extra = _field(message, "additional_kwargs")
    mark = extra.get(MARK) if isinstance(extra, Mapping) else None
    note = mark.get("note") if isinstance(mark, Mapping) else None
    return note if isinstance(note, str) else None


def is_runtime_note(message: Any) -> bool:
    return runtime_note_kind(message) is not None


def opens_turn(message: Any) -> bool:
    """A person's own message, or a child's opening note: where a turn begins in the transcript."""
    return _role(message) == "user" and runtime_note_kind(message) in (None, "opening")


def _text(message: Any) -> str:
    content = _field(message, "content")
    return text_of(content) if content is not None else str(_field(message, "text") or "")


def last_agent_text(messages: Sequence[Any]) -> str:
    """The agent's last non-blank text, notes excluded; empty when it said nothing."""
    for message in reversed(messages):
        if _role(message) == "assistant" and not is_runtime_note(message):
            text = _text(message)
            if text.strip():
                return text
    return ""


def messages_since(messages: Sequence[Any], cursor: int) -> list[Any]:
    """What came after a transcript length read earlier with `sessions.message_count`."""
    return list(messages[max(cursor, 0) :])


def last_turn(messages: Sequence[Any]) -> list[Any]:
    """From the last message that opens a turn to the end; everything when none does."""
    for index in range(len(messages) - 1, -1, -1):
        if opens_turn(messages[index]):
            return list(messages[index:])
    return list(messages)
