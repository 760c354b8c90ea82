"""Large values of a session, each stored once under the digest of its bytes (docs/protocol.md §2).

A record refers to a blob by name; the blob is written before its record, and never changes.
"""

from __future__ import annotations

import hashlib
import re
from typing import ClassVar

from core.errors import ArchmaxError
from storage.objects import ObjectStore

_NAME = re.compile(r"[0-9a-f]{64}")


class BlobDamaged(ArchmaxError):
    """What lies under a blob's name is not what was stored there."""

    code: ClassVar[str] = "blob-damaged"

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"object {self.key!r} does not hold the bytes its name is the SHA-256 of"


class Blobs:
    """The blobs below `<prefix>/blob/`, where `prefix` is a key, such as a session's life."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._folder = store, f"{prefix}/blob/"

    async def put(self, body: bytes) -> str:
        """Store `body` unless it is there already. Returns its SHA-256 in hex, the blob's name."""
        name = hashlib.sha256(body).hexdigest()
        await self._store.put(self._folder + name, body, if_absent=True)
        return name

    async def get(self, name: str) -> bytes | None:
        """The bytes, or None. Raises: `ValueError` for what is no blob's name, `BlobDamaged`."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a SHA-256 in lower-case hex")
        found = await self._store.get(self._folder + name)
        if found is None:
            return None
        if hashlib.sha256(found.body).hexdigest() != name:
            raise BlobDamaged(self._folder + name)
        return found.body
