"""Session stores: where a host keeps its sessions (05 §5)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from engine.errors import SessionStoreCapabilityError
from engine.host.backend_store import BackendObjectStore
from engine.host.session_folder import SessionFolder
from engine.workspace.backend import AnyBackend
from storage.directory import DirectoryStore
from storage.memory import MemoryStore
from storage.objects import ObjectStore

#: removes everything of one session; tells whether there was anything
DeleteSession: TypeAlias = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True)
class SessionStore:
    """`capabilities` says whether sessions can be listed and deleted; what a store lacks raises, nothing done."""

    kind: Literal["filesystem", "backend", "memory"]
    objects: ObjectStore
    lock_root: Path | None = None
    can_list: bool = True
    can_delete: bool = True
    #: a host's own way to remove a session; default: object by object
    delete_session: DeleteSession | None = None
    #: the backend behind it, for a store made over one
    backend: AnyBackend | None = None

    @property
    def capabilities(self) -> dict[str, bool]:
        return {"list": self.can_list, "delete": self.can_delete}

    @property
    def shared(self) -> bool:
        """Whether several processes may use it at once: a backend without conditional writes serves one (ruling 21)."""
        return not isinstance(self.objects, BackendObjectStore | MemoryStore)

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


def create_backend_session_store(
    backend: AnyBackend,
    prefix: str | None = None,
    delete_session: Callable[[str], bool | Awaitable[bool]] | None = None,
    list: bool = True,
) -> SessionStore:
    """Sessions as files of a host's backend, below `prefix`, which nobody inside ever sees. For one process (ruling 21).

    Sessions can be deleted only with `delete_session`, which removes one session's folder and says whether it was there.
    Raises: `BackendError` for what is no backend, `ValueError` for a prefix that climbs out.
    """
    return SessionStore(
        "backend",
        BackendObjectStore(backend, prefix or ""),
        can_list=list,
        can_delete=delete_session is not None,
        delete_session=None if delete_session is None else _awaited(delete_session),
        backend=backend,
    )


def _awaited(delete: Callable[[str], bool | Awaitable[bool]]) -> DeleteSession:
    async def deleted(session_id: str) -> bool:
        answer = delete(session_id)
        return bool(await answer if inspect.isawaitable(answer) else answer)

    return deleted
