"""One accepted command line: what the body of a command is given.

Settles what depends on the workspace: the root, which workflow is meant (07 §3.1), and that every session id and
JSON option can be used. Everything wrong here is a usage error, found before anything is assembled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from archmax.cli.parser import Line, UsageError, assign

if TYPE_CHECKING:
    from core.jsontext import JsonObject
    from engine.governance.zones import MountPrefixes

#: the processes of a fleet and what belongs to them: their workspace may stand in the environment like their settings
FLEET_COMMANDS = frozenset({"up", "worker", "api", "beat", "keys"})
ROOT_VARIABLE = "ARCHMAX_ROOT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """`arguments` and `options` hold what was given, by name; `json` the options that are JSON objects.

    `workflows` are the slugs of the root, sorted; `workflow` is the one that is meant, existing or not.
    """

    line: Line
    root: Path
    workflow: str | None
    workflows: tuple[str, ...]
    arguments: Mapping[str, str]
    out: TextIO
    err: TextIO
    json: Mapping[str, JsonObject] = field(default_factory=dict)

    @property
    def options(self) -> Mapping[str, str]:
        return self.line.values

    def flag(self, name: str) -> bool:
        return name in self.line.flags

    def slug(self) -> str:
        """The workflow of a command that has one."""
        if self.workflow is None:
            raise LookupError(f"{self.line.command.name} has no workflow")
        return self.workflow

    def hint_options(self, *, workflow: bool = True) -> tuple[str, ...]:
        """What a printed command line needs to mean the same place: `--root`, and `--workflow` where it is not inferred."""
        words: list[str] = []
        if "root" in self.options:
            words += ["--root", self.options["root"]]
        if workflow and self.workflow is not None and len(self.workflows) != 1:
            words += ["--workflow", self.workflow]
        return tuple(words)


def workflows_of(root: Path) -> tuple[str, ...]:
    """The slugs of the root's workflows, sorted: directories under `workflows/` that hold a `workflow.yaml`."""
    try:
        entries = list((root / "workflows").iterdir())
    except OSError:
        return ()
    return tuple(sorted(entry.name for entry in entries if (entry / "workflow.yaml").is_file()))


def root_of(line: Line) -> Path:
    """The absolute root. Raises: `UsageError` when `--root`, or a fleet's `ARCHMAX_ROOT`, is no directory."""
    said = "option '--root'"
    given = line.values.get("root", ".")
    if "root" not in line.values and line.command.name in FLEET_COMMANDS and os.environ.get(ROOT_VARIABLE):
        said, given = ROOT_VARIABLE, os.environ[ROOT_VARIABLE]
    root = Path(given).absolute()
    try:
        usable = root.is_dir()
    except ValueError:  # a null byte
        usable = False
    if not usable:
        raise UsageError(f"{said}: {given!r} is no directory", line.command)
    return root.resolve()


def settle(line: Line, root: Path, out: TextIO, err: TextIO) -> Invocation:
    """Everything about `line` that can be known before its command starts. Raises: `UsageError`."""
    command = line.command
    json_values = {
        option.key: _json_object(line, option.name, line.values[option.key])
        for option in command.options
        if option.kind == "json" and option.key in line.values
    }
    workflows = workflows_of(root) if command.workflow else ()
    workflow, words = _choose(line, workflows)
    arguments = assign(command, words, skip=1 if command.workflow == "argument" else 0)
    for argument in command.arguments:
        if argument.session:
            _check_session_id(line, arguments.get(argument.name))
    for option in command.options:
        if option.session:
            _check_session_id(line, line.values.get(option.key))
    if command.workflow == "option":
        workflow = line.values.get("workflow") or _only(line, workflows)
    return Invocation(
        line=line,
        root=root,
        workflow=workflow,
        workflows=workflows,
        arguments=arguments,
        json=json_values,
        out=out,
        err=err,
    )


def _choose(line: Line, workflows: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The workflow named by the first argument or inferred, and the other words (07 §3.1)."""
    command, words = line.command, line.words
    if command.workflow != "argument":
        return None, words
    if words and words[0] in workflows:
        return words[0], words[1:]
    if len(workflows) == 1 and (not words or command.adopts_words):
        return workflows[0], words
    if not words or (command.name == "run" and len(words) == 1):
        return _only(line, workflows), words
    return words[0], words[1:]


def conventional_mounts() -> MountPrefixes:
    """The names of the mounts every workspace has from the command line (07 §1)."""
    from engine.governance.zones import MountPrefixes

    return MountPrefixes(dirs=("skills", ".platform"), files=("AGENTS.md",))


def _only(line: Line, workflows: Sequence[str]) -> str:
    if len(workflows) == 1:
        return workflows[0]
    listed = ", ".join(workflows) if workflows else "this root has none"
    raise UsageError(f"workflow is required; {listed}", line.command)


def _json_object(line: Line, name: str, text: str) -> JsonObject:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        detail = error.msg if isinstance(error, json.JSONDecodeError) else str(error) or "too deep"
        raise UsageError(f"option {name!r} is not JSON: {detail}", line.command) from None
    if not isinstance(value, dict):
        raise UsageError(f"option {name!r} must be a JSON object", line.command)
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")


def _check_session_id(line: Line, session_id: str | None) -> None:
    """Refuse an id no session can have (01 §1 rule 7)."""
    if session_id is None:
        return
    from engine.workspace.session_id import session_id_rejection

    reason = session_id_rejection(session_id, conventional_mounts())
    if reason:
        raise UsageError(f"session id {session_id!r} cannot be used: {reason}", line.command)
