"""Wiring: from a workspace and a host's options to the parts every assembly shares (05 §9, §13)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.host.content import PERSONA_PATH, authoring_tree, mounted_content
from engine.models.factory import ModelFactory
from engine.spec.skills import DEFAULT_SOURCES, discover_skills
from engine.spec.tree import AuthoringTree, DirectoryTree
from engine.turn.assembly import HostOptions, Wiring, check_options
from engine.turn.library import WorkflowLibrary
from engine.turn.platform_prompt import OVERRIDE_PATH
from engine.workspace.backend import AnyBackend
from engine.workspace.deepagents_adapter import as_backend
from engine.workspace.directory_backend import DirectoryBackend
from engine.workspace.mounts import build_mounts, default_mounts
from sandbox import HostSandbox, Sandbox


def wire(
    root: Path,
    *,
    models: ModelFactory,
    sandbox: Sandbox | HostSandbox,
    options: HostOptions = HostOptions(),
    mounts: Mapping[str, object] | None = None,
    authoring: AuthoringTree | None = None,
    content: AuthoringTree | None = None,
    skills: Sequence[str] = DEFAULT_SOURCES,
    specs_at: AnyBackend | None = None,
) -> Wiring:
    """Parts over a workspace. `mounts` replaces the default table; `content` is what prompts and skills are read from.

    `specs_at` is the backend specs come from, which no writable mount may reach; default: the file system under `root`.
    Raises: `ReservedToolNameError`, `ToolPathsError`, `MountCollisionError`, `AuthoringBackendExposedError`.
    """
    check_options(options)
    table = build_mounts(
        default_mounts(root) if mounts is None else mounts,
        specs_at if specs_at is not None else DirectoryBackend(root),
    )
    content = content or DirectoryTree(root)
    persona, platform = content.read(PERSONA_PATH), content.read(OVERRIDE_PATH)
    return Wiring(
        library=WorkflowLibrary(authoring or DirectoryTree(root)),
        models=models,
        mount_table=table,
        skills=discover_skills(content, skills),
        sandbox=sandbox,
        options=replace(
            options,
            persona=options.persona or (persona.decode("utf-8", "replace") if persona else None),
            platform_prompt=options.platform_prompt
            or (platform.decode("utf-8", "replace") if platform else None),
        ),
    )


async def wire_host(
    root: Path,
    *,
    models: ModelFactory,
    sandbox: Sandbox | HostSandbox,
    options: HostOptions,
    mounts: Mapping[str, object] | None = None,
    backend: AnyBackend | None = None,
    authoring: Any = None,
    skills: Sequence[str] = DEFAULT_SOURCES,
) -> Wiring:
    """As `wire`, over backends of any kind, each read once here (05 §9.2, §9.4).

    With a `backend` and no `mounts` nothing authored is served into the workspace, and specs come from the backend
    unless `authoring` says otherwise. Raises: as `wire`; `OSError` when a backend cannot be read.
    """
    check_options(options)
    if mounts is None and backend is not None:
        mounts = {}
    specs_at = authoring if authoring is not None else backend
    tree = None if specs_at is None else await authoring_tree(specs_at)
    given = None if tree is None or tree is specs_at else as_backend(specs_at)
    content = None
    if mounts is not None:
        table = build_mounts(mounts, given if given is not None else DirectoryBackend(root))
        content = await mounted_content(table, skills)
    return await asyncio.to_thread(
        wire,
        root,
        models=models,
        sandbox=sandbox,
        options=options,
        mounts=mounts,
        authoring=tree,
        content=content,
        skills=skills,
        specs_at=given,
    )
