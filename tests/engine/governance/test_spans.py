"""Spans: finding references in text a model wrote, in one pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.governance.spans import Span, spans_in, without_spans


class _Counted(str):
    """A text that counts the characters searches walk over."""

    walked: int

    def __new__(cls, text: str) -> _Counted:
        made = super().__new__(cls, text)
        made.walked = 0
        return made

    def find(self, needle: str, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        found = super().find(needle, start)
        self.walked += (len(self) if found < 0 else found + len(needle)) - start
        return found


@pytest.mark.parametrize(
    "text",
    [
        "${{" * 20_000,
        "$${{" * 20_000,
        "${{" * 20_000 + "}",
        "${{" * 20_000 + "}}",
        "${{a}" * 20_000,
        "${{a}}" * 20_000,
        "${{a" + "}" * 20_000,
        "}" * 20_000 + "${{",
    ],
)
def test_every_text_is_walked_a_bounded_number_of_times(text: str) -> None:
    """02 §14.1: openings that never close must not make the search start over."""
    counted = _Counted(text)
    list(spans_in(counted))
    assert counted.walked <= 3 * len(text) + 10


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("a${{b}}c", [Span(1, 7, "b")]),
        ("$${{b}}", [Span(0, 7, None)]),
        ("$$${{b}}", [Span(1, 8, None)]),
        ("${{}}${{x}}", [Span(0, 5, ""), Span(5, 11, "x")]),
        ("${{a}b ${{c}}", [Span(7, 13, "c")]),
        ("${{a${{b}}", [Span(0, 10, "a${{b")]),
        ("${{{a}}", [Span(0, 7, "{a")]),
        ("${{a}}}", [Span(0, 6, "a")]),
        ("${{a}$${{b}}", [Span(5, 12, None)]),
        ("${{a", []),
        ("${{a}", []),
        ("${ {a}}", []),
    ],
)
def test_a_reference_ends_at_the_first_brace_after_it_opens(text: str, spans: list[Span]) -> None:
    """02 §14.1: the inner text is any characters but `}`; a `$` before it makes it literal."""
    assert list(spans_in(text)) == spans


@given(st.text(alphabet="${}ab", max_size=40))
def test_spans_do_not_overlap_and_nothing_else_opens_and_closes(text: str) -> None:
    """02 §14.1."""
    done = 0
    for span in spans_in(text):
        assert done <= span.start < span.end
        written = text[span.start : span.end]
        assert written == ("$${{" + written[4:] if span.inner is None else f"${{{{{span.inner}}}}}")
        assert "}" not in written[:-2] and written.endswith("}}")
        done = span.end
    assert list(spans_in(without_spans(text, " "))) == []
