"""Ids become segments and come back."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.conformance import UNSAFE_IDS
from storage.keys import check_key, check_prefix, decode_segment, encode_segment, is_segment, is_shortened
from storage.objects import InvalidKey

EXAMPLES = int(os.environ.get("ARCHMAX_TEST_EXAMPLES", "100"))
SEGMENT = re.compile(r"[A-Za-z0-9~=-][A-Za-z0-9._~=-]{0,254}")
TEXTS = st.text(st.characters() | st.sampled_from("=~._/%é\u0301\ud800"), max_size=70)


@pytest.mark.parametrize("text", ["refund-7", "session-0b9a", "a.b_c~1~22", "A", "x" * 200])
def test_a_plain_id_is_its_own_segment(text: str) -> None:
    """05 §2."""
    assert encode_segment(text) == text == decode_segment(text)


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("a/b", "a=2Fb"),
        ("100%", "100=25"),
        ("=", "=3D"),
        ("_inbox", "=5Finbox"),
        (".", "=2E"),
        ("..", "=2E."),
        ("é", "=C3=A9"),
        ("e\u0301", "e=CC=81"),
        ("two\nlines", "two=0Alines"),
        ("", "="),
    ],
)
def test_everything_else_is_escaped_by_its_bytes(text: str, segment: str) -> None:
    """H23."""
    assert encode_segment(text) == segment
    assert decode_segment(segment) == text


@settings(max_examples=EXAMPLES)
@given(TEXTS)
def test_any_text_survives(text: str) -> None:
    """H23: write, list, read gives the same ids."""
    segment = encode_segment(text)
    assert SEGMENT.fullmatch(segment) and is_segment(segment)
    assert decode_segment(segment) == (None if is_shortened(segment) else text)


def test_no_two_ids_share_a_segment() -> None:
    """H23."""
    assert len({encode_segment(text) for text in UNSAFE_IDS}) == len(UNSAFE_IDS)


@settings(max_examples=EXAMPLES)
@given(st.text(min_size=1, max_size=200), st.lists(st.integers(0, 9999), min_size=1, max_size=5))
def test_a_descendant_lies_below_its_ancestors_prefix(root: str, ordinals: list[int]) -> None:
    """04 §5.1: also where the id is so long that its segment was shortened."""
    session = root
    for ordinal in ordinals:
        parent, session = session, f"{session}~{ordinal}"
        assert encode_segment(session).startswith(encode_segment(parent) + "~")
        assert encode_segment(session).startswith(encode_segment(root) + "~")


@settings(max_examples=EXAMPLES)
@given(TEXTS.filter(bool), TEXTS)
def test_only_what_starts_with_an_id_lies_below_its_prefix(one: str, other: str) -> None:
    """`list("S~")` is a session's descendants and never `S1`."""
    if encode_segment(other).startswith(encode_segment(one) + "~"):
        assert other.startswith(one + "~")


def test_a_long_id_is_shortened_readably_and_told_apart() -> None:
    """05 §2: ids have at most 200 characters, of up to four bytes."""
    one, other = "refund " + "😀" * 193, "refund " + "😀" * 192 + "😃"
    assert encode_segment(one).startswith("refund=20=F0")
    assert encode_segment(one) != encode_segment(other)
    assert is_shortened(encode_segment(one)) and decode_segment(encode_segment(one)) is None
    assert len(encode_segment(one + "~1~2~3")) <= 255


def test_a_nesting_no_segment_can_hold_is_refused() -> None:
    """04 §5.1."""
    with pytest.raises(InvalidKey, match="nested too deeply"):
        encode_segment("S" + "~1" * 200)


@pytest.mark.parametrize(
    "segment", ["", "a=", "a=2", "a=2f", "=41", "=FF", "_x", ".x", "a b", "é", "==", "x=3d", "a=F0=9F"]
)
def test_what_no_id_encodes_to_is_not_decoded(segment: str) -> None:
    """A stranger's key is no session."""
    if is_shortened(segment):
        assert decode_segment(segment) is None
    else:
        with pytest.raises(InvalidKey):
            decode_segment(segment)


@pytest.mark.parametrize("key", ["a", "a/b", "_inbox/S~1/000001", ".hidden/..x/x..", "a" * 255, "=/~"])
def test_safe_keys_pass(key: str) -> None:
    """docs/protocol.md §1."""
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key",
    ["", "/a", "a/", "a//b", ".", "a/..", "../a", "a/./b", "a b", "a\n", "é", "a" * 256, "ab/" * 300 + "x"],
)
def test_unsafe_keys_are_refused_by_name(key: str) -> None:
    """docs/protocol.md §1."""
    with pytest.raises(InvalidKey, match="object key"):
        check_key(key)


def test_a_prefix_is_the_beginning_of_a_key() -> None:
    """docs/protocol.md §1."""
    for prefix in ("", "a", "a/", "a/b", "S~", "a/.", "_inbox/S/"):
        assert check_prefix(prefix) == prefix
    for prefix in ("/", "a//", "../", "a/./b", "a b", "é/"):
        with pytest.raises(InvalidKey):
            check_prefix(prefix)
