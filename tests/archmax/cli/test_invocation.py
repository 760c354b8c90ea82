from __future__ import annotations

import io
from pathlib import Path

import pytest

from archmax.cli.invocation import Invocation, root_of, settle, workflows_of
from archmax.cli.parser import Line, UsageError, parse
from tests.support.command import write_workflows


def accept(root: Path, *argv: str) -> Invocation:
    line = parse(argv)
    assert isinstance(line, Line)
    return settle(line, root, io.StringIO(), io.StringIO())


def refusal(root: Path, *argv: str) -> str:
    with pytest.raises(UsageError) as caught:
        accept(root, *argv)
    return caught.value.line


def test_a_workflow_is_a_directory_that_holds_a_workflow_yaml(tmp_path: Path):
    """07 §1."""
    write_workflows(tmp_path, "shop", "mail")
    (tmp_path / "workflows" / "notes").mkdir()
    (tmp_path / "workflows" / "readme.txt").write_text("")
    assert workflows_of(tmp_path) == ("mail", "shop")
    assert workflows_of(tmp_path / "nowhere") == ()


@pytest.mark.parametrize(
    ("argv", "workflow", "arguments"),
    [
        (("run", "shop", "hello", "there"), "shop", {"prompt": "hello there"}),
        (("run", "hello", "there"), "shop", {"prompt": "hello there"}),
        (("run", "hello there"), "shop", {"prompt": "hello there"}),
        (("test", "late"), "shop", {"filter": "late"}),
        (("test", "shop", "late"), "shop", {"filter": "late"}),
        (("test",), "shop", {}),
        (("validate",), "shop", {}),
        (("validate", "other"), "other", {}),
        (("sessions",), "shop", {}),
        (("sessions", "--workflow", "gone"), "gone", {}),
    ],
)
def test_one_workflow_need_not_be_named(
    tmp_path: Path, argv: tuple[str, ...], workflow: str, arguments: dict[str, str]
):
    """07 §3.1."""
    invocation = accept(write_workflows(tmp_path, "shop"), *argv)
    assert invocation.workflow == workflow
    assert invocation.arguments == arguments


@pytest.mark.parametrize(
    ("argv", "workflow", "arguments"),
    [
        (("run", "mail", "hi"), "mail", {"prompt": "hi"}),
        (("run", "gone", "hi"), "gone", {"prompt": "hi"}),
        (("test", "gone"), "gone", {}),
        (("validate", "shop"), "shop", {}),
        (("decide", "s", "--to", "x", "--workflow", "mail"), "mail", {"session": "s"}),
    ],
)
def test_among_several_workflows_one_is_named(
    tmp_path: Path, argv: tuple[str, ...], workflow: str, arguments: dict[str, str]
):
    """07 §3.1: a missing one is reported by the command."""
    invocation = accept(write_workflows(tmp_path, "shop", "mail"), *argv)
    assert invocation.workflow == workflow
    assert invocation.arguments == arguments


@pytest.mark.parametrize(
    "argv", [("run",), ("run", "hi"), ("test",), ("validate",), ("sessions",), ("reply", "s", "m")]
)
def test_an_unnamed_workflow_among_several_is_a_usage_error_that_lists_them(
    tmp_path: Path, argv: tuple[str, ...]
):
    """07 §3.1."""
    assert "workflow is required; mail, shop" in refusal(write_workflows(tmp_path, "shop", "mail"), *argv)


@pytest.mark.parametrize("argv", [("run",), ("run", "hi"), ("test",), ("sessions",)])
def test_a_root_without_workflows_needs_one_named(tmp_path: Path, argv: tuple[str, ...]):
    """07 §3.1."""
    assert "workflow is required" in refusal(tmp_path, *argv)


def test_a_slug_without_a_prompt_is_a_usage_error_that_names_the_prompt(tmp_path: Path):
    """07 §3.1."""
    root = write_workflows(tmp_path, "shop")
    assert "prompt" in refusal(root, "run", "shop")
    assert "prompt" in refusal(root, "run", "shop", "  ")
    assert "prompt" in refusal(root, "run")


@pytest.mark.parametrize("text", ["{", "[1]", "3", "null", '{"a": NaN}', '"x"', "[" * 100_000])
def test_variables_are_a_json_object(tmp_path: Path, text: str):
    """07 §3."""
    said = refusal(write_workflows(tmp_path, "shop"), "run", "hi", "--variables", text)
    assert "--variables" in said
    assert "JSON" in said


def test_variables_reach_the_command_as_an_object(tmp_path: Path):
    """07 §6."""
    invocation = accept(write_workflows(tmp_path, "shop"), "run", "hi", '--variables={"n": [1, null]}')
    assert invocation.json == {"variables": {"n": [1, None]}}


@pytest.mark.parametrize(
    "session", ["/", "a/../b", "..", "scratchpad/x", "_specs", "/checkpoints", "skills/a", "AGENTS.md"]
)
@pytest.mark.parametrize("command", ["sessions", "reply", "decide", "deliver", "run"])
def test_an_unusable_session_id_is_refused_with_the_reason(tmp_path: Path, command: str, session: str):
    """07 §3, 01 §1 rule 7."""
    lines = {
        "sessions": ("sessions", session),
        "reply": ("reply", session, "hi"),
        "decide": ("decide", session, "--to", "x"),
        "deliver": ("deliver", session, "--trigger", "x"),
        "run": ("run", "hi", "--session", session),
    }
    said = refusal(write_workflows(tmp_path, "shop"), *lines[command])
    assert repr(session) in said
    assert "cannot be used: " in said


def test_hints_name_root_and_workflow_only_where_they_are_needed(tmp_path: Path):
    """07 §6: with `--workflow` when the workspace has several workflows."""
    one = write_workflows(tmp_path / "one", "shop")
    two = write_workflows(tmp_path / "two", "shop", "mail")
    assert accept(one, "sessions").hint_options() == ()
    assert accept(two, "sessions", "--workflow", "mail").hint_options() == ("--workflow", "mail")
    assert accept(one, "sessions", "--root", str(one)).hint_options() == ("--root", str(one))


def test_a_root_that_is_no_directory_is_refused_by_name(tmp_path: Path):
    line = parse(("sessions", "--root", str(tmp_path / "gone")))
    assert isinstance(line, Line)
    with pytest.raises(UsageError) as caught:
        root_of(line)
    assert "--root" in caught.value.line


def test_the_processes_of_a_fleet_take_their_workspace_from_the_environment_and_other_commands_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """docs/configuration.md lists `ARCHMAX_ROOT`; an option beats it."""

    def root(*argv: str) -> Path:
        line = parse(argv)
        assert isinstance(line, Line)
        return root_of(line)

    (tmp_path / "ws").mkdir()
    monkeypatch.setenv("ARCHMAX_ROOT", str(tmp_path / "ws"))
    monkeypatch.chdir(tmp_path)
    for command in (("worker",), ("api",), ("beat",), ("up",), ("keys", "list")):
        assert root(*command) == tmp_path / "ws"
    assert root("worker", "--root", str(tmp_path)) == tmp_path
    assert root("validate") == tmp_path
    monkeypatch.setenv("ARCHMAX_ROOT", "nowhere")
    with pytest.raises(UsageError, match="ARCHMAX_ROOT: 'nowhere' is no directory"):
        root("worker")
