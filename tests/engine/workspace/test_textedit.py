"""Exact replacement that keeps line endings (known fault H17)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.workspace.textedit import Edited, replace_text


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        ("one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2", "1\r\n2\r\nthree\r\n"),
        ("a\nb\r\nc\nd", "b\nc", "B\nC", "a\nB\r\nC\nd"),
        ("a\r\nb\nc\r\n", "a\nb\nc", "A\nB\nC", "A\r\nB\nC\r\n"),
        ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
        ("a\nb\n", "b", "x\ny", "a\nx\ny\n"),
        ("a\r\nb", "b", "x\ny", "a\r\nx\r\ny"),
        ("a\r\nb\r\nc", "a\nb", "a\nnew\nb", "a\r\nnew\r\nb\r\nc"),
        ("one\r\n\r\ntwo\r\n", "one\n\ntwo", "one\ntwo", "one\r\ntwo\r\n"),
        ("a\r\nb\r\n", "a\r\nb", "a\nb", "a\nb\r\n"),
        ("a\nb\n", "a\r\nb", "c", "c\n"),
        ("x\ry\n", "x\ry", "z", "z\n"),
        ("x\ry\r\nz", "y\nz", "w", "x\rw"),
        ("flat", "flat", "x\ny", "x\ny"),
    ],
)
def test_only_the_replaced_lines_differ_and_keep_their_endings(
    content: str, old: str, new: str, expected: str
) -> None:
    assert replace_text(content, old, new) == Edited(expected, 1)


def test_one_text_at_line_ends_of_both_kinds_occurs_twice() -> None:
    problem = replace_text("a\nb\r\na\r\nb\n", "a\nb", "x")
    assert isinstance(problem, str)
    assert "appears 2 times" in problem
    assert replace_text("a\nb\r\na\r\nb\n", "a\nb", "x\ny", replace_all=True) == Edited("x\ny\r\nx\r\ny\n", 2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "x", "empty"),
        ("a", "a", "the same"),
        ("zz", "y", "not found"),
        ("a", "y", "appears 3 times"),
        ("end\n", "y", "leave that newline out"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why(old: str, new: str, said: str) -> None:
    problem = replace_text("a a a\nend", old, new)
    assert isinstance(problem, str)
    assert said in problem


def test_a_long_search_string_is_not_repeated_whole_in_the_answer() -> None:
    problem = replace_text("a", "z" * 100_000, "y")
    assert isinstance(problem, str)
    assert len(problem) < 1_000


def test_many_occurrences_in_a_large_crlf_text_are_replaced_in_one_pass() -> None:
    lines = 20_000
    edited = replace_text("x" * 100 + "key" * lines + "\r\n" * lines, "key", "k\ny", replace_all=True)
    assert isinstance(edited, Edited)
    assert edited.occurrences == lines
    assert edited.content.count("k\r\ny") == lines


_LINES = st.lists(st.sampled_from(["a", "b", "", "ab"]), min_size=1, max_size=6)
_ENDINGS = st.lists(st.sampled_from(["\n", "\r\n"]), min_size=6, max_size=6)


@given(_LINES, _ENDINGS, st.sampled_from(["a", "b", "a\nb", "\n", "b\n"]), st.sampled_from(["", "c", "c\nd"]))
def test_read_with_plain_line_ends_an_edit_is_the_plain_edit(
    lines: list[str], endings: list[str], old: str, new: str
) -> None:
    content = "".join(line + ending for line, ending in zip(lines, endings, strict=False))
    plain = content.replace("\r\n", "\n")
    edited = replace_text(content, old, new, replace_all=True)
    if old in plain:
        assert isinstance(edited, Edited)
        assert edited.content.replace("\r\n", "\n") == plain.replace(old, new)
        assert edited.occurrences == plain.count(old)
    else:
        assert isinstance(edited, str)
