"""Finding skill bundles."""

from __future__ import annotations

import pytest

from engine.spec.skills import Skill, WithheldSkill, discover_skills
from engine.spec.tree import MemoryTree

GOOD = "---\ndescription: What things cost.\n---\nBody"


def test_bundles_are_folders_with_a_manifest_in_order_of_name():
    """01 §17."""
    registry = discover_skills(
        MemoryTree(
            {
                "skills/b/SKILL.md": GOOD,
                "skills/a/SKILL.md": GOOD,
                "skills/a/scripts/SKILL.md": GOOD,
                "skills/c/notes.md": "",
                "skills/SKILL.txt": "",
            }
        )
    )
    assert registry.skills == (
        Skill("a", "skills/a", "What things cost.", "skills/a/SKILL.md"),
        Skill("b", "skills/b", "What things cost.", "skills/b/SKILL.md"),
    )
    assert registry.problems == ()
    assert registry.get("b") == registry.skills[1]
    assert registry.get("c") is None


def test_a_source_may_be_one_bundle_or_nothing_at_all():
    """01 §17."""
    tree = MemoryTree({"shared/fees/SKILL.md": GOOD, "shared/fees/more/SKILL.md": GOOD})
    assert discover_skills(tree, ["/shared/fees/"]).slugs == ("fees",)
    assert discover_skills(tree, []).skills == ()
    assert discover_skills(tree, ["../shared", "gone"]).skills == ()


def test_a_later_source_wins_and_the_earlier_folder_is_withheld():
    """01 §17, 02 OP-13."""
    registry = discover_skills(MemoryTree({"a/fees/SKILL.md": GOOD, "b/fees/SKILL.md": GOOD}), ["a", "b"])
    assert [skill.prefix for skill in registry.skills] == ["b/fees"]
    assert registry.withheld == (WithheldSkill("fees", "a/fees"),)
    assert [problem.id for problem in registry.problems] == ["skills.shadowed"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("# Fees", "frontmatter"),
        ("---\ndescription: x\n", "frontmatter"),
        ("---\n- x\n---\n", "mapping"),
        ("---\na: [\n---\n", "line"),
        ("---\nname: fees\n---\n", "description"),
        ("---\ndescription: ' '\n---\n", "description"),
        ("---\ndescription: 3\n---\n", "description"),
        (f"---\ndescription: {'x' * 1025}\n---\n", "1024"),
        (f"---\ndescription: x\nname: {'x' * 65}\n---\n", "64"),
        ("---\ndescription: x\nname: 3\n---\n", "name"),
    ],
)
def test_a_manifest_that_cannot_be_used_withholds_its_folder(text: str, words: str):
    """01 §17, 02 OP-13."""
    registry = discover_skills(MemoryTree({"skills/fees/SKILL.md": text}))
    assert registry.skills == ()
    assert registry.withheld == (WithheldSkill("fees", "skills/fees"),)
    (problem,) = registry.problems
    assert (problem.id, problem.severity, problem.field) == ("skills.unloadable", "warning", "skills")
    assert words in problem.message
    assert registry.warnings == (problem.message,)


def test_the_folder_governs_whatever_the_manifest_says():
    """01 §17."""
    registry = discover_skills(
        MemoryTree(
            {"skills/fees/SKILL.md": "---\nname: costs\ndescription: x\n---\n", "skills/A b/SKILL.md": GOOD}
        )
    )
    assert registry.slugs == ("A b", "fees")
    assert [(item.id, item.severity) for item in registry.problems] == [
        ("skills.non-slug-dir", "error"),
        ("skills.name-mismatch", "error"),
    ]


def test_limits_are_inclusive_and_a_byte_order_mark_does_no_harm():
    """01 §17."""
    slug = "x" * 64
    text = f"\ufeff---\r\nname: {slug}\r\ndescription: {'d' * 1024}\r\n---\r\n"
    assert discover_skills(MemoryTree({f"skills/{slug}/SKILL.md": text})).slugs == (slug,)
