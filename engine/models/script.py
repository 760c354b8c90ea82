"""A model script: reading the YAML of 09 §2 and choosing the answer to a request.

A script is data: which of its answers are used is told by the caller (`ScriptPlay`), so the same script serves any
number of sessions, and a step repeated after a crash gets the same answer again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Final, NoReturn

from core.jsontext import Json, JsonObject
from engine.models.errors import ModelScriptError
from engine.models.scope import Role
from engine.spec.yaml12 import YamlDocument, YamlProblem, load_yaml

ROLES: Final[tuple[Role, ...]] = ("agent", "grader", "judge")
#: the calls that settle a grader's visit; what it says after one is not part of the script unless it names the call
SETTLING_TOOLS: Final = frozenset({"archmax_advance", "archmax_raise"})
MAX_DELAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of an answer. `raw_args` is sent as it stands, valid JSON or not."""

    name: str
    args: JsonObject
    raw_args: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptedUsage:
    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """One model call's answer. `index` counts from 0, `line` from 1."""

    index: int
    line: int
    text: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    role: Role = "agent"
    when_state: str | None = None
    when_workflow: str | None = None
    when_contains: tuple[str, ...] = ()
    after_tool: str | None = None
    delay_ms: float = 0
    error: str | None = None
    error_status: int | None = None
    usage: ScriptedUsage | None = None
    repeat: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What an answer's conditions are held against. `last_tool` is None unless a tool's result comes last."""

    role: Role
    workflow: str
    state: str
    text: str
    last_tool: str | None = None
    last_accepted: bool = False


#: what a grader that has already decided is told to say; uses nothing up
DONE: Final = Answer(index=-1, line=0, text="done", role="grader")


@dataclass(frozen=True, slots=True)
class ModelScript:
    file: str
    answers: tuple[Answer, ...]

    @classmethod
    def parse(cls, file: str, data: bytes | str) -> ModelScript:
        """Read a script. `file` is only used in messages. Raises: `ModelScriptError`."""
        try:
            document = load_yaml(data)
        except YamlProblem as problem:
            raise ModelScriptError(file, problem.line, f"not YAML: {problem.message}") from None
        if not isinstance(document.value, list):
            raise ModelScriptError(file, document.position(())[0], "a model script must be a list of answers")
        reader = _Reader(file, document)
        return cls(file, tuple(reader.answer(index, item) for index, item in enumerate(document.value)))

    def choose(self, request: Request, used: Set[int]) -> Answer | None:
        """The first unused answer whose conditions all hold; None when the script has nothing to say."""
        decided = request.role == "grader" and request.last_accepted and request.last_tool in SETTLING_TOOLS
        for answer in self.answers:
            if answer.index in used and not answer.repeat:
                continue
            if decided and answer.after_tool is None:
                continue
            if _fits(answer, request):
                return answer
        return DONE if decided else None

    def unused(self, used: Set[int]) -> tuple[Answer, ...]:
        """The answers that had to be given and were not: each fails its case (09 §2)."""
        return tuple(answer for answer in self.answers if answer.index not in used and not answer.optional)


def _fits(answer: Answer, request: Request) -> bool:
    return (
        answer.role == request.role
        and answer.when_state in (None, request.state)
        and answer.when_workflow in (None, request.workflow)
        and answer.after_tool in (None, request.last_tool)
        and all(part in request.text for part in answer.when_contains)
    )


class _Reader:
    """Checks one answer at a time and knows the line of everything it complains about."""

    def __init__(self, file: str, document: YamlDocument) -> None:
        self._file = file
        self._document = document
        self._index = 0

    def answer(self, index: int, item: Json) -> Answer:
        self._index = index
        if not isinstance(item, dict):
            self._fail((), "an answer must be a mapping")
        readers = self._readers()
        values: dict[str, Json] = {}
        for key, value in item.items():
            read = readers.get(key)
            if read is None:
                self._fail((key,), f"unknown key {key!r} (known: {', '.join(readers)})")
            values[key] = read(key, value)
        answer = Answer(index=index, line=self._document.position((index,))[0], **values)
        if answer.error_status is not None and answer.error is None:
            self._fail(("error_status",), "error_status needs an error beside it")
        for key in ("text", "tool_calls"):
            if answer.error is not None and item.get(key):
                self._fail((key,), f"an answer with an error has no {key}")
        return answer

    def _readers(self) -> Mapping[str, Callable[[str, Json], Json]]:
        return {
            "text": self._text,
            "tool_calls": self._calls,
            "role": self._role,
            "when_state": self._name,
            "when_workflow": self._name,
            "when_contains": self._contains,
            "after_tool": self._name,
            "delay_ms": self._delay,
            "error": self._name,
            "error_status": self._status,
            "usage": self._usage,
            "repeat": self._flag,
            "optional": self._flag,
        }

    def _fail(self, path: tuple[str | int, ...], problem: str) -> NoReturn:
        line = self._document.key_position((self._index, *path))[0]
        raise ModelScriptError(self._file, line, f"answer {self._index}: {problem}")

    def _text(self, key: str, value: Json) -> str:
        if not isinstance(value, str):
            self._fail((key,), f"{key} must be a string")
        return value

    def _name(self, key: str, value: Json) -> str:
        if not isinstance(value, str) or not value:
            self._fail((key,), f"{key} must be a non-empty string")
        return value

    def _flag(self, key: str, value: Json) -> bool:
        if not isinstance(value, bool):
            self._fail((key,), f"{key} must be true or false")
        return value

    def _role(self, key: str, value: Json) -> str:
        if value not in ROLES:
            self._fail((key,), f"{key} must be one of {', '.join(ROLES)}")
        return str(value)

    def _contains(self, key: str, value: Json) -> tuple[str, ...]:
        parts = [value] if isinstance(value, str) else value
        if (
            not isinstance(parts, list)
            or not parts
            or not all(isinstance(part, str) and part for part in parts)
        ):
            self._fail((key,), f"{key} must be a non-empty string or a list of them")
        return tuple(parts)

    def _delay(self, key: str, value: Json) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= MAX_DELAY_MS:
            self._fail((key,), f"{key} must be a number of milliseconds between 0 and {MAX_DELAY_MS}")
        return float(value)

    def _status(self, key: str, value: Json) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 400 <= value <= 599:
            self._fail((key,), f"{key} must be a status between 400 and 599")
        return value

    def _usage(self, key: str, value: Json) -> ScriptedUsage:
        known = ("input", "output", "cache_read", "cache_write")
        if not isinstance(value, dict):
            self._fail((key,), f"{key} must be a mapping of {', '.join(known)}")
        for name, count in value.items():
            if name not in known:
                self._fail((key, name), f"unknown key {name!r} in usage (known: {', '.join(known)})")
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                self._fail((key, name), f"usage.{name} must be a whole number, 0 or more")
        for name in ("input", "output"):
            if name not in value:
                self._fail((key,), f"usage needs {name}")
        return ScriptedUsage(**value)

    def _calls(self, key: str, value: Json) -> tuple[ScriptedCall, ...]:
        if not isinstance(value, list):
            self._fail((key,), "tool_calls must be a list of { name, args?, raw_args? }")
        return tuple(self._call((key, place), item) for place, item in enumerate(value))

    def _call(self, path: tuple[str | int, ...], item: Json) -> ScriptedCall:
        where = f"tool_calls[{path[-1]}]"
        if not isinstance(item, dict):
            self._fail(path, f"{where} must be a mapping of name, args, raw_args")
        for key in item:
            if key not in ("name", "args", "raw_args"):
                self._fail((*path, key), f"unknown key {key!r} in {where} (known: name, args, raw_args)")
        name, args, raw = item.get("name"), item.get("args", {}), item.get("raw_args")
        if not isinstance(name, str) or not name:
            self._fail(path, f"{where} needs a name")
        if not isinstance(args, dict):
            self._fail((*path, "args"), f"{where}.args must be a mapping")
        if "raw_args" in item and not isinstance(raw, str):
            self._fail((*path, "raw_args"), f"{where}.raw_args must be a string")
        if "raw_args" in item and "args" in item:
            self._fail((*path, "raw_args"), f"{where} has both args and raw_args")
        return ScriptedCall(name, args, raw)
