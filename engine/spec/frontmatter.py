"""Frontmatter: the YAML block between a first line `---` and a later line `---` of a Markdown file."""

from __future__ import annotations

from typing import NamedTuple


class Frontmatter(NamedTuple):
    """The YAML text, and the Markdown after it."""

    yaml: str
    body: str


def split_frontmatter(text: str) -> Frontmatter | None:
    """The two parts, or None when the text does not open with a closed frontmatter block."""
    lines = text.removeprefix("\ufeff").split("\n")
    if not _fence(lines[0]):
        return None
    for index in range(1, len(lines)):
        if _fence(lines[index]):
            return Frontmatter("\n".join(lines[1:index]), "\n".join(lines[index + 1 :]))
    return None


def _fence(line: str) -> bool:
    return line.rstrip(" \t\r") == "---"
