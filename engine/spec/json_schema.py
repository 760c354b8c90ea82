"""The JSON Schema (draft 2020-12) of `workflow.yaml`, for an editor's YAML language server.

It says the shape with descriptions, choices and defaults; rules across the document are `validate`'s. Built from the
same key lists the loader checks, and a test holds the two together.
"""

from __future__ import annotations

from typing import Final

from core.jsontext import JsonObject
from engine.spec.model import RuntimeContract, Settings, TestSettings
from engine.spec.read_lists import SIGNATURE_KEYS, TOOL_ENTRY_KEYS
from engine.spec.read_root import CACHE_TTLS, ROOT_KEYS, SETTINGS_KEYS, TESTS_KEYS
from engine.spec.read_state import (
    BUDGET_KEYS,
    EDGE_TYPES,
    STATE_KEYS,
    STATE_TYPES,
    TRANSITION_KEYS,
    TRIGGER_KEYS,
)
from engine.spec.schedule import MISSED, SCHEDULE_KEY, SCHEDULE_KEYS
from engine.spec.signatures import SIGNATURE_TYPES

SCHEMA_ID: Final = "https://archmax.dev/schemas/workflow-3.json"
_SLUG: Final = "^[a-z0-9]+(-[a-z0-9]+)*$"
_VARIABLE: Final = "^[a-z][a-z0-9_]*$"
_FILLED: Final = r"\S"
_DOTTED: Final = r"^(?!.*\$\{\{)\s*[a-z][a-z0-9_]*(\.[^.]+)*\s*$"


def workflow_json_schema() -> JsonObject:
    """The schema of one document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "workflow.yaml",
        "description": "A governed agent workflow: a state machine worked by agents, people, graders and scripts.",
        **_closed(ROOT_KEYS, _root(), required=["states"]),
        "$defs": _definitions(),
    }


def _closed(
    keys: tuple[str, ...], properties: JsonObject, *, required: list[str] | None = None
) -> JsonObject:
    """A closed object; `keys` are the loader's, in their order."""
    schema: JsonObject = {
        "type": "object",
        "properties": {key: properties[key] for key in keys},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return schema


def _ref(name: str, description: str | None = None) -> JsonObject:
    reference: JsonObject = {"$ref": f"#/$defs/{name}"}
    return reference if description is None else reference | {"description": description}


def _list(item: str, description: str) -> JsonObject:
    return {"type": "array", "items": _ref(item), "description": description}


def _text(description: str, *, filled: bool = False) -> JsonObject:
    schema: JsonObject = {"type": "string", "description": description}
    return schema | {"pattern": _FILLED} if filled else schema


def _integer(least: int, description: str, default: int | None = None) -> JsonObject:
    schema: JsonObject = {"type": "integer", "minimum": least, "description": description}
    return schema if default is None else schema | {"default": default}


def _lists(allow: str, allow_item: str, forbid: str, forbid_item: str, subject: str) -> JsonObject:
    return _closed(
        (allow, forbid),
        {
            allow: _list(allow_item, f"What is granted of {subject}."),
            forbid: _list(forbid_item, f"What is denied of {subject}; a denial wins over any grant."),
        },
    )


def _governance(allow: str, forbid: str, scope: str) -> JsonObject:
    blocks = {
        "tools": _lists(allow, "toolGrant", forbid, "toolDenial", f"the tools {scope}"),
        "skills": _lists(allow, "slug", forbid, "slug", f"the skills {scope}"),
        "mounts": _lists(allow, "mountGrant", forbid, "mountName", f"the mounts {scope}"),
    }
    return {name: block | {"description": f"{name.capitalize()} {scope}."} for name, block in blocks.items()}


def _root() -> JsonObject:
    contract = RuntimeContract()
    governance = _governance("allow_always", "forbid_always", "in every state")
    governance["tools"]["properties"]["allow_always"]["description"] = (
        "What every state may call. Absent: the twelve default tools. An empty list: none."
    )
    return {
        "title": _text("A label for people; the directory's name is the identity."),
        "instructions": _text("Standing guidance in Markdown, part of every model call.", filled=True),
        "disabled": {
            "type": "boolean",
            "default": False,
            "description": "Whether the workflow starts no new turn.",
        },
        "runtime": {
            "description": "The contract the document is written for.",
            **_closed(
                ("engine", "version"),
                {
                    "engine": _text("The contract's engine.") | {"default": contract.engine},
                    "version": {
                        "type": ["string", "number"],
                        "default": contract.version,
                        "description": "The contract's version.",
                    },
                },
            ),
        },
        "settings": _settings(),
        "tests": _tests(),
        **governance,
        "metadata": _ref("metadata"),
        "states": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": _SLUG},
            "additionalProperties": {"anyOf": [{"type": "null"}, _ref("state")]},
            "description": "The states by slug, in order. At least one declares a trigger.",
        },
    }


