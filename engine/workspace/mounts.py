"""The mount table: what a host serves into the workspace besides the session's own files (05 §9.2, 02 §12.1).

Resolved once per assembly and shared by router, kernel, prompt, session operations and validation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

from typing_extensions import override

from core.errors import ArchmaxError
from core.paths import canonical, is_within
from engine.errors import AuthoringBackendExposedError, MountCollisionError
from engine.governance.zones import (
    AUTHORING_ROOT,
    INTERNAL_AREAS,
    OFFLOAD_AREAS,
    SCRATCHPAD,
    MountPrefixes,
)
from engine.workspace.backend import AnyBackend, BackendError
from engine.workspace.deepagents_adapter import DeepAgentsBackend, as_backend
from engine.workspace.directory_backend import DirectoryBackend
from engine.workspace.subtree import SubtreeBackend

_OPTIONS: Final = frozenset({"backend", "read_only", "governed", "searchable"})

#: what the first segment of no mount may be, and what it holds instead
RESERVED_ROOTS: Final[Mapping[str, str]] = {
    SCRATCHPAD: "the session's scratchpad",
    **dict.fromkeys(sorted(OFFLOAD_AREAS), "results the runtime moved out of the conversation"),
    **dict.fromkeys(sorted(INTERNAL_AREAS), "the runtime's own bookkeeping"),
    AUTHORING_ROOT: "the authoring plane",
}


class MountTableError(ArchmaxError):
    """A mount table entry is unusable."""

    code: ClassVar[str] = "mount-table"

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(key, problem)
        self.key, self.problem = key, problem

    @override
    def __str__(self) -> str:
        return f"mount {self.key!r}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Mount:
    """`name` is the key without outer slashes. A file mount's backend is asked for the path as the workspace has it."""

    name: str
    backend: AnyBackend
    is_file: bool = False
    read_only: bool = True
    governed: bool = False
    searchable: bool = True

    def inner(self, path: str) -> str:
        """The backend's path for canonical workspace `path`, which lies in this mount."""
        return "/" + (path if self.is_file else path[len(self.name) :].lstrip("/"))

    def outer(self, inner: str) -> str | None:
        """The workspace path (canonical text) of a path the backend named; None when it climbs out."""
        at = canonical(inner)
        if at.escaping:
            return None
        if self.is_file:
            return at.text
        return f"{self.name}/{at.text}" if at.text else self.name


@dataclass(frozen=True)
class MountTable:
    """Mounts by name."""

    mounts: Mapping[str, Mount]

    @cached_property
    def prefixes(self) -> MountPrefixes:
        """The names alone, for whoever decides without touching a file."""
        every = self.mounts.values()
        return MountPrefixes(
            dirs=tuple(mount.name for mount in every if not mount.is_file),
            files=tuple(mount.name for mount in every if mount.is_file),
            writable=frozenset(mount.name for mount in every if not mount.read_only),
            governed=frozenset(mount.name for mount in every if mount.governed),
            unsearchable=frozenset(
                mount.name for mount in every if not mount.searchable and not mount.is_file
            ),
        )

    def of(self, path: str) -> Mount | None:
        """The mount canonical `path` lies in."""
        name = self.prefixes.mount_of(path)
        return None if name is None else self.mounts[name]

    def below(self, path: str) -> list[Mount]:
        """Mounts strictly below canonical `path`, by name."""
        return [self.mounts[name] for name in sorted(self.mounts) if name != path and is_within(name, path)]


def build_mounts(table: Mapping[str, object], authoring: AnyBackend | None = None) -> MountTable:
    """Normalise a host's table: key → backend, or `{backend, read_only, governed, searchable}`.

    Raises: `MountCollisionError`, `AuthoringBackendExposedError`, `MountTableError`.
    """
    mounts: dict[str, Mount] = {}
    for key, value in table.items():
        mount = _mount(key, value)
        if mount.name in mounts:
            raise MountTableError(key, "another key names the same path")
        if not mount.read_only and authoring is not None and _exposes(mount.backend, authoring):
            raise AuthoringBackendExposedError(key)
        mounts[mount.name] = mount
    for mount in mounts.values():
        above = mount.name.rpartition("/")[0]
        while above:
            if above in mounts and mounts[above].is_file:
                raise MountTableError(mount.name, f"it lies below the file mount {above!r}")
            above = above.rpartition("/")[0]
    return MountTable(mounts)


def _mount(key: str, value: object) -> Mount:
    name = canonical(key)
    if name.escaping or ".." in key.split("/") or any(ord(char) < 32 for char in key):
        raise MountTableError(key, "a key is a plain path below the workspace root")
    if not name.text:
        raise MountCollisionError(key, "the workspace root, which is the session")
    if holds := RESERVED_ROOTS.get(name.segments[0]):
        raise MountCollisionError(key, holds)
    options: Mapping[str, object] = value if isinstance(value, Mapping) else {"backend": value}
    if unknown := sorted(set(options) - _OPTIONS):
        raise MountTableError(key, f"unknown option {unknown[0]!r}; known: {', '.join(sorted(_OPTIONS))}")
    if "backend" not in options:
        raise MountTableError(key, "it has no backend")
    flags = {flag: options[flag] for flag in ("read_only", "governed", "searchable") if flag in options}
    for flag, given in flags.items():
        if not isinstance(given, bool):
            raise MountTableError(key, f"{flag} is True or False")
    try:
        backend = as_backend(options["backend"])
    except BackendError as error:
        raise MountTableError(key, "its backend has neither backend protocol's methods") from error
    return Mount(
        name.text,
        backend,
        is_file=not key.rstrip().endswith("/"),
        read_only=flags.get("read_only", True) is True,
        governed=flags.get("governed", False) is True,
        searchable=flags.get("searchable", True) is True,
    )


def default_mounts(root: str | os.PathLike[str]) -> dict[str, AnyBackend]:
    """The table of a file system workspace: `/skills/`, `/.platform/`, `/AGENTS.md`; read-only, ungoverned.

    What is absent under `root` is an empty mount.
    """
    base = Path(root)
    return {
        "/skills/": DirectoryBackend(base / "skills"),
        "/.platform/": DirectoryBackend(base / ".platform"),
        "/AGENTS.md": DirectoryBackend(base),
    }


def _exposes(backend: AnyBackend, authoring: AnyBackend) -> bool:
    """Whether writes through `backend` land in the backend the specs are read from.

    The same object, or one seen through it, always does; two folders do where one reaches the other's `workflows`.
    """
    served, specs = _unwrapped(backend), _unwrapped(authoring)
    if served is specs:
        return True
    if isinstance(served, DirectoryBackend) and isinstance(specs, DirectoryBackend):
        reached, plane = served.root.resolve(), (specs.root / AUTHORING_ROOT).resolve()
        return plane.is_relative_to(reached) or reached.is_relative_to(plane)
    return False


def _unwrapped(backend: AnyBackend) -> AnyBackend:
    while isinstance(backend, SubtreeBackend | DeepAgentsBackend):
        backend = backend.inner
    return backend
