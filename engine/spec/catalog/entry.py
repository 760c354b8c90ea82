"""The shape of one entry of the catalog."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Entry(NamedTuple):
    """`field` shows where it is reported; `reported_as` names the identifier that carries it, when that is another."""

    id: str
    severity: Literal["error", "warning"]
    field: str
    title: str
    meaning: str
    example: str
    cure: str
    reported_as: str | None = None
