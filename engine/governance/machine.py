"""The machine: a workflow, its host's wiring and its ancestors' denials, compiled once so that a decision is cheap.

Everything a rule asks of a state (what is granted by name, which bundles and mounts are on, who denied what) is
worked out here, per state. A machine is immutable and may be shared between threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from engine.governance import names
from engine.governance.guards import Denials, Grants, compile_grants
from engine.governance.tool_paths import BUILTIN_PATHS, ToolPaths
from engine.governance.zones import MountPrefixes, PrefixTable
from engine.spec.model import Access, MountGrant, Spec, State, ToolEntry

_DEFAULT_GRANTS: Final[Sequence[ToolEntry]] = tuple(ToolEntry(tool) for tool in names.DEFAULT_TOOLS)


class SkillBundle(NamedTuple):
    """A loaded skill: its slug and the workspace folder of its bundle."""

    slug: str
    prefix: str


@dataclass(frozen=True, slots=True)
class WorkflowDenials:
    """What one workflow denies in every state, its own and its descendants' (02 §19)."""

    workflow: str
    tools: tuple[ToolEntry, ...] = ()
    skills: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()


class Inherited(NamedTuple):
    """An ancestor's denials, compiled."""

    workflow: str
    tools: Denials
    skills: frozenset[str]
    mounts: frozenset[str]


class Bundle(NamedTuple):
    """What holds a path under a skill source; `loaded` False for a folder no state can enable (02 OP-13)."""

    slug: str
    loaded: bool


#: where a list of this workflow denies a name: the key the reason shows
Level = str


@dataclass(frozen=True, slots=True)
class StateSurface:
    """One state, worked out. `offered` is what its mover is told of, before knowing which tools are registered."""

    state: State
    controls: frozenset[str]
    removed: frozenset[str]
    own: Grants
    forbid: Denials
    skills: tuple[str, ...]
    skills_on: frozenset[str]
    skill_denials: Mapping[str, Level]
    #: governed mounts on here → the access a grant leaves
    mounts: Mapping[str, Access]
    mount_denials: Mapping[str, Level]
    offered: frozenset[str]
    #: default tools granted by name, and essential tools: open on the scratchpad (02 §10.4)
    open_area_tools: frozenset[str]


@dataclass(frozen=True, slots=True)
class Machine:
    """See `compile_machine`."""

    spec: Spec
    essential: frozenset[str]
    tool_paths: ToolPaths
    mounts: MountPrefixes
    skills: tuple[SkillBundle, ...]
    bundles: PrefixTable[Bundle]
    inherited: tuple[Inherited, ...]
    own_denials: WorkflowDenials
    forbid_always: Denials
    workflow: Grants
    states: Mapping[str, StateSurface]
    #: governed mounts some state or the workflow grants (02 §18.4)
    mounts_granted: frozenset[str]
    #: own denials behind the ancestors', to compile a child with
    denials_for_children: tuple[WorkflowDenials, ...]


def compile_machine(
    spec: Spec,
    *,
    essential_tools: Iterable[str] = (),
    tool_paths: ToolPaths | None = None,
    mounts: MountPrefixes | None = None,
    skills: Iterable[SkillBundle] = (),
    unloadable_skills: Iterable[SkillBundle] = (),
    inherited: Iterable[WorkflowDenials] = (),
) -> Machine:
    """Compile a workflow for one chain of callers.

    `tool_paths` from `declare_tool_paths` (default: built-ins alone); `unloadable_skills` are folders with a
    `SKILL.md` that did not load; `inherited` is `denials_for_children` of the caller's machine, root first.
    """
    essential = frozenset(essential_tools)
    mounts = mounts or MountPrefixes()
    skills = tuple(skills)
    ancestors = tuple(inherited)
    compiled = tuple(
        Inherited(each.workflow, Denials(each.tools), frozenset(each.skills), frozenset(each.mounts))
        for each in ancestors
    )
    own = WorkflowDenials(
        spec.slug, spec.tools_forbid_always, spec.skills_forbid_always, spec.mounts_forbid_always
    )
    forbid_always = Denials(own.tools)
    workflow = compile_grants(_DEFAULT_GRANTS if spec.tools_allow_always is None else spec.tools_allow_always)
    known = frozenset(bundle.slug for bundle in skills)
    shared = _Shared(spec, essential, mounts, known, compiled, forbid_always, workflow)
    grants = (
        *spec.mounts_allow_always,
        *(grant for state in spec.states.values() for grant in state.mounts_allow),
    )
    return Machine(
        spec=spec,
        essential=essential,
        tool_paths=BUILTIN_PATHS if tool_paths is None else tool_paths,
        mounts=mounts,
        skills=skills,
        bundles=PrefixTable(
            [
                *((bundle.prefix, Bundle(bundle.slug, False)) for bundle in unloadable_skills),
                *((bundle.prefix, Bundle(bundle.slug, True)) for bundle in skills),
            ]
        ),
        inherited=compiled,
        own_denials=own,
        forbid_always=forbid_always,
        workflow=workflow,
        states={slug: _surface(state, shared) for slug, state in spec.states.items()},
        mounts_granted=frozenset(grant.mount for grant in grants),
        denials_for_children=(*ancestors, own),
    )


