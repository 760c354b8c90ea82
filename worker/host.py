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
from engine.host.tool_map import as_tools
from engine.host.wiring import wire
from engine.models.factory import ModelFactory
from engine.models.usage import read_pricing
from engine.spec.skills import DEFAULT_SOURCES
from engine.turn.assembly import HostOptions, Wiring
from engine.workspace.images import ImageOptions
from sandbox import Sandbox
from worker.settings import FleetSettings, ModelEnvironment

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
    }
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


def wire_fleet(
    settings: FleetSettings, environment: ModelEnvironment, host: Mapping[str, Any], sandbox: Sandbox
) -> Wiring:
    """The wiring of a worker or of a command, from settings and what the host returned.

    Raises: the assembly errors of tools and mounts.
    """
    bounds = host.get("sub_workflow_bounds") or {}
    cache = host.get("prompt_cache") or {}
    models = ModelFactory(
        environment.model_settings(),
        instance=host.get("model"),
        host=host.get("model_factory"),
        root=settings.root,
    )
    images = host.get("images")
    options = HostOptions(
        tools=as_tools(host.get("tools") or ()),
        tool_paths=host.get("tool_paths") or {},
        essential_tools=tuple(host.get("essential_tools") or ()),
        system_prompt=host.get("system_prompt"),
        policy_rules=tuple(host.get("policy_rules") or ()),
        bounds=Bounds(
            max_depth=bounds.get("max_depth", settings.max_delegation_depth),
            max_concurrent=bounds.get("max_concurrent", settings.max_concurrent_children),
        ),
        cache=(cache.get("enabled"), cache.get("ttl")),
        environment_cache=(environment.prompt_cache, environment.prompt_cache_ttl),
        pricing=read_pricing(host["pricing"]) if host.get("pricing") else environment.pricing(),
        images=ImageOptions(**images) if isinstance(images, Mapping) else ImageOptions() if images else None,
        streaming=environment.streaming,
        call_timeout_ms=round(settings.call_timeout_seconds * 1000),
    )
    return wire(
        settings.root,
        models=models,
        sandbox=sandbox,
        options=options,
        mounts=host.get("mounts"),
        skills=host.get("skills", DEFAULT_SOURCES),
    )
