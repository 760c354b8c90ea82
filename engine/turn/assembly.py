"""The assembly: a workflow made ready to run turns with one host's wiring (05 §13).

Immutable once built and shared by every session that runs it. Assembling refuses, in the contract's order, what could
not work; nothing here calls a model. A child workflow is assembled on first use, once per chain of callers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool

from core.jsontext import Json, JsonObject
from engine.delegation.calls import Bounds
from engine.delegation.describe import description as delegation_description
from engine.delegation.describe import input_schema as delegation_schema
from engine.errors import UnknownTriggerError, WorkflowLoadError
from engine.governance.kernel import ConsumerRule
from engine.governance.machine import Machine, SkillBundle, WorkflowDenials, compile_machine
from engine.governance.names import (
    CONTROL_TOOLS,
    DEFAULT_TOOLS,
    WRITE_TODOS,
    delegation_target,
    refuse_reserved_names,
)
from engine.governance.surface import (
    enabled_mounts,
    enabled_skills,
    guard_lines,
    offered_somewhere,
    offered_tools,
)
from engine.governance.tool_paths import ToolPaths, declare_tool_paths
from engine.governance.zones import MountPrefixes
from engine.models.caching import CacheSettings, cache_mechanism, mark_request, resolve_cache
from engine.models.calling import TextDelta, call_model
from engine.models.factory import ModelFactory, requested_id
from engine.models.scope import CallScope
from engine.models.usage import Pricing, Usage, usage_of
from engine.spec.model import MountGrant, Spec, State, ToolEntry, Trigger
from engine.spec.skills import SkillRegistry
from engine.turn.calls import Result
from engine.turn.clock import clock_line
from engine.turn.context import TurnContext
from engine.turn.controls import control_schema
from engine.turn.host_tools import builtin_tools, host_tool
from engine.turn.inputs import MANUAL, check_seeds
from engine.turn.library import WorkflowLibrary
from engine.turn.model_step import system_message
from engine.turn.prompt import current_state_block, parked_block, plain_block, static_prompt
from engine.turn.rendering import with_images
from engine.turn.tools import Tool, ToolCallContext, model_schema
from engine.workspace.images import ImageOptions
from engine.workspace.mounts import MountTable
from engine.workspace.offload import offload
from engine.workspace.tools import FILE_TOOLS, ToolResult
from sandbox import HostSandbox, Sandbox

if TYPE_CHECKING:
    from engine.turn.middleware import MiddlewareChain


#: the one state of a plain agent
PLAIN_STATE = "agent"


@dataclass(frozen=True)
class HostOptions:
    """What a host wires in; the same for a root workflow and every child."""

    tools: Sequence[BaseTool] = ()
    tool_paths: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    essential_tools: tuple[str, ...] = ()
    system_prompt: str | None = None
    policy_rules: tuple[ConsumerRule, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)
    cache: tuple[bool | None, Any] = (None, None)
    environment_cache: tuple[bool | None, Any] = (None, None)
    pricing: Pricing | None = None
    images: ImageOptions | None = None
    streaming: bool = True
    call_timeout_ms: int = 120_000
    #: the host's LangChain middleware, checked; None costs nothing
    middleware: MiddlewareChain | None = None
    zone: tzinfo | None = None
    zone_name: str | None = None
    #: `.platform/system/GRAPH_STATE.md`, when the workspace has one
    platform_prompt: str | None = None
    persona: str | None = None
    #: what a top-level turn starts with when its firing does not say
    default_trigger: str | None = None
    variables: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Wiring:
    """The parts every assembly of one host shares."""

    library: WorkflowLibrary
    models: ModelFactory
    mount_table: MountTable
    skills: SkillRegistry
    sandbox: Sandbox | HostSandbox
    options: HostOptions


@dataclass(frozen=True)
class ModelRequest:
    """One request, before it is marked for its provider's cache."""

    model: Any
    requested: str | None
    messages: list[BaseMessage]
    tools: list[JsonObject]


