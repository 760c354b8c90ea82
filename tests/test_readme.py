"""The README and the manual's first pages are true: their files work, their commands run, their links lead somewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.command import REPOSITORY
from tests.support.pages import PAGES, Block, blocks, broken_links, run_page

README = REPOSITORY / "README.md"


def block(argument: str) -> Block:
    return next(found for found in blocks(README) if found.argument == argument)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_of_a_page_is_broken(page: Path) -> None:
    assert broken_links(page) == []


def test_the_two_commands_are_targets_of_make_and_the_lines_behind_them_are_the_same() -> None:
    """`make demo` and `make test` themselves: tests/archmax/local/test_demo.py, tests/scripts, and this very run."""
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    for line in block("two-commands").text.splitlines():
        target = line.split()[1]
        assert re.search(rf"^{target}: setup ##", makefile, re.MULTILINE), target
    demo, test = block("behind-make").text.splitlines()
    assert demo == "sh scripts/setup && sh scripts/demo"
    assert "\ndemo: setup" in makefile
    assert "\t@sh scripts/demo\n" in makefile
    assert "setup: ##" in makefile
    assert "\t@sh scripts/setup\n" in makefile
    assert test.removeprefix("sh scripts/setup && ") == ".venv/bin/python -m pytest"
    assert "\t@$(PYTHON_BIN)/python -m pytest\n" in makefile
    assert "PYTHON_BIN := .venv/bin\n" in makefile


@pytest.mark.timeout(500)
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    shutil.copytree(
        REPOSITORY / "examples" / "order-desk",
        tmp_path / "examples" / "order-desk",
        ignore=shutil.ignore_patterns("sessions"),
    )
    printed = run_page(README, tmp_path)
    assert printed.count("valid — 0 error(s), 0 warning(s)") == 2
    assert "1 passed, 0 failed, 0 skipped" in printed
    assert "flowchart TD" in printed


@pytest.mark.timeout(500)
def test_the_quickstart_runs_as_it_stands(tmp_path: Path) -> None:
    printed = run_page(REPOSITORY / "docs/quickstart.md", tmp_path)
    for words in (
        "valid — 0 error(s), 0 warning(s)",
        "⚠ awaiting human decision",
        "paper-1  awaiting_decision  open",
        "Your two boxes of paper are ordered.",
        "status     completed (finished)",
        "1 passed, 0 failed, 0 skipped",
    ):
        assert words in printed, printed


@pytest.mark.timeout(500)
def test_the_authors_page_runs_as_it_stands(tmp_path: Path) -> None:
    printed = run_page(REPOSITORY / "docs/authors.md", tmp_path)
    assert "valid — 0 error(s), 0 warning(s)" in printed, printed
    assert printed.count("\n1 passed, 0 failed, 0 skipped\n") == 2, printed
    assert "We will pay you 15 euros." in printed
    assert "at most 20 euros are allowed" in printed
