"""`validate_workflow`: the library form of `archmax validate` (07 §8)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

from core.jsontext import JsonObject
from engine.cases.checks import check_cases
from engine.spec.diagnostics import Diagnostic
from engine.spec.skills import DEFAULT_SOURCES, discover_skills
from engine.spec.tree import DirectoryTree
from engine.spec.validate import validate_workflow as validate_tree
from engine.workspace.mounts import build_mounts, default_mounts


@dataclass(frozen=True, slots=True)
class Validation:
    """`valid` means no error; `root` is the resolved workspace."""

    workflow: str
    root: Path
    valid: bool
    diagnostics: tuple[Diagnostic, ...]

    @property
    def errors(self) -> int:
        return sum(diagnostic.severity == "error" for diagnostic in self.diagnostics)

    @property
    def warnings(self) -> int:
        return len(self.diagnostics) - self.errors

    def to_json(self) -> JsonObject:
        """The object `validate --json` prints."""
        return {
            "workflow": self.workflow,
            "valid": self.valid,
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
        }


async def validate_workflow(
    workflow: str,
    root: str | PathLike[str] | None = None,
    skills: Sequence[str] | None = None,
    mounts: Mapping[str, object] | None = None,
) -> Validation:
    """Check one workflow of the workspace at `root` (default: the current directory). Reads files only.

    `skills` are the sources of skill bundles (default `["skills/"]`), `mounts` the host's table (default: the
    conventional one, which governs nothing). Raises: the mount table's errors; `OSError` when a source cannot be listed.
    """
    return await asyncio.to_thread(_validate, workflow, root, skills, mounts)


def _validate(
    workflow: str,
    root: str | PathLike[str] | None,
    skills: Sequence[str] | None,
    mounts: Mapping[str, object] | None,
) -> Validation:
    at = (Path.cwd() if root is None else Path(root)).resolve()
    prefixes = build_mounts(default_mounts(at) if mounts is None else mounts).prefixes
    tree = DirectoryTree(at)
    registry = discover_skills(tree, DEFAULT_SOURCES if skills is None else skills)
    result = validate_tree(
        tree, workflow, skills=registry, mounts=prefixes, case_checks=partial(check_cases, mounts=prefixes)
    )
    return Validation(workflow, at, result.valid, result.diagnostics)
