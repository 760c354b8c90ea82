"""What an agent without an event handler shows: one line per event on standard error (03 §20)."""

from __future__ import annotations

import sys
from typing import Final

from core.jsontext import JsonObject, text

#: events that would drown the others
_SILENT: Final = frozenset(
    {
        "tool-called",
        "tool-result",
        "agent-text",
        "agent-text-delta",
        "model-usage",
        "grader-start",
        "grader-result",
    }
)
_INTERPRETER: Final = frozenset({"interpreter-enabled", "code-start", "code-output", "code-result"})
_ENVELOPE: Final = frozenset({"type", "level", "ts", "seq"})
_LONGEST: Final = 200


def print_event(event: JsonObject) -> None:
    """`[workflow] advance from=… to=…`, or `[interpreter] …`; nothing for the events nobody wants to read by the dozen."""
    line = line_of(event)
    if line is not None:
        print(line, file=sys.stderr)


def line_of(event: JsonObject) -> str | None:
    if event["type"] in _SILENT:
        return None
    label = "interpreter" if event["type"] in _INTERPRETER else "workflow"
    fields = (f"{name}={_shown(value)}" for name, value in event.items() if name not in _ENVELOPE)
    return " ".join([f"[{label}] {event['type']}", *fields])


def _shown(value: object) -> str:
    """On one line, with nothing a terminal would act on."""
    said = value if isinstance(value, str) else text(value)
    said = " ".join("".join(char if char.isprintable() else " " for char in said).split())
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
