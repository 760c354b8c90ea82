"""Entries of tools lists, compiled: whether one call matches one (contract 02 §5, §8, §14).

A grant and a denial read the same entry with opposite caution: what cannot be decided (an unresolved reference, a
mapping where text is expected) matches no grant and every denial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from core import jsontext
from core.jsontext import Json
from core.paths import canonical
from engine.governance.globs import Glob, compile_glob
from engine.governance.names import delegation_target
from engine.governance.references import (
    MISSING,
    Unresolved,
    Variables,
    has_reference,
    lookup,
    resolve_glob,
    resolve_text,
    scalar_text,
)
from engine.governance.tool_paths import CallPath, PathAccess, PathArgument
from engine.spec.model import ToolEntry

ANY_TOOL: Final = "*"
_MAX_SHOWN_CHARS: Final = 200


class Call:
    """What guards look at: one call, its declared path arguments and the paths it names. Made for every decision."""

    __slots__ = ("_path_values", "args", "declared", "paths", "tool")

    def __init__(
        self,
        tool: str,
        args: Mapping[str, Json],
        declared: tuple[PathArgument, ...],
        paths: tuple[CallPath, ...],
    ) -> None:
        self.tool = tool
        self.args = args
        self.declared = declared
        self.paths = paths
        self._path_values: list[_Value] | None = None

    @property
    def path_values(self) -> list[_Value]:
        """What a `paths` guard is tested on (02 §5.2): every path, one absent value per argument that names none."""
        if self._path_values is None:
            self._path_values = self._read_path_values()
        return self._path_values

    def _read_path_values(self) -> list[_Value]:
        if not self.declared:
            return _argument_values(self.args.get("file_path"), as_json=False)
        named = {path.argument for path in self.paths}
        values: list[_Value] = [path.text for path in self.paths]
        values.extend(
            _Absent(argument.access in (PathAccess.LIST, PathAccess.SEARCH))
            for argument in self.declared
            if argument.name not in named
            or any(_is_empty_list(self.args.get(name)) for name in argument.spellings)
        )
        return values


class Patterns(NamedTuple):
    """The globs of one guard: ready where they hold no reference, else resolved at each call."""

    written: tuple[str, ...]
    ready: tuple[Glob, ...] | None

    def globs(self, variables: Variables) -> tuple[Glob, ...] | Unresolved:
        if self.ready is not None:
            return self.ready
        found: list[Glob] = []
        for pattern in self.written:
            resolved = resolve_glob(pattern, variables)
            if isinstance(resolved, Unresolved):
                return resolved
            found.append(compile_glob(resolved))
        return tuple(found)

    def shown(self, variables: Variables) -> str:
        """The patterns as a person or a model reads them: references resolved, or marked and named."""
        return " or ".join(_shown(pattern, variables) for pattern in self.written) or "nothing"


def _shown(pattern: str, variables: Variables) -> str:
    resolved = resolve_text(pattern, variables)
    if isinstance(resolved, Unresolved):
        return f"{jsontext.text(pattern)} (unresolved: ${{{{{resolved.reference}}}}}, {resolved.why})"
    if len(resolved) > _MAX_SHOWN_CHARS:
        resolved = resolved[:_MAX_SHOWN_CHARS] + "…"
    return jsontext.text(resolved)


class Guard(NamedTuple):
    """One entry. Without `args` and `paths` it matches every call of its tool."""

    tool: str
    args: tuple[tuple[str, Patterns], ...] | None
    paths: Patterns | None

    @property
    def open(self) -> bool:
        return self.args is None and self.paths is None

    def grants(self, call: Call, variables: Variables) -> bool | Unresolved:
        """Whether the entry permits the call; the first unresolved reference makes it permit nothing."""
        if self.paths is not None:
            globs = self.paths.globs(variables)
            if isinstance(globs, Unresolved):
                return globs
            for value in call.path_values:
                if not _any(globs, value):
                    return False
            return bool(call.path_values)
        args = self._argument_globs(variables)
        if isinstance(args, Unresolved):
            return args
        return bool(args) and all(_argument_granted(call, name, globs) for name, globs in args.items())

    def denies(self, call: Call, variables: Variables) -> bool:
        """Whether the entry forbids the call. An unresolved reference, or a `..` a value brought in, forbids."""
        if self.paths is not None:
            globs = self.paths.globs(variables)
            if isinstance(globs, Unresolved):
                return True
            for value in call.path_values:  # noqa: SIM110  a generator costs more than the loop
                if _denied(globs, value):
                    return True
            return False
        args = self._argument_globs(variables)
        if isinstance(args, Unresolved):
            return True
        return all(_argument_denied(call, name, globs) for name, globs in args.items())

    def _argument_globs(self, variables: Variables) -> dict[str, tuple[Glob, ...]] | Unresolved:
        found: dict[str, tuple[Glob, ...]] = {}
        for name, patterns in self.args or ():
            globs = patterns.globs(variables)
            if isinstance(globs, Unresolved):
                return globs
            found[name] = globs
        return found

    def shown(self, variables: Variables, *, any_path: bool = False) -> str:
        """The constraint, without the tool's name; `any_path` as a denial reads it."""
        if self.paths is not None:
            return f"{'a' if any_path else 'every'} path matches {self.paths.shown(variables)}"
        return " and ".join(
            f"`{name}` matches {patterns.shown(variables)}" for name, patterns in self.args or ()
        )


