"""`create_agent`: a workflow made ready in this process (05 §13). Nothing here calls a model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel

from archmax.cli.envfile import load_env_files
from core.jsontext import Json, JsonObject
from engine.delegation.calls import Bounds
from engine.errors import SessionStoreRequiredError, WorkflowLoadError
from engine.host.agent import Agent
from engine.host.driver import TurnOptions
from engine.host.stores import SessionStore, create_filesystem_session_store
from engine.host.tool_map import as_tools
from engine.host.wiring import wire
from engine.models.factory import ModelFactory
from engine.models.usage import read_pricing
from engine.spec.loader import list_workflows
from engine.spec.skills import DEFAULT_SOURCES
from engine.spec.tree import AuthoringTree, DirectoryTree
from engine.turn.assembly import HostOptions, assemble
from engine.turn.context import RECURSION_LIMIT
from engine.turn.inputs import check_seeds
from engine.turn.recorder import EventStream
from engine.workspace.images import ImageOptions
from sandbox import Sandbox
from worker.settings import ModelEnvironment


async def create_agent(
    *,
    workflow: str | None = None,
    workspace: Mapping[str, Any] | None = None,
    authoring: AuthoringTree | None = None,
    model: BaseChatModel | None = None,
    model_factory: Callable[..., BaseChatModel] | None = None,
    tools: Any = (),
    tool_paths: Mapping[str, Mapping[str, str]] | None = None,
    essential_tools: Sequence[str] = (),
    system_prompt: str | None = None,
    skills: Sequence[str] = DEFAULT_SOURCES,
    images: bool | Mapping[str, Any] = False,
    trigger: Mapping[str, str] | str | None = None,
    variables: Mapping[str, Json] | None = None,
    session_path: str | None = None,
    policy_rules: Sequence[Any] = (),
    sandbox_runtime: Sandbox | None = None,
    sub_workflow_bounds: Mapping[str, int] | None = None,
    on_event: Callable[[JsonObject], None] | None = None,
    prompt_cache: Mapping[str, Any] | None = None,
    pricing: Mapping[str, Any] | None = None,
    recursion_limit: int = RECURSION_LIMIT,
) -> Agent:
    """Assemble `workflow` (or the workspace's only one) for sessions in this process.

    `workspace` is `{root_dir, mounts, session_store}`. Refuses what could not work, in the contract's order, before any
    model call. Raises: the assembly errors of 05 §17.
    """
    given = dict(workspace or {})
    root = await asyncio.to_thread(lambda: Path(given.get("root_dir") or ".").resolve())
    load_env_files(root, os.environ)
    environment = ModelEnvironment()
    bounds = Bounds(**dict(sub_workflow_bounds or {}))
    cache = dict(prompt_cache or {})
    options = HostOptions(
        tools=as_tools(tools),
        tool_paths=dict(tool_paths or {}),
        essential_tools=tuple(essential_tools),
        system_prompt=system_prompt,
        policy_rules=tuple(policy_rules),
        bounds=bounds,
        cache=(cache.get("enabled"), cache.get("ttl")),
        environment_cache=(environment.prompt_cache, environment.prompt_cache_ttl),
        pricing=read_pricing(pricing) if pricing else environment.pricing(),
        images=ImageOptions(**images) if isinstance(images, Mapping) else ImageOptions() if images else None,
        streaming=environment.streaming,
    )
    store = given.get("session_store")
    if store is None and authoring is not None and "root_dir" not in given:
        raise SessionStoreRequiredError()
    session_store: SessionStore = store or create_filesystem_session_store(root / "sessions")
    models = ModelFactory(environment.model_settings(), instance=model, host=model_factory, root=root)
    check_seeds(variables or {})
    wiring = await asyncio.to_thread(
        wire,
        root,
        models=models,
        sandbox=sandbox_runtime or Sandbox(),
        options=options,
        mounts=given.get("mounts"),
        authoring=authoring,
        skills=skills,
    )
    events = EventStream(on_event)
    name = trigger.get("id") if isinstance(trigger, Mapping) else trigger
    slug = workflow or _only_workflow(authoring or DirectoryTree(root))
    assembly = await asyncio.to_thread(
        assemble,
        wiring,
        slug,
        trigger=name,
        variables=variables,
        on_warning=lambda scope, message: events.emit(
            {"type": "warning", "scope": scope, "message": message}
        ),
    )
    return Agent(
        assembly,
        session_store.folder(),
        events,
        session_path=session_path,
        options=TurnOptions(recursion_limit=recursion_limit),
    )


def _only_workflow(tree: AuthoringTree) -> str:
    """An omitted workflow governs only if it is the only one (05 OP-8)."""
    slugs = list_workflows(tree)
    if len(slugs) != 1:
        said = "several workflows; name one: " + ", ".join(slugs) if slugs else "no workflow"
        raise WorkflowLoadError("", "workflows/", f"the workspace holds {said}")
    return slugs[0]
