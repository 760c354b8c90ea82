"""Searching: literal text in lines, globs over paths; linear in what is searched, whatever the pattern, and bounded.

A glob without `/` names a file at any depth, one with `/` is relative to the folder searched, a leading `/` anchors
it there; dot names match like others. The syntax is the guards' (02 §6), with `[!…]` understood as `[^…]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.governance.globs import compile_glob
from engine.workspace.backend import GrepMatch, GrepResult
from engine.workspace.binary import is_text, is_text_type, mime_type

#: matches a search returns when nobody asks for fewer (05 §9.1)
DEFAULT_MAX_COUNT: Final = 1_000
#: paths a glob returns at most
MAX_GLOB_FILES: Final = 1_000
#: bytes one search looks into, and the longest single file it opens
MAX_SEARCH_BYTES: Final = 256 * 1024 * 1024
MAX_SEARCHED_FILE_BYTES: Final = 16 * 1024 * 1024
#: files and folders one search walks over
MAX_WALKED_ENTRIES: Final = 100_000
#: characters of a matching line that are returned
MAX_LINE_CHARS: Final = 500
_MAX_PATTERN_CHARS: Final = 256
_NEGATED_CLASS: Final = re.compile(r"(?<!\\)\[!")
_BRACED: Final = re.compile(r"\{[^}]*/")


def glob_problem(pattern: str) -> str | None:
    """Why a search refuses this glob, as a sentence, or None."""
    if not pattern.strip("/"):
        return "the glob is empty"
    if len(pattern) > _MAX_PATTERN_CHARS:
        return f"the glob is longer than {_MAX_PATTERN_CHARS} characters"
    if compile_glob(_spelled(pattern)).climbs or ".." in pattern.split("/"):
        return "the glob holds a '..' segment: search the folder it means"
    return None


def path_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a path relative to the folder searched is meant. The caller asked `glob_problem` first."""
    spelled = _spelled(pattern)
    matches = compile_glob(spelled.lstrip("/")).matches
    if "/" in spelled:
        return matches
    return lambda path: matches(path.rpartition("/")[2])


def _spelled(pattern: str) -> str:
    return _NEGATED_CLASS.sub("[^", pattern)


def residual_globs(pattern: str, folder: str) -> list[str] | None:
    """What is left of `pattern` for a search that starts in `folder` (relative, no leading slash) instead.

    An empty list: nothing in there can match. None: it cannot be said segment by segment, filter afterwards.
    """
    spelled = _spelled(pattern)
    if "/" not in spelled or not folder:
        return [pattern]
    if _BRACED.search(spelled):
        return None
    rests: set[tuple[str, ...]] = {tuple(part for part in spelled.split("/") if part and part != ".")}
    for name in folder.split("/"):
        following: set[tuple[str, ...]] = set()
        for rest in _without_leading_deep(rests):
            head, *tail = rest
            if head == "**":
                following.add(rest)
            elif tail and compile_glob(head).matches(name):
                following.add(tuple(tail))
        rests = following
    return sorted("/" + "/".join(rest) for rest in rests)


def _without_leading_deep(rests: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Each rest, and what follows its leading `**` when that takes no segment."""
    found: set[tuple[str, ...]] = set()
    for rest in rests:
        at = rest
        found.add(at)
        while len(at) > 1 and at[0] == "**":
            at = at[1:]
            found.add(at)
    return found


@dataclass
class GrepRun:
    """One search under way: what it found and how much it may still look at."""

    needle: str
    max_count: int = DEFAULT_MAX_COUNT
    bytes_left: int = MAX_SEARCH_BYTES
    matches: list[GrepMatch] = field(default_factory=list)
    #: something was left out: matches beyond the cap, or content beyond a bound
    truncated: bool = False

    @property
    def done(self) -> bool:
        return self.truncated and (len(self.matches) >= self.max_count or self.bytes_left <= 0)

    def admits(self, path: str, size: int) -> bool:
        """Whether a file of `size` bytes is to be opened; accounts for it. Binary types never are."""
        if not is_text_type(mime_type(path)) or size == 0:
            return False
        if size > MAX_SEARCHED_FILE_BYTES or size > self.bytes_left:
            self.truncated = True
            if size > self.bytes_left:
                self.bytes_left = 0
            return False
        self.bytes_left -= size
        return True

    def search(self, path: str, data: bytes) -> None:
        """Add the matching lines of one admitted file; bytes that are no text have none."""
        needle = self.needle.encode("utf-8")
        if needle not in data or not is_text(data):
            return
        for line, text in _matching_lines(data.decode("utf-8"), self.needle):
            if len(self.matches) >= self.max_count:
                self.truncated = True
                return
            self.matches.append({"path": path, "line": line, "text": text})

    def result(self) -> GrepResult:
        return {"matches": self.matches, "truncated": self.truncated}


def _matching_lines(text: str, needle: str) -> Iterator[tuple[int, str]]:
    line, counted = 1, 0
    found = text.find(needle)
    while found >= 0:
        line += text.count("\n", counted, found)
        start = text.rfind("\n", counted, found) + 1 or counted
        end = text.find("\n", found)
        end = len(text) if end < 0 else end
        yield line, _shown(text, start, end, found)
        if end >= len(text):
            return
        line, counted = line + 1, end + 1
        found = text.find(needle, counted)


def _shown(text: str, start: int, end: int, found: int) -> str:
    """The line without its `\\r`; of a very long one the part around the match."""
    if end > start and text[end - 1] == "\r":
        end -= 1
    if end - start <= MAX_LINE_CHARS:
        return text[start:end]
    first = max(start, min(found - MAX_LINE_CHARS // 4, end - MAX_LINE_CHARS))
    last = min(end, first + MAX_LINE_CHARS)
    return ("…" if first > start else "") + text[first:last] + ("…" if last < end else "")


def needle_problem(needle: str) -> str | None:
    """Why a literal search refuses this text, or None."""
    if not needle:
        return "the text to search for is empty"
    if "\n" in needle:
        return "the text to search for spans lines: search for one line"
    return None


def capped(matches: Sequence[GrepMatch], max_count: int) -> GrepResult:
    """At most `max_count` matches, saying whether any were dropped."""
    return {"matches": list(matches[:max_count]), "truncated": len(matches) > max_count}
