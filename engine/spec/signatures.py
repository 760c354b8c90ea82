"""Signatures: what a trigger asks for and promises, and the one judge of a value against its type.

Used at the turn boundary, the write, the completion and the delegation call alike; nothing else in the project
decides whether a value conforms. Nothing is coerced, and a typed entry never takes null.

Contract: 01 §8.3-8.5, 05 §11.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from core.jsontext import Json, JsonObject
from core.paths import canonical
from engine.spec.model import SignatureEntry, SignatureType, Spec
from engine.spec.paths import variable_name_ok

Found: TypeAlias = Literal["string", "number", "boolean", "null", "object", "array"]

SIGNATURE_TYPES: Final[tuple[SignatureType, ...]] = (
    "string",
    "integer",
    "number",
    "boolean",
    "date",
    "date-time",
    "object",
    "array",
    "file",
)

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_DATE_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:[Zz]|[+-]([0-9]{2}):([0-9]{2}))"
)
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class ValueIssue:
    """One entry that does not hold. `type` and `found` are set on an `invalid` one."""

    kind: Literal["missing", "invalid"]
    name: str
    message: str
    type: SignatureType | None = None
    found: Found | None = None

    def to_json(self) -> JsonObject:
        issue: JsonObject = {"kind": self.kind, "name": self.name}
        if self.kind == "invalid":
            issue |= {"type": self.type, "found": self.found}
        return issue | {"message": self.message}


@dataclass(frozen=True, slots=True)
class TriggerSignature:
    """What a caller of a trigger sees."""

    requires: tuple[SignatureEntry, ...]
    returns: tuple[SignatureEntry, ...]
    description: str | None = None


def normalize_signature(entries: Json) -> tuple[SignatureEntry, ...]:
    """The entries of a `requires` or `returns` list in both spellings; what is malformed is left out."""
    if not isinstance(entries, (list, tuple)):
        return ()
    found = (_normalize_entry(entry) for entry in entries)
    return tuple(entry for entry in found if entry is not None)


def _normalize_entry(entry: Json) -> SignatureEntry | None:
    if isinstance(entry, SignatureEntry):
        return entry
    if isinstance(entry, str):
        return SignatureEntry(entry) if variable_name_ok(entry) else None
    if not isinstance(entry, dict) or not variable_name_ok(entry.get("name")):
        return None
    given = entry.get("type")
    description = entry.get("description")
    return SignatureEntry(
        entry["name"],
        next((known for known in SIGNATURE_TYPES if known == given), None),
        description.strip() if isinstance(description, str) and description.strip() else None,
    )


def signature_for_trigger(spec: Spec, trigger_id: str) -> TriggerSignature | None:
    """The signature of a declared trigger, or None."""
    trigger = spec.trigger(trigger_id)
    return (
        None if trigger is None else TriggerSignature(trigger.requires, trigger.returns, trigger.description)
    )


def signature_json_schema(entries: Iterable[SignatureEntry]) -> JsonObject:
    """An object schema: one property per entry in order, every name required."""
    listed = list(entries)
    return {
        "type": "object",
        "properties": {entry.name: _property_schema(entry) for entry in listed},
        "required": [entry.name for entry in listed],
    }


def _property_schema(entry: SignatureEntry) -> JsonObject:
    schema: JsonObject = {}
    match entry.type:
        case None:
            pass
        case "date" | "date-time":
            schema = {"type": "string", "format": entry.type}
        case "file":
            schema = {"type": "string"}
        case _:
            schema = {"type": entry.type}
    if entry.description is not None:
        schema["description"] = entry.description
    return schema


def signature_value_issues(entries: Sequence[SignatureEntry], values: Mapping[str, Json]) -> list[ValueIssue]:
    """What is missing or mistyped among `values`: at most one issue an entry, in declaration order."""
    issues: list[ValueIssue] = []
    for entry in entries:
        if entry.name not in values:
            issues.append(ValueIssue("missing", entry.name, f"'{entry.name}' is not set"))
            continue
        value = values[entry.name]
        if entry.type is not None and not conforms(entry.type, value):
            found = kind_of(value)
            issues.append(
                ValueIssue(
                    "invalid",
                    entry.name,
                    f"'{entry.name}' must be {_PHRASE[entry.type]}, not {_found_phrase(value, found)}",
                    entry.type,
                    found,
                )
            )
    return issues


def conforms(type_: SignatureType, value: Json) -> bool:
    """Whether `value` is one of the type, by shape alone (for `file`: a path, existing or not)."""
    return _JUDGES[type_](value)


def kind_of(value: Json) -> Found:
    """The JSON kind of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, (list, tuple)) else "object"


def date_ok(text: str) -> bool:
    """Whether `text` is `YYYY-MM-DD` and a day of the calendar."""
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = (int(part) for part in match.groups())
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1]:
        return False
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return leap or (month, day) != (2, 29)


def date_time_ok(text: str) -> bool:
    """Whether `text` is an RFC 3339 date-time with its offset; a leap second is one."""
    match = _DATE_TIME.fullmatch(text)
    if match is None or not date_ok(match[1]):
        return False
    hour, minute, second, offset_hour, offset_minute = (int(part or 0) for part in match.groups()[1:])
    return hour <= 23 and minute <= 59 and second <= 60 and offset_hour <= 23 and offset_minute <= 59


def file_path_ok(text: str) -> bool:
    """Whether `text` is shaped as the workspace-relative path of a file."""
    if text != text.strip() or text.endswith("/") or any(char in text for char in "\0\n\r"):
        return False
    path = canonical(text)
    return bool(path.text) and not path.escaping


def _is_number(value: Json) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _is_integer(value: Json) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _text_judge(judge: Callable[[str], bool]) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, str) and judge(value)


_JUDGES: Final[Mapping[SignatureType, Callable[[Json], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "date": _text_judge(date_ok),
    "date-time": _text_judge(date_time_ok),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, (list, tuple)),
    "file": _text_judge(file_path_ok),
}
_PHRASE: Final[Mapping[SignatureType, str]] = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "date": "a date (YYYY-MM-DD)",
    "date-time": "a date-time with an offset (2031-05-09T10:00:00Z)",
    "object": "an object",
    "array": "an array",
    "file": "the workspace path of a file",
}


def _found_phrase(value: Json, found: Found) -> str:
    if isinstance(value, str):
        shown = value if len(value) <= 60 else f"{value[:60]}…"
        return f"the string {shown!r}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and abs(value) < 1e15:
        return f"the number {value}"
    return {"number": "this number", "null": "null"}.get(found, f"an {found}")
