from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from engine.cases.document import ACTIONS, ASSERTIONS
from engine.cases.json_schema import case_json_schema
from engine.cases.parse import KEYS
from engine.spec.yaml12 import load_yaml
from tests.engine.cases.test_parse import WHOLE

MISTAKES = [
    "title: t\n",
    "title: t\ndescription: d\nextra: 1\n",
    "title: t\ndescription: d\ntrigger: manual\n",
    "title: t\ndescription: d\nvariables: { Bad: 1 }\n",
    "title: t\ndescription: d\nsteps: [{ send: '' }]\n",
    "title: t\ndescription: d\nsteps: [{ send: a, succeeded: true }]\n",
    "title: t\ndescription: d\nsteps: [{ reply: {} }]\n",
    "title: t\ndescription: d\nsteps: [{ trail: { count: 1 } }]\n",
    "title: t\ndescription: d\nsteps: [{ grade: { closedQA: a, atLeast: 2 } }]\n",
    "title: t\ndescription: d\nsteps: [{ parked: person }]\n",
]


def validator() -> Any:
    schema = case_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_a_whole_case_is_valid() -> None:
    """06 §2, §3, §6."""
    assert list(validator().iter_errors(load_yaml(WHOLE).value)) == []


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_marked(text: str) -> None:
    """06 §14."""
    assert list(validator().iter_errors(load_yaml(text).value)) != []


def test_the_schema_knows_every_key_and_step() -> None:
    """06 §2, §3."""
    schema = case_json_schema()
    assert list(schema["properties"]) == list(KEYS)
    assert list(schema["properties"]["steps"]["items"]["properties"]) == [*ACTIONS, *ASSERTIONS]
