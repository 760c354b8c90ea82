"""A delegation tool as the calling model is told of it (04 §2)."""

from __future__ import annotations

from core.jsontext import JsonObject
from engine.spec.model import Spec, Trigger
from engine.spec.signatures import signature_json_schema


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def input_schema(trigger: Trigger) -> JsonObject:
    """The published signature, each input marked as a locked variable; further arguments are allowed."""
    schema = signature_json_schema(trigger.requires)
    for entry in trigger.requires:
        own = f"{_sentence(entry.description)} " if entry.description else ""
        schema["properties"][entry.name]["description"] = f"{own}Seeded as a locked variable."
    schema["additionalProperties"] = True
    return schema


def description(spec: Spec, trigger: Trigger) -> str:
    """In the contract's order; never the target's instructions."""
    parts: list[str] = []
    if trigger.description:
        parts.append(_sentence(trigger.description))
    title = f" ({spec.title})" if spec.title else ""
    parts.append(
        f"Runs workflow '{spec.slug}'{title} to completion as its own session; you stay where you are."
    )
    if trigger.requires:
        parts.append(f"Requires: {', '.join(entry.name for entry in trigger.requires)}.")
    if trigger.returns:
        names = ", ".join(entry.name for entry in trigger.returns)
        parts.append(
            f"Answers {{message, returns}} with {names} under returns; what a run left unset is named in returns.note."
        )
    else:
        parts.append("Answers its closing message.")
    parts.append(
        "One call runs it once; several calls in one message run side by side. A failed call fails this state when you "
        "finish, unless a later call of the same workflow here succeeds; each success recovers one failure."
    )
    return " ".join(parts)
