"""`${{…}}`: naming a variable's value in guards and in tool arguments (contract 02 §14 and §15).

One syntax and one addressing for both. Variables are passed as plain values by name. A reference that cannot be
resolved is an answer (`Unresolved`), never a fallback to the text as written. Substitution is a single pass: what
a value contains is never read again. What one call or one pattern may grow to is bounded: a variable set to
`${{x}}${{x}}` a few dozen times would fill the memory of the process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, Literal, NamedTuple, TypeAlias

from core.jsontext import Json
from engine.governance.globs import escape_glob
from engine.governance.spans import OPENING, spans_in, without_spans

#: name → value; a name that is not there is unset
Variables: TypeAlias = Mapping[str, Json]
UnresolvedReason: TypeAlias = Literal[
    "malformed", "invalid-name", "unset", "path-missing", "non-scalar", "too-large"
]

#: characters the references of one call may bring in together
MAX_SUBSTITUTED_CHARS: Final = 1_000_000
#: characters the references of one pattern may bring in: it is compiled at each call
MAX_PATTERN_CHARS: Final = 32_768
_MAX_SHOWN_CHARS: Final = 200

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_INDEX: Final = re.compile(r"0|-?[1-9][0-9]{0,14}")
_WHY: Final[Mapping[UnresolvedReason, str]] = {
    "malformed": "it is malformed",
    "invalid-name": "its name is not a variable name",
    "unset": "the variable is not set",
    "path-missing": "the variable holds nothing at that path",
    "non-scalar": "its value is not a string, number or boolean",
    "too-large": "with it the text would grow too large",
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
    """A reference without a text: `reference` as written between the braces, trimmed and cut short."""

    reference: str
    reason: UnresolvedReason

    @property
    def why(self) -> str:
        """The clause a person reads."""
        return _WHY[self.reason]


def _unresolved(text: str, reason: UnresolvedReason) -> Unresolved:
    return Unresolved(text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…", reason)


def parse_reference(inner: str) -> Reference | Unresolved:
    """Take apart what stands between the braces; `Unresolved` as `malformed` or `invalid-name`."""
    text = inner.strip()
    name, *path = text.split(".")
    if not name or "" in path:
        return _unresolved(text, "malformed")
    if not _NAME.fullmatch(name):
        return _unresolved(text, "invalid-name")
    return Reference(text, name, tuple(path))


def references_in(text: str) -> Iterator[Reference | Unresolved]:
    """Every reference of `text` in order; escaped ones are none."""
    for span in spans_in(text):
        if span.inner is not None:
            yield parse_reference(span.inner)


def reference_names(text: str) -> tuple[str, ...]:
    """The variables `text` names by well-formed references, each once, in order."""
    return tuple(dict.fromkeys(found.name for found in references_in(text) if isinstance(found, Reference)))


def reference_problem(text: str) -> str | None:
    """Why a guard's references are refused at load (02 §14.1), or None. One left open is malformed too."""
    for found in references_in(text):
        if isinstance(found, Unresolved):
            return f"reference ${{{{{found.reference}}}}} in {text!r}: {found.why}"
    if OPENING in without_spans(text, " "):
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
        return _unresolved(reference.text, "unset")
    value = lookup(variables[reference.name], reference.path)
    return _unresolved(reference.text, "path-missing") if isinstance(value, _Missing) else value


def _resolve_scalar(inner: str, variables: Variables) -> str | Unresolved:
    reference = parse_reference(inner)
    if isinstance(reference, Unresolved):
        return reference
    value = resolve(reference, variables)
    if isinstance(value, Unresolved):
        return value
    text = scalar_text(value)
    return _unresolved(reference.text, "non-scalar") if text is None else text


class _Room:
    """How many characters may still be put in."""

    __slots__ = ("_left",)

    def __init__(self, chars: int) -> None:
        self._left = chars

    def takes(self, value: Json) -> bool:
        """Whether a value still fits; text counts by its characters, everything else as one. Stops at the limit."""
        todo = [value]
        while todo and self._left >= 0:
            item = todo.pop()
            if isinstance(item, Mapping):
                self._left -= sum(map(len, map(str, item)))
                todo.extend(item.values())
            elif isinstance(item, (list, tuple)):
                todo.extend(item)
            self._left -= len(item) if isinstance(item, str) else 1
        return self._left >= 0


def _expand(text: str, variables: Variables, written: Callable[[str], str], room: _Room) -> str | Unresolved:
    parts: list[str] = []
    done = 0
    for span in spans_in(text):
        parts.append(text[done : span.start])
        done = span.end
        if span.inner is None:
            parts.append(written(text[span.start + 1 : done]))
            continue
        value = _resolve_scalar(span.inner, variables)
        if isinstance(value, Unresolved):
            return value
        if not room.takes(value):
            return _unresolved(span.inner.strip(), "too-large")
        parts.append(written(value))
    parts.append(text[done:])
    return "".join(parts)


def resolve_text(text: str, variables: Variables) -> str | Unresolved:
    """`text` with every reference replaced by its value's text, or the first that cannot be."""
    return _expand(text, variables, str, _Room(MAX_PATTERN_CHARS)) if OPENING in text else text


def resolve_glob(pattern: str, variables: Variables) -> str | Unresolved:
    """A guard's pattern with every reference replaced by text that matches only itself (02 §14.2)."""
    if OPENING not in pattern:
        return pattern
    return _expand(pattern, variables, escape_glob, _Room(MAX_PATTERN_CHARS))


def has_reference(text: str) -> bool:
    """Whether `text` holds a span to replace, an escaped one included."""
    return next(spans_in(text), None) is not None


def substitute(arguments: Json, variables: Variables) -> Json | Unresolved:
    """Tool arguments with every string's references replaced as text, at any depth; keys stay (02 §15).

    Returns the arguments, or the first unresolved reference in reading order: the whole call is refused then.
    """
    room = _Room(MAX_SUBSTITUTED_CHARS)

    def replaced(text: str) -> str | Unresolved:
        return _expand(text, variables, str, room) if OPENING in text else text

    return _substitute(arguments, replaced)


def substitute_typed(arguments: Json, variables: Variables) -> Json | Unresolved:
    """As `substitute`, but a string that is exactly one reference takes the value with its type (02 §15.7)."""
    room = _Room(MAX_SUBSTITUTED_CHARS)

    def typed(text: str) -> Json | Unresolved:
        if OPENING not in text:
            return text
        span = next(spans_in(text), None)
        if span is None or span.inner is None or (span.start, span.end) != (0, len(text)):
            return _expand(text, variables, str, room)
        reference = parse_reference(span.inner)
        value = reference if isinstance(reference, Unresolved) else resolve(reference, variables)
        if isinstance(value, Unresolved) or room.takes(value):
            return value
        return _unresolved(span.inner.strip(), "too-large")

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
