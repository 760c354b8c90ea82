"""The arguments a model wrote for a tool call, read strictly.

LangChain completes the JSON of a streamed call that was cut short, and takes `null` for no arguments: the tool would
run with arguments nobody wrote. Here a call is good only when its text is a whole JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall

from core.jsontext import MAX_DEPTH, JsonObject, too_deep
from engine.spec.signatures import kind_of

TOO_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def read_arguments(raw: str | None) -> JsonObject | str:
    """The object, or the reason there is none. Blank text is how providers write a call without arguments."""
    if raw is None or not raw.strip():
        return {}
    try:
        # Raw line breaks inside a string are common and unambiguous, so they pass.
        value = json.loads(raw, strict=False, parse_constant=_no_constant)
    except RecursionError:
        return TOO_DEEP
    except ValueError as error:
        return f"not valid JSON: {error}"
    if not isinstance(value, dict):
        return f"a JSON {kind_of(value)}, not an object"
    return TOO_DEEP if too_deep(value) else value


def calls_of(
    raw_calls: Sequence[tuple[str | None, str | None, str | None]],
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Sort `(id, name, arguments' text)` into calls that can run and calls that cannot. Order is kept in each."""
    good: list[ToolCall] = []
    bad: list[InvalidToolCall] = []
    for call_id, name, raw in raw_calls:
        args = read_arguments(raw)
        if isinstance(args, dict):
            good.append(ToolCall(name=name or "", args=args, id=call_id, type="tool_call"))
        else:
            bad.append(InvalidToolCall(name=name, args=raw, id=call_id, error=args, type="invalid_tool_call"))
    return good, bad


def whole_message(chunk: AIMessageChunk) -> AIMessage:
    """The message a finished stream adds up to, its calls read strictly."""
    if chunk.tool_call_chunks:
        good, bad = calls_of([(call["id"], call["name"], call["args"]) for call in chunk.tool_call_chunks])
    else:
        good, bad = chunk.tool_calls, chunk.invalid_tool_calls
    return AIMessage(
        content=chunk.content,
        additional_kwargs=chunk.additional_kwargs,
        response_metadata=chunk.response_metadata,
        name=chunk.name,
        id=chunk.id,
        tool_calls=good,
        invalid_tool_calls=bad,
        usage_metadata=chunk.usage_metadata,
    )


def wire_calls(message: Mapping[str, Any]) -> list[tuple[str | None, str | None, str | None]]:
    """The calls of a chat-completions message (a plain mapping) as `calls_of` takes them."""
    calls: list[tuple[str | None, str | None, str | None]] = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        calls.append((call.get("id"), function.get("name"), function.get("arguments")))
    return calls