class Assembly:
    """One workflow under one chain of callers. Build with `assemble`."""

    def __init__(
        self,
        wiring: Wiring,
        spec: Spec,
        *,
        inherited: tuple[WorkflowDenials, ...] = (),
        default_trigger: str = MANUAL,
        variables: Mapping[str, Json] | None = None,
        top_level: bool = True,
        plain: bool = False,
    ) -> None:
        self.wiring, self.spec = wiring, spec
        #: no workflow governs: one state, no controls, everything granted
        self.plain = plain
        self.default_trigger = default_trigger
        self.variables: dict[str, Json] = dict(variables or {})
        self.top_level = top_level
        options = wiring.options
        self.library, self.bounds, self.policy_rules = wiring.library, options.bounds, options.policy_rules
        self.mounts: MountPrefixes = wiring.mount_table.prefixes
        self.machine: Machine = compile_machine(
            spec,
            essential_tools=options.essential_tools,
            tool_paths=tool_path_table(options),
            mounts=self.mounts,
            skills=[SkillBundle(skill.slug, skill.prefix) for skill in wiring.skills.skills],
            unloadable_skills=[SkillBundle(skill.slug, skill.prefix) for skill in wiring.skills.withheld],
            inherited=inherited,
        )
        self.host_tools: dict[str, BaseTool] = {tool.name: tool for tool in options.tools}
        self.tools: dict[str, Tool] = {
            **builtin_tools(options.images),
            **{tool.name: host_tool(tool, options.call_timeout_ms) for tool in options.tools},
        }
        self.delegations: tuple[str, ...] = bound_delegations(spec)
        #: every name a call may resolve to, in the order tools are listed
        self.registered: tuple[str, ...] = (
            tuple(self.tools) if plain else (*CONTROL_TOOLS, *self.tools, *self.delegations)
        )
        self._schemas: dict[str, JsonObject] = {}
        self._requests: dict[str, tuple[JsonObject, ...]] = {}
        self._offered: dict[str, tuple[str, ...]] = {}
        self._children: dict[tuple[str, tuple[str, ...]], Assembly] = {}

    @cached_property
    def spec_hash(self) -> str:
        """Empty for a plain agent: there is no spec."""
        return "" if self.plain else self.library.hash(self.spec)

    @cached_property
    def static_prompt(self) -> str:
        options = self.wiring.options
        return static_prompt(
            None if self.plain else self.spec,
            persona=options.persona,
            system_prompt=options.system_prompt,
            platform=options.platform_prompt,
            workflow_body="" if self.plain else self.library.body(self.spec.slug),
            mounts=self.mounts,
            files=any(offered_somewhere(self.machine, name) for name in FILE_TOOLS if name != WRITE_TODOS),
            todos=offered_somewhere(self.machine, WRITE_TODOS),
            top_level=self.top_level,
        )

    @cached_property
    def cache(self) -> CacheSettings:
        settings = self.spec.settings
        options = self.wiring.options
        return resolve_cache(
            options.cache,
            (settings.prompt_cache_enabled, settings.prompt_cache_ttl),
            options.environment_cache,
        )

    # -- children ------------------------------------------------------------------------------------------------

    def child(self, slug: str) -> Assembly:
        """The assembly of a sub-workflow called from here. Raises: `WorkflowLoadError`."""
        spec = self.library.require(slug)
        key = (slug, (self.library.hash(spec),))
        held = self._children.get(key)
        if held is None:
            held = self._children[key] = Assembly(
                self.wiring, spec, inherited=self.machine.denials_for_children, top_level=False
            )
        return held

    # -- tools ---------------------------------------------------------------------------------------------------

    def schema(self, name: str) -> JsonObject:
        """The model-facing schema of a registered tool."""
        schema = self._schemas.get(name)
        if schema is None:
            schema = self._schemas[name] = self._build_schema(name)
        return schema

    def _build_schema(self, name: str) -> JsonObject:
        if name in CONTROL_TOOLS:
            return control_schema(name, top_level=self.top_level)
        workflow = delegation_target(name)
        if workflow is not None:
            spec = self.library.require(workflow)
            trigger = spec.trigger(MANUAL)
            if trigger is None:
                raise WorkflowLoadError(
                    workflow, f"workflows/{workflow}/workflow.yaml", "it declares no trigger 'manual'"
                )
            return model_schema(name, delegation_description(spec, trigger), delegation_schema(trigger))
        tool = self.tools[name]
        return model_schema(name, tool.description, tool.schema)

    def offered(self, state: str) -> tuple[JsonObject, ...]:
        """Schemas of what a state's mover is handed, in registration order."""
        schemas = self._requests.get(state)
        if schemas is None:
            schemas = self._requests[state] = tuple(self.schema(name) for name in self.offered_names(state))
        return schemas

    def offered_names(self, state: str) -> tuple[str, ...]:
        """What a state's mover is handed, in registration order."""
        names = self._offered.get(state)
        if names is None:
            names = self._offered[state] = offered_tools(self.machine, state, self.registered)
        return names

    async def run_tool(self, tool: Tool, args: JsonObject, context: ToolCallContext) -> ToolResult:
        return await tool.run(args, context)

    async def offload(self, ctx: TurnContext, tool: Tool, call_id: str, result: Result) -> Result:
        """Move a result too large for the conversation into a file the agent can page through."""
        if not result.ok or result.mark is not None:
            return result
        shown = await offload(ctx.workspace.files, tool.name, call_id, result.text)
        return result if shown is None else replace(result, text=shown)

    # -- model calls ---------------------------------------------------------------------------------------------

    async def agent_request(self, ctx: TurnContext, state: State, *, reply_only: bool) -> ModelRequest:
        """The request of an agent's call: static prompt, volatile block, transcript, the state's tools."""
        options = self.wiring.options
        clock = clock_line(ctx.clock(), options.zone, options.zone_name)
        values = ctx.state.values
        if reply_only:
            volatile = parked_block(ctx.state, clock=clock)
        else:
            found = [self.wiring.skills.get(slug) for slug in enabled_skills(self.machine, state.slug)]
            skills = [(skill.slug, skill.description, skill.manifest) for skill in found if skill is not None]
            mounts = enabled_mounts(self.machine, state.slug)
            volatile = (
                plain_block(clock=clock, skills=skills, mounts=mounts)
                if self.plain
                else current_state_block(
                    self.spec,
                    state,
                    ctx.state,
                    clock=clock,
                    top_level=ctx.top_level,
                    skills=skills,
                    mounts=mounts,
                    guards=guard_lines(self.machine, state.slug, values, self.offered_names(state.slug)),
                )
            )
        messages: list[BaseMessage] = [
            system_message(self.static_prompt, volatile),
            *(ctx.transcript() if options.images is None else await with_images(ctx, ctx.state.messages)),
        ]
        return self.request(
            "agent", requested_id(self.spec, state.slug), messages, list(self.offered(state.slug))
        )

    def request(
        self, role: Any, requested: str | None, messages: list[BaseMessage], tools: list[JsonObject]
    ) -> ModelRequest:
        return ModelRequest(self.wiring.models.model(role, requested), requested, messages, tools)

    async def call(
        self, ctx: TurnContext, request: ModelRequest, *, scope: CallScope, on_text_delta: TextDelta | None
    ) -> AIMessage:
        """Through the host's middleware, when there is any. Raises: `ModelCallError`."""

        async def plain(
            model: Any, messages: list[BaseMessage], tools: list[JsonObject], settings: Mapping[str, Any]
        ) -> AIMessage:
            return await self._send(
                ctx, model, messages, tools, settings, scope=scope, on_text_delta=on_text_delta
            )

        if ctx.hooks is None:
            return await plain(request.model, request.messages, request.tools, {})
        return await ctx.hooks.model_call(request.model, request.messages, request.tools, scope, plain)

    async def _send(
        self,
        ctx: TurnContext,
        model: Any,
        messages: list[BaseMessage],
        tools: list[JsonObject],
        settings: Mapping[str, Any],
        *,
        scope: CallScope,
        on_text_delta: TextDelta | None,
    ) -> AIMessage:
        """One call, marked for the cache of the model that is called (03 §17.5)."""
        options = self.wiring.options
        marked, more = mark_request(messages, cache_mechanism(model, self.cache), self.cache.ttl)
        return await call_model(
            model,
            marked,
            tools,
            scope=scope,
            config=ctx.config,
            on_text_delta=on_text_delta,
            streaming=options.streaming,
            timeout_ms=options.call_timeout_ms,
            settings={**more, **settings},
        )

    def usage_of(self, answer: AIMessage, requested: str | None = None) -> Usage | None:
        return usage_of(answer, requested)

    @property
    def pricing(self) -> Pricing | None:
        return self.wiring.options.pricing