def compile_entry(entry: ToolEntry) -> Guard:
    args = (
        tuple((name, _patterns(globs)) for name, globs in entry.args.items())
        if entry.args is not None
        else None
    )
    return Guard(entry.tool, args, _patterns(entry.paths) if entry.paths is not None else None)


def _patterns(globs: Sequence[str]) -> Patterns:
    written = tuple(globs)
    ready = (
        None
        if any(has_reference(glob) for glob in written)
        else tuple(compile_glob(glob) for glob in written)
    )
    return Patterns(written, ready)


# --- paths -------------------------------------------------------------------------------------------------------


class _Absent(NamedTuple):
    """An argument that names no path. `root`: the tool then works on the workspace root."""

    root: bool


#: a canonical text, `_Absent`, or `MISSING` for a value that is neither text nor absent
_Value: TypeAlias = Json


def _is_empty_list(value: Json) -> bool:
    return isinstance(value, (list, tuple)) and not value


def _any(globs: tuple[Glob, ...], value: _Value) -> bool:
    if isinstance(value, str):
        for glob in globs:
            if glob.matches(value):
                return True
    return False


def _denied(globs: tuple[Glob, ...], value: _Value) -> bool:
    if not isinstance(value, str):
        if isinstance(value, _Absent):
            return value.root and any(glob.matches_root for glob in globs)
        return bool(globs)
    for glob in globs:  # noqa: SIM110  as above
        if glob.climbs or (glob.matches(value) if value else glob.matches_root):
            return True
    return False


# --- arguments ---------------------------------------------------------------------------------------------------


def _argument_values(value: Json, *, as_json: bool) -> list[_Value]:
    """The texts a guard compares one argument's value with; a list gives each element (02 OP-6).

    `as_json`: lists and mappings are compared as their JSON text (delegation tools, 04 OP-9).
    """
    if value is None or value is MISSING:
        return [_Absent(False)]
    if as_json and isinstance(value, (list, tuple, Mapping)):
        return [_json_value(value)]
    items = value if isinstance(value, (list, tuple)) else (value,)
    return [_item_value(item) for item in items] or [_Absent(False)]


def _json_value(value: Json) -> _Value:
    try:
        return canonical(jsontext.text(value)).text
    except (TypeError, ValueError, RecursionError):  # not JSON, or nested beyond what the writer takes
        return MISSING


def _item_value(item: Json) -> _Value:
    if item is None:
        return _Absent(False)
    text = scalar_text(item)
    return MISSING if text is None else canonical(text).text


def _spelled(call: Call, name: str) -> list[_Value]:
    """The values of an argument under each spelling the tool takes it by (02 §9.2)."""
    as_json = delegation_target(call.tool) is not None
    for argument in call.declared:
        if len(argument.spellings) > 1 and name in argument.spellings:
            given = [call.args[key] for key in argument.spellings if call.args.get(key) is not None]
            return [text for value in given for text in _argument_values(value, as_json=as_json)] or [
                _Absent(False)
            ]
    return _argument_values(lookup(call.args, name.split(".")), as_json=as_json)


def _argument_granted(call: Call, name: str, globs: tuple[Glob, ...]) -> bool:
    return all(_any(globs, value) for value in _spelled(call, name))


def _argument_denied(call: Call, name: str, globs: tuple[Glob, ...]) -> bool:
    return any(_denied(globs, value) for value in _spelled(call, name))


# --- lists of entries --------------------------------------------------------------------------------------------


#: a list of entries by tool, order kept
Grants: TypeAlias = Mapping[str, tuple[Guard, ...]]


def compile_grants(entries: Iterable[ToolEntry]) -> Grants:
    grants: dict[str, list[Guard]] = {}
    for entry in entries:
        grants.setdefault(entry.tool, []).append(compile_entry(entry))
    return {tool: tuple(guards) for tool, guards in grants.items()}


class Denials:
    """A forbid list, by tool; entries for every tool are tried for each call."""

    __slots__ = ("_by_tool", "_every", "_hidden", "_hides_all", "size")

    def __init__(self, entries: Iterable[ToolEntry]) -> None:
        by_tool = dict(compile_grants(entries))
        self._every = by_tool.pop(ANY_TOOL, ())
        self._by_tool = by_tool
        #: tools an unguarded entry names: not disclosed
        self._hidden = frozenset(
            tool for tool, guards in by_tool.items() if any(guard.open for guard in guards)
        )
        self._hides_all = any(guard.open for guard in self._every)
        #: entries and globs: what a decision may have to look at
        self.size = sum(
            1 + (len(guard.paths.written) if guard.paths is not None else 0)
            for guards in (self._every, *by_tool.values())
            for guard in guards
        )

    def __bool__(self) -> bool:
        return self.size > 0

    def naming(self, tool: str) -> tuple[Guard, ...]:
        """The entries that bind a tool."""
        own = self._by_tool.get(tool)
        return self._every if own is None else self._every + own

    def for_tool(self, tool: str) -> tuple[Guard, ...]:
        """The guarded entries that name the tool itself."""
        return tuple(guard for guard in self._by_tool.get(tool, ()) if not guard.open)

    @property
    def for_every_tool(self) -> tuple[Guard, ...]:
        return self._every

    def match(self, call: Call, variables: Variables) -> Guard | None:
        """The first entry that forbids the call."""
        for guard in self.naming(call.tool):
            if guard.open or guard.denies(call, variables):
                return guard
        return None

    def hides(self, tool: str) -> bool:
        return self._hides_all or tool in self._hidden
