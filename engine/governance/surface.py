"""What a state offers: tools, skills and mounts as each model call and each script sees them (contract 02 §7.3).

Disclosure is not permission: every call is decided by the kernel, whatever was shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.governance.guards import Denials, Guard
from engine.governance.machine import Machine, StateSurface
from engine.governance.names import CONTROL_TOOLS, DEAD_EVAL, SANDBOX_TOOLS
from engine.governance.references import Variables
from engine.spec.model import Access


class MountAccess(NamedTuple):
    """A mount a state has, with the access it leaves here; `searchable` False is browse-only."""

    mount: str
    access: Access
    searchable: bool


def offered_tools(machine: Machine, state: str, registered: Sequence[str]) -> tuple[str, ...]:
    """The tools the state's mover is handed, in registration order.

    For an automated state this is what its grader sees and what its script's `tools` holds.
    """
    surface = machine.states.get(state)
    return () if surface is None else tuple(tool for tool in registered if surface.offers(tool))


def script_tools(machine: Machine, state: str, registered: Sequence[str]) -> tuple[str, ...]:
    """The `tools` of an agent's script: the state's tools without controls and sandbox; delegations stay."""
    return tuple(
        tool
        for tool in offered_tools(machine, state, registered)
        if tool not in CONTROL_TOOLS and tool not in SANDBOX_TOOLS and tool != DEAD_EVAL
    )


def offered_somewhere(machine: Machine, tool: str) -> bool:
    """Whether any state offers the tool; guidance about one that none offers leaves the prompt."""
    return any(surface.offers(tool) for surface in machine.states.values())


def enabled_skills(machine: Machine, state: str) -> tuple[str, ...]:
    """Slugs of the skills the state has, own list first, without what an ancestor denies."""
    surface = machine.states.get(state)
    if surface is None:
        return ()
    return tuple(
        slug for slug in surface.skills if not any(slug in each.skills for each in machine.inherited)
    )


def enabled_mounts(machine: Machine, state: str) -> tuple[MountAccess, ...]:
    """The governed mounts the state has, alphabetical, for its current-state block."""
    surface = machine.states.get(state)
    if surface is None:
        return ()
    return tuple(
        MountAccess(name, access, name not in machine.mounts.unsearchable)
        for name, access in sorted(surface.mounts.items())
        if not any(name in each.mounts for each in machine.inherited)
    )


def mount_reachable(machine: Machine, surface: StateSurface, mount: str) -> bool:
    """Whether a state has a mount: not denied, and granted where it is governed."""
    if surface.mount_denied_by(mount) is not None or any(mount in each.mounts for each in machine.inherited):
        return False
    return mount not in machine.mounts.governed or surface.mount_access(mount) is not None


def guard_lines(
    machine: Machine, state: str, variables: Variables, offered: Sequence[str]
) -> tuple[str, ...]:
    """The argument constraints in force on the tools the state offers, one line each: references resolved, or marked
    unresolved and named.

    Goes into the volatile part of the prompt only. A grant's guard is left out where it does not bind: beside an
    unguarded entry, and on an essential tool the state's own list does not name.
    """
    surface = machine.states.get(state)
    if surface is None:
        return ()
    lines = [
        f"`{tool}`: only where " + "; or ".join(guard.shown(variables) for guard in guards)
        for tool in offered
        if (guards := _binding(machine, surface, tool))
    ]
    lists = [each.tools for each in machine.inherited] + [machine.forbid_always, surface.forbid]
    for denials in filter(None, lists):
        lines += _denial_lines(denials, offered, variables)
    return tuple(dict.fromkeys(lines))


def _binding(machine: Machine, surface: StateSurface, tool: str) -> tuple[Guard, ...]:
    if tool in surface.tier.controls:
        return ()
    guards = surface.own.get(tool)
    if guards is None:
        guards = () if tool in machine.essential else machine.workflow.get(tool, ())
    return () if any(guard.open for guard in guards) else guards


def _denial_lines(denials: Denials, offered: Sequence[str], variables: Variables) -> list[str]:
    lines = [
        f"every tool: never where {guard.shown(variables, any_path=True)}"
        for guard in denials.for_every_tool
        if not guard.open and offered
    ]
    for tool in offered:
        lines += [
            f"`{tool}`: never where {guard.shown(variables, any_path=True)}"
            for guard in denials.for_tool(tool)
        ]
    return lines