class _Shared(NamedTuple):
    spec: Spec
    essential: frozenset[str]
    mounts: MountPrefixes
    known_skills: frozenset[str]
    inherited: tuple[Inherited, ...]
    forbid_always: Denials
    workflow: Grants


def _surface(state: State, shared: _Shared) -> StateSurface:
    spec = shared.spec
    controls, removed = names.CONTROLS[state.type], names.REMOVED[state.type]
    own = compile_grants(state.tools_allow)
    forbid = Denials(state.tools_forbid)
    skill_denials = _levels(state.slug, "skills", spec.skills_forbid_always, state.skills_forbid)
    mount_denials = _levels(state.slug, "mounts", spec.mounts_forbid_always, state.mounts_forbid)
    skills = tuple(
        slug
        for slug in dict.fromkeys((*state.skills_allow, *spec.skills_allow_always))
        if slug in shared.known_skills and slug not in skill_denials
    )
    granted = (own.keys() | shared.workflow.keys() | shared.essential) - removed
    return StateSurface(
        state=state,
        controls=controls,
        removed=removed,
        own=own,
        forbid=forbid,
        skills=skills,
        skills_on=frozenset(skills),
        skill_denials=skill_denials,
        mounts=_governed_access(state.mounts_allow, spec.mounts_allow_always, mount_denials, shared.mounts),
        mount_denials=mount_denials,
        offered=_offered(state, granted, controls, forbid, shared),
        open_area_tools=frozenset((granted & frozenset(names.DEFAULT_TOOLS)) | (shared.essential - removed)),
    )


def _levels(
    slug: str, kind: Literal["skills", "mounts"], always: Iterable[str], here: Iterable[str]
) -> Mapping[str, Level]:
    """Denied name → the key that denies it; the workflow's key is named before the state's."""
    return dict.fromkeys(here, f"states.{slug}.{kind}.forbid") | dict.fromkeys(
        always, f"{kind}.forbid_always"
    )


def _governed_access(
    here: Sequence[MountGrant],
    always: Sequence[MountGrant],
    denied: Mapping[str, Level],
    mounts: MountPrefixes,
) -> Mapping[str, Access]:
    """Governed mounts on in a state, own list first, each with the access its grants leave (02 §12.3)."""
    asked: dict[str, set[Access | None]] = {}
    for grant in (*here, *always):
        if grant.mount in mounts.governed and grant.mount not in denied:
            asked.setdefault(grant.mount, set()).add(grant.access)
    return {
        name: "read_write"
        if name in mounts.writable and "read_write" in accesses and "read" not in accesses
        else "read"
        for name, accesses in asked.items()
    }


def _offered(
    state: State,
    granted: frozenset[str] | set[str],
    controls: frozenset[str],
    forbid: Denials,
    shared: _Shared,
) -> frozenset[str]:
    """Tools disclosed by name in a state (02 §7.3); guards are not looked at."""
    candidates = (granted - frozenset(names.CONTROL_TOOLS)) | controls
    lists = (forbid, shared.forbid_always, *(each.tools for each in shared.inherited))
    return frozenset(
        tool
        for tool in candidates
        if tool not in (names.TASK, names.DEAD_EVAL, names.NOTE)
        and not (tool == names.ADVANCE and state.terminal)
        and not any(denials.hides(tool) for denials in lists)
    )
