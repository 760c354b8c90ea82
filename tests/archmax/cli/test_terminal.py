"""What only a terminal is shown: the banner, colour, and how far a long suite is (07 §5, §7)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from archmax.cli.render.cases import LONG_SUITE
from tests.support.cases import head, write_cases
from tests.support.command import archmax
from tests.support.golden import assert_golden
from tests.support.terminal import archmax_on_terminal

GOLDEN = Path(__file__).parent / "golden"
HELLO = "- { text: Hello., usage: { input: 10, output: 2 } }\n"
LONG_NAME = "a-case-whose-name-does-not-fit-into-one-line-of-a-terminal-that-is-sixty-columns-wide"
PROGRESS = re.compile(r"● \d+ of \d+ cases")


def case(passes: bool) -> str:
    return head() + f"steps: [{{ send: hi }}, {{ {'succeeded: true' if passes else 'parked: true'} }}]\n"


@pytest.fixture
def long_suite(tmp_path: Path) -> Path:
    names = ["a", "b/broken", LONG_NAME, "d", "e", "f"]
    assert len(names) >= LONG_SUITE
    cases = {name: case(name != "b/broken") for name in names}
    return write_cases(tmp_path, cases, dict.fromkeys(cases, HELLO))


def test_a_long_suite_shows_on_a_terminal_how_far_it_is_and_leaves_no_trace_of_it(long_suite: Path) -> None:
    """Issue 5 §4: only there, and nothing of it remains; a pipe is sent the same without it."""
    run = archmax_on_terminal("test", cwd=long_suite)
    assert (run.returncode, run.stdout) == (1, "5 passed, 1 failed, 0 skipped\n")
    drawn = dict.fromkeys(PROGRESS.findall(run.stderr))
    assert list(drawn) == [f"● {done} of 6 cases" for done in range(7)]
    assert "● 3 of 6 cases, 1 failed  d.test.yaml" in run.stderr
    assert not PROGRESS.search("\n".join(run.screen))
    piped = archmax("test", cwd=long_suite)
    assert not PROGRESS.search(piped.stderr + piped.stdout)
    assert "\r" not in piped.stderr
    plain = [re.sub(r"\x1b\[\d*m", "", line) for line in run.screen]
    assert plain[plain.index("◆ desk") :] == piped.stderr.split("\n")


def test_a_progress_line_fits_the_terminal_and_needs_no_codes(long_suite: Path) -> None:
    """A line that wraps could not be taken away again; 07 §4, §5: NO_COLOR leaves icons and no codes."""
    run = archmax_on_terminal("test", cwd=long_suite, columns=30, env={"NO_COLOR": "1"})
    lines = re.findall(r"● \d+ of \d+ cases[^\r\n]*", run.stderr)
    assert max(map(len, lines)) == 29
    assert not PROGRESS.search("\n".join(run.screen))
    assert "\x1b" not in run.stderr
    assert "✔" in run.stderr


def test_json_comes_without_progress_also_on_a_terminal(long_suite: Path) -> None:
    """Issue 5 §4."""
    run = archmax_on_terminal("test", "--json", cwd=long_suite)
    assert json.loads(run.stdout)["discovered"] == 6
    assert not PROGRESS.search(run.stderr)
    assert "\r" not in run.stderr.replace("\r\n", "\n")


def test_the_banner_and_colours_of_a_terminal_look_as_the_golden_file_shows(tmp_path: Path) -> None:
    """07 §5: the banner only on a terminal's stderr; what is coloured, and how; a short suite shows no progress."""
    root = write_cases(tmp_path, {"a": case(True), "b": case(False)}, {"a": HELLO, "b": HELLO})
    run = archmax_on_terminal("test", cwd=root, columns=200)
    shown = run.stderr.replace("\r\n", "\n").replace(str(root), "<root>").replace("\x1b", "␛")
    assert_golden(GOLDEN / "terminal.txt", shown)
    silent = archmax_on_terminal("validate", cwd=root, env={"ARCHMAX_CLI_NO_BANNER": "yes", "NO_COLOR": ""})
    assert "\x1b[36m◆" in silent.stderr
    assert "governed agent workflows" not in silent.stderr
    assert "governed agent workflows" not in archmax("validate", cwd=root).stderr
