"""Probing the tools lists: entries the kernel would never let through, and denials that deny nothing.

Concrete paths are put to the same kernel that decides at run time; a pattern is judged by the folder it can only match
inside (02 §22). Denials with `${{…}}` are left out of the probes: what they match is known only at run time.

Contract: 01 §19.3, §19.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from core.paths import is_within
from engine.governance.calls import Origin, ToolCall, Verdict
from engine.governance.globs import compile_glob, literal_prefix, path_prefix
from engine.governance.kernel import decide
from engine.governance.machine import Machine, SkillBundle, StateSurface, compile_machine
from engine.governance.names import ADVANCE, CONTROLS, DEFAULT_TOOLS, DELEGATION_PREFIX, TASK
from engine.governance.references import has_reference
from engine.governance.tool_paths import PathAccess, PathArgument, ToolPaths
from engine.governance.zones import (
    INTERNAL_AREAS,
    OFFLOAD_AREAS,
    SCRATCHPAD,
    MountPrefixes,
    in_authoring_plane,
)
from engine.spec.diagnostics import Severity, shown
from engine.spec.document_rules import guards_of
from engine.spec.model import Spec, State, ToolEntry
from engine.spec.report import Report
from engine.spec.skills import SkillRegistry
from engine.spec.yaml12 import Path

#: globs of denials that guards are tried against, in one document: a few tenths of a second
MAX_COMPARISONS: Final = 200_000
#: what a block of the kernel is called when it is found before it happens
_FOUND_AS: Final[dict[str, tuple[Severity, str, str]]] = {
    "script.skill-only": ("error", "tools.run-outside-skills", "only scripts of a skill bundle are run"),
    "zone.read-only": ("error", "tools.read-only", "the host serves it read-only"),
    "zone.runtime-internal": ("error", "tools.runtime-area", "that area belongs to the runtime"),
    "zone.runtime-managed": ("error", "tools.runtime-area", "that area is written by the runtime alone"),
    "skill.forbidden": ("error", "tools.disabled-skill", "it lies in a bundle this state denies"),
    "skill.not-allowed": ("error", "tools.disabled-skill", "it lies in a bundle this state does not enable"),
    "mount.forbidden": ("warning", "mounts.unreachable-path", "it lies in a mount this state denies"),
    "mount.not-allowed": (
        "warning",
        "mounts.unreachable-path",
        "it lies in a mount this state does not have",
    ),
    "mount.read-only": (
        "error",
        "tools.read-only",
        "the mount is granted for reading; ask access: read_write",
    ),
    "tool.forbidden": ("error", "tools.denied", "tools.forbid_always denies it"),
    "tool.forbidden-here": ("error", "tools.denied", "the state's own tools.forbid denies it"),
}


class _Probe(NamedTuple):
    """One pattern of an entry, with the path arguments it guards."""

    pattern: str
    arguments: tuple[PathArgument, ...]
    #: the folder the pattern can only match inside
    folder: str

    @property
    def concrete(self) -> bool:
        return path_prefix(self.pattern) == self.pattern and not has_reference(self.pattern)

    def uses(self, *accesses: PathAccess) -> bool:
        return any(argument.access in accesses for argument in self.arguments)


class Probing:
    """The workflow compiled for probes: every grant without its guards, and no denial that refers to variables.

    A guard is tried against every denial in force, so a document of thousands of both is tried only in part.
    """

    def __init__(
        self,
        spec: Spec,
        registry: SkillRegistry,
        mounts: MountPrefixes | None,
        tool_paths: ToolPaths | None = None,
        essential_tools: tuple[str, ...] = (),
    ) -> None:
        self.machine = compile_machine(
            _for_probes(spec),
            essential_tools=essential_tools,
            tool_paths=tool_paths,
            mounts=mounts,
            skills=[SkillBundle(skill.slug, skill.prefix) for skill in registry.skills],
            unloadable_skills=[SkillBundle(skill.slug, skill.prefix) for skill in registry.withheld],
        )
        self.comparisons_left = MAX_COMPARISONS

    def verdict(self, call: ToolCall, surface: StateSurface) -> Verdict | None:
        """The kernel's verdict, None once too much has been compared."""
        self.comparisons_left -= self.machine.forbid_always.size + surface.forbid.size
        return None if self.comparisons_left < 0 else decide(self.machine, call, variables={})


def _for_probes(spec: Spec) -> Spec:
    return replace(
        spec,
        tools_forbid_always=_certain(spec.tools_forbid_always),
        states={
            # copying a state is slow, and most have neither list
            slug: replace(
                state, tools_allow=_bare(state.tools_allow), tools_forbid=_certain(state.tools_forbid)
            )
            if state.tools_allow or state.tools_forbid
            else state
            for slug, state in spec.states.items()
        },
    )


def _bare(entries: tuple[ToolEntry, ...]) -> tuple[ToolEntry, ...]:
    return tuple(ToolEntry(tool) for tool in dict.fromkeys(entry.tool for entry in entries))


