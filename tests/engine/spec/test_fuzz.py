"""Whatever bytes a document holds: diagnostics, never an exception, never a stall.

`ARCHMAX_FUZZ_EXAMPLES` raises the number of examples.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.spec.diagnostics import Diagnostic
from engine.spec.read_root import ROOT_KEYS
from engine.spec.read_state import STATE_KEYS
from engine.spec.reference import diagnostics_by_id
from engine.spec.spec_hash import spec_hash
from engine.spec.yaml12 import YamlProblem, load_yaml
from tests.engine.spec.test_loader import LOAN_DESK
from tests.support.spec import SPEC, load, validate

FUZZ = settings(
    max_examples=int(os.environ.get("ARCHMAX_FUZZ_EXAMPLES", "60")),
    deadline=timedelta(seconds=1),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
PIECES = st.sampled_from(
    ["a", ": ", "- ", "\n", "  ", "\t", "{", "}", "[", "]", ",", "&x ", "*x", "!t ", "!!str ", "|\n", ">-\n", '"', "'", "#", "---\n", "...\n", "%YAML 1.2\n", "? ", "<<: ", "1", "0x", "null", "~", "\x00", "\x85", "\u2028", "\ufeff", "\r", "😀", "states:\n", "triggers:\n", "${{a}}", "\\"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**20), st.floats(), st.text(max_size=8),
    st.sampled_from(["a", "b", "manual", "code", "human", "grader", "scripts/a.js", "fees", "ledger", "*", "task", "ls", "archmax_workflow_b", "archmax_advance", "${{a}}", "../x", "write_file", "skills/fees/x"]),
)  # fmt: skip
KEYS = st.one_of(
    st.text(max_size=4),
    st.sampled_from([*ROOT_KEYS, *STATE_KEYS, "allow", "forbid", "allow_always", "forbid_always", "tool", "args", "paths", "to", "description", "mount", "access", "name", "requires", "returns", "schedule", "cron", "every", "manual", "a", "b", "maxTurns", "judge"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
STATE = st.dictionaries(st.sampled_from(STATE_KEYS), VALUES, max_size=8)


def _check(diagnostics: tuple[Diagnostic, ...]) -> None:
    for item in diagnostics:
        assert item.id in diagnostics_by_id()
        assert len(item.message) < 5_000


def _place(text: str) -> tuple[int, int]:
    """Where something stands in the text, or what is wrong with it."""
    try:
        return load_yaml(text).position(("a", 0))
    except YamlProblem as problem:
        return problem.line, problem.column


@FUZZ
@given(st.binary(max_size=400))
def test_arbitrary_bytes_load_or_are_reported(data: bytes):
    """01 §2, §3."""
    loaded = load(data)
    assert loaded.issues or loaded.spec is not None
    _check((*loaded.issues, *loaded.lint))


@FUZZ
@given(st.lists(PIECES, max_size=60))
def test_arbitrary_pieces_of_yaml_load_or_are_reported(pieces: list[str]):
    """01 §2, §3."""
    text = "".join(pieces)
    place = _place(text)
    assert place >= (1, 1)
    _check(validate({SPEC: text}).diagnostics)


@FUZZ
@given(
    st.dictionaries(st.sampled_from(ROOT_KEYS), VALUES, max_size=6),
    st.dictionaries(st.sampled_from("abch"), STATE, max_size=3),
)
def test_arbitrary_documents_validate_or_are_reported(root: dict[str, object], states: dict[str, object]):
    """01 §19.1."""
    text = (
        json.dumps({**root, "states": states}, allow_nan=True, ensure_ascii=False)
        .encode("utf-8", "replace")
        .decode()
    )
    result = validate(text)
    _check(result.diagnostics)
    document = load(text).document
    assert document is None or len(spec_hash(document)) == 32


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, len(LOAN_DESK)), st.integers(0, 12), PIECES), min_size=1, max_size=4)
)
def test_a_damaged_document_validates_or_is_reported(edits: list[tuple[int, int, str]]):
    """01 §19.1."""
    text = LOAN_DESK
    for at, length, piece in edits:
        text = text[:at] + piece + text[at + length :]
    _check(validate(text).diagnostics)
