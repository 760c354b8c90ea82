"""Globs: the patterns guards compare canonical paths and argument texts with (contract 02 §6).

A pattern becomes a small program over tokens, and the program a lazily built automaton, so that matching takes time
linear in the value whatever the pattern: nested braces are never expanded and nothing backtracks. Separators are
written lazily, before the next character of a segment, which is what makes `a/**` hold `a` itself and makes `a//b`,
`./a/b` and `a/b` one pattern.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from core.paths import canonical, is_within
from engine.governance.spans import without_spans

_MAGIC: Final = re.compile(r"[\\*?\[\]{}()!+@|^$]")
_WILDCARD: Final = re.compile(r"[*?\[{\\]")
_GROUP: Final = re.compile(r"[?*+@!]\(")
#: longer patterns (a guard with a big value put in) are compiled each time instead of being kept
_CACHED_PATTERN_CHARS: Final = 1_024
_MAX_KEPT_STEPS: Final = 4_096


def escape_glob(text: str) -> str:
    """`text` as a pattern that matches only itself (02 §14.2)."""
    return _MAGIC.sub(r"\\\g<0>", text)


def literal_prefix(pattern: str) -> str:
    """The folder a pattern can only match inside: cut at the first wildcard, then at the last `/` (02 §22).

    Canonical, empty when the pattern reaches from the root. A pattern without wildcard is its own prefix.
    """
    return canonical(path_prefix(pattern)).text


def path_prefix(pattern: str) -> str:
    """The text a file pattern starts with before any wildcard, whole folders only; `..` is kept for the caller to apply."""
    found = _WILDCARD.search(pattern)
    return pattern if found is None else pattern[: found.start()].rpartition("/")[0]


def glob_problem(pattern: str) -> str | None:
    """Why `pattern` is refused at load, or None (02 OP-3 and OP-5).

    `${{…}}` spans are not looked at: `references.reference_problem` judges those.
    """
    text = without_spans(pattern, "r")
    if text.startswith("!"):
        return f"glob {pattern!r} opens with '!': a guard cannot be inverted; use a forbid entry"
    bare = _blank_escapes(text)
    if group := _GROUP.search(bare):
        return f"glob {pattern!r} holds {group[0]!r}: groups are not supported; use {{a,b}}"
    scan = _scan(text)
    for start in scan.classes:
        if bare.startswith("[!", start):
            return f"glob {pattern!r} holds '[!': write '[^' for any character but these"
    for start, close in scan.plain_braces.items():
        if ".." in bare[start:close]:
            return f"glob {pattern!r} holds the range {text[start : close + 1]!r}: list the alternatives as {{a,b}}"
    if compile_glob(text).climbs:
        return f"glob {pattern!r} holds a '..' segment: write the path it stands for"
    return None


def compile_glob(pattern: str) -> Glob:
    """The matcher of `pattern`. Never raises: a malformed pattern is matched literally. Cached."""
    if len(pattern) > _CACHED_PATTERN_CHARS:
        return Glob(pattern)
    return _compile_cached(pattern)


class Glob:
    """A compiled pattern. Values are canonical text (`core.paths.canonical`), without leading slash.

    `climbs`: whether a `..` segment occurs; such a pattern matches nothing, and a denial treats it as matching. The
    automaton is built when it is first asked: a document is judged without matching anything.
    """

    __slots__ = ("_automaton", "_exact", "_prefix", "_scanned", "climbs", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.climbs = False
        self._exact: str | None = None
        self._prefix: str | None = None
        self._automaton: _Automaton | None = None
        scan = _scan(pattern)
        self._scanned = scan
        if scan.malformed:
            self._exact = canonical(re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)).text
            return
        climbing = ".." in pattern
        if _WILDCARD.search(pattern) is None and not climbing:
            self._exact = canonical(pattern).text
            return
        body = pattern.removesuffix("/**")
        if body and body != pattern and _WILDCARD.search(body) is None and not climbing:
            self._prefix = canonical(body).text
            return
        self.climbs = climbing and _climbs(_assemble(pattern, scan))

    @property
    def matches_root(self) -> bool:
        """Whether it holds the workspace root, the empty value; only denials ask (02 OP-4)."""
        if self._exact is not None:
            return not self._exact
        if self._prefix is not None:
            return not self._prefix
        return self._machine.start.accepting

    def matches(self, value: str) -> bool:
        """Whether the whole of canonical `value` matches. The empty value matches nothing. Linear in its length."""
        if not value or self.climbs:
            return False
        if self._exact is not None:
            return value == self._exact
        if self._prefix is not None:
            return is_within(value, self._prefix)
        return self._machine.accepts(value)

    @property
    def _machine(self) -> _Automaton:
        if self._automaton is None:
            self._automaton = _Automaton(_assemble(self.pattern, self._scanned))
        return self._automaton


@lru_cache(maxsize=4_096)
def _compile_cached(pattern: str) -> Glob:
    return Glob(pattern)


# --- reading -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """Where the brackets of a pattern close: positions, found in one pass."""

    classes: dict[int, int] = field(default_factory=dict)
    #: braces with a comma, by where they open
    choices: set[int] = field(default_factory=set)
    #: the commas and the closes of those
    commas: set[int] = field(default_factory=set)
    closes: set[int] = field(default_factory=set)
    #: braces without one, literal: open → close
    plain_braces: dict[int, int] = field(default_factory=dict)
    malformed: bool = False


def _blank_escapes(text: str) -> str:
    """`text`, same length, with every escaped character replaced by one without meaning."""
    return re.sub(r"\\.", "__", text, flags=re.DOTALL)


def _scan(pattern: str) -> _Scan:
    scan = _Scan()
    open_braces: list[tuple[int, list[int]]] = []
    at, size = 0, len(pattern)
    no_class_closes_after = size
    while at < size:
        char = pattern[at]
        if char == "\\":
            at += 2
            continue
        if char == "[":
            close = _class_close(pattern, at) if at < no_class_closes_after else None
            if close is None:
                scan.malformed = True
                no_class_closes_after = min(no_class_closes_after, at)
            else:
                scan.classes[at] = close
                at = close
        elif char == "{":
            open_braces.append((at, []))
        elif char == "," and open_braces:
            open_braces[-1][1].append(at)
        elif char == "}" and open_braces:
            start, commas = open_braces.pop()
            if commas:
                scan.choices.add(start)
                scan.commas.update(commas)
                scan.closes.add(at)
            else:
                scan.plain_braces[start] = at
        at += 1
    scan.malformed = scan.malformed or bool(open_braces)
    return scan


def _class_close(pattern: str, at: int) -> int | None:
    """The `]` that ends the class opened at `at`; one directly after `[` or `[^` is a member."""
    at += 2 if pattern.startswith("[^", at) else 1
    first = at
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
            continue
        if pattern[at] == "]" and at > first:
            return at
        at += 1
    return None


class _Op(IntEnum):
    CHAR = 0  #: one given character
    ANY = 1  #: `?`
    CLASS = 2
    STAR = 3
    DEEP = 4  #: `**`
    SEP = 5
    SPLIT = 6
    JUMP = 7
    END = 8


class _Class(NamedTuple):
    negated: bool
    ranges: tuple[tuple[str, str], ...]

    def holds(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) is not self.negated


class _Instr(NamedTuple):
    op: _Op
    char: str = ""
    cls: _Class | None = None
    targets: tuple[int, ...] = ()


def _assemble(pattern: str, scan: _Scan) -> list[_Instr]:
    """The program of a well-formed pattern; braces become splits, so its size is linear in the pattern's."""
    program: list[_Instr] = []
    #: per open choice: index of its split, starts of its alternatives, jumps to patch
    stack: list[tuple[int, list[int], list[int]]] = []
    at, size = 0, len(pattern)
    while at < size:
        char = pattern[at]
        if char == "\\" and at + 1 < size:
            escaped = pattern[at + 1]
            program.append(_Instr(_Op.SEP) if escaped == "/" else _Instr(_Op.CHAR, escaped))
            at += 2
        elif at in scan.classes:
            program.append(_Instr(_Op.CLASS, cls=_read_class(pattern, at, scan.classes[at])))
            at = scan.classes[at] + 1
        elif char == "*":
            end = at
            while end < size and pattern[end] == "*":
                end += 1
            program.append(_Instr(_Op.DEEP if end - at == 2 else _Op.STAR))
            at = end
        elif at in scan.choices:
            stack.append((len(program), [len(program) + 1], []))
            program.append(_Instr(_Op.SPLIT))
            at += 1
        elif at in scan.commas or at in scan.closes:
            split, starts, jumps = stack[-1]
            jumps.append(len(program))
            program.append(_Instr(_Op.JUMP))
            if at in scan.commas:
                starts.append(len(program))
            else:
                stack.pop()
                program[split] = _Instr(_Op.SPLIT, targets=tuple(starts))
                for jump in jumps:
                    program[jump] = _Instr(_Op.JUMP, targets=(len(program),))
            at += 1
        else:
            plain = {"?": _Instr(_Op.ANY), "/": _Instr(_Op.SEP)}.get(char)
            program.append(plain or _Instr(_Op.CHAR, char))
            at += 1
    program.append(_Instr(_Op.END))
    return program