def _settings() -> JsonObject:
    defaults = Settings()
    return {
        "description": "The model and the limits of the sandbox.",
        **_closed(
            SETTINGS_KEYS,
            {
                "model": _ref("model", "The model of every state that names none of its own."),
                "timeoutMs": _integer(
                    1, "Milliseconds one sandbox evaluation may take.", defaults.timeout_ms
                ),
                "memoryLimitBytes": _integer(1, "Bytes of memory of one sandbox."),
                "maxPtcCalls": {
                    "type": ["integer", "null"],
                    "minimum": 0,
                    "description": "Tool calls one evaluation may make; null: no limit.",
                },
                "maxResultChars": _integer(1, "Characters kept of an evaluation's result."),
                "prompt_cache": {
                    "description": "Prompt caching by the model's provider.",
                    **_closed(
                        ("enabled", "ttl"),
                        {
                            "enabled": {
                                "type": "boolean",
                                "default": True,
                                "description": "Whether it is on.",
                            },
                            "ttl": {
                                "enum": list(CACHE_TTLS),
                                "default": "5m",
                                "description": "How long an entry lives.",
                            },
                        },
                    ),
                },
            },
        ),
    }


def _tests() -> JsonObject:
    options = _closed(
        ("temperature", "maxTokens"),
        {
            "temperature": {"type": "number", "minimum": 0, "description": "Sampling temperature."},
            "maxTokens": _integer(1, "Most tokens of a verdict."),
        },
    )
    judge = _closed(
        ("model", "modelOptions"),
        {
            "model": _ref("model", "The judge's model; absent: the environment's."),
            "modelOptions": options | {"description": "Applied over the environment's."},
        },
    )
    return {
        "description": "How the workflow's cases run.",
        **_closed(
            TESTS_KEYS,
            {
                "maxConcurrency": {"const": 1, "default": 1, "description": "Cases run one at a time."},
                "caseTimeoutMs": _integer(
                    1, "Milliseconds of wall clock a case may take.", TestSettings().case_timeout_ms
                ),
                "judge": judge | {"description": "Enables grade assertions; an empty mapping will do."},
            },
        ),
    }


def _definitions() -> JsonObject:
    globs: JsonObject = {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "description": "A glob or a list of them; ${{variable}} stands for a variable's value.",
    }
    entry = _closed(
        TOOL_ENTRY_KEYS,
        {
            "tool": _text("The tool's name.", filled=True),
            "args": {
                "type": "object",
                "additionalProperties": globs,
                "description": "Argument name to globs; all must match.",
            },
            "paths": globs | {"description": "Globs for every path argument of the tool."},
            "connection": _text("Kept for the host."),
            "source": _text("Kept for the host."),
        },
        required=["tool"],
    ) | {"not": {"required": ["args", "paths"]}}
    wildcard: JsonObject = {"not": {"const": "*"}}
    return {
        "slug": {"type": "string", "pattern": _SLUG},
        "variable": {"type": "string", "pattern": _VARIABLE},
        "model": _text("A model id.", filled=True),
        "metadata": {"type": "object", "description": "Anything; never read, and no part of the spec hash."},
        "mountName": {
            "type": "string",
            "pattern": r"^(?!(.*/)?\.{1,2}(/|$))[^\s/*?\[\]{}]([^/*?\[\]{}]*[^\s/*?\[\]{}])?(/[^/*?\[\]{}]+)*$",
            "description": "A key of the mount table without its outer slashes.",
        },
        "mountGrant": {
            "anyOf": [
                _ref("mountName"),
                _closed(
                    ("mount", "access"),
                    {
                        "mount": _ref("mountName"),
                        "access": {"enum": ["read", "read_write"], "description": "What may be done there."},
                    },
                    required=["mount"],
                ),
            ]
        },
        "toolEntry": {"anyOf": [_text("A tool, with any arguments.", filled=True), entry]},
        "toolGrant": {
            "allOf": [
                _ref("toolEntry"),
                wildcard,
                {"not": {"properties": {"tool": {"const": "*"}}, "type": "object"}},
            ]
        },
        "toolDenial": _ref("toolEntry", "A tool, or * for every tool."),
        "signature": {
            "type": "array",
            "items": {
                "anyOf": [
                    _ref("variable"),
                    _closed(
                        SIGNATURE_KEYS,
                        {
                            "name": _ref("variable"),
                            "type": {"enum": list(SIGNATURE_TYPES), "description": "Absent: any value."},
                            "description": _text("What the value is.", filled=True),
                        },
                        required=["name"],
                    ),
                ]
            },
        },
        "schedule": _schedule(),
        "trigger": _trigger(),
        "transition": _transition(),
        "state": _state(),
    }


