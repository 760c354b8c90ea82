"""The transcript's own message form, and its two renderings: LangChain's for models, the contract's for readers.

A message is a JSON object, so that the log stores what the state holds:

    {"role": "user", "id", "text", "content"?, "note"?}            note only for a child's `opening`
    {"role": "assistant", "id", "text", "content"?, "calls"?, "extra"?}
    {"role": "tool", "id" (the call's), "tool", "text", "status", "blocked"?}
    {"role": "note", "id", "kind", "text"}

A call is `{"id", "name", "args"}`, or `{"id", "name", "raw", "fault"}` when the model's arguments were no JSON object.
A runtime note is one entry here and becomes the pair of 03 §12 on the way out: an assistant message with one
`archmax_note` call and the tool message that answers it, both marked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.ids import fresh_id
from core.jsontext import MAX_DEPTH, Json, JsonObject, too_deep, well_formed

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage

NOTE_TOOL = "archmax_note"
MARK = "archmax"
BLOCKED_MARK = "governance_blocked"
#: content blocks that repeat a message's calls
_CALL_BLOCKS = ("tool_use", "tool_call", "input_json_delta")
#: `additional_kwargs` and `response_metadata` a provider needs to see again (reasoning signatures and the like)
_KEPT_EXTRA = ("reasoning_content", "thinking", "refusal", "thought_signature")


def new_id(prefix: str) -> str:
    return f"{prefix}-{fresh_id(20)}"


def user_message(text: str, *, message_id: str | None = None, note: str | None = None) -> JsonObject:
    message: JsonObject = {"role": "user", "id": message_id or new_id("u"), "text": well_formed(text)}
    if note:
        message["note"] = note
    return message


def note_message(kind: str, text: str) -> JsonObject:
    return {"role": "note", "id": new_id("n"), "kind": kind, "text": well_formed(text)}


def tool_message(
    call_id: str, tool: str, text: str, *, error: bool = False, blocked: bool = False
) -> JsonObject:
    message: JsonObject = {
        "role": "tool",
        "id": call_id,
        "tool": tool,
        "text": well_formed(text),
        "status": "error" if error else "ok",
    }
    if blocked:
        message["blocked"] = True
    return message


def text_of(content: Any) -> str:
    """Flatten a LangChain content value to text: strings and the text of text blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts: list[str] = []
        for block in content:
            if isinstance(block, str):
                parts.append(block)
            elif isinstance(block, Mapping) and block.get("type") in ("text", "output_text"):
                parts.append(str(block.get("text", "")))
        return "".join(parts)
    return ""


def refusal_of(answer: AIMessage) -> str:
    """The words of a refusal that a provider keeps apart from an answer's text; empty when there is none."""
    apart = answer.additional_kwargs.get("refusal")
    if isinstance(apart, str) and apart:
        return apart
    blocks = answer.content if isinstance(answer.content, list) else ()
    return "".join(
        str(block.get("refusal", ""))
        for block in blocks
        if isinstance(block, Mapping) and block.get("type") == "refusal"
    )


def assistant_message(answer: AIMessage, *, taken_ids: Iterable[str] = ()) -> JsonObject:
    """A model's answer in the transcript's form.

    Every call gets an id no other call of the transcript has: providers refuse a doubled or missing one. Arguments
    that were no JSON object are kept as the text that came, never replaced by invented ones.
    """
    seen = set(taken_ids)
    calls: list[JsonObject] = []
    raw_calls: list[tuple[str | None, str, Json, str | None]] = [
        (call.get("id"), call["name"], call["args"], None) for call in answer.tool_calls
    ]
    raw_calls += [
        (bad.get("id"), bad.get("name") or "", bad.get("args") or "", bad.get("error") or "not a JSON object")
        for bad in answer.invalid_tool_calls
    ]
    for call_id, name, args, fault in raw_calls:
        unique = call_id if call_id and call_id not in seen else new_id("call")
        seen.add(unique)
        if not isinstance(args, str) and too_deep(args):
            args, fault = "{…}", f"nested more than {MAX_DEPTH} levels deep"
        if fault is None and isinstance(args, dict):
            calls.append({"id": unique, "name": name, "args": args})
        else:
            raw = args if isinstance(args, str) else json.dumps(args)
            calls.append(
                {"id": unique, "name": name, "raw": well_formed(raw), "fault": fault or "not a JSON object"}
            )
    text = well_formed(text_of(answer.content) or refusal_of(answer))
    message: JsonObject = {"role": "assistant", "id": answer.id or new_id("a"), "text": text}
    if isinstance(answer.content, list):
        # calls are kept above, under ids and arguments that may differ from what a provider's own blocks say
        blocks = [
            block
            for block in answer.content
            if not (isinstance(block, Mapping) and block.get("type") in _CALL_BLOCKS)
        ]
        if any(isinstance(block, Mapping) and block.get("type") != "text" for block in blocks):
            message["content"] = blocks
    if calls:
        message["calls"] = calls
    extra = {key: answer.additional_kwargs[key] for key in _KEPT_EXTRA if answer.additional_kwargs.get(key)}
    if extra:
        message["extra"] = extra
    return message