def _read_class(pattern: str, start: int, close: int) -> _Class:
    at = start + 1
    negated = pattern[at] == "^"
    at += negated
    members: list[tuple[str, bool]] = []  # (character, escaped)
    while at < close:
        escaped = pattern[at] == "\\" and at + 1 < close
        at += escaped
        members.append((pattern[at], escaped))
        at += 1
    ranges: list[tuple[str, str]] = []
    index = 0
    while index < len(members):
        low = members[index][0]
        if index + 2 < len(members) and members[index + 1] == ("-", False):
            ranges.append((low, members[index + 2][0]))
            index += 3
        else:
            ranges.append((low, low))
            index += 1
    return _Class(negated, tuple(ranges))


# --- matching ----------------------------------------------------------------------------------------------------


class _At(IntEnum):
    """Where in the value a configuration stands. `ROOT_…`: nothing is written yet; `NEXT_…`: a `/` is owed."""

    ROOT = 0  #: at the start of the first segment
    NEXT = 1  #: at the start of a later segment
    ROOT_STAR = 2  #: a star was passed with no character: the segment may not end here
    NEXT_STAR = 3
    ROOT_DOT = 4  #: a lone `.` so far: dropped if the segment ends here
    NEXT_DOT = 5
    CLIMB = 6  #: `..` so far
    ROOT_DEEP = 7  #: behind a `**` that took no segment: only the segment's end may follow
    NEXT_DEEP = 8
    DEEP_END = 9  #: behind a `**` that took segments
    INSIDE = 10  #: inside a segment, with at least one character or directly behind its `/`
    STAR_OPEN = 11  #: at a star directly behind a `/`: one character is needed
    IN_DEEP = 12  #: at a `**`, inside a segment it takes
    DEEP_OPEN = 13  #: at a `**`, directly behind a `/`


