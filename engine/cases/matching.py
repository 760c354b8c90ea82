"""How expectations meet what was observed: partial match, and paths into values (06 §4.2, §4.4)."""

from __future__ import annotations

import re
from typing import Final

from core.jsontext import Json
from core.jsvalues import js_text, same_scalar
from engine.cases.regex import RegexEngine, as_regex, regex_engine

_INDEX = re.compile(r"0|-?[1-9][0-9]*")
_MAX_INDEX_DIGITS = 12


class _Unresolved:
    """Where a path leads nowhere; never equal to a value."""


UNRESOLVED: Final = _Unresolved()


def partial_match(expected: Json, observed: Json, *, engine: RegexEngine | None = None) -> bool:
    """Whether `observed` has everything `expected` declares.

    Lists match element by element at equal length, mappings by their declared keys at every depth, a regex string by
    search in the observed value's text, everything else by strict equality.
    Raises: `RegexStopped` for a regex that takes too long.
    """
    if isinstance(expected, list):
        return (
            isinstance(observed, list)
            and len(expected) == len(observed)
            and all(
                partial_match(one, other, engine=engine)
                for one, other in zip(expected, observed, strict=True)
            )
        )
    if isinstance(expected, dict):
        return isinstance(observed, dict) and all(
            key in observed and partial_match(value, observed[key], engine=engine)
            for key, value in expected.items()
        )
    if isinstance(expected, str):
        regex = as_regex(expected)
        if regex is not None:
            return (engine or regex_engine()).search(regex, js_text(observed))
    return same_scalar(expected, observed)


def text_matches(token: str, text: str, *, whole: bool, engine: RegexEngine | None = None) -> bool:
    """A regex string by search, any other by equality (`whole`) or as a part, both case-sensitive."""
    regex = as_regex(token)
    if regex is not None:
        return (engine or regex_engine()).search(regex, text)
    return token == text if whole else token in text


def value_at(value: Json, path: str) -> Json | _Unresolved:
    """The part of `value` a dotted path addresses, `UNRESOLVED` where it leads nowhere; an empty path is the whole."""
    if path == "":
        return value
    for segment in path.split("."):
        if isinstance(value, list):
            if _INDEX.fullmatch(segment) is None or len(segment) > _MAX_INDEX_DIGITS:
                return UNRESOLVED
            index = int(segment)
            if not -len(value) <= index < len(value):
                return UNRESOLVED
            value = value[index]
        elif isinstance(value, dict):
            if segment not in value:
                return UNRESOLVED
            value = value[segment]
        else:
            return UNRESOLVED
    return value
