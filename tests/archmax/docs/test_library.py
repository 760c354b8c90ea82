"""The guide for users of the library runs as it stands, and leaves no option out (05 §13, §14)."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import archmax
from archmax import create_agent
from engine.host.tool_map import HostToolContext
from tests.support.command import REPOSITORY
from tests.support.pages import run_page

PAGE = REPOSITORY / "docs" / "library.md"


@pytest.mark.timeout(500)
def test_the_librarys_page_runs_as_it_stands(tmp_path: Path) -> None:
    printed = run_page(PAGE, tmp_path)
    for words in (
        # refund.py
        "parked awaiting_decision review\n['payout', 'request'] ['scratchpad/refund.md']\n",
        "parked About an hour.\n",
        "('payout', 'request')\n",
        "parked awaiting_input input\n",
        "completed You got 12.50 back. {'value': 'R-7', 'locked': True}\n['request', 'review', 'payout', 'payout']\n",
        "session 'r-1' is not parked for a decision (status completed)\n",
        # sessions.py
        "[('r-1', 'completed')]\npayout {'value': 'R-7', 'locked': True} True\n",
        "parked ['HumanMessage', 'AIMessage']\n",
        f"{tmp_path / 'sessions/r-1/artifacts'}\n",
        "['receipt'] 'receipt' must be a string, not the number 7\n",
        "True None\n",
        # watch.py
        "state-enter request \ntool-called request find_order\n",
        "outcome review parked\nTrue\n",
        # rules.py
        "parked ['the shop is closed']\n",
        "middleware 'HumanInTheLoopMiddleware': it interrupts a graph",
        # the command, with the same wiring
        "valid — 0 error(s), 0 warning(s)",
        "› publish scratchpad/refund.md",
    ):
        assert words in printed, printed
    assert (tmp_path / "sessions/r-1/artifacts/trail.json").is_file()
    assert not (tmp_path / "sessions/w-1").exists()


def test_the_page_names_every_option_of_create_agent_and_every_field_of_a_handlers_context() -> None:
    text = PAGE.read_text("utf-8")
    named = set(re.findall(r"\w+", text))
    assert set(inspect.signature(create_agent).parameters) <= named
    assert {name for name, _ in inspect.getmembers(HostToolContext) if not name.startswith("_")} <= named


def test_the_page_imports_public_names_alone() -> None:
    imported = re.findall(
        r"^from archmax import (?:\(([^)]*)\)|(.*))$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    names = {name for block in imported for name in re.findall(r"\w+", "".join(block))}
    assert len(names) > 8
    assert names <= set(archmax.__all__)