def call_arguments(call: Mapping[str, Any]) -> JsonObject:
    """What a call carries towards a model or reader: its arguments, or `{}` beside an unreadable text."""
    args = call.get("args")
    return args if isinstance(args, dict) else {}


def to_langchain(message: Mapping[str, Any]) -> list[BaseMessage]:
    """One transcript entry as the messages a provider is sent."""
    # whoever only reads sessions (the API, listings) needs no model library
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    role = message["role"]
    if role == "user":
        kwargs: JsonObject = {MARK: {"note": message["note"]}} if message.get("note") else {}
        return [
            HumanMessage(
                message.get("content") or message["text"], id=message["id"], additional_kwargs=kwargs
            )
        ]
    if role == "assistant":
        calls = message.get("calls", ())
        if not calls and not message.get("content") and not message["text"].strip():
            return []  # an empty answer: providers refuse to be shown one
        return [
            AIMessage(
                content=message.get("content") or message["text"],
                id=message["id"],
                tool_calls=[
                    {
                        "name": call["name"] or "unknown",
                        "args": call_arguments(call),
                        "id": call["id"],
                        "type": "tool_call",
                    }
                    for call in calls
                ],
                additional_kwargs=dict(message.get("extra", {})),
            )
        ]
    if role == "tool":
        kwargs = {MARK: {BLOCKED_MARK: True}} if message.get("blocked") else {}
        return [
            ToolMessage(
                content=message["text"],
                tool_call_id=message["id"],
                name=message["tool"],
                status="error" if message["status"] == "error" else "success",
                additional_kwargs=kwargs,
            )
        ]
    kwargs = {MARK: {"note": message["kind"]}}
    call_id = message["id"]
    return [
        AIMessage(
            content="",
            id=f"{call_id}-a",
            tool_calls=[{"name": NOTE_TOOL, "args": {}, "id": call_id, "type": "tool_call"}],
            additional_kwargs=kwargs,
        ),
        ToolMessage(content=message["text"], tool_call_id=call_id, name=NOTE_TOOL, additional_kwargs=kwargs),
    ]


def from_langchain(messages: Sequence[Any]) -> list[JsonObject]:
    """Role-tagged earlier messages a host seeds on a first turn: text only (03 §2.4).

    Accepts LangChain messages, `{role, content}` mappings and `(role, text)` pairs. Raises `ValueError`.
    """
    seeded: list[JsonObject] = []
    for item in messages:
        role, content = _role_and_content(item)
        text = text_of(content)
        if role in ("user", "human"):
            seeded.append(user_message(text))
        elif role in ("assistant", "ai"):
            # marked, because what an earlier system said is no part of this turn's reply
            seeded.append({"role": "assistant", "id": new_id("a"), "text": well_formed(text), "seeded": True})
        else:
            raise ValueError(
                f"a seeded message has role {role!r}; only user and assistant messages can be seeded"
            )
    return seeded


def _role_and_content(item: Any) -> tuple[str, Any]:
    from langchain_core.messages import BaseMessage, SystemMessage

    if isinstance(item, SystemMessage):
        return "system", item.content
    if isinstance(item, BaseMessage):
        return item.type, item.content
    if isinstance(item, Mapping):
        return str(item.get("role", item.get("type", ""))), item.get("content", item.get("text", ""))
    if isinstance(item, tuple) and len(item) == 2:
        return str(item[0]), item[1]
    return "user", str(item)


def history_entry(message: Mapping[str, Any]) -> JsonObject:
    """One entry of `archmax_get_history` and of the API's history (03 §9.7)."""
    role = message["role"]
    if role == "note":
        return {"role": "runtime", "text": message["text"], "note": message["kind"]}
    if role == "user" and message.get("note"):
        return {"role": "runtime", "text": message["text"], "note": message["note"]}
    if role == "tool":
        return {"role": "tool", "text": message["text"], "tool": message["tool"], "id": message["id"]}
    entry: JsonObject = {"role": role, "text": message["text"]}
    calls = message.get("calls")
    if calls:
        entry["toolCalls"] = [
            {"id": call["id"], "name": call["name"], "args": call.get("args", call.get("raw"))}
            for call in calls
        ]
    return entry
