"""The object store: the one interface everything durable goes through (docs/protocol.md §1).

Strongly consistent single-object operations, nothing that spans two objects. Keys are `/`-separated segments of the
safe alphabet `[A-Za-z0-9._~=-]`, no segment empty, `.` or `..`, none longer than 255 bytes; no key is the folder of
another (`a` and `a/b`). The stores refuse others. A write has three answers: stored, refused by its condition, or
*unknown* (the reply was lost). A store settles the last itself where it can, by reading the key again and comparing
bytes, which is why every body of the protocol carries a write id of its own; it says so by returning an
`EtagAfterLoss`. Where it cannot, it raises `StoreUnavailable`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from core.errors import ArchmaxError


class StoreUnavailable(ArchmaxError):
    """The store did not answer, or answered that it cannot now. A write may or may not have happened."""

    code: ClassVar[str] = "store-unavailable"
    retryable: ClassVar[bool] = True

    def __init__(self, operation: str, key: str, problem: str) -> None:
        super().__init__(operation, key, problem)
        self.operation, self.key, self.problem = operation, key, problem

    def __str__(self) -> str:
        return f"object store: {self.operation} {self.key!r}: {self.problem}"


class StoreConfigurationError(ArchmaxError):
    """The store cannot work as it is set up (bucket, credentials, permissions, clock); trying again will not help.

    A write that raises it did not happen.
    """

    code: ClassVar[str] = "store-configuration"

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(store, problem)
        self.store, self.problem = store, problem

    def __str__(self) -> str:
        return f"object store {self.store}: {self.problem}"


class InvalidKey(ArchmaxError):
    """A key the store cannot hold: a bug of the caller, found before anything is written."""

    code: ClassVar[str] = "invalid-key"

    def __init__(
        self,
        key: str,
        problem: str = "has an empty, '.', '..' or overlong segment or a character outside [A-Za-z0-9._~=-]",
    ) -> None:
        super().__init__(key, problem)
        self.key, self.problem = key, problem

    def __str__(self) -> str:
        return f"object key {self.key!r} {self.problem}"


class EtagAfterLoss(str):
    """The etag of a conditional write that is there, but whose first reply was lost.

    In the meantime others may have acted on the object, or removed it: whoever gets this MUST read the head again
    and find its own claim there before going on (docs/protocol.md §1).
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """`etag` names this content at this key; `modified_ms` is the store's own clock, epoch milliseconds."""

    body: bytes
    etag: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class ListedObject:
    key: str
    size: int
    modified_ms: int


@runtime_checkable
class ObjectStore(Protocol):
    """Asynchronous, safe for concurrent use by many tasks of one event loop."""

    async def get(self, key: str) -> StoredObject | None:
        """The object, or None. Raises: `StoreUnavailable`."""
        ...

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        """Write; at most one condition. Returns the new etag, or None when the condition did not hold.

        `if_match` on a missing key does not hold. An etag may be a digest of the body: equal bodies, equal etags.
        Returns `EtagAfterLoss` when the write was found stored after a lost reply.
        Raises: `StoreUnavailable` when the outcome is unknown; `ValueError` for two conditions.
        """
        ...

    def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        """Every object whose key starts with `prefix` and sorts after `after`, in key order, page by page.

        Some servers list folder by folder, `a/x` before `a-b/x`: nothing is lost, but only among names of one folder
        and one width may a caller rely on the order, and give an `after`.
        """
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove; missing keys are fine. One request per 1,000 keys on S3."""
        ...

    async def close(self) -> None: ...
