"""Workflows in memory, and what is said about them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from engine.cases.checks import check_cases
from engine.governance.zones import MountPrefixes
from engine.spec.diagnostics import Diagnostic
from engine.spec.loader import LoadedWorkflow, load_workflow
from engine.spec.skills import discover_skills
from engine.spec.tree import MemoryTree
from engine.spec.validate import ValidationResult, validate_workflow

SPEC = "workflows/shop/workflow.yaml"

#: a table with a governed, writable mount, a governed read-only one, and the default three
MOUNTS = MountPrefixes(
    dirs=("skills", ".platform", "ledger", "archive"),
    files=("AGENTS.md",),
    writable=frozenset({"ledger"}),
    governed=frozenset({"ledger", "archive"}),
)

BUNDLES: Mapping[str, str] = {
    "skills/fees/SKILL.md": "---\ndescription: What things cost.\n---\n",
    "skills/tides/SKILL.md": "---\ndescription: When the water comes.\nname: tides\n---\n",
}


def load(spec: str | bytes, files: Mapping[str, str] | None = None) -> LoadedWorkflow:
    return load_workflow(MemoryTree({SPEC: spec, **(files or {})}), "shop")


def validate(
    spec: str | Mapping[str, str], *, mounts: MountPrefixes | None = MOUNTS, slug: str = "shop"
) -> ValidationResult:
    files = {SPEC: spec} if isinstance(spec, str) else dict(spec)
    tree = MemoryTree({**BUNDLES, **files})
    return validate_workflow(
        tree,
        slug,
        skills=discover_skills(tree, ("skills/", "more/")),
        mounts=mounts,
        case_checks=partial(check_cases, mounts=mounts or MountPrefixes()),
    )


def found(diagnostics: tuple[Diagnostic, ...], id_: str) -> list[Diagnostic]:
    return [item for item in diagnostics if item.id == id_]
