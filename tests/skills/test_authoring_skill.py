"""The authoring skill: it loads as an Agent Skill, its example works, and it names nothing that does not exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engine.cases.json_schema import case_json_schema
from engine.spec.json_schema import workflow_json_schema
from engine.spec.skills import discover_skills
from engine.spec.tree import DirectoryTree
from tests.support.command import REPOSITORY
from tests.support.pages import broken_links, run_page

SKILL = REPOSITORY / "skills" / "archmax-fleet"


def test_the_bundle_loads_under_its_own_name() -> None:
    registry = discover_skills(DirectoryTree(REPOSITORY), ["skills/"])
    assert [skill.slug for skill in registry.skills] == ["archmax-fleet"]
    assert registry.problems == ()


@pytest.mark.parametrize("page", sorted(SKILL.rglob("*.md")), ids=lambda page: page.name)
def test_no_link_of_the_skill_is_broken(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.timeout(600)
def test_the_example_validates_and_its_case_passes(tmp_path: Path) -> None:
    printed = run_page(SKILL / "SKILL.md", tmp_path)
    assert "valid — 0 error(s), 0 warning(s)" in printed, printed
    assert "1 passed, 0 failed, 0 skipped" in printed, printed


def test_every_key_the_reference_of_states_names_is_a_key_of_a_state() -> None:
    table = (SKILL / "references" / "states.md").read_text("utf-8").split("\n\n")[1]
    first_column = [row.split("|")[1] for row in table.splitlines()[2:]]
    named = {key for cell in first_column for key in re.findall(r"`([a-zA-Z_]+)`", cell)}
    known = set(re.findall(r'"([a-zA-Z_]+)": ?{', _text(workflow_json_schema())))
    assert named
    assert named <= known


def test_every_step_the_reference_of_cases_names_is_a_step() -> None:
    page = (SKILL / "references" / "cases.md").read_text("utf-8")
    schema = _text(case_json_schema())
    steps = (
        "send",
        "decide",
        "deliver",
        "succeeded",
        "parked",
        "raised",
        "reachedState",
        "trail",
        "noTraversal",
    )
    steps += (
        "triggerArrival",
        "reply",
        "calledTool",
        "notCalledTool",
        "blockedTool",
        "ranWorkflow",
        "usedNoTools",
    )
    for step in (*steps, "variables", "grade"):
        assert f"`{step}" in page
        assert f'"{step}"' in schema


def _text(value: object) -> str:
    return json.dumps(value)
