"""Reading a command line by the table (07 §3): a whole line, or one usage error.

Nothing here touches the disk. What depends on the workspace (which workflow is meant, and with it what the words
stand for) is settled in `archmax.cli.invocation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from archmax.cli.table import COMMANDS, GLOBAL_OPTIONS, HELP, VERSION, Command, Option, find


class UsageError(Exception):
    """The line cannot be understood (exit 2). `command` is None when it names no known command."""

    def __init__(self, problem: str, command: Command | None = None, *, help_first: bool = False) -> None:
        super().__init__(problem, command, help_first)
        self.problem, self.command, self.help_first = problem, command, help_first

    @property
    def line(self) -> str:
        """The one line on stderr."""
        if self.command is not None:
            return f"Error: {self.problem} (try: archmax {self.command.name} --help)"
        return f"Error: {self.problem} (try: archmax help)"


@dataclass(frozen=True, slots=True)
class HelpRequest:
    """Print the help of `command`, or of the whole program, on stdout."""

    command: Command | None


@dataclass(frozen=True, slots=True)
class VersionRequest:
    """Print the package's version on stdout."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line whose options are known to the command; `words` are its arguments, not yet assigned."""

    command: Command
    words: tuple[str, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()


def _shapes() -> dict[str, Option]:
    """Every option of the table by name."""
    shapes = {option.name: option for option in (*GLOBAL_OPTIONS, VERSION)}
    for command in COMMANDS:
        shapes.update({option.name: option for option in command.options})
    return shapes


def _is_option(token: str) -> bool:
    """`--anything` and `-x`; a lone dash, a negative number or a dash before a blank is a word."""
    return token.startswith("--") or (len(token) > 1 and token[0] == "-" and token[1].isalpha())


def parse(argv: Sequence[str]) -> Line | HelpRequest | VersionRequest:
    """Read `argv` (without the program's name). Raises: `UsageError`, the first problem from the left."""
    shapes = _shapes()
    words: list[str] = []
    given: list[tuple[str, str | None]] = []
    problems: list[str] = []
    wants_help = False
    position = 0
    while position < len(argv):
        token = argv[position]
        position += 1
        if token == "--":  # noqa: S105 - the end of options, not a password
            words.extend(argv[position:])
            break
        if not _is_option(token):
            words.append(token)
            continue
        name, equals, value = token.partition("=")
        if token in ("-h", HELP.name):
            wants_help = True
            continue
        shape = shapes.get(name)
        if shape is None or not token.startswith("--"):
            problems.append(f"unknown option {name!r}")
        elif shape.value is None:
            if equals:
                problems.append(f"option {name!r} takes no value")
            given.append((name, None))
        else:
            if not equals and position < len(argv) and not _is_option(argv[position]):
                value = argv[position]
                position += 1
            if not value.strip():
                problems.append(f"option {name!r} needs a value {shape.value}")
            given.append((name, value))

    command = find(words[0]) if words else None
    if wants_help:
        return HelpRequest(command)
    if command is None:
        if words:
            raise UsageError(f"unknown command {words[0]!r}")
        if problems:
            raise UsageError(problems[0])
        if (VERSION.name, None) in given:
            return VersionRequest()
        raise UsageError("a command is required", help_first=True)
    return _settle(command, tuple(words[1:]), given, problems)


def _settle(
    command: Command, words: tuple[str, ...], given: Sequence[tuple[str, str | None]], problems: Sequence[str]
) -> Line:
    """Hold the options that were given against those the command has."""
    if problems:
        raise UsageError(problems[0], command)
    values: dict[str, str] = {}
    flags: set[str] = set()
    for name, value in given:
        option = command.option(name)
        if option is None:
            raise UsageError(f"unknown option {name!r}", command)
        if value is None:
            flags.add(option.key)
            continue
        if option.key in values:
            raise UsageError(f"option {name!r} is given twice", command)
        if option.choices and value not in option.choices:
            raise UsageError(f"option {name!r} is one of {', '.join(option.choices)}, not {value!r}", command)
        if option.kind == "count" and not (value.isascii() and value.isdigit() and len(value) < 10):
            raise UsageError(f"option {name!r} is a whole number, not {value!r}", command)
        values[option.key] = value
    for option in command.options:
        if option.required and option.key not in values:
            raise UsageError(f"option '{option.name} {option.value}' is required", command)
    return Line(command, words, values, frozenset(flags))


def assign(command: Command, words: Sequence[str], *, skip: int = 0) -> dict[str, str]:
    """Give the words to the command's arguments, leaving out the first `skip` arguments.

    Raises: `UsageError` for a missing, surplus, blank or unlisted one.
    """
    left = list(words)
    assigned: dict[str, str] = {}
    for argument in command.arguments[skip:]:
        if not left:
            if argument.required:
                raise UsageError(f"argument '{argument.name}' is required", command)
            continue
        value = " ".join(left) if argument.rest else left.pop(0)
        if argument.rest:
            left.clear()
        if not value.strip():
            raise UsageError(f"argument '{argument.name}' is blank", command)
        if argument.choices and value not in argument.choices:
            raise UsageError(
                f"argument '{argument.name}' is one of {', '.join(argument.choices)}, not {value!r}", command
            )
        assigned[argument.name] = value
    if left:
        raise UsageError(f"unexpected argument {left[0]!r}", command)
    return assigned
