"""Input files put into a session from outside, before a turn (05 §7, 06 §7.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import Json, clean, well_formed
from core.paths import canonical
from engine.governance.zones import AUTHORING_ROOT, SCRATCHPAD, Zone, in_authoring_plane
from engine.workspace.backend import Failure
from engine.workspace.mounts import MountTable
from engine.workspace.places import place_of
from engine.workspace.session_files import SessionFiles
from engine.workspace.tree import FileTree

_ZONES: Final[Mapping[Zone, str]] = {
    Zone.ROOT: "the workspace root, not a file",
    Zone.AUTHORED: "in a mount",
    Zone.RUN_INTERNAL: "in the runtime's own area",
    Zone.RUN_OFFLOAD: "in an area the runtime manages",
}


class SeedPathError(ArchmaxError):
    """Some files cannot be seeded; none was written. `problems`: (path as given, why)."""

    code: ClassVar[str] = "seed-path"

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    @override
    def __str__(self) -> str:
        return "; ".join(f"{path!r} cannot be seeded: it {why}" for path, why in self.problems)


def seedable_problem(path: str, mounts: MountTable) -> str | None:
    """Why `path` is no place for a seeded file (follows "it"), or None. Names the zone it lies in."""
    if canonical(path).escaping:
        return f"leaves the workspace (zone {Zone.ESCAPES})"
    place = place_of(path, mounts)
    if isinstance(place, Failure):
        return "is not a usable path"
    if place.mount is not None:
        return f"is in the mount '{place.mount.name}' (zone {place.zone})"
    if where := _ZONES.get(place.zone):
        return f"is {where} (zone {place.zone})"
    if in_authoring_plane(place.path):
        return f"is in the authoring plane, '{AUTHORING_ROOT}/'"
    if below := mounts.below(place.path):
        return f"is the folder of the mount '{below[0].name}' (zone {place.zone})"
    if place.path == SCRATCHPAD:
        return f"is a folder (zone {place.zone})"
    if any(place.path.startswith(file + "/") for file in mounts.prefixes.files):
        return f"is below a file that is a mount (zone {place.zone})"
    if path.endswith("/"):
        return "names a folder"
    return None


def seed_content(value: Json | bytes) -> bytes:
    """A string verbatim, bytes as they are, anything else as indented JSON with a final newline."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return well_formed(value).encode("utf-8")
    return (json.dumps(clean(value), ensure_ascii=False, indent=2) + "\n").encode("utf-8")


async def seed_files(files: SessionFiles, seeds: Mapping[str, Json | bytes], mounts: MountTable) -> None:
    """Write input files, replacing existing ones. Raises: `SeedPathError` naming every bad path; nothing is written."""
    problems: list[tuple[str, str]] = []
    planned: FileTree[bytes] = FileTree()
    present = files.tree()
    for path, value in seeds.items():
        at = canonical(path).text
        problem = seedable_problem(path, mounts)
        if problem is None and planned.get(at) is not None:
            problem = "is named twice"
        if problem is None and (planned.obstacle(at) or present.obstacle(at)):
            problem = "is both a file and a folder"
        if problem is not None:
            problems.append((path, problem))
            continue
        planned.set(at, seed_content(value))
    if problems:
        raise SeedPathError(problems)
    for path, data in planned.files.items():
        await files.write(path, data)
