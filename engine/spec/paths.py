"""Names and dotted paths of variables, and the one rule for a session's title.

Wherever a variable's name enters, it is judged here; wherever a dotted path is followed, it is followed here.

Contract: 01 §4, 01 §8.2, 02 §14.3, 02 §16.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from core.jsontext import Json
from engine.governance.references import MISSING, lookup

MAX_TITLE_CHARS: Final = 200

_VARIABLE = re.compile(r"[a-z][a-z0-9_]*")
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

__all__ = [
    "MAX_TITLE_CHARS",
    "MISSING",
    "dotted_path_problem",
    "is_blank",
    "parse_dotted_path",
    "resolve_path",
    "slug_ok",
    "title_problem",
    "variable_name_ok",
]


def variable_name_ok(name: object) -> bool:
    """Whether `name` may name a variable: a lower-case letter, then letters, digits, `_`; never dotted."""
    return isinstance(name, str) and _VARIABLE.fullmatch(name) is not None


def slug_ok(slug: object) -> bool:
    """Whether `slug` is a workflow, state or skill slug: words of `a-z0-9` joined by single hyphens."""
    return isinstance(slug, str) and _SLUG.fullmatch(slug) is not None


def is_blank(value: object) -> bool:
    """Absent, no string, or nothing but white space."""
    return not isinstance(value, str) or not value.strip()


def title_problem(value: Json) -> str | None:
    """Why `value` is no session title, or None. A good one is stored trimmed (02 §16.3)."""
    if not isinstance(value, str):
        return "a title is a string"
    trimmed = value.strip()
    if not trimmed:
        return "a title is not blank"
    if len(trimmed.splitlines()) > 1:
        return "a title is one line"
    if len(trimmed) > MAX_TITLE_CHARS:
        return f"a title has at most {MAX_TITLE_CHARS} characters, not {len(trimmed)}"
    return None


def dotted_path_problem(text: Json) -> str | None:
    """Why `text` is no dotted path over variables, or None (01 §8.2)."""
    if not isinstance(text, str):
        return "a dotted path is a string"
    trimmed = text.strip()
    if not trimmed:
        return "a dotted path is not blank"
    if "${{" in trimmed:
        return "write the path alone, without the ${{…}} around it"
    name, *rest = trimmed.split(".")
    if not variable_name_ok(name):
        return f"its first segment {name!r} is no variable name ([a-z][a-z0-9_]*)"
    if "" in rest:
        return "it holds an empty segment"
    return None


def parse_dotted_path(text: str) -> tuple[str, ...] | None:
    """The segments of a dotted path, the variable's name first; None when it is malformed."""
    return None if dotted_path_problem(text) else tuple(text.strip().split("."))


def resolve_path(text: str, variables: Mapping[str, Json]) -> object:
    """The value at a dotted path over plain variables; `MISSING` where there is nothing or the path is malformed."""
    segments = parse_dotted_path(text)
    if segments is None or segments[0] not in variables:
        return MISSING
    return lookup(variables[segments[0]], segments[1:])
