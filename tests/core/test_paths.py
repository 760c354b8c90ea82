"""Canonical paths (02 §10.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.paths import canonical, is_within


@pytest.mark.parametrize(
    ("written", "text", "escaping"),
    [
        ("/skills//x/./y", "skills/x/y", False),
        ("a/b/../c", "a/c", False),
        ("", "", False),
        ("/", "", False),
        ("..", "..", True),
        ("a/../../b", "../b", True),
        ("notes..v2.md", "notes..v2.md", False),
    ],
)
def test_a_path_has_one_canonical_spelling(written: str, text: str, escaping: bool) -> None:
    assert canonical(written) == (text, escaping)


@given(st.text(alphabet="ab./", max_size=30))
def test_canonicalisation_is_idempotent(written: str) -> None:
    once = canonical(written)
    assert canonical(once.text) == once


def test_within_goes_by_whole_segments() -> None:
    assert is_within("run/1/x", "run/1")
    assert is_within("run/1", "run/1")
    assert not is_within("run/10", "run/1")
    assert is_within("anything", "")
