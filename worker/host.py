"""`ARCHMAX_HOST`: a deployment's own wiring of tools, models and mounts (ruling 18)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from engine.delegation.calls import Bounds
from engine.errors import HostError
from engine.host.options import given_sandbox, host_options
from engine.host.stores import SessionStore
from engine.host.wiring import wire_host
from engine.models.factory import ModelFactory
from engine.spec.skills import DEFAULT_SOURCES
from engine.turn.assembly import Wiring
from sandbox import Sandbox
from worker.settings import FleetSettings, ModelEnvironment
from worker.zone import local_zone

Purpose = Literal["worker", "run", "test", "validate"]

#: keywords of `create_agent` a host may return
KEYWORDS: Final = frozenset(
    {
        "workspace",
        "backend",
        "authoring",
        "model",
        "model_factory",
        "tools",
        "tool_paths",
        "essential_tools",
        "system_prompt",
        "skills",
        "images",
        "trigger",
        "variables",
        "session_path",
        "policy_rules",
        "sandbox_runtime",
        "sub_workflow_bounds",
        "middleware",
        "prompt_cache",
        "pricing",
        "mounts",
        "recursion_limit",
        "name",
        "description",
    }
)
#: the ones `host_options` reads
_OPTIONS: Final = (
    "tools",
    "tool_paths",
    "essential_tools",
    "system_prompt",
    "images",
    "trigger",
    "variables",
    "policy_rules",
    "middleware",
    "sub_workflow_bounds",
    "prompt_cache",
    "pricing",
)


@dataclass(frozen=True)
class HostContext:
    """What a host function is told. `workflow` is None where one wiring serves all of a workspace."""

    root: Path
    workflow: str | None
    purpose: Purpose


async def load_host(target: str | None, context: HostContext) -> dict[str, Any]:
    """Call the host function. Raises: `HostError` by name for an import that fails or a key nobody knows."""
    if not target:
        return {}
    module_name, colon, function_name = target.partition(":")
    if not colon or not module_name or not function_name:
        raise HostError(target, "write it as package.module:function")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise HostError(
            target, f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise HostError(target, f"module {module_name!r} has no function {function_name!r}")
    try:
        given = function(context)
        if inspect.isawaitable(given):
            given = await given
    except Exception as error:
        raise HostError(target, f"it failed: {type(error).__name__}: {error}") from error
    if not isinstance(given, Mapping):
        raise HostError(target, f"it returned {type(given).__name__}, not a mapping of create_agent keywords")
    unknown = sorted(str(key) for key in given if key not in KEYWORDS)
    if unknown:
        raise HostError(target, f"unknown keys {', '.join(unknown)}; known: {', '.join(sorted(KEYWORDS))}")
    return dict(given)


async def wire_fleet(
    settings: FleetSettings, environment: ModelEnvironment, host: Mapping[str, Any], sandbox: Sandbox
) -> Wiring:
    """The wiring of a worker or of a command, from settings and what the host returned.

    A host's `mounts` replace the default table. Raises: `HostError` for what a fleet cannot take, the assembly errors.
    """
    workspace = _workspace(settings, host)
    shared = given_sandbox(host.get("sandbox_runtime"))
    options = host_options(
        **{key: host[key] for key in _OPTIONS if host.get(key) is not None},
        bounds=Bounds(settings.max_delegation_depth, settings.max_concurrent_children),
        environment_cache=(environment.prompt_cache, environment.prompt_cache_ttl),
        environment_pricing=environment.pricing(),
        streaming=environment.streaming,
        zone=local_zone(),
        call_timeout_ms=round(settings.call_timeout_seconds * 1000),
    )
    models = ModelFactory(
        environment.model_settings(),
        instance=host.get("model"),
        host=host.get("model_factory"),
        root=settings.root,
    )
    mounts = host.get("mounts")
    return await wire_host(
        settings.root,
        models=models,
        sandbox=shared or sandbox,
        options=options,
        mounts=workspace.get("mounts") if mounts is None else mounts,
        backend=host.get("backend"),
        authoring=host.get("authoring"),
        skills=host.get("skills", DEFAULT_SOURCES),
    )


def session_store(settings: FleetSettings, host: Mapping[str, Any], purpose: Purpose) -> SessionStore | None:
    """The store a host brings, None for the settings' own. Raises: `HostError` where a fleet could not share it."""
    store = _workspace(settings, host).get("session_store")
    if store is None:
        return None
    if not isinstance(store, SessionStore):
        raise HostError(str(settings.host), f"session_store is {type(store).__name__}, not a session store")
    if purpose == "worker":
        raise HostError(
            str(settings.host),
            "a fleet's sessions lie where ARCHMAX_STORE says, not in a host's session_store",
        )
    return store


def _workspace(settings: FleetSettings, host: Mapping[str, Any]) -> Mapping[str, Any]:
    given = host.get("workspace") or {}
    if not isinstance(given, Mapping):
        raise HostError(str(settings.host), f"workspace is {type(given).__name__}, not a mapping")
    unknown = sorted(key for key in given if key not in ("root_dir", "mounts", "session_store"))
    if unknown:
        raise HostError(str(settings.host), f"workspace has no {unknown[0]!r}")
    root = given.get("root_dir")
    if root is not None and Path(root).resolve() != settings.root:
        raise HostError(str(settings.host), "the workspace's root is ARCHMAX_ROOT, not the host's root_dir")
    return given
