"""Places in the workspace: a canonical path, what serves it, and how entries and failures there are worded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from core.jsontext import well_formed
from core.paths import canonical
from engine.errors import WorkspacePathEscapeError
from engine.governance.zones import OFFLOAD_AREAS, SCRATCHPAD, Zone, zone_of
from engine.workspace.backend import MAX_FILE_BYTES, Failure, FileEntry, failure
from engine.workspace.mounts import Mount, MountTable
from engine.workspace.session_files import FileRef

#: whether an entry (canonical text, no leading slash) may be shown to whoever asked
Visible = Callable[[str], bool]

_MAX_PATH_CHARS: Final = 4_096
_MAX_NAME_BYTES: Final = 255
#: work on more than this many bytes leaves the event loop
_OFF_LOOP_BYTES: Final = 256 * 1024

T = TypeVar("T")


def everything(_path: str) -> bool:
    """The predicate that hides nothing."""
    return True


@dataclass(frozen=True, slots=True)
class Place:
    """A canonical path and what serves it. `mount` None: the session."""

    path: str
    zone: Zone
    mount: Mount | None

    @property
    def shown(self) -> str:
        return "/" + self.path

    @property
    def inner(self) -> str:
        """The mount's own name for it."""
        assert self.mount is not None
        return self.mount.inner(self.path)


class Content(NamedTuple):
    """A whole file. `exact`: `data` are the stored bytes, not text a backend decoded and may have mended."""

    data: bytes
    reported: str | None
    exact: bool


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Run `work` over `size` bytes, in a thread when that would hold up other turns."""
    return await asyncio.to_thread(work) if size > _OFF_LOOP_BYTES else work()


def place_of(path: str, mounts: MountTable) -> Place | Failure:
    """Where a path leads. Raises: `WorkspacePathEscapeError`."""
    at = canonical(path)
    if at.escaping:
        raise WorkspacePathEscapeError(_printable(path))
    if _unusable(at.text):
        return failure("invalid_path", "/" + _printable(at.text))
    text = at.text if at.text.strip() else ""  # blank text names the root, as the kernel reads it
    mount = mounts.of(text)
    zone = zone_of(text, False, None if mount is None else mount.name, mounts.prefixes)
    return Place(text, zone, mount)


#: the session areas a root listing always shows
SHOWN_AREAS: Final = (SCRATCHPAD, *sorted(OFFLOAD_AREAS))


def session_entry(path: str, ref: FileRef | None) -> FileEntry:
    """A session file, or the folder of that name when there is no reference."""
    if ref is None:
        return {"path": "/" + path, "is_dir": True}
    modified = datetime.fromtimestamp(ref.modified / 1000, UTC).isoformat(timespec="milliseconds")
    return {"path": "/" + path, "is_dir": False, "size": ref.size, "modified_at": modified}


def outer_entry(mount: Mount, item: object) -> FileEntry | None:
    """A backend's entry under its workspace path; None for one that names no place inside the mount."""
    if not isinstance(item, dict) or not isinstance(item.get("path"), str):
        return None
    path = mount.outer(item["path"])
    if path is None:
        return None
    entry: FileEntry = {"path": "/" + path, "is_dir": bool(item.get("is_dir", item["path"].endswith("/")))}
    if isinstance(size := item.get("size"), int):
        entry["size"] = size
    if isinstance(modified := item.get("modified_at"), str):
        entry["modified_at"] = modified
    return entry


def internal(place: Place) -> Failure | None:
    if place.zone is not Zone.RUN_INTERNAL:
        return None
    return failure(
        "permission_denied", place.shown, f"'{place.shown}' belongs to the runtime: use 'scratchpad/'"
    )


def is_a_file(place: Place) -> Failure:
    return failure("not_a_directory", place.shown, f"'{place.shown}' is a file, not a folder")


def bounded(place: Place, content: Content) -> Content | Failure:
    return content if len(content.data) <= MAX_FILE_BYTES else failure("too_large", place.shown)


def _unusable(path: str) -> bool:
    if len(path) > _MAX_PATH_CHARS or any(ord(char) < 32 or ord(char) == 127 for char in path):
        return True
    try:
        return any(len(name.encode("utf-8")) > _MAX_NAME_BYTES for name in path.split("/"))
    except UnicodeEncodeError:
        return True


def _printable(path: str) -> str:
    """A path that cannot be used, so that it can be shown."""
    text = well_formed(path)[:_MAX_NAME_BYTES]
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
