"""Which arguments of a tool are paths, what each is used for, and the paths one call names (contract 02 §9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from core.jsontext import Json
from core.paths import CanonicalPath, canonical
from engine.errors import ToolPathsError
from engine.governance.globs import path_prefix
from engine.governance.names import is_builtin


class PathAccess(StrEnum):
    READ = "read"
    LIST = "list"
    SEARCH = "search"
    WRITE = "write"
    REMOVE = "remove"
    EXECUTE = "execute"

    @property
    def mutates(self) -> bool:
        """A removal is refused wherever a write is."""
        return self is PathAccess.WRITE or self is PathAccess.REMOVE


class PathArgument(NamedTuple):
    """A declared path argument. `spellings` are the names it is given by; all that are given are governed (02 OP-20)."""

    name: str
    access: PathAccess
    spellings: tuple[str, ...]


#: tool → its declared path arguments, in declaration order
ToolPaths: TypeAlias = Mapping[str, tuple[PathArgument, ...]]


def _one(name: str, access: PathAccess) -> tuple[PathArgument, ...]:
    return (PathArgument(name, access, (name, "path" if name == "file_path" else "file_path")),)


def _exact(name: str, access: PathAccess) -> PathArgument:
    return PathArgument(name, access, (name,))


BUILTIN_PATHS: Final[ToolPaths] = {
    "read_file": _one("file_path", PathAccess.READ),
    "write_file": _one("file_path", PathAccess.WRITE),
    "edit_file": _one("file_path", PathAccess.WRITE),
    "ls": _one("path", PathAccess.LIST),
    "glob": _one("path", PathAccess.SEARCH),
    "grep": _one("path", PathAccess.SEARCH),
    "copy_file": (
        _exact("source", PathAccess.READ),
        _exact("destination", PathAccess.WRITE),
    ),
    "move_file": (
        _exact("source", PathAccess.REMOVE),
        _exact("destination", PathAccess.WRITE),
    ),
    "remove_file": (_exact("file_path", PathAccess.REMOVE),),
    "archmax_run": _one("file_path", PathAccess.EXECUTE),
}


def declare_tool_paths(
    descriptors: Mapping[str, Mapping[str, str]], overrides: Mapping[str, Mapping[str, str]]
) -> ToolPaths:
    """The one table of an assembly: built-ins, tool descriptors, and the host's `toolPaths`, which win per tool.

    Raises: `ToolPathsError` for a built-in's name, an unknown access or an empty declaration (02 §9.4).
    """
    table = dict(BUILTIN_PATHS)
    for source in (descriptors, overrides):
        for tool, declared in source.items():
            if is_builtin(tool):
                raise ToolPathsError(tool, "the paths of a built-in tool are the runtime's to declare")
            if not declared:
                raise ToolPathsError(tool, "the declaration names no argument")
            table[tool] = tuple(
                _exact(argument, _access(tool, argument, access)) for argument, access in declared.items()
            )
    return table


def _access(tool: str, argument: str, access: str) -> PathAccess:
    try:
        return PathAccess(access)
    except ValueError:
        known = ", ".join(PathAccess)
        raise ToolPathsError(
            tool, f"argument {argument!r}: unknown access {access!r}; one of {known}"
        ) from None


_PATH_LIKE: Final = ("path", "file", "source", "destination")


def undeclared_path_arguments(tool: str, properties: Iterable[str], table: ToolPaths) -> tuple[str, ...]:
    """Arguments of a host tool that look like paths while it declares none: worth a warning (02 OP-23)."""
    if tool in table:
        return ()
    return tuple(name for name in properties if name.lower().endswith(_PATH_LIKE))


class CallPath(NamedTuple):
    """One path a call names. `argument` is the declared name, whichever spelling was used."""

    argument: str
    access: PathAccess
    written: str
    place: CanonicalPath

    @property
    def text(self) -> str:
        """The canonical path; empty for the root."""
        return self.place.text


_ROOT: Final = CanonicalPath("", False)


def read_path(written: str) -> CanonicalPath:
    """The canonical path of an argument's text; blank text names the root (02 OP-21)."""
    place = canonical(written)
    return place if place.text.strip() else _ROOT


def is_path_value(value: Json) -> bool:
    """Whether an argument holds what a path argument may: nothing, a string, or a list of strings (02 §9.3)."""
    if value is None or isinstance(value, str):
        return True
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def texts_of(value: Json) -> tuple[str, ...]:
    """The strings of a path argument's value; anything that is none counts for nothing."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)):
        return tuple(item for item in value if isinstance(item, str))
    return ()


def call_paths(
    tool: str, declared: tuple[PathArgument, ...], args: Mapping[str, Json]
) -> tuple[CallPath, ...]:
    """Every path of one call, in declaration order, lists in list order.

    A search also names the folder its `glob` pattern is bound to (02 OP-9).
    """
    found = [
        CallPath(argument.name, argument.access, text, read_path(text))
        for argument in declared
        for spelling in argument.spellings
        for text in texts_of(args.get(spelling))
    ]
    if tool == "glob" and isinstance(pattern := args.get("pattern"), str):
        found.extend(_pattern_paths(pattern, found))
    return tuple(found)


def _pattern_paths(pattern: str, rooted: list[CallPath]) -> list[CallPath]:
    """Where a file pattern leads from each root; one with a leading slash may be read from the workspace root too.

    Without a root given, the folder the pattern is bound to is the root of the search, unless the pattern climbs out.
    """
    prefix = path_prefix(pattern)
    if not prefix:
        return []
    bases = [path.written for path in rooted] or [""]
    if pattern.startswith("/"):
        bases.append("")
    argument = "pattern" if rooted or ".." in pattern.split("/") else "path"
    joined = [f"{base}/{prefix}" for base in dict.fromkeys(bases)]
    return [CallPath(argument, PathAccess.SEARCH, text, read_path(text)) for text in joined]
