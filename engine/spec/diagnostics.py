"""Diagnostics: what is wrong with a workspace, where, and under which stable identifier.

Words may change; the identifier and the place are the contract's (01 §19). What each identifier means is told by
`engine.spec.reference`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from core.jsontext import JsonObject

Severity: TypeAlias = Literal["error", "warning"]
Kind: TypeAlias = Literal["missing", "not-a-mapping", "competing-machines", "schema", "lint"]

_LIMIT = 120


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `field` is a dotted path from the document root; `line` and `column` count from 1."""

    severity: Severity
    id: str
    message: str
    file: str | None = None
    field: str | None = None
    line: int | None = None
    column: int | None = None

    @property
    def kind(self) -> Kind:
        """The loader's word for it (01 §3)."""
        if self.id in ("missing", "not-a-mapping", "competing-machines"):
            return self.id
        return "schema" if self.id.partition(".")[0] in ("schema", "doc", "removed") else "lint"

    def to_json(self) -> JsonObject:
        """The contract's record (01 §19.1), with the place in the file where it is known."""
        record: JsonObject = {"severity": self.severity, "id": self.id, "message": self.message}
        for key, value in (
            ("file", self.file),
            ("field", self.field),
            ("line", self.line),
            ("column", self.column),
        ):
            if value is not None:
                record[key] = value
        return record


def message_at(file: str, field: str | None, text: str, line: int | None, column: int | None) -> str:
    """The one shape of a message: `<file>: '<field>': <text> (line L, column C)`."""
    where = f"'{field}': " if field else ""
    place = f" (line {line}, column {column})" if line is not None else ""
    return f"{file}: {where}{text}{place}"


def shown(value: object, limit: int = _LIMIT) -> str:
    """A value of the document as it appears in a message: short, on one line."""
    text = value if isinstance(value, str) else repr(value)[: limit * 2]
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def field_of(path: tuple[str | int, ...]) -> str:
    """A path as the dotted field of a diagnostic; overlong keys are cut, so that a message stays short."""
    return ".".join(shown(step) for step in path)
