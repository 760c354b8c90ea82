"""Redaction: which entries of a listing or search the state may see (contract 02 §11.6, §12.6, OP-9).

`ls`, `glob` and `grep` lose, line by line, what lies in a disabled bundle, under a mount the state does not have, in
the runtime's own areas, and what a `paths` denial keeps from being read; for models and scripts alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from core.paths import canonical
from engine.governance.globs import Glob
from engine.governance.guards import Denials
from engine.governance.machine import Machine, StateSurface
from engine.governance.references import Unresolved, Variables
from engine.governance.surface import mount_reachable
from engine.governance.zones import INTERNAL_AREAS, in_authoring_plane

#: tools whose `paths` denials take a path from sight; one against writing leaves it visible
_SEEING_TOOLS: Final = ("read_file", "ls", "glob", "grep")


def visibility(machine: Machine, state: str, variables: Variables) -> Callable[[str], bool]:
    """A predicate over the paths of one result, any spelling. Guards are resolved once, here."""
    surface = machine.states.get(state)
    if surface is None:
        return lambda _path: False
    denied = _denied_globs(machine, surface, variables)
    if denied is None:
        return lambda _path: False
    globs: tuple[Glob, ...] = denied
    reachable = {name: mount_reachable(machine, surface, name) for name in machine.mounts.names}
    bundles = frozenset(surface.skills) - {slug for each in machine.inherited for slug in each.skills}

    def visible(path: str) -> bool:
        text = canonical(path).text
        if text.partition("/")[0] in INTERNAL_AREAS or in_authoring_plane(text):
            return False
        bundle = machine.bundles.find(text)
        if bundle is not None and not (bundle.loaded and bundle.slug in bundles):
            return False
        mount = machine.mounts.mount_of(text)
        if mount is not None:
            if not reachable[mount]:
                return False
        elif (below := machine.mounts.ancestors.get(text)) and not any(reachable[name] for name in below):
            return False  # a folder that is there only for mounts this state does not have
        return not any(glob.matches(text) for glob in globs)

    return visible


def visible(machine: Machine, state: str, path: str, variables: Variables) -> bool:
    """Whether one entry may be shown in the state; `visibility` for many."""
    return visibility(machine, state, variables)(path)


def _denied_globs(machine: Machine, surface: StateSurface, variables: Variables) -> tuple[Glob, ...] | None:
    """The globs of every `paths` denial against seeing; None when one cannot be resolved: it hides everything."""
    found: list[Glob] = []
    lists: list[Denials] = [
        *(each.tools for each in machine.inherited),
        machine.forbid_always,
        surface.forbid,
    ]
    for denials in lists:
        guards = [
            *denials.for_every_tool,
            *(guard for tool in _SEEING_TOOLS for guard in denials.for_tool(tool)),
        ]
        for guard in guards:
            if guard.paths is None:
                continue
            globs = guard.paths.globs(variables)
            if isinstance(globs, Unresolved) or any(glob.climbs for glob in globs):
                return None
            found.extend(globs)
    return tuple(found)
