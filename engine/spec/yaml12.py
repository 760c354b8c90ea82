"""YAML 1.2 core documents with the place of every value.

The one reader of YAML in the project: workflow documents, cases, frontmatter. It works on libyaml's *events* rather
than on PyYAML's nodes: composing nodes recurses (a deeply nested document would exhaust the C stack), and PyYAML's
resolver speaks YAML 1.1 (`on` a boolean, `12:30` a number, `010` eight). Everything hostile is refused while
reading, before anything is expanded: deep nesting, alias bombs, cycles, oversized input.

Contract: 01 §2 and 01 OP-14.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import yaml
from typing_extensions import override
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from core.jsontext import Json
from core.jsvalues import js_text

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 100
MAX_ALIAS_EXPANSIONS: Final = 100
MAX_NODES: Final = 50_000  # values, aliases expanded
MAX_NUMBER_LENGTH: Final = 400  # digits; longer ones are slow to convert and cannot be written back
MAX_DIRECTIVES: Final = 16  # libyaml compares every %TAG with all earlier ones
_EXPANDED_FACTOR: Final = 8  # an expanded document may weigh this many times the allowed input

Path: TypeAlias = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final[dict[str, type]] = {
    _TAG + "null": type(None),
    _TAG + "bool": bool,
    _TAG + "int": int,
    _TAG + "float": float,
}
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_LINE_START = re.compile(r"^[ \t]*(\S)", re.MULTILINE)
_LINE_BREAK = re.compile(r"\r\n?|\n")  # as libyaml counts them
_NAN = frozenset({".nan", ".NaN", ".NAN"})

# Line breaks in YAML 1.1, ordinary characters in YAML 1.2. libyaml follows 1.1, so they travel in disguise.
_OLD_BREAKS = "\x85\u2028\u2029"


class YamlProblem(ValueError):
    """The text is no acceptable document. `line` and `column` count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message, line, column)
        self.message, self.line, self.column = message, line, column

    @override
    def __str__(self) -> str:
        return f"{self.message} (line {self.line}, column {self.column})"


@dataclass(slots=True)
class _Node:
    """A value and where it stands; `keys` are a mapping's, by the place of each key."""

    value: Json
    line: int
    column: int
    depth: int = 0  # containers below and including this one, aliases expanded
    nodes: int = 1  # values below and including this one, aliases expanded
    weight: int = 0  # scalars' characters, aliases expanded
    expansions: int = 0
    keys: dict[str, tuple[int, int]] | None = None
    children: dict[str | int, _Node] | None = None

    def child(self, step: str | int) -> _Node | None:
        return None if self.children is None else self.children.get(step)


@dataclass(slots=True)
class _Open:
    """A container whose end has not been read yet."""

    node: _Node
    anchor: str | None
    key: str | None = None  # of a mapping: the key whose value comes next


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """`value` is plain data with string keys, in written order. Positions count from 1."""

    value: Json
    _root: _Node

    def position(self, path: Path) -> tuple[int, int]:
        """Where the value at `path` begins; of the nearest enclosing value when the path leads nowhere."""
        node = self._root
        for step in path:
            child = node.child(step)
            if child is None:
                break
            node = child
        return node.line, node.column

    def key_position(self, path: Path) -> tuple[int, int]:
        """Where the key of the entry at `path` stands; the value's place for a list element."""
        node = self._root
        for step in path[:-1]:
            child = node.child(step)
            if child is None:
                return node.line, node.column
            node = child
        last = path[-1] if path else None
        if node.keys is not None and isinstance(last, str) and last in node.keys:
            return node.keys[last]
        return self.position(path)


def load_yaml(data: bytes | str, *, max_bytes: int = MAX_BYTES) -> YamlDocument:
    """Read exactly one YAML 1.2 document; an empty text is null.

    Raises: `YamlProblem`, the only error, for everything that is no single acceptable document.
    """
    text = _text_of(data, max_bytes)
    _check_directives(text)
    shield = _Shield(text)
    builder = _Builder(shield, max_weight=max_bytes * _EXPANDED_FACTOR)
    try:
        for event in _events(shield.hide(text)):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _problem_of(error, text) from None
    except yaml.YAMLError as error:
        raise _reader_problem(error, text) from None
    root = builder.root or _Node(None, 1, 1)
    return YamlDocument(root.value, root)


