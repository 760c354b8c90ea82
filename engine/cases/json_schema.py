"""The JSON Schema of a case file, for editors. The parser is the judge: a schema cannot say everything it checks."""

from __future__ import annotations

from typing import Final

from core.jsontext import JsonObject
from engine.cases.document import CASE_DESCRIPTION_MAX_LENGTH, CASE_TITLE_MAX_LENGTH, TRAIL_KINDS
from engine.cases.parse_steps import CHANNELS, STATUSES

SCHEMA_ID: Final = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Final[JsonObject] = {"type": "string", "minLength": 1}
_TRUE: Final[JsonObject] = {"const": True}
_ANY_TEXT: Final[JsonObject] = {"type": "string"}


def case_json_schema() -> JsonObject:
    variables: JsonObject = {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"},
        "description": "Variables the session starts with, locked.",
    }
    return {
        "$schema": SCHEMA_ID,
        "title": "A case",
        **_object(
            {
                "title": {**_TEXT, "description": f"One line of at most {CASE_TITLE_MAX_LENGTH} characters."},
                "description": {
                    **_TEXT,
                    "description": f"At most {CASE_DESCRIPTION_MAX_LENGTH} characters, white space collapsed.",
                },
                "skip": {**_TEXT, "description": "Why the case is not run."},
                "trigger": {**_object({"id": _TEXT}, ("id",)), "description": "What every send runs under."},
                "variables": variables,
                "workspace": _workspace(),
                "mocks": {"type": "array", "items": _mock()},
                "clock": {
                    **_TEXT,
                    "description": "The day or moment the prompts say it is: YYYY-MM-DD or an RFC 3339 date-time.",
                },
                "steps": {"type": "array", "items": _step(variables)},
            },
            ("title", "description"),
        ),
    }


def _object(properties: JsonObject, required: tuple[str, ...] = ()) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def _workspace() -> JsonObject:
    return {
        "type": "object",
        "propertyNames": {"minLength": 1},
        "description": "Files of the session: text as it is, { from: path } a fixture below tests/, else JSON.",
    }


def _mock() -> JsonObject:
    return _object({"tool": _TEXT, "whenInput": {"type": "object"}, "result": {}}, ("tool",))


def _step(variables: JsonObject) -> JsonObject:
    """Exactly one key, each key with its own shape."""
    properties = {**_actions(variables), **_assertions()}
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": properties,
    }


def _actions(variables: JsonObject) -> JsonObject:
    return {
        "send": _TEXT,
        "decide": _object({"to": _TEXT, "comment": _ANY_TEXT}, ("to",)),
        "deliver": _object({"trigger": _TEXT, "variables": variables}, ("trigger",)),
    }


def _assertions() -> JsonObject:
    tokens: JsonObject = {"oneOf": [_ANY_TEXT, {"type": "array", "items": _ANY_TEXT}]}
    count: JsonObject = {"type": "integer", "minimum": 0}
    tool = _object({"name": _TEXT, "input": {"type": "object"}}, ("name",))
    return {
        "succeeded": _TRUE,
        "parked": {
            "oneOf": [
                _TRUE,
                {"enum": list(CHANNELS)},
                _object({"channel": {"enum": list(CHANNELS)}, "state": _TEXT}),
            ]
        },
        "raised": {"oneOf": [_TRUE, _TEXT, _object({"code": _TEXT, "reason": _ANY_TEXT})]},
        "reachedState": _TEXT,
        "trail": {
            **_object(
                {"to": _TEXT, "kind": {"enum": list(TRAIL_KINDS)}, "reason": _ANY_TEXT, "count": count},
                ("count",),
            ),
            "minProperties": 2,
        },
        "noTraversal": _TRUE,
        "triggerArrival": _TEXT,
        "reply": {**_object({"includes": tokens, "excludes": tokens}), "minProperties": 1},
        "calledTool": tool,
        "notCalledTool": tool,
        "blockedTool": tool,
        "ranWorkflow": _object(
            {"workflow": _TEXT, "status": {"enum": list(STATUSES)}, "count": count}, ("workflow",)
        ),
        "usedNoTools": _TRUE,
        "variables": _object(
            {
                "expect": {"type": "object"},
                "path": {"type": "object", "additionalProperties": _ANY_TEXT},
                "locked": {"type": "object", "additionalProperties": {"type": "boolean"}},
            },
            ("expect",),
        ),
        "grade": _object(
            {"closedQA": _TEXT, "atLeast": {"type": "number", "minimum": 0, "maximum": 1}},
            ("closedQA", "atLeast"),
        ),
    }
