"""What an author of a broken workflow reads.

Three copies of the reference workflow, each broken in a dozen places: in shape, across the document, against the workspace.
`ARCHMAX_TEST_GOLDEN=write` writes the expected texts anew; read the difference as an author would before you keep it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command import REPOSITORY, archmax
from tests.support.golden import assert_golden

DESKS = Path(__file__).parent / "broken_desk"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """The reference workspace without its cases."""
    shutil.copytree(REPOSITORY / "examples/order-desk", tmp_path / "desk")
    shutil.rmtree(tmp_path / "desk/workflows/order-desk/tests")
    return tmp_path / "desk"


@pytest.mark.parametrize("name", ["shape", "rules", "whole"])
def test_every_mistake_of_a_broken_workflow_is_told_with_place_and_remedy(name: str, desk: Path):
    """01 §19, 07 §8: file, field, line and column, what is wrong, and what would be right."""
    shutil.copyfile(DESKS / f"{name}.yaml", desk / "workflows/order-desk/workflow.yaml")
    run = archmax("validate", "order-desk", cwd=desk)
    assert run.returncode == 1
    assert_golden(DESKS / f"{name}.txt", run.stderr.replace(str(desk), "<desk>") + run.stdout)
    found = json.loads(archmax("validate", "order-desk", "--json", cwd=desk).stdout)["diagnostics"]
    errors = [item for item in found if item["severity"] == "error"]
    assert len(errors) >= 12
    for item in found:
        assert item["message"].startswith(item["file"])
        assert (
            item["file"].endswith(".js")
            or f"(line {item['line']}, column {item['column']})" in item["message"]
        )
