"""`validate_workflow`: the library form of `archmax validate` (07 §8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from engine.cases.checks import check_cases
from engine.governance.tool_paths import ToolPaths
from engine.host.content import mounted_content
from engine.spec.skills import DEFAULT_SOURCES, discover_skills
from engine.spec.tree import DirectoryTree
from engine.spec.validate import ValidationResult
from engine.spec.validate import validate_workflow as validate_tree
from engine.workspace.mounts import build_mounts, default_mounts

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

#: what `create_agent` takes as `tools`
HostTools: TypeAlias = "Iterable[BaseTool | Callable[..., Any]] | Mapping[str, Mapping[str, Any]]"


@dataclass(frozen=True, slots=True)
class Validation(ValidationResult):
    """`valid` means no error; `root` is the resolved workspace."""

    root: Path


async def validate_workflow(
    workflow: str,
    root: str | PathLike[str] | None = None,
    skills: Sequence[str] | None = None,
    mounts: Mapping[str, object] | None = None,
    *,
    tools: HostTools = (),
) -> Validation:
    """Check one workflow of the workspace at `root` (default: the current directory). Reads files only.

    `skills` are the sources of skill bundles (default `["skills/"]`), `mounts` the host's table (default: the
    conventional one, which governs nothing), `tools` the host's, for the paths they declare. Raises: the assembly
    errors of mounts and tools; `OSError` when a source cannot be listed.
    """
    at = (Path.cwd() if root is None else Path(root)).resolve()
    sources = DEFAULT_SOURCES if skills is None else skills
    tool_paths = _tool_paths(tools) if tools else None
    table = build_mounts(default_mounts(at) if mounts is None else mounts)
    content = DirectoryTree(at) if mounts is None else await mounted_content(table, sources)

    def check() -> ValidationResult:
        return validate_tree(
            DirectoryTree(at),
            workflow,
            skills=discover_skills(content, sources),
            mounts=table.prefixes,
            case_checks=partial(check_cases, mounts=table.prefixes),
            tool_paths=tool_paths,
        )

    result = await asyncio.to_thread(check)
    return Validation(workflow, result.valid, result.diagnostics, at)


def _tool_paths(tools: HostTools) -> ToolPaths:
    """The paths tools declare. Imports what tools are made of only here: it takes seconds."""
    from engine.host.tool_map import as_tools
    from engine.turn.assembly import HostOptions, check_options, tool_path_table

    options = HostOptions(tools=as_tools(tools))
    check_options(options)
    return tool_path_table(options)
