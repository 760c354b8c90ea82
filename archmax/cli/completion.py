"""Shell completion scripts, generated from the command table.

They complete commands, options, fixed choices and the slugs of the workspace in the current directory, and call
nothing: a key press starts no Python.
"""

from __future__ import annotations

from collections.abc import Callable

from archmax.cli.table import COMMANDS, GLOBAL_OPTIONS, HELP, VERSION, Argument, Command, Option

#: options of a line without a command
_ALONE = (HELP, VERSION)


def _options(command: Command) -> tuple[Option, ...]:
    return (*command.options, *GLOBAL_OPTIONS)


def _choices(command: Command) -> tuple[str, ...]:
    """Fixed words for the command's arguments; `help` takes the commands themselves."""
    if command.name == "help":
        return tuple(other.name for other in COMMANDS)
    return next((argument.choices for argument in command.arguments if argument.choices), ())


def _takes_slug(command: Command) -> bool:
    return any(argument.name == "workflow" for argument in command.arguments)


def _all_options(*, with_choices: bool = False) -> list[Option]:
    """Every option once, by name; those with a list of values only, or all others that take a value."""
    options = {option.name: option for command in COMMANDS for option in _options(command)}
    return [option for option in options.values() if option.value and bool(option.choices) == with_choices]


def bash() -> str:
    cases = []
    for command in COMMANDS:
        words = [option.name for option in _options(command)]
        slugs = " $(_archmax_slugs)" if _takes_slug(command) else ""
        plain = " ".join(_choices(command)) + slugs
        cases.append(f'    {command.name}) options="{" ".join(words)}"; words="{plain.strip()}" ;;')
    values = [
        f'    {option.name}) COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current")); return ;;'
        for option in _all_options(with_choices=True)
    ]
    first = " ".join([*(command.name for command in COMMANDS), *(option.name for option in _ALONE)])
    free = "|".join(o.name for o in _all_options() if o.name not in ("--root", "--workflow"))
    return "\n".join(
        [
            "# bash completion for archmax",
            "_archmax_slugs() {",
            "  local file slug",
            "  for file in workflows/*/workflow.yaml; do",
            "    slug=${file#workflows/} slug=${slug%/workflow.yaml}",
            "    # compgen -W expands its words: a name that is more than a plain word is never offered",
            '    case "$slug" in *[!A-Za-z0-9._-]*|"*") ;; *) printf "%s\\n" "$slug" ;; esac',
            "  done",
            "}",
            "_archmax() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
            '  local command="${COMP_WORDS[1]}" options words',
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    COMPREPLY=($(compgen -W "{first}" -- "$current"))',
            "    return",
            "  fi",
            '  case "$previous" in',
            '    --root) COMPREPLY=($(compgen -d -- "$current")); return ;;',
            '    --workflow) COMPREPLY=($(compgen -W "$(_archmax_slugs)" -- "$current")); return ;;',
            *values,
            f"    {free}) return ;;",
            "  esac",
            '  case "$command" in',
            *cases,
            "    *) return ;;",
            "  esac",
            '  if [ "${current#-}" != "$current" ]; then words=$options; fi',
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -F _archmax archmax",
            "",
        ]
    )


def _quote(text: str) -> str:
    """One single-quoted shell word; zsh also reads brackets and colons in it, so they are escaped by the caller."""
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def _zsh_option(option: Option) -> str:
    spec = f"{option.name}[{_zsh_text(option.help)}]"
    if option.value:
        action = f"({' '.join(option.choices)})" if option.choices else " "
        action = {"--root": "_files -/", "--workflow": "_archmax_slugs"}.get(option.name, action)
        spec += f":{option.value.strip('<>')}:{action}"
    return _quote(spec)


def _zsh_argument(command: Command, place: int, argument: Argument) -> str:
    """Also for what cannot be completed: behind an argument it does not know, zsh offers no option any more."""
    action = " "
    if argument.choices or (place == 1 and _choices(command)):
        action = f"({' '.join(argument.choices or _choices(command))})"
    elif argument.name == "workflow":
        action = "_archmax_slugs"
    return _quote(f"{'*' if argument.rest else place}:{argument.name}:{action}")


def zsh() -> str:
    lines = [
        "#compdef archmax",
        "_archmax_slugs() {",
        "  local -a slugs",
        "  slugs=(workflows/*/workflow.yaml(N:h:t))",
        "  compadd -a slugs",
        "}",
        "_archmax() {",
        "  local -a commands",
        "  commands=(",
        *(f"    {_quote(f'{c.name}:{_zsh_text(c.summary)}')}" for c in COMMANDS),
        "  )",
        "  local -a options",
        "  options=(",
        *(f"    {_quote(f'{o.name}:{_zsh_text(o.help)}')}" for o in _ALONE),
        "  )",
        "  if (( CURRENT == 2 )); then",
        '    if [[ "$PREFIX" == -* ]]; then _describe -o option options; else _describe command commands; fi',
        "    return",
        "  fi",
        '  local command="$words[2]"',
        "  shift words; (( CURRENT-- ))",
        '  case "$command" in',
    ]
    for command in COMMANDS:
        specs = [_zsh_option(option) for option in _options(command)]
        specs += [
            _zsh_argument(command, place, argument) for place, argument in enumerate(command.arguments, 1)
        ]
        lines.append(f"    {command.name}) _arguments {' '.join(specs)} ;;")
    lines += [
        "  esac",
        "}",
        'if [ "$funcstack[1]" = "_archmax" ]; then _archmax "$@"; else compdef _archmax archmax; fi',
    ]
    return "\n".join(lines) + "\n"


def fish() -> str:
    lines = [
        "# fish completion for archmax",
        "function __archmax_slugs",
        "    for file in workflows/*/workflow.yaml",
        "        path basename (path dirname $file)",
        "    end",
        "end",
        "complete -c archmax -f",
        *(
            f"complete -c archmax -n __fish_use_subcommand -l {option.key} -d {_fish(option.help)}"
            for option in _ALONE
        ),
    ]
    for command in COMMANDS:
        seen = f'-n "__fish_seen_subcommand_from {command.name}"'
        lines.append(
            f"complete -c archmax -n __fish_use_subcommand -a {command.name} -d {_fish(command.summary)}"
        )
        for option in _options(command):
            line = f"complete -c archmax {seen} -l {option.key} -d {_fish(option.help)}"
            if option.value:
                line += " -r"
                if option.choices:
                    line += f" -a {_fish(' '.join(option.choices))}"
                elif option.name == "--workflow":
                    line += " -a '(__archmax_slugs)'"
                elif option.name == "--root":
                    line += " -a '(__fish_complete_directories)'"
            lines.append(line)
        if _choices(command):
            lines.append(f"complete -c archmax {seen} -a {_fish(' '.join(_choices(command)))}")
        elif _takes_slug(command):
            lines.append(f"complete -c archmax {seen} -a '(__archmax_slugs)'")
    return "\n".join(lines) + "\n"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: dict[str, Callable[[], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
