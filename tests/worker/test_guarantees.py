"""The page of guarantees names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/guarantees.md").read_text()
NAMED = re.findall(r"`(tests/[^`]+\.py)::(\w+)`", PAGE)


def test_every_test_that_a_guarantee_names_exists() -> None:
    assert len(NAMED) > 30
    for file, name in NAMED:
        tree = ast.parse((REPOSITORY / file).read_text())
        defined = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in defined, f"{file} has no {name}"


#: known faults of queues, workers, stores and their operation; the others are the engine's
FLEET_FAULTS = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 16, 20, 23, 24, 25, 26, 27}


def test_every_known_fault_of_a_fleet_has_its_test() -> None:
    rows = re.findall(r"^\| H(\d+): .*`tests/[^`]+::test_\w+` \|$", PAGE, flags=re.MULTILINE)
    assert {int(number) for number in rows} == FLEET_FAULTS


def test_no_promise_stands_without_a_test() -> None:
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith(("| promise", "| fault", "| ---"))
    ]
    assert all("::test_" in row for row in rows)