def _certain(entries: tuple[ToolEntry, ...]) -> tuple[ToolEntry, ...]:
    return tuple(entry for entry in entries if not any(has_reference(glob) for glob in guards_of(entry)))


def check_state_tools(report: Report, spec: Spec, probing: Probing, slug: str) -> None:
    """The tools lists of one state."""
    machine = probing.machine
    surface = machine.states[slug]
    state = spec.states[slug]
    allow: Path = ("states", slug, "tools", "allow")
    denied_here = {entry.tool for entry in state.tools_forbid}
    both: set[str] = set()
    for index, entry in enumerate(state.tools_allow):
        at: Path = (*allow, index)
        tool = entry.tool
        if tool in denied_here and tool not in both:
            both.add(tool)
            text = f"'{shown(tool)}' is in both lists: the denial wins"
            report.add("warning", "tools.allow-and-forbid", allow, text, at=at)
        if tool == TASK:
            _ungrantable(report, allow, at)
        elif machine.forbid_always.hides(tool) or surface.forbid.hides(tool):
            where = (
                "tools.forbid_always" if machine.forbid_always.hides(tool) else "the state's own tools.forbid"
            )
            report.add("error", "tools.denied", allow, f"'{shown(tool)}' is denied by {where}", at=at)
        elif tool not in surface.tier.removed:
            _probe_entry(report, probing, surface, entry, allow, at)
        if tool == ADVANCE:
            _check_advance(report, spec, state, entry, at)
    _check_denials(report, surface, state)


def check_root_tools(report: Report, spec: Spec, probing: Probing) -> None:
    """The workflow-wide tools lists; call it after every state's."""
    machine = probing.machine
    if probing.comparisons_left < 0:
        text = (
            "there are too many guards and denials to try each against each: the last guards were not tried"
        )
        report.add("warning", "tools.untried", ("tools", "forbid_always"), text)
    always: Path = ("tools", "allow_always")
    for index, entry in enumerate(spec.tools_allow_always or ()):
        at: Path = (*always, index)
        if entry.tool == TASK:
            _ungrantable(report, always, at)
        for probe in _probes(machine, entry):
            if _writes_runtime_area(probe):
                _runtime_area(report, entry, probe, always, at)
    never: Path = ("tools", "forbid_always")
    if machine.forbid_always.hides(ADVANCE) and any(state.transitions for state in spec.states.values()):
        text = f"denying '{ADVANCE}' everywhere leaves no way along any transition"
        report.add("error", "tools.forbid-advance", never, text)
    granted = _granted_anywhere(machine)
    if any(tool.startswith(DELEGATION_PREFIX) for tool in granted):
        return  # the denial binds sub-workflows too, and what those are granted is theirs to say
    for index, entry in enumerate(spec.tools_forbid_always):
        if entry.tool != "*" and entry.tool not in granted:
            _forbids_nothing(report, entry, never, (*never, index))


def _granted_anywhere(machine: Machine) -> frozenset[str]:
    named = machine.workflow.keys() | machine.essential
    return frozenset(named).union(
        *(surface.own.keys() | surface.tier.controls for surface in machine.states.values())
    )


def _ungrantable(report: Report, path: Path, at: Path) -> None:
    report.add(
        "error",
        "tools.ungrantable",
        path,
        f"'{TASK}' can never be granted: call a sub-workflow instead",
        at=at,
    )


def _forbids_nothing(report: Report, entry: ToolEntry, path: Path, at: Path) -> None:
    text = f"nothing grants '{shown(entry.tool)}' here: there is nothing to deny"
    report.add("warning", "tools.forbid-nothing", path, text, at=at)


def _check_denials(report: Report, surface: StateSurface, state: State) -> None:
    path: Path = ("states", state.slug, "tools", "forbid")
    for index, entry in enumerate(state.tools_forbid):
        if entry.tool != "*" and not surface.has_tool(entry.tool):
            _forbids_nothing(report, entry, path, (*path, index))
        if state.automated and not entry.guarded and entry.tool in CONTROLS[state.type]:
            text = f"a {state.type} state without '{entry.tool}' may be left unable to decide: it then fails"
            report.add("warning", "tools.control-denied", path, text, at=(*path, index))


def _check_advance(report: Report, spec: Spec, state: State, entry: ToolEntry, at: Path) -> None:
    """A `to` guard of an advance entry names targets: they should be there."""
    for pattern in (entry.args or {}).get("to", ()):
        if path_prefix(pattern) != pattern or has_reference(pattern):
            continue
        if pattern not in spec.states:
            text = f"the guard names the undefined state '{shown(pattern)}'"
            report.add("warning", "tools.advance-target", at[:-1], text, at=at)
        elif state.edge(pattern) is None:
            text = f"a guard of '{ADVANCE}' names '{shown(pattern)}', to which this state has no transition"
            report.add("warning", "tools.advance-target", ("states", state.slug, "transitions"), text, at=at)


