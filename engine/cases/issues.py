"""What is wrong with a case file, each thing with its place, and the checks every part of a reader shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from core.jsontext import Json, JsonObject
from engine.cases.regex import Regex, RegexEngine, as_regex
from engine.spec.diagnostics import shown
from engine.spec.paths import variable_name_ok

Path: TypeAlias = tuple[str | int, ...]


def place_text(path: Path) -> str:
    """`steps[2].reply.includes[0]`; nothing for the document itself."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{shown(step)}" if text else shown(step)
    return text


class Issues:
    """Collects; nothing here raises. Regexes are gathered and compiled together at the end: one round trip."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._regexes: list[tuple[Path, Regex]] = []

    def add(self, path: Path, problem: str) -> None:
        place = place_text(path)
        self.found.append(f"{place}: {problem}" if place else problem)

    def known_keys(
        self, value: Mapping[str, Json], path: Path, known: Sequence[str], *, listed: bool = False
    ) -> None:
        for key in value:
            if key not in known:
                self.add(
                    path,
                    f"unknown key {shown(key)!r}" + (f" (known keys: {', '.join(known)})" if listed else ""),
                )

    def text(self, value: Json, path: Path, problem: str) -> str | None:
        """A string that is not empty."""
        if not isinstance(value, str) or not value:
            self.add(path, problem)
            return None
        return value

    def optional_text(
        self, value: Mapping[str, Json], key: str, path: Path, *, empty: bool = False
    ) -> str | None:
        if key not in value:
            return None
        text = value[key]
        if not isinstance(text, str) or not (text or empty):
            self.add((*path, key), "must be a string" if empty else "must be a non-empty string")
            return None
        return text

    def count(self, value: Mapping[str, Json], path: Path) -> int:
        """`count` as a whole number, 0 or more."""
        number = value.get("count")
        if isinstance(number, float) and number.is_integer():  # YAML's 2.0 is the number 2
            number = int(number)
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            self.add((*path, "count"), "count must be a whole number, 0 or more")
            return 0
        return number

    def variables(self, value: Mapping[str, Json], path: Path) -> JsonObject:
        """The mapping under the last step of `path`: names checked, values as they are."""
        variables = value.get(str(path[-1]), {})
        if not isinstance(variables, dict):
            self.add(path, "must be a mapping of variable names to values")
            return {}
        for name in variables:
            if not variable_name_ok(name):
                self.add(
                    (*path, name),
                    f"{shown(name)!r} is no variable name: a lower-case letter, then letters, digits, _",
                )
        return variables

    def tool_input(self, value: Mapping[str, Json], key: str, path: Path) -> JsonObject | None:
        """A mapping whose strings, at any depth, may be regexes."""
        if key not in value:
            return None
        declared = value[key]
        if not isinstance(declared, dict):
            self.add((*path, key), "must be a mapping")
            return None
        self._regexes_in(declared, (*path, key))
        return declared

    def token(self, text: str, path: Path) -> None:
        """Note a string that may be a regex."""
        regex = as_regex(text)
        if regex is not None:
            self._regexes.append((path, regex))

    def _regexes_in(self, value: Json, path: Path) -> None:
        pending: list[tuple[Json, Path]] = [(value, path)]
        while pending:
            item, place = pending.pop()
            if isinstance(item, str):
                self.token(item, place)
            else:
                pending.extend((child, (*place, key)) for key, child in _children(item))

    def check_regexes(self, engine: RegexEngine) -> None:
        problems = engine.problems([regex for _, regex in self._regexes])
        for (path, regex), problem in zip(self._regexes, problems, strict=True):
            if problem is not None:
                self.add(path, f"malformed regex {shown(str(regex))}: {shown(problem)}")


def _children(value: Json) -> Iterable[tuple[str | int, Json]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()
