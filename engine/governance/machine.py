"""The machine: a workflow, its host's wiring and its ancestors' denials, compiled once so that a decision is cheap.

Everything a rule asks of a state (what is granted by name, which bundles and mounts are on, who denied what) is
worked out here, per state. A machine is immutable and may be shared between threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.governance import names
from engine.governance.guards import Denials, Grants, compile_grants
from engine.governance.tool_paths import BUILTIN_PATHS, ToolPaths
from engine.governance.zones import MountPrefixes, PrefixTable
from engine.spec.model import Access, MountGrant, Spec, State, StateType, ToolEntry

_DEFAULT_GRANTS: Final[Sequence[ToolEntry]] = tuple(ToolEntry(tool) for tool in names.DEFAULT_TOOLS)
_DEFAULT_NAMES: Final = frozenset(names.DEFAULT_TOOLS)
_NEVER_DISCLOSED: Final = frozenset({*names.CONTROL_TOOLS, names.TASK, names.DEAD_EVAL, names.NOTE})
_NOTHING: Final[frozenset[str]] = frozenset()
_NO_DENIALS: Final = Denials(())


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


@dataclass(frozen=True, slots=True)
class Tier:
    """What every state of one type has from the workflow and its host, before the state's own lists.

    One object serves all states of the type: a workflow of many states and many workflow-wide entries would need their
    product otherwise. `offered` is what may be disclosed (02 §7.3), controls included.
    """

    controls: frozenset[str]
    removed: frozenset[str]
    granted: frozenset[str]
    offered: frozenset[str]
    #: default tools granted by name, and essential tools: open on the scratchpad (02 §10.4)
    open_area_tools: frozenset[str]
    #: enabled by the workflow and not denied by it, in its order
    skills: tuple[str, ...]
    skills_on: frozenset[str]
    skill_denials: frozenset[str]
    #: governed mounts the workflow grants → what its grants ask for
    mounts: Mapping[str, frozenset[Access | None]]
    mount_denials: frozenset[str]
    writable_mounts: frozenset[str]


@dataclass(frozen=True, slots=True)
class StateSurface:
    """One state: its type's tier, and what its own lists add and take away."""

    state: State
    tier: Tier
    own: Grants
    forbid: Denials
    #: what the own tools list adds to the tier's sets of the same name
    own_offered: frozenset[str]
    own_open_area_tools: frozenset[str]
    own_skills: tuple[str, ...]
    own_skills_on: frozenset[str]
    skills_forbidden: frozenset[str]
    own_mounts: Mapping[str, frozenset[Access | None]]
    mounts_forbidden: frozenset[str]

    def has_tool(self, tool: str) -> bool:
        """Whether some list, the host or the state's type gives the tool here, guards aside."""
        if tool in self.tier.controls:
            return True
        return tool not in self.tier.removed and (tool in self.tier.granted or tool in self.own)

    def offers(self, tool: str) -> bool:
        """Whether the tool is disclosed here by name, before knowing which tools are registered."""
        return (
            (tool in self.tier.offered or tool in self.own_offered)
            and not self.forbid.hides(tool)
            and not (tool == names.ADVANCE and self.state.terminal)
        )

    @property
    def offered(self) -> frozenset[str]:
        """Every tool the state offers."""
        return frozenset(tool for tool in self.tier.offered | self.own_offered if self.offers(tool))

    def open_on_scratchpad(self, tool: str) -> bool:
        return tool in self.tier.open_area_tools or tool in self.own_open_area_tools

    @property
    def skills(self) -> tuple[str, ...]:
        """The skills enabled here, own list first (02 §11.1); what an ancestor denies is still among them."""
        return tuple(
            slug
            for slug in dict.fromkeys((*self.own_skills, *self.tier.skills))
            if slug not in self.skills_forbidden
        )

    def has_skill(self, slug: str) -> bool:
        return slug not in self.skills_forbidden and (
            slug in self.tier.skills_on or slug in self.own_skills_on
        )

    def skill_denied_by(self, slug: str) -> str | None:
        """The key of this workflow that denies a skill here, the workflow-wide one first."""
        if slug in self.tier.skill_denials:
            return "skills.forbid_always"
        return f"states.{self.state.slug}.skills.forbid" if slug in self.skills_forbidden else None

    def mount_denied_by(self, mount: str | None) -> str | None:
        """As `skill_denied_by`, of a mount."""
        if mount in self.tier.mount_denials:
            return "mounts.forbid_always"
        return f"states.{self.state.slug}.mounts.forbid" if mount in self.mounts_forbidden else None

    def mount_access(self, mount: str) -> Access | None:
        """The access the grants leave on a governed mount; None when the state does not have it (02 §12.3)."""
        here, always = self.own_mounts.get(mount), self.tier.mounts.get(mount)
        if (here is None and always is None) or self.mount_denied_by(mount) is not None:
            return None
        asked = (here or frozenset()) | (always or frozenset())
        writes = mount in self.tier.writable_mounts and "read_write" in asked and "read" not in asked
        return "read_write" if writes else "read"

    @property
    def mounts(self) -> Mapping[str, Access]:
        """The governed mounts on here, own list first."""
        listed = dict.fromkeys((*self.own_mounts, *self.tier.mounts))
        return {name: access for name in listed if (access := self.mount_access(name)) is not None}


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
    hiding = (forbid_always, *(each.tools for each in compiled))
    tiers = {kind: _tier(kind, spec, essential, workflow, hiding, known, mounts) for kind in names.CONTROLS}
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
        states={
            slug: _surface(state, tiers[state.type], hiding, known, mounts)
            for slug, state in spec.states.items()
        },
        mounts_granted=frozenset(grant.mount for grant in grants),
        denials_for_children=(*ancestors, own),
    )


