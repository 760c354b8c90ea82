"""A case's workspace entries: which paths may be seeded, where fixtures lie, what is written (06 §7.3)."""

from __future__ import annotations

from typing import Final

from core.paths import canonical
from engine.governance.zones import AUTHORING_ROOT, MountPrefixes, Zone, classify, in_authoring_plane

#: the default mount table's names (05 §9.2): what a command line checks against
DEFAULT_MOUNTS: Final = MountPrefixes(dirs=("skills", ".platform"), files=("AGENTS.md",))


def seed_problem(path: str, mounts: MountPrefixes = DEFAULT_MOUNTS) -> str | None:
    """Why a path may not be seeded, or None."""
    place = canonical(path)
    if "\0" in path:
        return "it holds a NUL character"
    if in_authoring_plane(place.text):
        return f"{AUTHORING_ROOT}/ holds the workflows, which no session reaches"
    match classify(path, mounts):
        case Zone.ESCAPES:
            return "it leaves the session's workspace"
        case Zone.ROOT:
            return "it names the workspace's root"
        case Zone.RUN_INTERNAL | Zone.RUN_OFFLOAD:
            return "it is an area of the runtime"
        case Zone.AUTHORED | Zone.RUN_OPEN | Zone.RUN:
            mount = mounts.mount_of(place.text)
            if mount is not None:
                return f"it belongs to the mount {mount!r}"
            if place.text in mounts.ancestors:
                return "it is a folder that mounts lie in"
            return None


def fixture_path(source: str, tests_dir: str) -> str | None:
    """The workspace path of a `from`, below the workflow's `tests/`; None when it leaves it, is absolute or empty."""
    segments = [segment for segment in source.split("/") if segment not in ("", ".")]
    if source.startswith("/") or not segments or ".." in segments or "\0" in source:
        return None
    return "/".join([tests_dir.strip("/"), *segments])
