"""A line that stays below everything a command writes to a terminal, until it is taken away (07 §7).

Only a terminal can take text back, so nothing is drawn anywhere else. It is written over with blanks, not with codes:
`NO_COLOR` holds here too.
"""

from __future__ import annotations

import os
import unicodedata
from typing import TextIO

_WIDTH_WHEN_UNKNOWN = 80


class ProgressLine:
    """Write through it: what is written stands above the line. `close` leaves no trace of it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = self._wanted = ""
        self._live = stream.isatty()

    def show(self, text: str) -> None:
        """Make `text`, cut to the terminal's width, the line."""
        self._wanted = text
        self._clear()
        self._draw()

    def write(self, text: str) -> None:
        self._clear()
        self._stream.write(text)
        if text.endswith("\n"):  # never behind a line that is not finished
            self._draw()

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._live

    def close(self) -> None:
        self._wanted = ""
        self._clear()
        self._stream.flush()

    def _clear(self) -> None:
        if self._shown:
            self._stream.write("\r" + " " * _columns(self._shown) + "\r")
            self._shown = ""

    def _draw(self) -> None:
        if self._live and self._wanted:
            self._shown = _cut(self._wanted, _terminal_width(self._stream) - 1)
            self._stream.write(self._shown)
            self._stream.flush()


def _terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _WIDTH_WHEN_UNKNOWN
    except (OSError, ValueError):
        return _WIDTH_WHEN_UNKNOWN


def _columns(text: str) -> int:
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _cut(text: str, columns: int) -> str:
    """As much of `text` as fits; a line that wraps could not be taken back."""
    kept: list[str] = []
    for char in text:
        columns -= _width(char)
        if columns < 0:
            break
        kept.append(char)
    return "".join(kept)
