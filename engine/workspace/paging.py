"""Pages of a text by lines, and the numbered form a model reads."""

from __future__ import annotations

from typing import Final

#: characters of one line before it goes on in a further row, marked `5.1`, `5.2`, …
ROW_CHARS: Final = 5_000


def page_of(text: str, offset: int = 0, limit: int | None = None) -> tuple[str, bool]:
    """`limit` lines from line `offset` (from 0), line ends as they are; and whether lines follow.

    A negative offset reads from the start, no limit to the end.
    """
    start = _line_start(text, 0, max(offset, 0))
    if limit is None:
        return text[start:], False
    end = _line_start(text, start, max(limit, 0))
    return text[start:end], end < len(text)


def _line_start(text: str, at: int, lines: int) -> int:
    """Where the line `lines` after the one at `at` begins; the text's length when there are fewer."""
    for _ in range(lines):
        found = text.find("\n", at)
        if found < 0:
            return len(text)
        at = found + 1
    return at


def count_lines(text: str) -> int:
    return text.count("\n") + (0 if not text or text.endswith("\n") else 1)


def numbered(page: str, first: int, max_chars: int) -> tuple[str, int, bool]:
    """Rows `<number>\\t<line>`, lines counted from `first`, of at most about `max_chars` characters.

    Returns: the rows, how many lines are in them whole, and whether the last one was cut.
    """
    rows: list[str] = []
    used = shown = 0
    lines = page.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    for line in lines:
        line = line.removesuffix("\r")
        for part, start in enumerate(range(0, max(len(line), 1), ROW_CHARS)):
            marker = str(first + shown) if part == 0 else f"{first + shown}.{part}"
            row = f"{marker:>6}\t{line[start : start + ROW_CHARS]}"
            if rows and used + len(row) > max_chars:
                return "\n".join(rows), shown, part > 0
            rows.append(row)
            used += len(row) + 1
        shown += 1
    return "\n".join(rows), shown, False
