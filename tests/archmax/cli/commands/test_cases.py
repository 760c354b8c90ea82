"""`archmax test`: streams, exit codes and options of the command itself (07 §7)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from archmax.cli.main import main
from tests.support.cases import DESK, head, write_cases

PASSES = head("It passes") + "steps: [{ send: hi }, { succeeded: true }]\n"
FAILS = head("It fails") + "steps: [{ send: hi }, { parked: decision }, { succeeded: true }]\n"
SKIPPED = head("It waits") + "skip: fixture pending\n"
HELLO = "- { text: Hello., usage: { input: 20369, output: 287 } }\n"


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Command: TypeAlias = Callable[..., Done]


@pytest.fixture
def archmax(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process: a process of its own would spend its time on imports."""
    for name in [name for name in os.environ if name.startswith("ARCHMAX_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NO_COLOR", raising=False)

    def run(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> Done:
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            code = main(arguments)
        return Done(code, *capsys.readouterr())

    return run


def test_a_suite_is_drawn_on_stderr_and_counted_on_stdout(archmax: Command, tmp_path: Path) -> None:
    """07 §7: state flow, verdict lines, summary with the failed cases first, usage."""
    cases = {"a/passes": PASSES, "b": FAILS, "c": SKIPPED}
    root = write_cases(tmp_path, cases, {"a/passes": HELLO, "b": HELLO})
    done = archmax("test", cwd=root)
    assert done.returncode == 1
    assert done.stdout == "1 passed, 1 failed, 1 skipped\n"
    for line in (
        "◆ case workflows/desk/tests/a/passes.test.yaml",
        "● desk",
        "    │ Hello.",
        "✔ a/passes — It passes",
        "      tokens     in 20,369 · out 287",
        "✖ b — It fails",
        "      ✖ parked: the action completed",
        "      ○ 1 assertion not executed",
        "○ c — It waits (fixture pending)",
        "tokens     in 40,738 · out 574",
    ):
        assert line in done.stderr.splitlines(), done.stderr
    summary = done.stderr[done.stderr.index("◆ summary") :].splitlines()
    assert [line[:3] for line in summary[1:4]] == ["✖ b", "✔ a", "○ c"]


def test_json_prints_the_suite_and_nothing_else(archmax: Command, tmp_path: Path) -> None:
    """07 §7."""
    root = write_cases(tmp_path, {"a": PASSES, "b": SKIPPED}, {"a": HELLO})
    done = archmax("test", "desk", "a", "--json", cwd=root)
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(document) == ["workflow", "results", "exitCode", "discovered"]
    assert (document["workflow"], document["exitCode"], document["discovered"]) == ("desk", 0, 2)
    (result,) = document["results"]
    assert result["verdict"] == {"status": "passed", "failures": []}
    assert result["records"] == [{"kind": "succeeded", "status": "passed", "threshold": None, "step": 1}]
    assert done.stdout.startswith('{\n  "workflow"')


def test_a_filter_without_a_match_is_a_failure_and_no_cases_at_all_is_none(
    archmax: Command, tmp_path: Path
) -> None:
    """07 §7."""
    root = write_cases(tmp_path, {"a": PASSES, "b": SKIPPED})
    missed = archmax("test", "late", cwd=root)
    assert (missed.returncode, missed.stdout) == (1, "")
    assert missed.stderr.splitlines()[-1] == "Error: no cases matched 'late' (2 discovered)"
    empty = archmax("test", cwd=write_cases(tmp_path / "empty", {}))
    assert (empty.returncode, empty.stdout) == (0, "0 passed, 0 failed, 0 skipped\n")


def test_a_disabled_workflow_is_skipped(archmax: Command, tmp_path: Path) -> None:
    """07 §7: no flag overrides it."""
    root = write_cases(tmp_path, {"a": FAILS}, workflow=DESK + "disabled: true\n")
    done = archmax("test", cwd=root)
    assert (done.returncode, done.stdout) == (0, "suite skipped — disabled\n")
    as_json = archmax("test", "--json", "--live", cwd=root)
    assert json.loads(as_json.stdout)["skipped"] == "disabled"


def test_a_suite_that_is_refused_prints_one_line(archmax: Command, tmp_path: Path) -> None:
    """07 §7, ruling 18: a host that cannot be imported stops the process by name."""
    limits = DESK + "tests: { maxConcurrency: 2 }\n"
    for done in (
        archmax("test", cwd=write_cases(tmp_path / "a", {"a": PASSES}, workflow=limits)),
        archmax(
            "test",
            cwd=write_cases(
                tmp_path / "b", {"a": PASSES}, files={"workflows/desk/tests/tests.config.js": ""}
            ),
        ),
        archmax(
            "test",
            cwd=write_cases(tmp_path / "c", {"a": PASSES}),
            env={"ARCHMAX_HOST": "nowhere_at_all:wire"},
        ),
    ):
        assert (done.returncode, done.stdout) == (1, ""), done.stdout
        assert done.stderr.splitlines()[-1].startswith("Error: ")
        assert "Traceback" not in done.stderr


def test_live_plays_the_configured_model(archmax: Command, tmp_path: Path) -> None:
    """09 §1."""
    case = head() + "steps: [{ send: hi }, { reply: { includes: configured } }]\n"
    root = write_cases(tmp_path, {"a": case}, {"a": HELLO}, files={"m.yaml": "- text: configured\n"})
    environment = {"ARCHMAX_MODEL": "scripted:m.yaml"}
    assert archmax("test", cwd=root, env=environment).returncode == 1
    assert archmax("test", "--live", cwd=root, env=environment).returncode == 0
