"""Exact replacement in a text that keeps its line endings.

A reader of numbered lines never sees `\\r`, so text copied from there is looked for with every `\\r\\n` read as one line
end; the replacement takes on the endings of the lines it replaces and nothing else in the file changes. Text that
itself holds `\\r` means it, and is tried as it stands first. Linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

_CRLF: Final = re.compile("\r\n")
_NEWLINE: Final = re.compile("\n")
_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Edited:
    content: str
    occurrences: int


def replace_text(content: str, old: str, new: str, *, replace_all: bool = False) -> Edited | str:
    """The edited text, or why nothing was edited (a sentence for whoever asked).

    `old` must occur exactly once unless `replace_all`.
    """
    if not old:
        return "old_string is empty: give the exact text to replace"
    if old == new:
        return "old_string and new_string are the same: nothing to replace"
    if "\r" in old or "\r" in new:
        found = content.count(old)
        if found:
            return _too_many(old, found, replace_all) or Edited(content.replace(old, new), found)
    if "\r" not in content:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        found = content.count(old)
        if problem := _count_problem(content, old, found, replace_all):
            return problem
        return Edited(content.replace(old, new), found)
    return _replace_across_endings(content, old.replace("\r\n", "\n"), new.replace("\r\n", "\n"), replace_all)


def _replace_across_endings(content: str, old: str, new: str, replace_all: bool) -> Edited | str:
    plain = content.replace("\r\n", "\n")
    found = plain.count(old)
    if problem := _count_problem(plain, old, found, replace_all):
        return problem
    #: where in `plain` a line end was `\r\n`
    crlf = [match.start() - index for index, match in enumerate(_CRLF.finditer(content))]
    newlines = [match.start() for match in _NEWLINE.finditer(content)]
    pieces: list[str] = []
    taken = 0  # characters of `content` already handled
    at = plain.find(old)
    while at >= 0:
        start, end = _original(crlf, at), _original(crlf, at + len(old))
        pieces.append(content[taken:start])
        pieces.append(_with_endings(new, content[start:end], _neighbour_ending(content, newlines, end)))
        taken = end
        at = plain.find(old, at + len(old))
    pieces.append(content[taken:])
    return Edited("".join(pieces), found)


def _original(crlf: list[int], at: int) -> int:
    return at + bisect_left(crlf, at)


def _with_endings(new: str, replaced: str, neighbour: str) -> str:
    """`new` with the endings of `replaced`, line by line; further lines take its last one, or the neighbour's."""
    lines = new.split("\n")
    if len(lines) == 1:
        return new
    endings = re.findall(r"\r?\n", replaced)
    last = endings[-1] if endings else neighbour
    out: list[str] = []
    for index, line in enumerate(lines[:-1]):
        out += [line, endings[index] if index < len(endings) else last]
    out.append(lines[-1])
    return "".join(out)


def _neighbour_ending(content: str, newlines: list[int], end: int) -> str:
    """The ending of the line the span ends in; of the line before when that is the last."""
    if not newlines:
        return "\n"
    newline = newlines[min(bisect_left(newlines, end), len(newlines) - 1)]
    return "\r\n" if newline > 0 and content[newline - 1] == "\r" else "\n"


def _count_problem(content: str, old: str, found: int, replace_all: bool) -> str | None:
    if found:
        return _too_many(old, found, replace_all)
    shorter = old.removesuffix("\n")
    if shorter and shorter != old and content.endswith(shorter):
        return "old_string ends with a newline and the file does not: leave that newline out"
    return f"string not found in the file: '{_excerpt(old)}'"


def _too_many(old: str, found: int, replace_all: bool) -> str | None:
    if found == 1 or replace_all:
        return None
    return (
        f"string '{_excerpt(old)}' appears {found} times in the file: "
        "add surrounding text so that it is unique, or set replace_all"
    )


def _excerpt(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
