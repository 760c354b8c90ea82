"""A host's options, from the keywords of `create_agent` and `ARCHMAX_HOST` to what an assembly takes (05 §13).

One reading for both, so that an option means the same in a library call, a command and a worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final, cast

from engine.delegation.calls import Bounds
from engine.governance.calls import ToolCall, Verdict
from engine.governance.kernel import ConsumerRule, RuleView
from engine.host.tool_map import as_tools
from engine.models.usage import Pricing, read_pricing
from engine.turn.assembly import HostOptions
from engine.workspace.images import ImageOptions
from sandbox import HostSandbox, Sandbox, SandboxRuntime

_TTLS: Final = (None, "5m", "1h")


def host_options(
    *,
    tools: Any = (),
    tool_paths: Mapping[str, Mapping[str, str]] | None = None,
    essential_tools: Sequence[str] = (),
    system_prompt: str | None = None,
    images: bool | Mapping[str, Any] | None = None,
    trigger: Mapping[str, str] | str | None = None,
    variables: Mapping[str, Any] | None = None,
    policy_rules: Sequence[Callable[..., Any]] = (),
    middleware: Sequence[Any] = (),
    sub_workflow_bounds: Mapping[str, int] | None = None,
    prompt_cache: Mapping[str, Any] | None = None,
    pricing: Mapping[str, Any] | None = None,
    bounds: Bounds = Bounds(),
    environment_cache: tuple[bool | None, Any] = (None, None),
    environment_pricing: Pricing | None = None,
    streaming: bool = True,
    call_timeout_ms: int = 120_000,
    zone: tuple[tzinfo, str] | None = None,
) -> HostOptions:
    """Read what a host gave. `bounds` are what `sub_workflow_bounds` is laid over; `zone` is the host's, told in prompts.

    Raises: `TypeError` for a key an option does not have, `ValueError` for a value it cannot take, `MiddlewareError`.
    """
    chain = None
    if middleware:
        from engine.turn.middleware import MiddlewareChain  # LangChain's agents are slow to import

        chain = MiddlewareChain(tuple(middleware))
    cache = _keys("prompt_cache", prompt_cache, ("enabled", "ttl"))
    if cache.get("ttl") not in _TTLS:
        raise ValueError(f"prompt_cache ttl is '5m' or '1h', not {cache['ttl']!r}")
    over = _keys("sub_workflow_bounds", sub_workflow_bounds, ("max_depth", "max_concurrent"))
    for name, value in over.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < (0 if name == "max_depth" else 1):
            raise ValueError(f"sub_workflow_bounds {name} is a whole number above 0, not {value!r}")
    return HostOptions(
        tools=[*as_tools(tools), *(chain.tools if chain is not None else ())],
        tool_paths=dict(tool_paths or {}),
        essential_tools=tuple(essential_tools),
        system_prompt=system_prompt,
        policy_rules=tuple(consumer_rule(rule) for rule in policy_rules),
        middleware=chain,
        bounds=Bounds(
            over.get("max_depth", bounds.max_depth), over.get("max_concurrent", bounds.max_concurrent)
        ),
        cache=(cache.get("enabled"), cache.get("ttl")),
        environment_cache=environment_cache,
        pricing=read_pricing(pricing) if pricing else environment_pricing,
        images=_images(images),
        default_trigger=trigger_id(trigger),
        variables=dict(variables or {}),
        streaming=streaming,
        call_timeout_ms=call_timeout_ms,
        zone=zone[0] if zone is not None else None,
        zone_name=zone[1] if zone is not None else None,
    )


def given_sandbox(runtime: object | None) -> Sandbox | HostSandbox | None:
    """A host's `sandbox_runtime` as the engine runs scripts in it (03 §19.6). Raises: `TypeError` for what is none."""
    if runtime is None or isinstance(runtime, Sandbox):
        return runtime
    if isinstance(runtime, SandboxRuntime):
        return HostSandbox(runtime)
    raise TypeError(
        f"sandbox_runtime is a SandboxRuntime (session, dispose) or a Sandbox, not {type(runtime).__name__}"
    )


def trigger_id(given: Mapping[str, str] | str | None) -> str | None:
    """The id of a `trigger` option: `{"id": …}` or the id itself."""
    if given is None or isinstance(given, str):
        return given
    return cast(str, _keys("trigger", given, ("id",))["id"])


def consumer_rule(rule: Callable[..., Any]) -> ConsumerRule:
    """A host's `(action) → {decision, rule_id, reason} | None` as the kernel asks it; `(action, view)` works too.

    What it answers otherwise blocks the call, in the kernel (decision 0025).
    """
    if not callable(rule):
        raise TypeError(f"a policy rule is callable, not {type(rule).__name__}")
    takes_view = _positional(rule) >= 2

    def asked(action: ToolCall, view: RuleView) -> Verdict | None:
        said = rule(action, view) if takes_view else rule(action)
        if not isinstance(said, Mapping):
            return cast("Verdict | None", said)
        decision = said.get("decision")
        if decision not in ("allow", "block"):
            raise ValueError(f"decision is 'allow' or 'block', not {decision!r}")
        name = str(said.get("rule_id") or said.get("ruleId") or "policy.rule")
        reason = said.get("reason")
        return Verdict(decision, name, str(reason) if reason is not None else f"refused by {name}")

    asked.__name__ = getattr(rule, "__name__", type(rule).__name__)
    return asked


def _positional(rule: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(rule).parameters.values()
    except (TypeError, ValueError):
        return 1
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return 2
    return sum(
        p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for p in parameters
    )


def _images(given: bool | Mapping[str, Any] | None) -> ImageOptions | None:
    if not given and not isinstance(given, Mapping):
        return None
    options = _keys("images", given if isinstance(given, Mapping) else None, ("max_bytes", "keep"))
    for name, value in options.items():
        if value is None and name == "keep":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"images {name} is a whole number, not {value!r}")
    return ImageOptions(**options)


def _keys(option: str, given: Mapping[str, Any] | None, known: Sequence[str]) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"{option} is a mapping of {', '.join(known)}, not {type(given).__name__}")
    unknown = sorted(key for key in given or {} if key not in known)
    if unknown:
        raise TypeError(f"{option} has no {unknown[0]!r}; known: {', '.join(known)}")
    return dict(given or {})
