"""`${{…}}`: naming a variable's value in guards and in tool arguments (contract 02 §14 and §15).

One syntax and one addressing for both. Variables are passed as plain values by name. A reference that cannot be
resolved is an answer (`Unresolved`), never a fallback to the text as written. Substitution is a single pass: what
a value contains is never read again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, Literal, NamedTuple, TypeAlias

from core.jsontext import Json
from engine.governance.globs import escape_glob

#: name → value; a name that is not there is unset
Variables: TypeAlias = Mapping[str, Json]
UnresolvedReason: TypeAlias = Literal["malformed", "invalid-name", "unset", "path-missing", "non-scalar"]

#: group 1 holds the `$` of an escaped reference, group 2 what stands between the braces
_SPAN: Final = re.compile(r"(\$?)\$\{\{([^}]*)\}\}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_INDEX: Final = re.compile(r"0|-?[1-9][0-9]{0,14}")
_WHY: Final[Mapping[UnresolvedReason, str]] = {
    "malformed": "it is malformed",
    "invalid-name": "its name is not a variable name",
    "unset": "the variable is not set",
    "path-missing": "the variable holds nothing at that path",
    "non-scalar": "its value is not a string, number or boolean",
}


class _Missing:
    """What `lookup` answers where there is nothing; null is a value."""

    __slots__ = ()


MISSING: Final = _Missing()


class Reference(NamedTuple):
    """`${{name.path…}}`, taken apart. `text` is the inner text, trimmed."""

    text: str
    name: str
    path: tuple[str, ...]


class Unresolved(NamedTuple):
    """A reference without a text: `reference` as written between the braces, trimmed."""

    reference: str
    reason: UnresolvedReason

    @property
    def why(self) -> str:
        """The clause a person reads."""
        return _WHY[self.reason]


def parse_reference(inner: str) -> Reference | Unresolved:
    """Take apart what stands between the braces; `Unresolved` as `malformed` or `invalid-name`."""
    text = inner.strip()
    name, *path = text.split(".")
    if not name or "" in path:
        return Unresolved(text, "malformed")
    if not _NAME.fullmatch(name):
        return Unresolved(text, "invalid-name")
    return Reference(text, name, tuple(path))


def references_in(text: str) -> Iterator[Reference | Unresolved]:
    """Every reference of `text` in order; escaped ones are none."""
    for escape, inner in _SPAN.findall(text):
        if not escape:
            yield parse_reference(inner)


def reference_names(text: str) -> tuple[str, ...]:
    """The variables `text` names by well-formed references, each once, in order."""
    return tuple(dict.fromkeys(found.name for found in references_in(text) if isinstance(found, Reference)))


def reference_problem(text: str) -> str | None:
    """Why a guard's references are refused at load (02 §14.1), or None. One left open is malformed too."""
    for found in references_in(text):
        if isinstance(found, Unresolved):
            return f"reference ${{{{{found.reference}}}}} in {text!r}: {found.why}"
    if "${{" in _SPAN.sub("", text):
        return (
            f"reference in {text!r} is not closed: write ${{{{name}}}}, or $${{{{…}}}} for the literal text"
        )
    return None


def lookup(value: Json, path: Sequence[str]) -> Json | _Missing:
    """What stands at `path` inside `value`, by data alone (02 §14.3); `MISSING` where there is nothing."""
    for segment in path:
        if isinstance(value, Mapping):
            if segment not in value:
                return MISSING
            value = value[segment]
        elif isinstance(value, (list, tuple)):
            if not _INDEX.fullmatch(segment):
                return MISSING
            index = int(segment)
            if not -len(value) <= index < len(value):
                return MISSING
            value = value[index]
        else:
            return MISSING
    return value


def scalar_text(value: Json) -> str | None:
    """The text of a string, number or boolean; None for everything else, non-finite numbers included (02 OP-25)."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError:  # beyond the interpreter's limit on digits
            return None
    if isinstance(value, float) and math.isfinite(value):
        if value == 0:
            return "0"
        text = format(Decimal(repr(value)), "f")
        return text.removesuffix(".0")
    return None


def resolve(reference: Reference, variables: Variables) -> Json | Unresolved:
    """The referenced value with its own type, null included; `Unresolved` as `unset` or `path-missing`."""
    if reference.name not in variables:
        return Unresolved(reference.text, "unset")
    value = lookup(variables[reference.name], reference.path)
    return Unresolved(reference.text, "path-missing") if isinstance(value, _Missing) else value


def _resolve_scalar(inner: str, variables: Variables) -> str | Unresolved:
    reference = parse_reference(inner)
    if isinstance(reference, Unresolved):
        return reference
    value = resolve(reference, variables)
    if isinstance(value, Unresolved):
        return value
    text = scalar_text(value)
    return Unresolved(reference.text, "non-scalar") if text is None else text


def _expand(text: str, variables: Variables, written: Callable[[str], str]) -> str | Unresolved:
    parts: list[str] = []
    done = 0
    for span in _SPAN.finditer(text):
        parts.append(text[done : span.start()])
        done = span.end()
        if span[1]:
            parts.append(written(span[0][1:]))
            continue
        value = _resolve_scalar(span[2], variables)
        if isinstance(value, Unresolved):
            return value
        parts.append(written(value))
    parts.append(text[done:])
    return "".join(parts)


def resolve_text(text: str, variables: Variables) -> str | Unresolved:
    """`text` with every reference replaced by its value's text, or the first that cannot be."""
    return _expand(text, variables, str) if "${{" in text else text


def resolve_glob(pattern: str, variables: Variables) -> str | Unresolved:
    """A guard's pattern with every reference replaced by text that matches only itself (02 §14.2)."""
    return _expand(pattern, variables, escape_glob) if "${{" in pattern else pattern


def has_reference(text: str) -> bool:
    """Whether `text` holds a span to replace, an escaped one included."""
    return _SPAN.search(text) is not None


def substitute(arguments: Json, variables: Variables) -> Json | Unresolved:
    """Tool arguments with every string's references replaced as text, at any depth; keys stay (02 §15).

    Returns the arguments, or the first unresolved reference in reading order: the whole call is refused then.
    """
    return _substitute(arguments, lambda text: resolve_text(text, variables))


def substitute_typed(arguments: Json, variables: Variables) -> Json | Unresolved:
    """As `substitute`, but a string that is exactly one reference takes the value with its type (02 §15.7)."""

    def typed(text: str) -> Json | Unresolved:
        span = _SPAN.fullmatch(text)
        if span is None or span[1]:
            return resolve_text(text, variables)
        reference = parse_reference(span[2])
        return reference if isinstance(reference, Unresolved) else resolve(reference, variables)

    return _substitute(arguments, typed)


def _substitute(arguments: Json, replaced: Callable[[str], Json | Unresolved]) -> Json | Unresolved:
    """Walks with its own stack: arguments may be nested deeper than the interpreter's."""
    root: list[Json] = [None]
    todo: list[tuple[list[Json] | dict[Json, Json], Json, Json]] = [(root, 0, arguments)]
    while todo:
        holder, key, value = todo.pop()
        if isinstance(value, str):
            value = replaced(value)
            if isinstance(value, Unresolved):
                return value
        elif isinstance(value, Mapping):
            copied = dict(value)
            todo.extend((copied, name, item) for name, item in reversed(list(copied.items())))
            value = copied
        elif isinstance(value, (list, tuple)):
            items = list(value)
            todo.extend((items, index, items[index]) for index in reversed(range(len(items))))
            value = items
        holder[key] = value
    return root[0]
