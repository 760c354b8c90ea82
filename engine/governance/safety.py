"""Safety rules: about places, not about grants; no document and no host undoes them (contract 02 §3, rules 1 to 11).

Every rule looks at every path of the call in declaration order and names the first offender.
"""

from __future__ import annotations

from engine.governance import reasons
from engine.governance.calls import Verdict, block
from engine.governance.subject import Subject
from engine.governance.tool_paths import PathAccess, is_path_value, read_path, texts_of
from engine.governance.zones import AUTHORING_ROOT, Zone, in_authoring_plane


def path_argument(subject: Subject) -> Verdict | None:
    """Rule 1: what is declared a path holds a path."""
    for argument in subject.call.declared:
        for spelling in argument.spellings:
            if not is_path_value(subject.call.args.get(spelling)):
                return block(
                    "tool.path-argument",
                    f"{subject.tool!r}: argument {spelling!r} must be a path or a list of paths, as text",
                )
    return None


def governance_plane(subject: Subject) -> Verdict | None:
    """Rule 2: code never names the workflows; a tool without declared paths is read by convention."""
    if subject.action.origin not in ("script", "code"):
        return None
    if subject.call.declared:
        named = [place.text for place in subject.paths]
    else:
        args = subject.call.args
        value = args.get("file_path")
        named = [read_path(text).text for text in texts_of(args.get("path") if value is None else value)]
    for text in named:
        if in_authoring_plane(text):
            return block(
                "zone.governance-plane",
                f"{subject.tool!r} on {reasons.path(text)}: scripts cannot reach {AUTHORING_ROOT}/, where the "
                "workflows are kept",
            )
    return None


def skill_only(subject: Subject) -> Verdict | None:
    """Rule 3: only files of loaded skill bundles run."""
    for place in subject.paths:
        if place.access is PathAccess.EXECUTE and (place.bundle is None or not place.bundle.loaded):
            return block(
                "script.skill-only",
                f"{reasons.on(subject, place)}: only scripts inside a skill bundle can be run; "
                "run other code with archmax_eval",
            )
    return None


def escapes(subject: Subject) -> Verdict | None:
    """Before rule 7: no path climbs above the workspace (02 OP-12)."""
    for place in subject.paths:
        if place.zone is Zone.ESCAPES:
            return block("zone.escapes", f"{reasons.on(subject, place)}: the path leaves the workspace")
    return None


def read_only(subject: Subject) -> Verdict | None:
    """Rule 7: what the host serves read-only is not changed."""
    for place in subject.paths:
        if place.zone is Zone.AUTHORED and place.access.mutates:
            return block(
                "zone.read-only",
                f"{reasons.on(subject, place)}: {place.mount!r} is served read-only by the host in every state; "
                "write under scratchpad/ instead",
            )
    return None


def runtime_internal(subject: Subject) -> Verdict | None:
    """Rule 8: the runtime's own areas are out of reach."""
    for place in subject.paths:
        if place.zone is Zone.RUN_INTERNAL:
            return block(
                "zone.runtime-internal",
                f"{reasons.on(subject, place)}: this area belongs to the runtime; use scratchpad/ instead",
            )
    return None


def runtime_managed(subject: Subject) -> Verdict | None:
    """Rule 9: what the runtime sets aside is read, not changed."""
    for place in subject.paths:
        if place.zone is Zone.RUN_OFFLOAD and place.access.mutates:
            return block(
                "zone.runtime-managed",
                f"{reasons.on(subject, place)}: only the runtime writes here; write under scratchpad/ instead",
            )
    return None


def skills(subject: Subject) -> Verdict | None:
    """Rule 10: a path inside a bundle the state does not enable."""
    surface = subject.surface
    for place in subject.paths:
        bundle = place.bundle
        if bundle is None or (bundle.loaded and surface.has_skill(bundle.slug)):
            continue
        key = surface.skill_denied_by(bundle.slug)
        rule = "skill.not-allowed" if key is None else "skill.forbidden"
        return block(rule, reasons.skill(subject, place, bundle.slug, key))
    return None


def mounts(subject: Subject) -> Verdict | None:
    """Rule 11: a path under a mount the state does not have, or may only read."""
    surface, table = subject.surface, subject.machine.mounts
    for place in subject.paths:
        mount = place.mount
        if mount is None:
            continue
        if (key := surface.mount_denied_by(mount)) is not None:
            return block("mount.forbidden", reasons.mount(subject, place, mount, key))
        if mount not in table.governed:
            continue
        access = surface.mount_access(mount)
        if access is None:
            return block(
                "mount.not-allowed",
                f"{reasons.on(subject, place)}: state {subject.state!r} does not have mount {mount!r}; "
                "whether the file exists was not looked at. " + reasons.close(surface.state),
            )
        if access == "read" and place.access.mutates:
            return block(
                "mount.read-only",
                f"{reasons.on(subject, place)}: state {subject.state!r} may only read mount {mount!r} "
                "(its grant would need `access: read_write`); write under scratchpad/ instead",
            )
    return None
