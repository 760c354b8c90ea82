"""The page of guarantees names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NAMED = re.findall(r"`(tests/[^`]+\.py)::(\w+)`", (REPOSITORY / "docs/guarantees.md").read_text())


def test_every_test_that_a_guarantee_names_exists() -> None:
    assert len(NAMED) > 30
    for file, name in NAMED:
        tree = ast.parse((REPOSITORY / file).read_text())
        defined = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in defined, f"{file} has no {name}"


def test_no_promise_stands_without_a_test() -> None:
    rows = [
        line
        for line in (REPOSITORY / "docs/guarantees.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith(("| promise", "| ---"))
    ]
    assert all("::test_" in row for row in rows)
