"""Collecting findings about one document: each with its dotted field and its place in the file.

The shape check reports *all* that is wrong, so nothing here raises; a reader that meets a malformed value reports it
and goes on with nothing in its place.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final

from core.jsontext import Json, JsonObject
from engine.spec.diagnostics import Diagnostic, Severity, field_of, message_at, shown
from engine.spec.yaml12 import Path, YamlDocument

#: names compared for hints in one report: it is slow, and a document worse than this needs no more of them
MAX_COMPARED: Final = 5_000
_LONGEST_NAME: Final = 40

#: key → (identifier, hint): keys that once meant something (01 §19.4)
Removed = Mapping[str, tuple[str, str]]
NOTHING_REMOVED: Final[Removed] = {}
_ITERATIONS: Final = ("removed.iterations", "entries are not capped: count send-backs in the trail and raise")
_REMOVED_ANYWHERE: Final[Removed] = {"max_iterations": _ITERATIONS, "max_corrections": _ITERATIONS}


class Report:
    """Findings about `file`. Without a document, places are unknown."""

    def __init__(self, file: str, document: YamlDocument | None = None) -> None:
        self.file = file
        self.found: list[Diagnostic] = []
        self._document = document
        self._compared = 0

    def add(
        self,
        severity: Severity,
        id_: str,
        path: Path,
        text: str,
        *,
        at: Path | None = None,
        key: bool = False,
        file: str | None = None,
    ) -> None:
        """Record a finding about the value at `path`.

        `at` gives another place than the field's own; `key` means the key there, not its value; a finding about another
        `file` has no place in this one.
        """
        line = column = None
        if self._document is not None and file is None:
            where = path if at is None else at
            line, column = self._document.key_position(where) if key else self._document.position(where)
        field = field_of(path) or None
        message = message_at(file or self.file, field, text, line, column)
        self.found.append(Diagnostic(severity, id_, message, file or self.file, field, line, column))

    def error(self, id_: str, path: Path, text: str, *, at: Path | None = None, key: bool = False) -> None:
        self.add("error", id_, path, text, at=at, key=key)

    def wrong_type(self, path: Path, expected: str, value: Json) -> None:
        self.error("schema.type", path, f"must be {expected}, not {kind_phrase(value)}")

    def unknown_key(
        self, path: Path, key: str, known: Sequence[str], removed: Removed = NOTHING_REMOVED
    ) -> None:
        id_, hint = removed.get(key) or _REMOVED_ANYWHERE.get(key) or ("schema.unknown-key", "")
        whole = field_of((*path, key))
        if not hint:
            hint = self.meant(key, known, "known here")
        self.error(
            id_, path, f'Unrecognized key: "{shown(key)}" ({whole}); {hint}', at=(*path, key), key=True
        )

    def near(self, name: str, known: Collection[str]) -> str | None:
        """The known name that was probably meant."""
        self._compared += len(known)
        if self._compared > MAX_COMPARED or len(name) > _LONGEST_NAME:
            return None
        folded = {_folded(each): each for each in known}
        same = folded.get(_folded(name))
        return same or next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.7)), None)

    def perhaps(self, name: str, known: Collection[str]) -> str:
        """A clause that names what was probably meant, empty when nothing is near."""
        near = self.near(name, known)
        return "" if near is None else f"; did you mean '{shown(near)}'?"

    def meant(self, name: str, known: Collection[str], many: str) -> str:
        """The clause behind an unknown name: the one that was probably meant, else those there are."""
        near = self.near(name, known)
        return f"did you mean '{shown(near)}'?" if near is not None else f"{many}: {listed(known)}"

    # --- reading, with what is malformed reported and left out ---------------------------------------------------

    def mapping(
        self, value: Json, path: Path, known: Sequence[str], *, removed: Removed = NOTHING_REMOVED
    ) -> JsonObject:
        """The known entries of a closed mapping."""
        if not isinstance(value, dict):
            self.wrong_type(path, "a mapping", value)
            return {}
        for key in value:
            if key not in known:
                self.unknown_key(path, key, known, removed)
        return {key: item for key, item in value.items() if key in known}

    def items(self, value: Json, path: Path, expected: str, id_: str = "schema.type") -> list[Json]:
        if isinstance(value, list):
            return value
        text = f"must be {expected}, not {kind_phrase(value)}"
        if isinstance(value, str) and value.strip():
            text += f"; write a single one in brackets: [{shown(value, 40)}]"
        self.error(id_, path, text)
        return []

    def string(self, value: Json, path: Path, *, filled: bool = False) -> str | None:
        if not isinstance(value, str):
            self.wrong_type(path, "a non-empty string" if filled else "a string", value)
            return None
        if filled and not value.strip():
            self.error("schema.blank", path, "must be a non-empty string")
            return None
        return value

    def strings(self, value: Json, path: Path) -> tuple[str, ...]:
        found = (
            self.string(item, (*path, index))
            for index, item in enumerate(self.items(value, path, "a list of strings"))
        )
        return tuple(item for item in found if item is not None)

    def boolean(self, value: Json, path: Path) -> bool | None:
        if not isinstance(value, bool):
            self.wrong_type(path, "true or false", value)
            return None
        return value

    def integer(self, value: Json, path: Path, *, least: int) -> int | None:
        """An integral number of at least `least` (01 §0: a boolean is never a number)."""
        if not is_number(value):
            self.wrong_type(path, f"an integer of at least {least}", value)
            return None
        if not is_integral(value) or value < least:
            self.error("schema.number", path, f"must be an integer of at least {least}, not {shown(value)}")
            return None
        return int(value)


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integral(value: Json) -> bool:
    return is_number(value) and (isinstance(value, int) or (math.isfinite(value) and value.is_integer()))


def kind_phrase(value: Json) -> str:
    """What a value is, for the end of "must be …, not …"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {shown(value)}"
    if isinstance(value, str):
        return f"the string {shown(repr(value), 60)}" if value.strip() else "a blank string"
    return "a list" if isinstance(value, list) else "a mapping"


def listed(names: Collection[str], limit: int = 20) -> str:
    """Names for a message, at most `limit` of them."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return (", ".join(shown(name) for name in islice(names, limit)) + more) or "none"