def _probes(machine: Machine, entry: ToolEntry) -> Iterator[_Probe]:
    """The patterns to try; one with a `..` is refused already."""
    declared = machine.tool_paths.get(entry.tool, ())
    for pattern in entry.paths or ():
        if not compile_glob(pattern).climbs:
            yield _Probe(pattern, declared, literal_prefix(pattern))
    for name, patterns in (entry.args or {}).items():
        guarded = tuple(argument for argument in declared if name in argument.spellings)
        if guarded or (not declared and name in ("file_path", "path")):
            for pattern in patterns:
                if not compile_glob(pattern).climbs:
                    yield _Probe(pattern, guarded, literal_prefix(pattern))


def _probe_entry(
    report: Report, probing: Probing, surface: StateSurface, entry: ToolEntry, path: Path, at: Path
) -> None:
    machine = probing.machine
    probes = list(_probes(machine, entry))
    for probe in probes:
        if in_authoring_plane(probe.folder):
            text = f"'{shown(entry.tool)}' on '{shown(probe.pattern)}': the authoring plane is no part of a session"
            report.add("error", "tools.authoring-plane", path, text, at=at)
        found = (
            _decided(probing, surface, entry, probe) if probe.concrete else _foreseen(machine, surface, probe)
        )
        if found is not None:
            severity, id_, why = found
            report.add(
                severity,
                id_,
                path,
                f"'{shown(entry.tool)}' on '{shown(probe.pattern)}' is never permitted: {why}",
                at=at,
            )
    _check_scratchpad(report, machine, entry, probes, at)


def _decided(
    probing: Probing, surface: StateSurface, entry: ToolEntry, probe: _Probe
) -> tuple[Severity, str, str] | None:
    """What the kernel says to the call the guard permits."""
    names = [argument.name for argument in probe.arguments] or ["file_path"]
    origin: Origin = "agent"
    if surface.state.type in ("grader", "code"):
        origin = "grader" if surface.state.type == "grader" else "code"
    call = ToolCall(surface.state.slug, entry.tool, dict.fromkeys(names, probe.pattern), origin)
    verdict = probing.verdict(call, surface)
    return None if verdict is None or verdict.allowed else _FOUND_AS.get(verdict.rule_id)


def _foreseen(machine: Machine, surface: StateSurface, probe: _Probe) -> tuple[Severity, str, str] | None:
    """What the kernel would say to every call a pattern permits, by the folder it can only match inside."""
    if not probe.arguments:
        return None
    folder = probe.folder
    if probe.uses(PathAccess.EXECUTE):
        loaded = [skill.prefix for skill in machine.skills]
        if not any(is_within(folder, prefix) or is_within(prefix, folder) for prefix in loaded):
            return _FOUND_AS["script.skill-only"]
    if _writes_runtime_area(probe):
        internal = folder.partition("/")[0] in INTERNAL_AREAS
        return _FOUND_AS["zone.runtime-internal" if internal else "zone.runtime-managed"]
    bundle = machine.bundles.find(folder)
    if bundle is not None and not (bundle.loaded and surface.has_skill(bundle.slug)):
        denied = surface.skill_denied_by(bundle.slug) is not None
        return _FOUND_AS["skill.forbidden" if denied else "skill.not-allowed"]
    mount = machine.mounts.mount_of(folder)
    if surface.mount_denied_by(mount) is not None:
        return _FOUND_AS["mount.forbidden"]
    if mount is not None and mount in machine.mounts.governed and surface.mount_access(mount) is None:
        return _FOUND_AS["mount.not-allowed"]
    return None


def _writes_runtime_area(probe: _Probe) -> bool:
    area = probe.folder.partition("/")[0]
    return area in (INTERNAL_AREAS | OFFLOAD_AREAS) and probe.uses(PathAccess.WRITE, PathAccess.REMOVE)


def _runtime_area(report: Report, entry: ToolEntry, probe: _Probe, path: Path, at: Path) -> None:
    text = f"'{shown(entry.tool)}' on '{shown(probe.pattern)}' is never permitted: that area belongs to the runtime"
    report.add("error", "tools.runtime-area", path, text, at=at)


def _check_scratchpad(
    report: Report, machine: Machine, entry: ToolEntry, probes: list[_Probe], at: Path
) -> None:
    """A guard cannot narrow what is open anyway (02 §10.4)."""
    declared = machine.tool_paths.get(entry.tool, ())
    if entry.tool not in DEFAULT_TOOLS or not any(argument.access.mutates for argument in declared):
        return
    covered = {argument.name for probe in probes for argument in probe.arguments}
    if covered != {argument.name for argument in declared}:
        return
    if all(is_within(probe.folder, SCRATCHPAD) for probe in probes):
        text = f"'{entry.tool}' is open in {SCRATCHPAD}/ wherever it is granted: this guard narrows nothing there"
        report.add("warning", "tools.scratchpad-guard", at[:-1], text, at=at)
