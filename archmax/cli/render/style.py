"""Colour, icons, and text that is safe to print (07 §5).

Everything drawn may come from a model, a script or a document: control characters, which could move the cursor,
recolour or retitle the terminal, are replaced before they reach a stream.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

DONE = "✔"
FAILED = "✖"
ACTIVE = "●"
PENDING = "○"
MOVE = "→"
HEADING = "◆"
ACTION = "›"
QUOTE = "│"
ATTENTION = "⚠"

#: C0 and C1 controls without tab and line feed, and the characters that reorder or hide text
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def safe(text: str) -> str:
    """`text` with line ends made `\\n` and every other control character made U+FFFD."""
    return _UNSAFE.sub("\ufffd", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """`text`, safe, on one line: runs of white space become one blank."""
    return " ".join(safe(text).split())


def brief(text: str, limit: int = 200) -> str:
    """`text` on one line, cut after `limit` characters."""
    line = one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class Style:
    """Paints text, or leaves it alone when `colour` is off. Icons stay either way."""

    colour: bool = False

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def dim(self, text: str) -> str:
        return self._paint("2", text)

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def good(self, text: str) -> str:
        return self._paint("32", text)

    def bad(self, text: str) -> str:
        return self._paint("31", text)

    def warn(self, text: str) -> str:
        return self._paint("33", text)

    def accent(self, text: str) -> str:
        return self._paint("36", text)


PLAIN = Style()


class TextStream(Protocol):
    """What is drawn on: any text file, or something that stands before one."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> None: ...
    def isatty(self) -> bool: ...


def style_for(stream: TextStream, environ: Mapping[str, str] | None = None) -> Style:
    """Colour when `NO_COLOR` is unset or empty and the stream is a terminal."""
    environ = os.environ if environ is None else environ
    return Style(colour=not environ.get("NO_COLOR") and stream.isatty())
