"""The tables of chapter 07 as the real command, in processes of its own: what is a usage error, what a failure.

Each row is a command line. The golden files show the line on stderr that each of them ends with.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cases import DESK, head, write_cases
from tests.support.claims import CLAIM, SCRIPTED, write_claims
from tests.support.cli import Here
from tests.support.command import archmax, write_workflows
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"

USAGE_ERRORS: list[tuple[str, str, list[str]]] = [
    # root, line, words (07 §3)
    ("one", "", ["a command is required"]),
    ("one", "frobnicate", ["unknown command 'frobnicate'", "archmax help"]),
    ("one", "'hello there'", ["unknown command 'hello there'"]),
    ("one", "sess", ["unknown command 'sess'"]),
    ("one", "run hi --bogus", ["'--bogus'"]),
    ("one", "run hi --verb", ["'--verb'"]),
    ("one", "run hi -v", ["'-v'"]),
    ("one", "validate --trigger x", ["'--trigger'"]),
    ("one", "run hi --trigger", ["'--trigger'"]),
    ("one", "run hi --trigger=", ["'--trigger'"]),
    ("one", "run hi --trigger --verbose", ["'--trigger'"]),
    ("one", "test --json=yes", ["'--json'"]),
    ("one", "decide", ["--to"]),
    ("one", "decide --to x", ["'session'"]),
    ("one", "decide s1", ["--to"]),
    ("one", "deliver s1", ["--trigger"]),
    ("one", "deliver --trigger t", ["'session'"]),
    ("one", "reply", ["'session'"]),
    ("one", "reply s1", ["'message'"]),
    ("one", "run", ["'prompt'"]),
    ("one", "run shop", ["'prompt'"]),
    ("one", "new", ["'slug'"]),
    ("one", "case", ["'session'"]),
    ("one", "completion", ["'shell'"]),
    ("one", "completion csh", ["'shell'", "bash, zsh, fish"]),
    ("one", "graph --format png", ["'--format'", "mermaid, dot, svg"]),
    ("one", "sessions a b", ["unexpected argument 'b'"]),
    ("one", "decide s1 s2 --to x", ["unexpected argument 's2'"]),
    ("one", "deliver s1 s2 --trigger x", ["unexpected argument 's2'"]),
    ("one", "test shop late later", ["unexpected argument 'later'"]),
    ("one", "validate shop now", ["unexpected argument 'now'"]),
    ("one", "help run now", ["unexpected argument 'now'"]),
    ("one", "run hi --variables nonsense", ["--variables", "JSON"]),
    ("one", "run hi --variables []", ["--variables", "JSON"]),
    ("one", "deliver s1 --trigger t --variables 7", ["--variables", "JSON"]),
    ("one", "reply s1 ' '", ["'message'"]),
    ("one", "run shop ' '", ["'prompt'"]),
    ("one", "sessions ../up", ["'../up'", "'..'"]),
    ("one", "decide workflows/x --to y", ["'workflows/x'", "reserved"]),
    ("one", "reply checkpoints hi", ["'checkpoints'", "reserved"]),
    ("one", "deliver scratchpad --trigger t", ["'scratchpad'", "reserved"]),
    ("one", "run hi --session _specs/x", ["'_specs/x'"]),
    ("one", "help bogus", ["unknown command 'bogus'"]),
    ("one", "sessions --root nowhere", ["'--root'", "'nowhere'"]),
    ("many", "run", ["workflow is required", "alpha, beta"]),
    ("many", "run hello", ["workflow is required", "alpha, beta"]),
    ("many", "run alpha", ["'prompt'"]),
    ("many", "test", ["workflow is required", "alpha, beta"]),
    ("many", "validate", ["workflow is required", "alpha, beta"]),
    ("many", "sessions", ["workflow is required", "alpha, beta"]),
    ("many", "decide s1 --to x", ["workflow is required", "alpha, beta"]),
    ("many", "reply s1 hi", ["workflow is required", "alpha, beta"]),
    ("many", "deliver s1 --trigger t", ["workflow is required", "alpha, beta"]),
    ("none", "run hello", ["workflow is required"]),
    ("none", "test", ["workflow is required"]),
    ("none", "validate", ["workflow is required"]),
    ("none", "sessions", ["workflow is required"]),
]


def at_once(roots: Mapping[str, Path], rows: list[tuple[str, str]]) -> list[subprocess.CompletedProcess[str]]:
    """Run every line in its root, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        pending = [
            pool.submit(archmax, *shlex.split(line), cwd=roots[root], env=SCRIPTED, timeout_seconds=400)
            for root, line in rows
        ]
        return [future.result() for future in pending]


