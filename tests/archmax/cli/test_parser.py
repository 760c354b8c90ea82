from __future__ import annotations

import pytest

from archmax.cli.parser import HelpRequest, Line, UsageError, VersionRequest, assign, parse
from archmax.cli.table import COMMANDS, GLOBAL_OPTIONS, find


def line(*argv: str) -> Line:
    parsed = parse(argv)
    assert isinstance(parsed, Line)
    return parsed


def test_an_option_has_the_same_shape_in_every_command_that_takes_it():
    """07 §3: one spelling each; a line is read before its command is known."""
    shapes: dict[str, bool] = {}
    for command in COMMANDS:
        for option in (*command.options, *GLOBAL_OPTIONS):
            assert shapes.setdefault(option.name, option.value is None) == (option.value is None)
            assert option.name.startswith("--")


def test_names_of_commands_are_unique_and_the_contract_has_its_eight():
    """07: run, test, validate, sessions, decide, reply, deliver, help."""
    names = [command.name for command in COMMANDS]
    assert len(names) == len(set(names))
    assert {"run", "test", "validate", "sessions", "decide", "reply", "deliver", "help"} <= set(names)


@pytest.mark.parametrize(
    "argv",
    [
        ("decide", "s1", "--to", "pay", "--comment", "fine"),
        ("--to", "pay", "decide", "s1", "--comment=fine"),
        ("--to=pay", "--comment", "fine", "decide", "s1"),
    ],
)
def test_options_stand_anywhere_and_take_their_value_either_way(argv: tuple[str, ...]):
    """07 §3."""
    parsed = line(*argv)
    assert parsed.command.name == "decide"
    assert parsed.words == ("s1",)
    assert parsed.values == {"to": "pay", "comment": "fine"}


def test_two_dashes_end_the_options():
    """07 §3."""
    parsed = line("run", "shop", "--", "--verbose", "-h")
    assert parsed.words == ("shop", "--verbose", "-h")
    assert not parsed.flags


def test_a_value_may_hold_an_equals_sign_and_a_word_may_be_a_dash_or_a_negative_number():
    parsed = line("run", "-", "-5", '--variables={"a": "b=c"}')
    assert parsed.words == ("-", "-5")
    assert parsed.values["variables"] == '{"a": "b=c"}'


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (("--help",), None),
        (("-h",), None),
        (("run", "--help"), "run"),
        (("decide", "--bogus", "-h"), "decide"),
        (("decide", "--to", "--help"), "decide"),
        (("run", "a", "--json=x", "--help"), "run"),
        (("bogus", "--help"), None),
        (("--version", "--help"), None),
    ],
)
def test_help_wins_over_every_other_problem_of_the_line(argv: tuple[str, ...], command: str | None):
    """07 §3."""
    parsed = parse(argv)
    assert isinstance(parsed, HelpRequest)
    assert (parsed.command.name if parsed.command else None) == command


@pytest.mark.parametrize("argv", [("--version",), ("--root", "x", "--version")])
def test_the_version_is_asked_for_without_a_command(argv: tuple[str, ...]):
    assert isinstance(parse(argv), VersionRequest)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), ["a command is required"]),
        (("--root", "x"), ["a command is required"]),
        (("hello there",), ["unknown command 'hello there'", "archmax help"]),
        (("run", "--bogus"), ["--bogus", "archmax run --help"]),
        (("run", "-v"), ["-v"]),
        (("test", "--trigger", "x"), ["--trigger"]),
        (("run", "--verb"), ["--verb"]),
        (("decide", "s", "--t", "x"), ["--t"]),
        (("run", "--trigger"), ["--trigger", "value"]),
        (("run", "--trigger", "--verbose"), ["--trigger", "value"]),
        (("run", "--trigger="), ["--trigger", "value"]),
        (("run", "--version"), ["--version", "archmax run --help"]),
        (("--version=1",), ["--version", "takes no value"]),
        (("--version", "hello there"), ["unknown command 'hello there'"]),
        (("run", "--verbose=yes"), ["--verbose", "takes no value"]),
        (("decide", "s"), ["--to", "required"]),
        (("deliver", "s"), ["--trigger", "required"]),
        (("decide", "s", "--to", "a", "--to", "b"), ["--to", "twice"]),
        (("graph", "--format", "png"), ["--format", "svg"]),
        (("up", "--port", "x"), ["--port", "whole number"]),
    ],
)
def test_a_line_that_cannot_be_read_is_one_usage_error(argv: tuple[str, ...], words: list[str]):
    """07 §3, the table of usage errors."""
    with pytest.raises(UsageError) as caught:
        parse(argv)
    for word in words:
        assert word in caught.value.line
    assert caught.value.line.startswith("Error: ")
    assert "\n" not in caught.value.line


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("reply", ("s",), "'message' is required"),
        ("reply", ("s", " "), "'message' is blank"),
        ("decide", (), "'session' is required"),
        ("sessions", ("a", "b"), "unexpected argument 'b'"),
        ("completion", ("tcsh",), "bash, zsh, fish"),
    ],
)
def test_arguments_that_do_not_fit_are_named(name: str, words: tuple[str, ...], said: str):
    """07 §3."""
    command = find(name)
    assert command
    with pytest.raises(UsageError) as caught:
        assign(command, words)
    assert said in caught.value.line


def test_the_rest_of_the_line_is_joined_by_single_blanks():
    """07 §6."""
    command = find("reply")
    assert command
    assert assign(command, ("s1", "what", "is  it", "?")) == {"session": "s1", "message": "what is  it ?"}
