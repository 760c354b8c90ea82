"""Where references stand in a text: the `${{…}}` of contract 02 §14.1, found in one pass.

A search by expression would start over at each opening that never closes, and much of the text is a model's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

OPENING: Final = "${{"


class Span(NamedTuple):
    """A reference is `text[start:end]`; `inner` is what its braces hold, None for an escaped one (`$${{…}}`)."""

    start: int
    end: int
    inner: str | None


def spans_in(text: str) -> Iterator[Span]:
    """Every reference in order, escaped ones too. An opening whose first `}` is no `}}` is plain text."""
    at, done, close = text.find(OPENING), 0, -1
    while at >= 0:
        first = at + len(OPENING)
        if close < first:
            close = text.find("}", first)
            if close < 0:
                return
        if not text.startswith("}}", close):
            at = text.find(OPENING, first)
            continue
        escaped = at > done and text[at - 1] == "$"
        done = close + 2
        yield Span(at - escaped, done, None if escaped else text[first:close])
        at = text.find(OPENING, done)


def without_spans(text: str, stand_in: str) -> str:
    """`text` with `stand_in` for each reference."""
    parts: list[str] = []
    done = 0
    for span in spans_in(text):
        parts.append(text[done : span.start])
        done = span.end
    parts.append(text[done:])
    return stand_in.join(parts)
