"""The editor's schema against the loader."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import islice, product

import jsonschema
import pytest

from core.jsontext import Json
from engine.spec.json_schema import workflow_json_schema
from engine.spec.yaml12 import load_yaml
from tests.engine.spec.test_every_diagnostic import PAIRS
from tests.engine.spec.test_loader import LOAN_DESK
from tests.support.spec import SPEC, load

VALIDATOR = jsonschema.Draft202012Validator(workflow_json_schema())
#: what a schema of shapes leaves to the loader, because it knows no place or no other part of the document
BEYOND = {
    "schema.signature-duplicate",
    "schema.signature-reserved",
}


def _texts(id_: str) -> tuple[str, str]:
    pair = PAIRS[id_]
    bad, good = (files if isinstance(files, str) else files[SPEC] for files in (pair.bad, pair.good))
    return bad, good


def test_the_schema_is_valid_draft_2020_12():
    """01 §5 to §8."""
    jsonschema.Draft202012Validator.check_schema(workflow_json_schema())


def test_a_full_document_conforms():
    """01 §5 to §8."""
    assert not list(VALIDATOR.iter_errors(load_yaml(LOAN_DESK).value))


@pytest.mark.parametrize(
    "id_",
    [
        id_
        for id_ in PAIRS
        if id_.partition(".")[0] in ("schema", "removed")
        and id_ not in BEYOND | {"removed.hooks-dir", "removed.tests-config-js"}
    ],
)
def test_shape_errors_of_the_loader_are_errors_of_the_schema(id_: str):
    """01 §19.2, §19.4."""
    bad, good = _texts(id_)
    assert not VALIDATOR.is_valid(load_yaml(bad).value)
    assert VALIDATOR.is_valid(load_yaml(good).value)
    assert load(bad).issues


ODD: list[Json] = [
    None, True, 0, -1, 2.5, 3.0, "", " ", "x", "*", "a b", "Bad", "scripts/a.js", "scripts/../a.js", "${{x}}", "a/../b",
    [], ["a"], [None], [1], {}, {"a": 1}, {"tool": "ls"}, {"tool": "ls", "paths": []}, {"name": "x", "type": "file"},
    {"mount": "m", "access": "read"}, {"to": "assess"}, {"every": "5m"},
]  # fmt: skip
#: findings that make no document unusable, which the schema tells an author of all the same
TOLD_EARLY = {"doc.wildcard-grant", "trigger.schedule", "state-slug.shape", "state-slug.empty"}


def _places(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in entries:
        yield (*path, key)
        yield from _places(item, (*path, key))


def test_schema_and_loader_agree_about_any_value_at_any_place():
    """01 §5 to §8: every place of a full document, with values that may or may not belong there."""
    document = load_yaml(LOAN_DESK).value
    for path, odd in islice(product(list(_places(document)), ODD), 3, None, 11):
        changed = copy.deepcopy(document)
        holder = changed
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = odd
        text = json.dumps(changed)
        ids = {issue.id for issue in (*load(text).issues, *load(text).lint)}
        shape = {id_ for id_ in ids if id_.partition(".")[0] in ("schema", "removed")}
        refused = not VALIDATOR.is_valid(load_yaml(text).value)
        assert refused == bool(shape - BEYOND) or ids & TOLD_EARLY, (path, odd, ids)


def _objects(node: Json):
    if isinstance(node, dict):
        if node.get("type") == "object" and "properties" in node:
            yield node
        for key, item in node.items():
            if key != "not":
                yield from _objects(item)
    elif isinstance(node, list):
        for item in node:
            yield from _objects(item)


def test_every_key_is_described():
    """An editor shows the description of what is under the cursor."""
    definitions = workflow_json_schema()["$defs"]
    for schema in _objects(workflow_json_schema()):
        for key, item in schema["properties"].items():
            target = (
                definitions[item["$ref"].rpartition("/")[2]]
                if isinstance(item, dict) and "$ref" in item
                else item
            )
            described = item is False or "description" in item or "description" in target
            assert described or key in ("name", "mount"), key
