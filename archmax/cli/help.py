"""Help texts, generated from the command table (07 §9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from archmax.cli.table import COMMANDS, GLOBAL_OPTIONS, VERSION, Argument, Command, Option


def _rows(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(left) for left, _ in rows), default=0)
    return [f"  {left.ljust(width)}  {right}".rstrip() for left, right in rows]


def _placeholder(argument: Argument) -> str:
    name = f"{argument.name}..." if argument.rest else argument.name
    return f"<{name}>" if argument.required else f"[{name}]"


def _spelling(option: Option) -> str:
    return option.name if option.value is None else f"{option.name} {option.value}"


def _option_rows(options: Iterable[Option]) -> list[tuple[str, str]]:
    return [
        (_spelling(option), f"{option.help} (required)" if option.required else option.help)
        for option in options
    ]


def usage(command: Command) -> str:
    """The one-line synopsis: arguments and required options, `[options]` when there are others."""
    parts = ["archmax", command.name, *map(_placeholder, command.arguments)]
    parts += [_spelling(option) for option in command.options if option.required]
    return " ".join([*parts, "[options]"])


def command_help(command: Command) -> str:
    lines = [f"Usage: {usage(command)}", "", f"{command.summary[0].upper()}{command.summary[1:]}."]
    if command.details:
        lines += [command.details]
    if command.arguments:
        lines += ["", "Arguments:"]
        lines += _rows(
            [
                (a.name, f"{a.help}: {', '.join(a.choices)}" if a.choices else a.help)
                for a in command.arguments
            ]
        )
    if command.options:
        lines += ["", "Options:", *_rows(_option_rows(command.options))]
    lines += ["", "Global options:", *_rows(_option_rows(GLOBAL_OPTIONS))]
    return "\n".join(lines) + "\n"


def program_help() -> str:
    lines = ["Usage: archmax <command> [arguments] [options]", ""]
    lines.append("Governed LLM-agent workflows: workflows/<slug>/workflow.yaml under the workspace root.")
    groups = list(dict.fromkeys(command.group for command in COMMANDS))
    width = max(len(command.name) for command in COMMANDS)
    for group in groups:
        lines += ["", f"{group}:"]
        lines += [
            f"  {command.name.ljust(width)}  {command.summary}"
            for command in COMMANDS
            if command.group == group
        ]
    lines += ["", "Global options:", *_rows(_option_rows((*GLOBAL_OPTIONS, VERSION)))]
    lines += ["", "archmax help <command> shows its arguments and options."]
    return "\n".join(lines) + "\n"