@pytest.mark.timeout(600)
def test_a_usage_error_is_one_line_on_stderr_and_exit_2(tmp_path: Path) -> None:
    """07 §2, §3: every row of the table; never a usage dump, never a traceback, no header, nothing done."""
    roots = {name: tmp_path / name for name in ("one", "many", "none")}
    write_workflows(roots["one"], "shop")
    write_workflows(roots["many"], "beta", "alpha")
    roots["none"].mkdir()
    runs = at_once(roots, [(root, line) for root, line, _ in USAGE_ERRORS])
    told = []
    for (root, line, words), run in zip(USAGE_ERRORS, runs, strict=True):
        assert (run.returncode, run.stdout) == (2, ""), line
        last = run.stderr.splitlines()[-1]
        assert last.startswith("Error: "), line
        assert last.endswith((" --help)", "(try: archmax help)")), line
        assert all(word in last for word in words), last
        assert run.stderr.count("\n") == 1 or line == "", line
        told.append(f"{root}$ archmax {line}\n{last}\n")
    assert_golden(GOLDEN / "usage-errors.txt", "".join(told))
    assert not any((root / "sessions").exists() for root in roots.values())


class Row(NamedTuple):
    """`said` stands on stdout as it is; `words` in the last line of stderr."""

    root: str
    line: str
    code: int
    said: str
    words: tuple[str, ...] = ()


ROWS = [
    # 07 §2, §6: a park counts; a raise's code is text
    Row("desk", "run pay --session new-1", 0, "I drafted it.\n\nPlease wait for the review.\n"),
    Row("desk", "run 'give up'", 1, ""),
    Row("desk", "run 'break down'", 1, ""),
    # 07 §6, §12: refusals
    Row("desk", "run hi --trigger fax", 1, "", ("unknown trigger 'fax'", "manual, order, mail")),
    Row("desk", "run hi --trigger order", 1, "", ("order_id",)),
    Row("desk", "run hi --session-path mail.thread", 1, "", ("mail.thread",)),
    Row("closed", "run hi", 1, "", ("disabled",)),
    Row("broken", "run claims hi", 1, "", ("workflows/claims/workflow.yaml",)),
    Row("old", "run claims hi", 1, "", ("runtime contract",)),
    Row("desk", "run gone hi --workflow claims", 2, "", ("'--workflow'",)),
    Row("two", "run gone hi", 1, "", ("gone",)),
    Row("desk", "decide done-1 --to paid", 1, "", ("not parked",)),
    Row("desk", "decide waits-1 --to paid", 1, "", ("decision",)),
    Row("desk", "decide asks-1 --to waiting", 1, "", ("'waiting'", "paid", "draft")),
    Row("desk", "decide nobody --to paid", 1, "", ("nobody",)),
    Row("desk", "reply done-1 hello", 1, "", ("not parked",)),
    Row("desk", "reply waits-1 hello", 1, "", ("decision",)),
    Row("desk", "deliver done-1 --trigger mail", 1, "", ("input",)),
    Row("desk", "deliver asks-1 --trigger mail", 1, "", ("input",)),
    Row("desk", "deliver nobody --trigger mail", 1, "", ("nobody",)),
    # 07 §9
    Row("desk", "sessions nobody", 1, "", ("archmax sessions",)),
    Row("two", "sessions --workflow claims", 0, "No durable sessions found.\n"),
    # 07 §7
    Row("cases", "test late", 1, "", ("no cases matched 'late' (2 discovered)",)),
    Row("cases", "test fails", 1, "0 passed, 1 failed, 0 skipped\n"),
    Row("cases", "test passes", 0, "1 passed, 0 failed, 0 skipped\n"),
    Row("desk", "test", 0, "0 passed, 0 failed, 0 skipped\n"),
    Row("closed", "test --live", 0, "suite skipped — disabled\n"),
    Row("limits", "test", 1, "", ("maxConcurrency",)),
    Row("config", "test", 1, "", ("tests.config.js",)),
    Row("broken", "test claims", 1, "", ("workflows/claims/workflow.yaml",)),
    # 07 §8
    Row("desk", "validate", 0, "valid — 0 error(s), 0 warning(s)\n"),
    Row("closed", "validate", 0, "valid — 0 error(s), 1 warning(s)\n"),
    Row("broken", "validate claims", 1, "invalid — 1 error(s), 0 warning(s)\n"),
    Row("old", "validate claims", 1, "invalid — 1 error(s), 0 warning(s)\n", ("runtime contract",)),
    Row("two", "validate gone", 1, "invalid — 1 error(s), 0 warning(s)\n", ("workflows/gone/workflow.yaml",)),
    # 07 §2: an unexpected exception
    Row("desk", "case done-1 --out model.yaml/x.test.yaml", 1, "", ("archmax failed: ", "model.yaml")),
]


