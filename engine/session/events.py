"""Events: what a change makes visible (03 §20).

Events are derived, not stored beside what they tell: an `agent-text` comes from the message, a `tool-result` from the
result. Whoever folds a log can give every event again, in order, after any crash. The envelope (`ts`, `seq`,
`sessionId`, `subWorkflowDispatchId`) belongs to the one who delivers; `level` is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.jsontext import JsonObject
from engine.session.messages import call_arguments
from engine.session.state import SessionState

#: bytes of a result shown in `tool-result`
PREVIEW_BYTES = 4096

EVENT_TYPES = (
    "interpreter-enabled",
    "skills-loaded",
    "graph-topology",
    "prompt-shaping",
    "warning",
    "workflow-reset",
    "state-enter",
    "state-leave",
    "advance",
    "state-error-routed",
    "raised",
    "code-start",
    "code-output",
    "code-result",
    "grader-start",
    "grader-result",
    "parked",
    "decided",
    "delivered",
    "park-message",
    "agent-text",
    "agent-text-delta",
    "tool-called",
    "tool-result",
    "tool-blocked",
    "variables-set",
    "title-set",
    "sub-workflow-start",
    "sub-workflow-result",
    "model-usage",
)


def level_of(event: Mapping[str, Any]) -> str:
    """`info`, or `warn` for what an operator wants to notice."""
    kind = event["type"]
    if kind in ("warning", "raised", "tool-blocked"):
        return "warn"
    if kind in ("tool-result", "sub-workflow-result") and event.get("status") == "error":
        return "warn"
    if kind in ("code-result", "grader-result") and event.get("status") == "failed":
        return "warn"
    return "info"


def preview(text: str, limit: int = PREVIEW_BYTES) -> tuple[str, bool]:
    """The first `limit` bytes of `text`, whole characters only, and whether anything is missing."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text, False
    return raw[:limit].decode("utf-8", "ignore"), True


def events_of(change: Mapping[str, Any], state: SessionState) -> list[JsonObject]:
    """The events of one change that has just been folded into `state`."""
    kind = change["t"]
    if kind == "ev":
        return [dict(change["e"])]
    if kind == "message":
        message = change["m"]
        if message["role"] == "assistant" and message["text"].strip() and not message.get("seeded"):
            return [
                {
                    "type": "agent-text",
                    "state": state.position,
                    "text": message["text"],
                    "messageId": message["id"],
                }
            ]
        return []
    if kind == "usage":
        if not change["add"]:
            return []
        event: JsonObject = {"type": "model-usage", "state": state.position, **change["add"]}
        if change.get("model"):
            event["model"] = change["model"]
        return [event]
    if kind == "called":
        event = {
            "type": "tool-called",
            "state": state.position,
            "tool": change["tool"],
            "callId": change["id"],
            "args": change["args"] if "args" in change else _written_args(state, change["id"]),
        }
        return [_with_origin(event, change)]
    if kind == "result":
        if change.get("quiet"):
            return []
        if change.get("blocked"):
            event = {
                "type": "tool-blocked",
                "state": state.position,
                "tool": change["tool"],
                "reason": change["text"],
                "callId": change["id"],
                "args": change["args"] if "args" in change else _written_args(state, change["id"]),
            }
            return [_with_origin(event, change)]
        output, truncated = preview(change["text"])
        event = {
            "type": "tool-result",
            "state": state.position,
            "tool": change["tool"],
            "callId": change["id"],
            # a refused advance reads as an ordinary answer to the model and as an error to watchers (03 §6)
            "status": "ok" if change["ok"] and not change.get("refused") else "error",
            "durationMs": change.get("ms", 0),
            "output": output,
            "truncated": truncated,
        }
        return [_with_origin(event, change)]
    return []


def _written_args(state: SessionState, call_id: str) -> JsonObject:
    call = state.call(call_id)
    return call_arguments(call) if call is not None else {}


def _with_origin(event: JsonObject, change: Mapping[str, Any]) -> JsonObject:
    if change.get("origin"):
        event["origin"] = change["origin"]
    return event
