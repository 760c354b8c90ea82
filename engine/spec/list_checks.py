"""Checks of the skills and mounts lists against what the workspace and its host provide (01 §19.3, §19.5)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from core.jsontext import Json
from engine.governance.zones import MountPrefixes
from engine.spec.diagnostics import shown
from engine.spec.model import MountGrant, Spec
from engine.spec.report import Report, listed
from engine.spec.skills import SkillRegistry
from engine.spec.yaml12 import Path


@dataclass(frozen=True, slots=True)
class _Lists:
    """The four lists of one kind, by name."""

    kind: Literal["skills", "mounts"]
    always: tuple[str, ...]
    never: tuple[str, ...]
    states: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]

    def all(self) -> Iterator[tuple[Path, tuple[str, ...]]]:
        yield (self.kind, "allow_always"), self.always
        yield (self.kind, "forbid_always"), self.never
        for slug, (allow, forbid) in self.states.items():
            yield ("states", slug, self.kind, "allow"), allow
            yield ("states", slug, self.kind, "forbid"), forbid


def check_skills(report: Report, spec: Spec, registry: SkillRegistry) -> None:
    """Every skills list against the bundles there are."""
    report.found.extend(registry.problems)
    lists = _Lists(
        "skills",
        spec.skills_allow_always,
        spec.skills_forbid_always,
        {slug: (state.skills_allow, state.skills_forbid) for slug, state in spec.states.items()},
    )
    known = registry.slugs
    slugs = frozenset(known)
    for path, names in lists.all():
        for index, name in enumerate(names):
            if name not in slugs:
                text = f"no source provides the skill '{shown(name)}'; known: {listed(known)}"
                text += report.perhaps(name, known)
                report.add("error", "skills.unknown", path, text, at=(*path, index))
    _check_algebra(report, spec, lists, slugs, "skill")
    always = frozenset(lists.always)
    for slug, state in spec.states.items():
        for index, name in enumerate(state.skills_allow):
            if name in always:
                _redundant(report, "skills", slug, index, name)
    if not spec.skills_declared and registry.skills:
        report.add(
            "warning",
            "skills.no-root-block",
            ("skills",),
            f"bundles exist but the workflow has no skills block: {listed(known)}; "
            "skills: { allow_always: [] } says that states enable them",
        )


def check_mounts(report: Report, spec: Spec, mounts: MountPrefixes) -> None:
    """Every mounts list against the host's mount table."""
    lists = _Lists(
        "mounts",
        tuple(grant.mount for grant in spec.mounts_allow_always),
        spec.mounts_forbid_always,
        {
            slug: (tuple(grant.mount for grant in state.mounts_allow), state.mounts_forbid)
            for slug, state in spec.states.items()
        },
    )
    table = frozenset(mounts.names)
    for path, names in lists.all():
        for index, name in enumerate(names):
            if name not in table:
                text = f"the mount table has no '{shown(name)}'; it has: {listed(mounts.names)}"
                text += report.perhaps(name, mounts.names)
                report.add("error", "mounts.unknown", path, text, at=(*path, index))
    _check_grants(report, ("mounts", "allow_always"), spec.mounts_allow_always, mounts)
    for slug, state in spec.states.items():
        _check_grants(report, ("states", slug, "mounts", "allow"), state.mounts_allow, mounts)
    _check_algebra(report, spec, lists, mounts.governed, "mount")
    asked = {
        grant.mount: grant.access for grant in spec.mounts_allow_always if grant.mount in mounts.governed
    }
    for slug, state in spec.states.items():
        for index, grant in enumerate(state.mounts_allow):
            if grant.mount in asked and not _changes_access(grant, asked[grant.mount]):
                _redundant(report, "mounts", slug, index, grant.mount)
    if not spec.mounts_declared and mounts.governed:
        governed = [name for name in mounts.names if name in mounts.governed]
        report.add(
            "warning",
            "mounts.no-root-block",
            ("mounts",),
            f"governed mounts exist but the workflow has no mounts block: {listed(governed)}; "
            "mounts: { allow_always: [] } says that states reach them",
        )


def _changes_access(grant: MountGrant, at_root: str | None) -> bool:
    """Whether a state's grant says more than the root's: it narrows to read, or opens a bare one for writing."""
    if grant.access == "read":
        return at_root != "read"
    return grant.access == "read_write" and at_root is None


def _check_grants(report: Report, path: Path, grants: Collection[MountGrant], mounts: MountPrefixes) -> None:
    table = frozenset(mounts.names)
    for index, grant in enumerate(grants):
        at: Path = (*path, index)
        if grant.mount not in table:
            continue
        if grant.mount not in mounts.governed:
            text = f"mount '{shown(grant.mount)}' is not governed: every state reaches it, the grant adds nothing"
            report.add("warning", "mounts.ungoverned-grant", path, text, at=at)
        if grant.access == "read_write" and grant.mount not in mounts.writable:
            text = f"the host serves mount '{shown(grant.mount)}' read-only: read_write cannot lift that"
            report.add("warning", "mounts.ceiling", path, text, at=at)


def _redundant(report: Report, kind: str, slug: str, index: int, name: str) -> None:
    path: Path = ("states", slug, kind, "allow")
    report.add(
        "warning",
        f"{kind}.redundant",
        path,
        f"'{shown(name)}' is already in {kind}.allow_always",
        at=(*path, index),
    )


def _check_algebra(report: Report, spec: Spec, lists: _Lists, governable: Collection[str], noun: str) -> None:
    """What the lists do to each other, over names that lists decide about."""
    kind = lists.kind
    always = frozenset(lists.always)
    granted = always.union(*(allow for allow, _ in lists.states.values()))
    never: Path = (kind, "forbid_always")
    for index, name in enumerate(lists.never):
        if name in granted and name in governable:
            text = f"'{shown(name)}' is granted by another list, and denied in every state by this one"
            report.add("warning", f"{kind}.forbid-always-cancels", never, text, at=(*never, index))
    for slug, (allow, forbid) in lists.states.items():
        path: Path = ("states", slug, kind)
        here = frozenset(allow)
        if not allow and always and _written(spec, slug, kind, "allow") == []:
            text = (
                f"an empty list takes nothing away from {kind}.allow_always: use forbid to leave a {noun} out"
            )
            report.add("warning", f"{kind}.empty-allow", (*path, "allow"), text)
        denied = frozenset(forbid)
        for index, name in enumerate(allow):
            if name in denied:
                text = f"'{shown(name)}' is in both lists: the denial wins"
                report.add(
                    "warning", f"{kind}.allow-and-forbid", (*path, "allow"), text, at=(*path, "allow", index)
                )
        for index, name in enumerate(forbid):
            if name in governable and name not in always and name not in here:
                text = f"nothing enables '{shown(name)}' here: there is nothing to deny"
                report.add(
                    "warning", f"{kind}.forbid-nothing", (*path, "forbid"), text, at=(*path, "forbid", index)
                )


def _written(spec: Spec, slug: str, kind: str, key: str) -> Json:
    """A state's list as the document writes it; None where anything on the way is malformed."""
    value: Json = spec.document
    for step in ("states", slug, kind, key):
        value = value.get(step) if isinstance(value, dict) else None
    return value
