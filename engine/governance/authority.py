"""Runtime authority: whether the runtime itself may read a file for a `file` value (contract 02 §18.4, 05 §11.3).

The one question asked outside a state's surface: workflow-wide denials bind, a single state's lists do not. Whether
the file is there is the workspace's to say.
"""

from __future__ import annotations

from engine.governance import reasons
from engine.governance.guards import Call
from engine.governance.machine import Machine
from engine.governance.references import Variables
from engine.governance.subject import place_of
from engine.governance.tool_paths import CallPath, PathAccess, read_path
from engine.governance.zones import Zone, in_authoring_plane

_TOOL = "read_file"


def file_refusal(machine: Machine, path: str, variables: Variables) -> str | None:
    """Why a `file` value may not name `path`, or None."""
    named = CallPath("file_path", PathAccess.READ, path, read_path(path))
    place = place_of(machine, named.argument, named.access, named.place)
    shown = reasons.path(place.text)
    if place.zone is Zone.ESCAPES:
        return f"{shown} leaves the workspace"
    if place.zone is Zone.ROOT:
        return f"{shown} is the workspace itself, not a file"
    if place.zone is Zone.RUN_INTERNAL or in_authoring_plane(place.text):
        return f"{shown} is in an area sessions do not reach"
    if place.mount in machine.mounts.governed and place.mount not in machine.mounts_granted:
        return f"{shown}: no state of the workflow is granted mount {place.mount!r}"
    own = machine.own_denials
    call = Call(_TOOL, {"file_path": path}, machine.tool_paths.get(_TOOL, ()), (named,))
    sources = [(own.workflow, machine.forbid_always, own.skills, own.mounts)]
    sources += [
        (each.workflow, each.tools, tuple(each.skills), tuple(each.mounts)) for each in machine.inherited
    ]
    for workflow, tools, skills, mounts in sources:
        if tools.match(call, variables) is not None:
            return f"{shown}: tools.forbid_always of workflow {workflow!r} denies reading it"
        if place.bundle is not None and place.bundle.slug in skills:
            return (
                f"{shown}: skills.forbid_always of workflow {workflow!r} denies skill {place.bundle.slug!r}"
            )
        if place.mount in mounts:
            return f"{shown}: mounts.forbid_always of workflow {workflow!r} denies mount {place.mount!r}"
    return None


def file_readable(machine: Machine, path: str, variables: Variables) -> bool:
    """Whether `file_refusal` has nothing against the path."""
    return file_refusal(machine, path, variables) is None