def _schedule() -> JsonObject:
    return _closed(
        SCHEDULE_KEYS,
        {
            "cron": _text("Five fields: minute, hour, day of month, month, day of week."),
            "every": {
                "type": "string",
                "pattern": "^[0-9]+[smhd]$",
                "description": "An interval counted from the epoch, such as 15m.",
            },
            "timezone": _text("An IANA time zone for cron.") | {"default": "UTC"},
            "missed": {
                "enum": list(MISSED),
                "default": "once",
                "description": "What happens to planned times that passed while nothing ran.",
            },
            "message": _text("The words of the firing.", filled=True),
            "variables": {
                "type": "object",
                "propertyNames": {"pattern": _VARIABLE},
                "description": "The variables of the firing.",
            },
        },
    ) | {
        "oneOf": [{"required": ["cron"]}, {"required": ["every"]}],
        "description": "When the fleet fires the trigger by itself.",
    }


def _trigger() -> JsonObject:
    properties: JsonObject = {
        "session": {
            "type": "string",
            "pattern": _DOTTED,
            "description": "Dotted path over the firing's variables to its session id.",
        },
        "message": {
            "anyOf": [{"type": "string", "pattern": _DOTTED}, {"const": False}],
            "description": "Dotted path to the firing's words, or false for firings without.",
        },
        "connection": _text("A connection of the host.", filled=True),
        "description": _text("For callers: what calling this does.", filled=True),
        "requires": _ref("signature", "Inputs."),
        "returns": _ref("signature", "Outputs."),
    }
    return {
        "type": "object",
        "properties": {key: properties[key] for key in TRIGGER_KEYS}
        | {SCHEDULE_KEY: _ref("schedule"), "entry": False, "name": False},
    }


def _transition() -> JsonObject:
    return _closed(
        TRANSITION_KEYS,
        {
            "to": _text("The target state's slug.", filled=True),
            "description": _text("When this edge is taken; on a human state, the label of the choice."),
            "type": {
                "enum": list(EDGE_TYPES),
                "default": "none",
                "description": "The kind of outcome on a human state.",
            },
        },
        required=["to"],
    )


def _state() -> JsonObject:
    budget = _closed(
        BUDGET_KEYS,
        {
            "maxTurns": _integer(1, "Model calls per visit."),
            "timeoutMs": _integer(1, "Milliseconds of the state's part of a turn."),
            "maxParks": _integer(1, "Parks by archmax_wait."),
        },
    )
    properties: JsonObject = {
        "type": {"enum": list(STATE_TYPES), "default": "agent", "description": "Who works the state."},
        "title": _text("A label for people.", filled=True),
        "summary": _text("A line for people; no model reads it."),
        "instructions": _text(
            "What to do here; on a grader, the criteria; on a human state, what the person reads."
        ),
        "script": {
            "type": "string",
            "pattern": r"^scripts/(?!/)(?!(.*/)?\.\.(/|$)).*\.m?js$",
            "description": "Of a code state: a file of the workflow's scripts/.",
        },
        "triggers": {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "null"}, _ref("trigger")]},
            "description": "The triggers that enter here, by id. manual is the command line's and a delegation's.",
        },
        "requires": _list("variable", "Variables that must be set before the state is left."),
        "locks": _list("variable", "Variables only this state writes."),
        **_governance("allow", "forbid", "in this state"),
        "model": _ref("model", "This state's model."),
        "budget": budget | {"description": "Limits; reaching one fails the state."},
        "on_error": _text("The state a failure leads to.", filled=True),
        "transitions": _list("transition", "The ways out; none makes the state terminal."),
        "evidence": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Files shown with a human decision.",
        },
        "approvers": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Who may decide; informational.",
        },
        "metadata": _ref("metadata"),
    }
    return _closed(STATE_KEYS, properties) | {
        "if": {"properties": {"type": {"const": "code"}}, "required": ["type"]},
        "then": {"required": ["script"]},
        "else": {"properties": {"script": False}},
    }