_Config = tuple[int, _At]

_ACCEPTED: Final = frozenset(
    {_At.ROOT, _At.NEXT, _At.ROOT_DOT, _At.NEXT_DOT, _At.ROOT_DEEP, _At.NEXT_DEEP, _At.DEEP_END, _At.INSIDE}
)
_AFTER_SEP: Final = {
    _At.ROOT: _At.ROOT,
    _At.NEXT: _At.NEXT,
    _At.ROOT_DOT: _At.ROOT,
    _At.NEXT_DOT: _At.NEXT,
    _At.ROOT_DEEP: _At.ROOT,
    _At.NEXT_DEEP: _At.NEXT,
    _At.DEEP_END: _At.NEXT,
    _At.INSIDE: _At.NEXT,
}
_STARRED: Final = {_At.ROOT: _At.ROOT_STAR, _At.NEXT: _At.NEXT_STAR}
_DOTTED: Final = {
    _At.ROOT: _At.ROOT_DOT,
    _At.NEXT: _At.NEXT_DOT,
    _At.ROOT_DOT: _At.CLIMB,
    _At.NEXT_DOT: _At.CLIMB,
}
_DEEPENED: Final = {_At.ROOT: _At.ROOT_DEEP, _At.NEXT: _At.NEXT_DEEP, _At.IN_DEEP: _At.DEEP_END}
_WRITES: Final = frozenset({_At.ROOT, _At.ROOT_STAR, _At.INSIDE, _At.STAR_OPEN})
_OWES: Final = frozenset({_At.NEXT, _At.NEXT_STAR})
_MAY_BE_EMPTY: Final = frozenset({_At.ROOT, _At.NEXT, _At.ROOT_STAR, _At.NEXT_STAR, _At.INSIDE})


def _without_reading(instr: _Instr, pc: int, at: _At) -> list[_Config]:
    """Configurations reached from `(pc, at)` without taking a character."""
    found: list[_Config] = []
    match instr.op:
        case _Op.SPLIT | _Op.JUMP:
            found = [(target, at) for target in instr.targets]
        case _Op.SEP:
            if (after := _AFTER_SEP.get(at)) is not None:
                found.append((pc + 1, after))
        case _Op.CHAR:
            if instr.char == "." and (after := _DOTTED.get(at)) is not None:
                found.append((pc + 1, after))
        case _Op.STAR | _Op.DEEP:
            if at in _MAY_BE_EMPTY:
                found.append((pc + 1, _STARRED.get(at, at)))
            if instr.op is _Op.DEEP and (after := _DEEPENED.get(at)) is not None:
                found.append((pc + 1, after))
        case _:
            pass
    return found


