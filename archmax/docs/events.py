"""`docs/events.md`, written from the event models; a test keeps the file true.

`python -m archmax.docs.events` writes it anew.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from engine.session.event_types import Event, event_models

PAGE = Path(__file__).resolve().parents[2] / "docs" / "events.md"

_HEAD = """\
# Events

Every event is a JSON object with `type` and the envelope below. Library handlers (`on_event`) get them as they happen, in
order, with `seq` counting per handler; the fleet streams them once their commit is durable. Delivery is a synchronous
call: a handler must not block. Every `state` is a slug. A script's source and a variable's value are in none of them,
`title-set` excepted. There is no "run finished" event: a turn's outcome says it.

This page is generated: `python -m archmax.docs.events`.
"""
_ENVELOPE = tuple(name for name in Event.model_fields)


def page() -> str:
    lines = [_HEAD, "## Envelope", "", *_table(Event, _ENVELOPE), ""]
    for kind, model in event_models().items():
        lines += [f"## `{kind}`", "", " ".join((inspect.getdoc(model) or "").split()), ""]
        own = [name for name in model.model_fields if name not in (*_ENVELOPE, "type")]
        if own:
            lines += [*_table(model, own), ""]
    return "\n".join(lines)


def _table(model: type[Event], names: Any) -> list[str]:
    rows = ["| field | type | |", "| --- | --- | --- |"]
    for name in names:
        field = model.model_fields[name]
        shown = f"`{field.alias or name}`" + ("" if field.is_required() else "?")
        rows.append(f"| {shown} | {_type(field)} | {field.description or ''} |")
    return rows


def _type(field: FieldInfo) -> str:
    return _named(field.annotation)


def _named(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    parts = [part for part in get_args(hint) if part is not type(None)]
    if type(None) in get_args(hint):
        return " or ".join(_named(part) for part in parts)
    if get_origin(hint) is list:
        return f"list of {_named(parts[0])}"
    names = {str: "text", int: "integer", float: "number", bool: "boolean"}
    return names.get(hint, "object")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