@pytest.fixture
def roots(tmp_path: Path, here: Here) -> dict[str, Path]:
    """A workspace for each way to go wrong; `desk` has a session that asks, one that waits and one that is done."""
    found = {name: tmp_path / name for name in {row.root for row in ROWS}}
    for name in ("desk", "closed", "broken", "old", "two"):
        write_claims(found[name])
    write_workflows(found["two"], "alpha")
    for name, text in (
        ("closed", "disabled: true\n" + CLAIM),
        ("broken", "states: ["),
        ("old", CLAIM + 'runtime: { version: "1" }\n'),
    ):
        (found[name] / "workflows/claims/workflow.yaml").write_text(text)
    greets = "- { text: Hello. }\n"
    steps = {"fails": "parked: true", "passes": "succeeded: true"}
    cases = {name: head() + f"steps: [{{ send: hi }}, {{ {step} }}]\n" for name, step in steps.items()}
    write_cases(found["cases"], cases, dict.fromkeys(cases, greets))
    write_cases(found["limits"], cases, workflow=DESK + "tests: { maxConcurrency: 2 }\n")
    write_cases(found["config"], cases, files={"workflows/desk/tests/tests.config.js": ""})
    here.cwd = found["desk"]
    here.env |= SCRIPTED
    for session, prompt in (("asks-1", "pay"), ("waits-1", "I have no receipt"), ("done-1", "pay")):
        assert here("run", prompt, "--session", session).code == 0
    assert here("decide", "done-1", "--to", "paid").code == 0
    return found


@pytest.mark.timeout(1800)
def test_a_line_that_was_understood_exits_by_what_it_came_to(roots: dict[str, Path]) -> None:
    """07 §2, §6, §7, §8, §9, §12: streams and exit codes; what is refused leaves the session as it was."""
    runs = at_once(roots, [(row.root, row.line) for row in ROWS])
    told = []
    for row, run in zip(ROWS, runs, strict=True):
        assert (run.returncode, run.stdout) == (row.code, row.said), (row.line, run.stderr)
        last = run.stderr.splitlines()[-1].replace(str(roots[row.root]), "<root>")
        assert all(word in last for word in row.words), (row.line, run.stderr)
        assert "Traceback" not in run.stderr, row.line
        if row.words:
            told.append(f"{row.root}$ archmax {row.line}\n{last}\n")
    assert_golden(GOLDEN / "failures.txt", "".join(told))
    rows = [line.split() for line in archmax("sessions", cwd=roots["desk"]).stdout.splitlines()]
    held = {row[0]: row[1:4] for row in rows if row[0] in ("asks-1", "waits-1", "done-1", "nobody")}
    assert held == {
        "asks-1": ["awaiting_decision", "open", "state=review"],
        "waits-1": ["awaiting_input", "open", "state=waiting"],
        "done-1": ["completed", "finished", "state=paid"],
    }
    assert not (roots["closed"] / "sessions").exists(), "a refused turn creates no session"
