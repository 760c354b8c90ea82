"""Wiring: from a workspace and a host's options to the parts every assembly shares (05 §9, §13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.models.factory import ModelFactory
from engine.spec.skills import DEFAULT_SOURCES, discover_skills
from engine.spec.tree import AuthoringTree, DirectoryTree
from engine.turn.assembly import HostOptions, Wiring, check_options
from engine.turn.library import WorkflowLibrary
from engine.turn.platform_prompt import OVERRIDE_PATH
from engine.workspace.mounts import build_mounts, default_mounts
from sandbox import Sandbox

PERSONA_PATH = "AGENTS.md"


def wire(
    root: Path,
    *,
    models: ModelFactory,
    sandbox: Sandbox,
    options: HostOptions = HostOptions(),
    mounts: Mapping[str, object] | None = None,
    authoring: AuthoringTree | None = None,
    skills: Sequence[str] = DEFAULT_SOURCES,
) -> Wiring:
    """Parts over a file-system workspace. `mounts` replaces the default table.

    Raises: `ReservedToolNameError`, `ToolPathsError`, `MountCollisionError`, `AuthoringBackendExposedError`.
    """
    check_options(options)
    tree = authoring or DirectoryTree(root)
    content = DirectoryTree(root)
    persona, platform = content.read(PERSONA_PATH), content.read(OVERRIDE_PATH)
    return Wiring(
        library=WorkflowLibrary(tree),
        models=models,
        mount_table=build_mounts(default_mounts(root) if mounts is None else mounts),
        skills=discover_skills(content, skills),
        sandbox=sandbox,
        options=replace(
            options,
            persona=options.persona or (persona.decode("utf-8", "replace") if persona else None),
            platform_prompt=options.platform_prompt
            or (platform.decode("utf-8", "replace") if platform else None),
        ),
    )
