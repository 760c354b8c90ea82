"""Two kinds of static plots as SVG text: lines over a growing quantity, and bars side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 640
_COLOURS: Final = ("#1f6feb", "#d1570a", "#1a7f37", "#8250df", "#cf222e", "#57606a")
_OURS, _THEIRS = "#1f6feb", "#8c959f"
_FONT: Final = 'font-family="system-ui, sans-serif" font-size="12" fill="#24292f"'


def number(value: float) -> str:
    """Three significant digits, thousands with commas."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str) -> str:
    """One line per series of (x, y). An axis whose values span more than a factor of 20 is logarithmic."""
    height, left, right, top, bottom = 300, 70, 16, 34 + 16 * len(series), 44
    points = [point for line in series.values() for point in line]
    x_scale = _Scale([x for x, _ in points], left, WIDTH - right, from_zero=False)
    y_scale = _Scale([y for _, y in points], height - bottom, top, from_zero=True)
    parts = [_text(left, 18, title, bold=True)]
    for tick in y_scale.ticks():
        y = y_scale(tick)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{WIDTH - right}" y2="{y:.1f}" stroke="#d8dee4"/>')
        parts.append(_text(left - 6, y + 4, number(tick), anchor="end"))
    parts += [
        _text(x_scale(tick), height - bottom + 16, number(tick), anchor="middle")
        for tick in sorted({x for x, _ in points})
    ]
    for index, (name, line) in enumerate(series.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        ordered = sorted(line)
        path = " ".join(f"{x_scale(x):.1f},{y_scale(y):.1f}" for x, y in ordered)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in ordered:
            shown = f"{escape(name)}: {number(y)} at {number(x)}"
            parts.append(
                f'<circle cx="{x_scale(x):.1f}" cy="{y_scale(y):.1f}" r="3.5" fill="{colour}"><title>{shown}</title></circle>'
            )
        row = 34 + 16 * index
        parts.append(f'<rect x="{left}" y="{row - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(left + 16, row, name))
    x_words = x_label + (" (logarithmic)" if x_scale.log else "")
    y_words = y_label + (" (logarithmic)" if y_scale.log else "")
    parts.append(_text((left + WIDTH - right) / 2, height - 8, x_words, anchor="middle"))
    parts.append(
        f'<text x="14" y="{(top + height - bottom) / 2:.0f}" text-anchor="middle" {_FONT} '
        f'transform="rotate(-90 14 {(top + height - bottom) / 2:.0f})">{escape(y_words)}</text>'
    )
    return _svg(height, title, parts)


def bars(title: str, rows: Sequence[tuple[str, float, bool]], unit: str) -> str:
    """One bar per (label, value, whether it is ours), in the order given."""
    left, row_height, top = 300, 22, 30
    height = top + row_height * len(rows) + 8
    longest = max((value for _, value, _ in rows), default=1.0) or 1.0
    room = WIDTH - left - 90
    parts = [_text(8, 18, f"{title} [{unit}]", bold=True)]
    for index, (label, value, ours) in enumerate(rows):
        y = top + index * row_height
        width = max(1.0, value / longest * room)
        colour = _OURS if ours else _THEIRS
        short = label if len(label) <= 46 else f"{label[:45]}…"
        parts.append(_text(left - 8, y + 14, short, anchor="end", bold=ours))
        parts.append(f'<rect x="{left}" y="{y + 3}" width="{width:.1f}" height="15" rx="2" fill="{colour}"/>')
        parts.append(_text(left + width + 6, y + 15, number(value)))
    return _svg(height, title, parts)


class _Scale:
    """From values to places between `start` and `end`."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, from_zero: bool) -> None:
        self._start, self._end = start, end
        low, high = min(values), max(values)
        self.log = low > 0 and high / low > 20
        if self.log:
            self._low, self._high = math.log10(low), math.log10(high)
            if from_zero:  # whole decades, so that the lines of the grid are round
                self._low, self._high = math.floor(self._low), math.ceil(self._high)
        else:
            self._low, self._high = (min(0.0, low), high * 1.1) if from_zero else (low, high)
        if self._high <= self._low:
            self._high = self._low + 1

    def __call__(self, value: float) -> float:
        at = math.log10(value) if self.log else value
        return self._start + (at - self._low) / (self._high - self._low) * (self._end - self._start)

    def ticks(self) -> list[float]:
        if self.log:
            return [10.0**power for power in range(math.floor(self._low), math.ceil(self._high) + 1)]
        step = 10 ** math.floor(math.log10(self._high - self._low))
        while (self._high - self._low) / step < 3:
            step /= 2
        first = math.ceil(self._low / step)
        return [step * index for index in range(first, math.floor(self._high / step) + 1)]


def _text(x: float, y: float, words: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {_FONT}{weight}>{escape(words)}</text>'


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title, quote=True)}">' + "".join(parts) + "</svg>"
    )
