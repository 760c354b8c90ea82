"""`create_agent`: a workflow made ready in this process (05 §13). Nothing here calls a model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from langchain_core.language_models import BaseChatModel

from archmax.cli.envfile import load_env_files
from archmax.console import print_event
from archmax.settings import read_settings
from core.jsontext import Json, JsonObject
from engine.errors import SessionStoreRequiredError, WorkflowLoadError, WorkspaceRootRequiredError
from engine.host.agent import Agent
from engine.host.announce import announce
from engine.host.driver import TurnOptions
from engine.host.options import given_sandbox, host_options, trigger_id
from engine.host.stores import SessionStore, create_filesystem_session_store
from engine.host.wiring import wire_host
from engine.models.factory import HostModelFactory, ModelFactory
from engine.spec.loader import list_workflows
from engine.spec.skills import DEFAULT_SOURCES
from engine.spec.tree import AuthoringTree
from engine.turn.assembly import assemble, assemble_plain, check_options
from engine.turn.context import RECURSION_LIMIT
from engine.turn.recorder import EventStream
from engine.workspace.backend import AnyBackend
from sandbox import Sandbox, SandboxRuntime
from worker.settings import ModelEnvironment
from worker.zone import local_zone

#: governs when it exists and `workflow` is omitted; empty: the only workflow there is does (05 OP-8)
DEFAULT_WORKFLOW: str = ""
_WORKSPACE: Final = ("root_dir", "mounts", "session_store")


async def create_agent(
    *,
    workflow: str | Literal[False] | None = None,
    workspace: Mapping[str, Any] | None = None,
    backend: AnyBackend | None = None,
    authoring: AuthoringTree | AnyBackend | None = None,
    model: BaseChatModel | None = None,
    model_factory: HostModelFactory | None = None,
    tools: Any = (),
    tool_paths: Mapping[str, Mapping[str, str]] | None = None,
    essential_tools: Sequence[str] = (),
    system_prompt: str | None = None,
    skills: Sequence[str] = DEFAULT_SOURCES,
    images: bool | Mapping[str, Any] = False,
    trigger: Mapping[str, str] | str | None = None,
    variables: Mapping[str, Json] | None = None,
    session_path: str | None = None,
    policy_rules: Sequence[Callable[..., Any]] = (),
    sandbox_runtime: Sandbox | SandboxRuntime | None = None,
    sub_workflow_bounds: Mapping[str, int] | None = None,
    middleware: Sequence[Any] = (),
    on_event: Callable[[JsonObject], None] | None = None,
    prompt_cache: Mapping[str, Any] | None = None,
    pricing: Mapping[str, Any] | None = None,
    recursion_limit: int = RECURSION_LIMIT,
    name: str | None = None,
    description: str | None = None,
) -> Agent:
    """Assemble a workflow, or a plain agent, for sessions in this process.

    `workflow`: a slug; None lets the workspace's only workflow govern, or none where there is none; False reads no spec.
    `workspace` is `{root_dir, mounts, session_store}`. `backend` holds the authored content elsewhere, `authoring` the
    specs alone. `name` and `description` say in traces what runs here. Close the agent to end its sandbox.
    Refuses what could not work, in the contract's order, before any model call. Raises: the errors of 05 §17.
    """
    given = dict(workspace or {})
    unknown = sorted(key for key in given if key not in _WORKSPACE)
    if unknown:
        raise TypeError(f"workspace has no {unknown[0]!r}; known: {', '.join(_WORKSPACE)}")
    root, needed_for = await asyncio.to_thread(_root, given, backend, authoring)
    load_env_files(root, os.environ)
    environment = read_settings(ModelEnvironment)
    options = host_options(
        tools=tools,
        tool_paths=tool_paths,
        essential_tools=essential_tools,
        system_prompt=system_prompt,
        images=images,
        trigger=trigger,
        variables=variables,
        policy_rules=policy_rules,
        middleware=middleware,
        sub_workflow_bounds=sub_workflow_bounds,
        prompt_cache=prompt_cache,
        pricing=pricing,
        environment_cache=(environment.prompt_cache, environment.prompt_cache_ttl),
        environment_pricing=environment.pricing(),
        streaming=environment.streaming,
        zone=local_zone(),
    )
    shared = given_sandbox(sandbox_runtime)
    check_options(options)
    store: SessionStore | None = given.get("session_store")
    if store is None and backend is not None:
        raise SessionStoreRequiredError()
    if needed_for is not None:
        raise WorkspaceRootRequiredError(needed_for)
    own = Sandbox()  # starts nothing until it is used
    wiring = await wire_host(
        root,
        models=ModelFactory(environment.model_settings(), instance=model, host=model_factory, root=root),
        sandbox=shared or own,
        options=options,
        mounts=given.get("mounts"),
        backend=backend,
        authoring=authoring,
        skills=skills,
    )
    slug = workflow if workflow is not None else await asyncio.to_thread(_only_workflow, wiring.library.tree)
    assembly = await asyncio.to_thread(
        lambda: (
            assemble_plain(wiring) if slug is False else assemble(wiring, slug, trigger=trigger_id(trigger))
        )
    )
    store = store or create_filesystem_session_store(root / "sessions")
    events = EventStream(on_event if on_event is not None else print_event)
    await asyncio.to_thread(
        announce, assembly, events, instance=model is not None, factory=model_factory is not None
    )
    metadata = {key: said for key, said in (("name", name), ("description", description)) if said}
    return Agent(
        assembly,
        store.folder(),
        events,
        session_path=session_path,
        options=TurnOptions(
            recursion_limit=recursion_limit, config={"metadata": metadata} if metadata else {}
        ),
        owns=own,
        store=store,
    )


def _root(given: Mapping[str, Any], backend: Any, authoring: Any) -> tuple[Path, str | None]:
    """The workspace root, and what needs one although nobody named it (05 §9.2)."""
    named = given.get("root_dir")
    mounts, store = given.get("mounts"), given.get("session_store")
    if named is not None or all(part is None for part in (backend, mounts, store, authoring)):
        return Path(named or ".").resolve(), None
    needed_for = None
    if authoring is None and backend is None:
        needed_for = "the workflows (or give authoring)"
    elif mounts is None and backend is None:
        needed_for = "the default mounts (or give mounts)"
    elif store is None:
        needed_for = "the default session store (or give session_store)"
    return Path.cwd(), needed_for


def _only_workflow(tree: AuthoringTree) -> str | Literal[False]:
    """An omitted workflow: the default one, else the only one; several ask for a name; none is a plain agent."""
    slugs = list_workflows(tree)
    if DEFAULT_WORKFLOW and DEFAULT_WORKFLOW in slugs:
        return DEFAULT_WORKFLOW
    if len(slugs) > 1:
        raise WorkflowLoadError(
            "", "workflows/", f"the workspace holds several workflows; name one: {', '.join(slugs)}"
        )
    return slugs[0] if slugs else False