def _events(text: str) -> Iterator[Event]:
    return yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _text_of(data: bytes | str, max_bytes: int) -> str:
    if isinstance(data, str):
        # Characters first: encoding a huge text only to refuse it would double its memory.
        if len(data) > max_bytes:
            raise YamlProblem(f"the file is larger than {max_bytes} bytes")
        try:
            data = data.encode("utf-8")
        except UnicodeEncodeError as error:
            line, column = _place(data, error.start)
            raise YamlProblem("the text holds half a surrogate pair", line, column) from None
    if len(data) > max_bytes:
        raise YamlProblem(f"the file is larger than {max_bytes} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _place(data[: error.start].decode("utf-8", "replace"), None)
        raise YamlProblem("the file is not UTF-8", line, column) from None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    misplaced = text.find("\ufeff")
    if misplaced >= 0:
        line, column = _place(text, misplaced)
        raise YamlProblem("a byte-order mark is allowed only at the very start of the file", line, column)
    return text


def _place(text: str, index: int | None) -> tuple[int, int]:
    before = text if index is None else text[:index]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _check_directives(text: str) -> None:
    if not text.startswith("%") and "\n%" not in text:
        return
    count = 0
    for first in _LINE_START.finditer(text):
        if first[1] == "%":
            count += 1
            if count > MAX_DIRECTIVES:
                raise YamlProblem(f"more than {MAX_DIRECTIVES} directives", *_place(text, first.start(1)))
        elif first[1] != "#":
            return


class _Shield:
    """Hides characters that libyaml would take for line breaks behind ones the text does not use."""

    def __init__(self, text: str) -> None:
        used = [char for char in _OLD_BREAKS if char in text]
        free = (char for char in map(chr, range(0xF0000, 0xF0000 + 0xFFFD)) if char not in text)
        self._pairs = [(char, next(free)) for char in used]

    def hide(self, text: str) -> str:
        for char, stand_in in self._pairs:
            text = text.replace(char, stand_in)
        return text

    def show(self, text: str) -> str:
        for char, stand_in in self._pairs:
            text = text.replace(stand_in, char)
        return text


class _Builder:
    """Turns the event stream into nodes, one step per event."""

    def __init__(self, shield: _Shield, *, max_weight: int) -> None:
        self.root: _Node | None = None
        self._shield = shield
        self._max_weight = max_weight
        self._open: list[_Open] = []
        self._anchors: dict[str, _Node | None] = {}  # None while the anchored value is still open
        self._documents = 0

    def take(self, event: Event) -> None:
        mark = event.start_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        if isinstance(event, ScalarEvent):
            value = self._scalar(event, line, column)
            node = _Node(value, line, column, weight=len(event.value))
            if event.anchor is not None:
                self._anchors[event.anchor] = node
            if self._wants_key():
                self._set_key(_key_text(value), line, column)
            else:
                self._add(node)
        elif isinstance(event, SequenceStartEvent):
            self._begin([], event, "seq", line, column)
        elif isinstance(event, MappingStartEvent):
            self._begin({}, event, "map", line, column)
        elif isinstance(event, SequenceEndEvent | MappingEndEvent):
            self._end()
        elif isinstance(event, AliasEvent):
            self._alias(event.anchor, line, column)
        elif isinstance(event, DocumentStartEvent):
            self._start_document(event, line, column)

    def _start_document(self, event: DocumentStartEvent, line: int, column: int) -> None:
        self._documents += 1
        if self._documents > 1:
            raise YamlProblem("a second document begins here; one file holds one document", line, column)
        if event.version is not None and tuple(event.version) != (1, 2):
            major, minor = event.version
            raise YamlProblem(f"the %YAML directive names {major}.{minor}; this is YAML 1.2", line, column)

    def _wants_key(self) -> bool:
        if not self._open:
            return False
        frame = self._open[-1]
        return frame.key is None and frame.node.keys is not None

    def _set_key(self, key: str, line: int, column: int) -> None:
        frame = self._open[-1]
        keys = frame.node.keys if frame.node.keys is not None else {}
        earlier = keys.get(key)
        if earlier is not None:
            raise YamlProblem(
                f"the key {_shown(key)} is given twice: in line {earlier[0]} and in line {line}", line, column
            )
        keys[key] = (line, column)
        frame.key = key
        frame.node.weight += len(key)

    def _begin(
        self, value: Json, event: SequenceStartEvent | MappingStartEvent, kind: str, line: int, column: int
    ) -> None:
        if event.tag not in (None, "!", _TAG + kind):
            raise YamlProblem(f"unknown tag {_shown(event.tag)}", line, column)
        if self._wants_key():
            raise YamlProblem("a mapping key must be a scalar", line, column)
        if len(self._open) >= MAX_DEPTH:
            raise YamlProblem(f"nested deeper than {MAX_DEPTH} levels", line, column)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        keys: dict[str, tuple[int, int]] | None = {} if kind == "map" else None
        self._open.append(_Open(_Node(value, line, column, depth=1, keys=keys, children={}), event.anchor))

    def _end(self) -> None:
        frame = self._open.pop()
        if frame.anchor is not None:
            self._anchors[frame.anchor] = frame.node
        self._add(frame.node)

    def _alias(self, anchor: str | None, line: int, column: int) -> None:
        if anchor is None or anchor not in self._anchors:
            raise YamlProblem(f"the alias {_shown(anchor)} has no anchor before it", line, column)
        target = self._anchors[anchor]
        if target is None:
            raise YamlProblem(f"the alias {_shown(anchor)} stands inside its own anchor", line, column)
        if self._wants_key():
            if target.children is not None:
                raise YamlProblem("a mapping key must be a scalar", line, column)
            self._set_key(_key_text(target.value), line, column)
            return
        node = _Node(
            None,
            line,
            column,
            depth=target.depth,
            nodes=target.nodes,
            weight=target.weight,
            expansions=target.expansions + 1,
            keys=target.keys,
            children=target.children,
        )
        self._check(node)
        node.value = copy.deepcopy(target.value)
        self._add(node)

    def _check(self, node: _Node) -> None:
        """Refuse a value that would make what surrounds it too large, before it is copied in."""
        parent = self._open[-1].node
        problem = None
        if parent.expansions + node.expansions > MAX_ALIAS_EXPANSIONS:
            problem = f"more than {MAX_ALIAS_EXPANSIONS} alias expansions"
        elif len(self._open) + node.depth > MAX_DEPTH:
            problem = f"nested deeper than {MAX_DEPTH} levels"
        elif parent.nodes + node.nodes > MAX_NODES:
            problem = f"more than {MAX_NODES} values"
        elif parent.weight + node.weight > self._max_weight:
            problem = "the document grows too large when its aliases are expanded"
        if problem is not None:
            raise YamlProblem(problem, node.line, node.column)

    def _add(self, node: _Node) -> None:
        if not self._open:
            self.root = node
            return
        self._check(node)
        frame = self._open[-1]
        parent = frame.node
        parent.nodes += node.nodes
        parent.weight += node.weight
        parent.expansions += node.expansions
        parent.depth = max(parent.depth, node.depth + 1)
        step: str | int = len(parent.value) if frame.key is None else frame.key
        if frame.key is None:
            parent.value.append(node.value)
        else:
            parent.value[frame.key] = node.value
            frame.key = None
        if parent.children is not None:
            parent.children[step] = node

    def _scalar(self, event: ScalarEvent, line: int, column: int) -> Json:
        text = self._shield.show(event.value)
        tag = event.tag
        if tag is None and not event.style:
            return _resolve(text, line, column)
        if tag is None or tag in ("!", _TAG + "str"):
            return text
        named = _SCALAR_TAGS.get(tag)
        if named is None:
            raise YamlProblem(f"unknown tag {_shown(tag)}", line, column)
        value = _resolve(text, line, column)
        if named is float and type(value) is int:
            value = float(value) if len(text) < 300 else math.inf
        if type(value) is not named:
            raise YamlProblem(f"{_shown(text)} is no value of the tag {_shown(tag)}", line, column)
        return value


def _resolve(text: str, line: int, column: int) -> Json:
    """The value of a plain scalar under the YAML 1.2 core schema."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text[0] not in "+-.0123456789":
        return text
    number = _number(text, line, column)
    return text if number is None else number


def _number(text: str, line: int, column: int) -> int | float | None:
    for pattern, base in ((_INTEGER, 10), (_OCTAL, 0), (_HEX, 0), (_FLOAT, None)):
        if pattern.fullmatch(text):
            if len(text) > MAX_NUMBER_LENGTH:
                raise YamlProblem(
                    f"a number of more than {MAX_NUMBER_LENGTH} digits; quote it to make it text",
                    line,
                    column,
                )
            return float(text) if base is None else int(text, base)
    if _INFINITY.fullmatch(text):
        return -math.inf if text[0] == "-" else math.inf
    return math.nan if text in _NAN else None


def _key_text(value: Json) -> str:
    """A scalar key as text, in its canonical spelling (01 §2.5)."""
    if not isinstance(value, float):
        return js_text(value)
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)


def _shown(text: str | None, limit: int = 60) -> str:
    text = text or ""
    return f'"{text}"' if len(text) <= limit else f'"{text[:limit]}…"'


#: libyaml's words → an author's; `{char}` is what stands at the place, `{began}` where the broken thing began
_WORDS: Final[dict[str, str]] = {
    "found character that cannot start any token": "no text can begin with {char}: put it in quotes",
    "found unexpected end of stream": "a quoted text is never closed",
    "did not find expected ',' or ']'": "expected ',' or ']' in the list that begins {began}",
    "did not find expected ',' or '}'": "expected ',' or '}}' in the mapping that begins {began}",
    "could not find expected ':'": "expected ':' behind a key",
    "mapping values are not allowed in this context": "a ':' that makes no key here: put a text with ': ' in quotes",
    "did not find expected key": "no key where one is expected: check the indentation, and quotes inside quotes",
    "did not find expected '-' indicator": "no '- ' where one is expected: check the indentation of the list",
    "found unknown escape character": "unknown escape: in double quotes a backslash is written twice",
}
#: faults found at their end, told at their beginning
_AT_BEGINNING: Final = frozenset({"found unexpected end of stream", "could not find expected ':'"})


def _problem_of(error: yaml.MarkedYAMLError, text: str) -> YamlProblem:
    problem, context = error.problem or "", error.context or ""
    at, began = error.problem_mark or error.context_mark, error.context_mark
    if problem in _AT_BEGINNING and began is not None:
        at = began
    line, column = (at.line + 1, at.column + 1) if at else (1, 1)
    words = _WORDS.get(problem)
    if words is None or (began is None and "{began}" in words):
        return YamlProblem(" ".join(filter(None, (context, problem))) or "not YAML", line, column)
    char = ""
    if problem.startswith("found character"):
        lines = _LINE_BREAK.split(text)[line - 1 : line]
        char = lines[0][column - 1 : column] if lines else ""
    if char == "\t":
        return YamlProblem("a tab cannot indent: use spaces", line, column)
    where = f"in line {began.line + 1}" if began is not None else ""
    return YamlProblem(words.format(char=f"'{char}'", began=where), line, column)


def _reader_problem(error: yaml.YAMLError, text: str) -> YamlProblem:
    """libyaml's reader counts bytes of what it was given; the character itself is easier to find again."""
    character = getattr(error, "character", None)
    code = character if isinstance(character, int) else None
    index = text.find(chr(code)) if code is not None else -1
    line, column = _place(text, max(index, 0))
    what = f"the character U+{code:04X} is not allowed" if code is not None else str(error).splitlines()[0]
    return YamlProblem(what, line, column)
