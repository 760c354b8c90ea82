"""Signatures: nine types and the one judge."""

from __future__ import annotations

import math

import pytest

from core.jsontext import Json
from engine.spec.model import SignatureEntry, SignatureType
from engine.spec.signatures import (
    SIGNATURE_TYPES,
    conforms,
    normalize_signature,
    signature_for_trigger,
    signature_json_schema,
    signature_value_issues,
)
from tests.support.spec import load

CONFORMING: list[tuple[SignatureType, Json]] = [
    ("string", ""),
    ("integer", 4),
    ("integer", 4.0),
    ("integer", 10**30),
    ("number", 1.5),
    ("number", -3),
    ("boolean", False),
    ("date", "2024-02-29"),
    ("date", "0001-01-31"),
    ("date-time", "2026-03-20T10:00:00Z"),
    ("date-time", "2026-03-20t23:59:60.123456z"),
    ("date-time", "2026-03-20T10:00:00+05:30"),
    ("date-time", "2026-03-20T10:00:00-23:59"),
    ("object", {}),
    ("array", []),
    ("file", "reports/a.json"),
    ("file", "./a/../b"),
    ("file", "a b.txt"),
    ("file", "/a"),
]
FAILING: list[tuple[SignatureType, Json]] = [
    ("string", 1),
    ("integer", 4.5),
    ("integer", "4"),
    ("integer", True),
    ("integer", math.nan),
    ("integer", math.inf),
    ("number", math.inf),
    ("number", True),
    ("number", "1"),
    ("boolean", 0),
    ("boolean", "true"),
    ("date", "2023-02-29"),
    ("date", "1900-02-29"),
    ("date", "2026-3-20"),
    ("date", "2026-13-01"),
    ("date", "2026-00-01"),
    ("date", "2026-04-31"),
    ("date", "2026-03-20\n"),
    ("date", "٢٠٢٦-03-20"),
    ("date", "2026-03-20T00:00:00Z"),
    ("date-time", "2026-03-20"),
    ("date-time", "2026-03-20T10:00:00"),
    ("date-time", "2026-03-20 10:00:00Z"),
    ("date-time", "2026-03-20T10:00Z"),
    ("date-time", "2026-03-20T24:00:00Z"),
    ("date-time", "2026-03-20T10:60:00Z"),
    ("date-time", "2026-03-20T10:00:61Z"),
    ("date-time", "2026-03-20T10:00:00+24:00"),
    ("date-time", "2026-03-20T10:00:00+0530"),
    ("date-time", "2026-03-20T10:00:00.Z"),
    ("date-time", "2026-02-30T10:00:00Z"),
    ("object", []),
    ("array", {}),
    ("array", "a"),
    ("file", ""),
    ("file", "/"),
    ("file", " a"),
    ("file", "a\n"),
    ("file", "a\nb"),
    ("file", "a\0b"),
    ("file", "a/"),
    ("file", "../a"),
    ("file", "a/../.."),
    ("file", "."),
    ("file", 3),
]


@pytest.mark.parametrize(("type_", "value"), CONFORMING)
def test_a_value_of_the_type_conforms(type_: SignatureType, value: Json):
    """01 §8.3."""
    assert conforms(type_, value)


@pytest.mark.parametrize(("type_", "value"), FAILING)
def test_another_value_does_not(type_: SignatureType, value: Json):
    """01 §8.3: nothing is coerced."""
    assert not conforms(type_, value)


@pytest.mark.parametrize("type_", SIGNATURE_TYPES)
def test_a_typed_entry_never_takes_null(type_: SignatureType):
    """01 §8.3."""
    assert not conforms(type_, None)


def test_both_spellings_are_one_entry_and_malformed_ones_are_left_out():
    """05 §11.1."""
    entries = normalize_signature(
        [
            "a",
            {"name": "b"},
            {"name": "c", "type": "date", "description": " The day. "},
            3,
            {"name": "D"},
            "E",
        ]
    )
    assert entries == (SignatureEntry("a"), SignatureEntry("b"), SignatureEntry("c", "date", "The day."))
    assert normalize_signature({"a": 1}) == ()
    assert normalize_signature(entries) == entries


def test_issues_come_one_an_entry_in_declaration_order():
    """05 §11.2."""
    entries = normalize_signature(
        [
            "x",
            {"name": "b", "type": "integer"},
            {"name": "c", "type": "array"},
            {"name": "d", "type": "string"},
        ]
    )
    issues = signature_value_issues(entries, {"x": None, "b": "4", "d": None})
    assert [issue.to_json() | {"message": ""} for issue in issues] == [
        {"kind": "invalid", "name": "b", "type": "integer", "found": "string", "message": ""},
        {"kind": "missing", "name": "c", "message": ""},
        {"kind": "invalid", "name": "d", "type": "string", "found": "null", "message": ""},
    ]
    assert "'b' must be an integer, not the string '4'" in issues[0].message


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("a", "string"),
        (1, "number"),
        (1.5, "number"),
        (True, "boolean"),
        (None, "null"),
        ({}, "object"),
        ([], "array"),
    ],
)
def test_what_arrived_is_named_by_its_json_kind(value: Json, found: str):
    """05 §11.2."""
    (issue,) = signature_value_issues([SignatureEntry("a", "date")], {"a": value})
    assert issue.found == found
    assert issue.message


def test_the_published_schema_requires_every_name_in_order():
    """05 §11.2."""
    entries = normalize_signature(
        [{"name": "z", "type": "file", "description": "A file."}, "a", {"name": "m", "type": "date-time"}]
    )
    schema = signature_json_schema(entries)
    assert schema == {
        "type": "object",
        "properties": {
            "z": {"type": "string", "description": "A file."},
            "a": {},
            "m": {"type": "string", "format": "date-time"},
        },
        "required": ["z", "a", "m"],
    }
    assert list(schema["properties"]) == ["z", "a", "m"]


def test_the_signature_of_a_trigger_is_looked_up_by_id():
    """05 §11.1."""
    spec = load(
        "states: { a: { triggers: { manual: { description: Do it., requires: [x], returns: [y] } } } }"
    ).spec
    assert spec is not None
    signature = signature_for_trigger(spec, "manual")
    assert signature is not None
    assert (signature.description, signature.requires, signature.returns) == (
        "Do it.",
        (SignatureEntry("x"),),
        (SignatureEntry("y"),),
    )
    assert signature_for_trigger(spec, "mail") is None
