"""Session stores: where a host keeps its sessions (05 §5)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.errors import SessionStoreCapabilityError
from engine.host.session_folder import SessionFolder
from storage.directory import DirectoryStore
from storage.memory import MemoryStore
from storage.objects import ObjectStore


@dataclass(frozen=True)
class SessionStore:
    """`capabilities` says whether sessions can be listed and deleted; what a store lacks raises, nothing done."""

    kind: Literal["filesystem", "backend", "memory"]
    objects: ObjectStore
    lock_root: Path | None = None
    can_list: bool = True
    can_delete: bool = True

    @property
    def capabilities(self) -> dict[str, bool]:
        return {"list": self.can_list, "delete": self.can_delete}

    def folder(self) -> SessionFolder:
        return SessionFolder(self.objects, lock_root=self.lock_root)

    def require(self, capability: Literal["list", "delete"]) -> None:
        """Raises: `SessionStoreCapabilityError`."""
        if not self.capabilities[capability]:
            raise SessionStoreCapabilityError(self.kind, capability)


def create_filesystem_session_store(directory: str | Path, *, fsync: bool = True) -> SessionStore:
    """Sessions as files under `directory`, created with the first one; the command and the fleet see the same ones."""
    root = Path(directory).absolute()
    return SessionStore("filesystem", DirectoryStore(root, fsync=fsync), lock_root=root)


def create_memory_session_store() -> SessionStore:
    """Nothing on disk; gone with the process."""
    return SessionStore("memory", MemoryStore())


def create_object_session_store(objects: ObjectStore) -> SessionStore:
    """Sessions on any store that passes `storage.conformance`: S3 among them."""
    return SessionStore("backend", objects)