def _tier(
    kind: StateType,
    spec: Spec,
    essential: frozenset[str],
    workflow: Grants,
    hiding: Sequence[Denials],
    known_skills: frozenset[str],
    mounts: MountPrefixes,
) -> Tier:
    controls, removed = names.CONTROLS[kind], names.REMOVED[kind]
    granted = (workflow.keys() | essential) - removed
    denied = frozenset(spec.skills_forbid_always)
    skills = tuple(
        slug
        for slug in dict.fromkeys(spec.skills_allow_always)
        if slug in known_skills and slug not in denied
    )
    return Tier(
        controls=controls,
        removed=removed,
        granted=frozenset(granted),
        offered=_disclosed(granted, hiding) | _unhidden(controls, hiding),
        open_area_tools=frozenset((granted & _DEFAULT_NAMES) | (essential - removed)),
        skills=skills,
        skills_on=frozenset(skills),
        skill_denials=denied,
        mounts=_asked(spec.mounts_allow_always, mounts),
        mount_denials=frozenset(spec.mounts_forbid_always),
        writable_mounts=mounts.writable,
    )


def _surface(
    state: State,
    tier: Tier,
    hiding: Sequence[Denials],
    known_skills: frozenset[str],
    mounts: MountPrefixes,
) -> StateSurface:
    own = compile_grants(state.tools_allow)
    granted = own.keys() - tier.removed if own else _NOTHING
    skills = tuple(
        slug
        for slug in dict.fromkeys(state.skills_allow)
        if slug in known_skills and slug not in tier.skill_denials
    )
    return StateSurface(
        state=state,
        tier=tier,
        own=own,
        forbid=Denials(state.tools_forbid) if state.tools_forbid else _NO_DENIALS,
        own_offered=_disclosed(granted, hiding) if own else _NOTHING,
        own_open_area_tools=frozenset(granted & _DEFAULT_NAMES),
        own_skills=skills,
        own_skills_on=frozenset(skills),
        skills_forbidden=frozenset(state.skills_forbid),
        own_mounts=_asked(state.mounts_allow, mounts),
        mounts_forbidden=frozenset(state.mounts_forbid),
    )


def _asked(grants: Sequence[MountGrant], mounts: MountPrefixes) -> Mapping[str, frozenset[Access | None]]:
    """Governed mounts a list grants → what its entries ask for."""
    asked: dict[str, set[Access | None]] = {}
    for grant in grants:
        if grant.mount in mounts.governed:
            asked.setdefault(grant.mount, set()).add(grant.access)
    return {name: frozenset(accesses) for name, accesses in asked.items()}


def _disclosed(tools: Iterable[str], hiding: Sequence[Denials]) -> frozenset[str]:
    """Granted tools that may be told of (02 §7.3): controls come with the state's type, not by grant."""
    return _unhidden((tool for tool in tools if tool not in _NEVER_DISCLOSED), hiding)


def _unhidden(tools: Iterable[str], hiding: Sequence[Denials]) -> frozenset[str]:
    return frozenset(tool for tool in tools if not any(denials.hides(tool) for denials in hiding))
