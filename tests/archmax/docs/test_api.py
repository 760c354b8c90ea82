"""The reference of the HTTP API is what the code serves, and its examples have the shapes they show."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from api.answers import ALWAYS
from api.problems import CODES
from archmax.docs.api import PAGE, example_of, openapi, page

DOCUMENT, WRITTEN = openapi(), PAGE.read_text("utf-8")
SHAPES = DOCUMENT["components"]["schemas"]
OPERATIONS = [
    (f"{method.upper()} {path}", operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def test_the_page_is_what_the_code_serves() -> None:
    assert page() == WRITTEN, "run python -m archmax.docs.api"


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_every_route_is_on_the_page_with_its_parameters_answers_codes_and_an_example(
    name: str, operation: dict[str, Any]
) -> None:
    section = re.split(r"^##+ ", WRITTEN.partition(f"### `{name}`")[2], maxsplit=1, flags=re.MULTILINE)[0]
    assert "$ curl" in section
    for given in operation.get("parameters", ()):
        assert f"| `{given['name']}`" in section
    for status, answer in operation["responses"].items():
        problem = answer.get("content", {}).get("application/problem+json")
        if problem is None:
            assert f"\n- {status}: " in section, status
            continue
        codes = set(problem["schema"]["allOf"][1]["properties"]["code"]["enum"])
        assert codes <= CODES.keys()
        assert all(f"`{code}`" in section for code in codes - set(ALWAYS)), (status, codes)
    assert all(f"`{code}`" in WRITTEN.partition("## ")[0] for code in ALWAYS)


def test_every_field_says_what_it_is_by_words_or_by_example() -> None:
    bare = [
        f"{name}.{field}"
        for name, shape in SHAPES.items()
        for field, schema in shape.get("properties", {}).items()
        if not (
            schema.get("description") or schema.get("examples") or "$ref" in str(schema) or "const" in schema
        )
    ]
    assert bare == []


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_examples_have_the_shape_they_show(name: str, operation: dict[str, Any]) -> None:
    for status, answer in operation["responses"].items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        if schema and status.startswith("2"):
            _validate(schema, example_of(schema, SHAPES))
    body = operation.get("requestBody")
    if body is not None:
        media = body["content"]["application/json"]
        given = [item["value"] for item in media.get("examples", {}).values()]
        given += media["schema"].get("examples", [])
        assert given, name
        for example in given:
            _validate(media["schema"], example)


def _validate(schema: dict[str, Any], example: Any) -> None:
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole).validate(json.loads(json.dumps(example)))