def _reading(instr: _Instr, pc: int, at: _At, char: str) -> list[_Config]:
    """Configurations reached from `(pc, at)` by taking `char`."""
    if instr.op in (_Op.STAR, _Op.DEEP):
        return _star_reading(instr.op, pc, at, char)
    if at in _OWES:
        return [(pc, _At.INSIDE)] if char == "/" and instr.op in (_Op.CHAR, _Op.ANY, _Op.CLASS) else []
    if at not in _WRITES or char == "/":
        return []
    match instr.op:
        case _Op.CHAR:
            taken = instr.char == char
        case _Op.ANY:
            taken = True
        case _Op.CLASS:
            taken = instr.cls is not None and instr.cls.holds(char)
        case _:
            taken = False
    return [(pc + 1, _At.INSIDE)] if taken else []


def _star_reading(op: _Op, pc: int, at: _At, char: str) -> list[_Config]:
    found: list[_Config] = []
    if char == "/":
        if at in _OWES:
            found.append((pc, _At.STAR_OPEN))
        if op is _Op.DEEP and at in (_At.NEXT, _At.IN_DEEP):
            found.append((pc, _At.DEEP_OPEN))
        return found
    if at in _WRITES:
        found.append((pc, _At.INSIDE))
    if op is _Op.DEEP and at in (_At.ROOT, _At.IN_DEEP, _At.DEEP_OPEN):
        found.append((pc, _At.IN_DEEP))
    return found


class _Node:
    """One state of the automaton: its configurations, closed, and the steps taken from it so far."""

    __slots__ = ("accepting", "configs", "steps")

    def __init__(self, configs: frozenset[_Config], accepting: bool) -> None:
        self.configs = configs
        self.accepting = accepting
        self.steps: dict[str, _Node] = {}


class _Automaton:
    """Built step by step as values ask for it, and thrown away when it has grown large."""

    __slots__ = ("_kept", "_nodes", "_program", "start")

    def __init__(self, program: list[_Instr]) -> None:
        self._program = program
        self._kept = 0
        self._nodes: dict[frozenset[_Config], _Node] = {}
        self.start = self._node([(0, _At.ROOT)])

    def accepts(self, value: str) -> bool:
        node = self.start
        for char in value:
            following = node.steps.get(char)
            if following is None:
                following = self._step(node, char)
            if not following.configs:
                return False
            node = following
        return node.accepting

    def _step(self, node: _Node, char: str) -> _Node:
        program = self._program
        reached = [config for pc, at in node.configs for config in _reading(program[pc], pc, at, char)]
        following = self._node(reached)
        if self._kept >= _MAX_KEPT_STEPS:
            self._kept = 0
            self._nodes = {self.start.configs: self.start}
            self.start.steps = {}
        self._kept += 1
        node.steps[char] = following
        return following

    def _node(self, reached: list[_Config]) -> _Node:
        seen = set(reached)
        todo = list(seen)
        while todo:
            pc, at = todo.pop()
            for config in _without_reading(self._program[pc], pc, at):
                if config not in seen:
                    seen.add(config)
                    todo.append(config)
        configs = frozenset(seen)
        node = self._nodes.get(configs)
        if node is None:
            end = len(self._program) - 1
            node = _Node(configs, any(pc == end and at in _ACCEPTED for pc, at in configs))
            self._nodes[configs] = node
        return node


def _climbs(program: list[_Instr]) -> bool:
    """Whether a `..` segment can be read off some alternative of the program."""
    todo: list[_Config] = [(0, _At.ROOT)]
    seen = set(todo)
    while todo:
        pc, at = todo.pop()
        instr = program[pc]
        if at is _At.CLIMB and instr.op in (_Op.SEP, _Op.END):
            return True
        following = _without_reading(instr, pc, at)
        if instr.op < _Op.SEP and at not in (_At.ROOT_DOT, _At.NEXT_DOT, _At.CLIMB):
            following.append((pc + 1, _At.INSIDE))
        for config in following:
            if config not in seen:
                seen.add(config)
                todo.append(config)
    return False
