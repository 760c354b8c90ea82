"""The spec hash counts what governs, and nothing else."""

from __future__ import annotations

import hashlib
import json

import pytest

from engine.spec.spec_hash import snapshot_bytes, snapshot_document, spec_hash
from engine.spec.yaml12 import load_yaml

BASE = "title: Shop\nmetadata: { a: 1 }\nstates:\n  a: { triggers: { manual: }, metadata: { x: 1 }, budget: { maxTurns: 3 } }\n  b:\n"


def of(text: str) -> str:
    return spec_hash(load_yaml(text).value)


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("{ a: 1 }", "{ a: 2, b: [3] }"),
        BASE.replace("metadata: { a: 1 }\n", ""),
        BASE.replace("metadata: { x: 1 }, ", ""),
        BASE.replace("maxTurns: 3", "maxTurns: 3.0"),
        "# comment\n" + BASE.replace("title: Shop\n", "") + "title: 'Shop'\n",
        BASE.replace("\n  b:\n", "\n  b: null\n"),
    ],
)
def test_formatting_key_order_and_metadata_do_not_count(text: str):
    """01 §5.6, 05 §3."""
    assert of(text) == of(BASE)


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("Shop", "shop"),
        BASE + "disabled: false\n",
        BASE.replace("maxTurns: 3", "maxTurns: 4"),
        BASE.replace("manual: ", "manual: { metadata: { a: 1 } } "),
        BASE + "  c:\n",
    ],
)
def test_every_other_edit_counts(text: str):
    """05 §3."""
    assert of(text) != of(BASE)


def test_list_order_counts():
    """05 §3."""
    assert spec_hash({"a": [1, 2]}) != spec_hash({"a": [2, 1]})


def test_the_hash_names_the_bytes_of_the_snapshot():
    """05 §3: the first 32 digits of SHA-256."""
    document = load_yaml(BASE).value
    body = snapshot_bytes(document)
    assert spec_hash(document) == hashlib.sha256(body).hexdigest()[:32]
    assert json.loads(body) == snapshot_document(document)
    assert (
        body
        == b'{"states":{"a":{"budget":{"maxTurns":3},"triggers":{"manual":null}},"b":null},"title":"Shop"}'
    )
    assert "metadata" in document


def test_a_malformed_document_has_a_hash_too():
    """05 §3: hashing never fails."""
    assert spec_hash({"states": [1], "x": float("nan"), "y": "a\ud800", "z": 10**50})
    assert spec_hash({"states": {"a": 3}})