def tool_path_table(options: HostOptions) -> ToolPaths:
    """Raises: `ToolPathsError`."""
    declared = {tool.name: (tool.metadata or {}).get("paths") for tool in options.tools}
    return declare_tool_paths(
        {name: paths for name, paths in declared.items() if paths is not None}, options.tool_paths
    )


def bound_delegations(spec: Spec) -> tuple[str, ...]:
    """Delegation tools named by an allow list, in the order they are first named (04 §1)."""
    entries = [
        *(spec.tools_allow_always or ()),
        *(entry for state in spec.states.values() for entry in state.tools_allow),
    ]
    return tuple(dict.fromkeys(entry.tool for entry in entries if delegation_target(entry.tool) is not None))


def check_options(options: HostOptions) -> None:
    """The first refusals of an assembly: tool names and path declarations. Raises: `ReservedToolNameError`, `ToolPathsError`."""
    refuse_reserved_names([tool.name for tool in options.tools])
    tool_path_table(options)


def assemble(
    wiring: Wiring,
    workflow: str,
    *,
    trigger: str | None = None,
    variables: Mapping[str, Json] | None = None,
) -> Assembly:
    """Load a workflow and make it ready. Everything that could not work is refused here, before any model call.

    `trigger` and `variables` default to the host's. Raises: the assembly errors of 05 §17, in the order of 05 §13.
    """
    check_options(wiring.options)
    spec = wiring.library.require(workflow)
    trigger = trigger if trigger is not None else wiring.options.default_trigger
    if trigger is not None and spec.trigger(trigger) is None:
        raise UnknownTriggerError(trigger, spec.trigger_ids)
    seeds = dict(wiring.options.variables if variables is None else variables)
    check_seeds(seeds)
    assembly = Assembly(wiring, spec, default_trigger=trigger or MANUAL, variables=seeds)
    for name in assembly.delegations:
        assembly.schema(name)
    return assembly


def assemble_plain(wiring: Wiring) -> Assembly:
    """An agent no workflow governs (05 §14): sessions, files and tools; no controls, no platform prompt, no gating.

    Its one state grants everything there is. What keeps sessions apart stays: zones, read-only mounts, session files.
    """
    check_options(wiring.options)
    check_seeds(wiring.options.variables)
    options = wiring.options
    names = (*DEFAULT_TOOLS, *(tool.name for tool in options.tools))
    mounts = wiring.mount_table.prefixes
    spec = Spec(
        slug="",
        states={PLAIN_STATE: State(PLAIN_STATE, triggers={MANUAL: Trigger(MANUAL)})},
        tools_allow_always=tuple(ToolEntry(name) for name in names),
        skills_allow_always=wiring.skills.slugs,
        mounts_allow_always=tuple(MountGrant(name, "read_write") for name in sorted(mounts.governed)),
    )
    return Assembly(wiring, spec, variables=options.variables, plain=True)


__all__ = ["Assembly", "HostOptions", "ModelRequest", "Wiring", "assemble", "assemble_plain"]
