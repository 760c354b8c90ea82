"""Every store passes the published suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from storage.conformance import Check, conformance_checks
from storage.directory import DirectoryStore
from storage.memory import MemoryStore
from storage.objects import ListedObject, StoredObject
from storage.s3 import S3Store

CHECKS = [pytest.param(check, id=check.__name__) for _, check in conformance_checks()]


@pytest.mark.parametrize("check", CHECKS)
async def test_the_memory_store_conforms(check: Check) -> None:
    """05 §5."""
    await check(MemoryStore())


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("fsync", [False, True], ids=["cached", "fsync"])
async def test_the_directory_store_conforms(check: Check, fsync: bool, tmp_path: Path) -> None:
    """05 §5."""
    store = DirectoryStore(tmp_path / "root", fsync=fsync)
    await check(store)
    await store.close()


class Checkpoints:
    """A directory store whose checks write where its journals are: `x/k` is `x/checkpoints/k`."""

    def __init__(self, store: DirectoryStore) -> None:
        self._store = store

    async def get(self, key: str) -> StoredObject | None:
        return await self._store.get(_inner(key))

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        return await self._store.put(_inner(key), body, if_absent=if_absent, if_match=if_match)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        async for item in self._store.list(_inner(prefix), after=_inner(after) if after else None):
            yield replace(item, key=item.key.replace("/checkpoints/", "/", 1))

    async def delete(self, keys: Iterable[str]) -> None:
        await self._store.delete([_inner(key) for key in keys])

    async def close(self) -> None:
        await self._store.close()


def _inner(key: str) -> str:
    return key.replace("/", "/checkpoints/", 1) if key.startswith("conformance-") else key


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("fsync", [False, True], ids=["cached", "fsync"])
async def test_the_journals_of_a_directory_store_conform(check: Check, fsync: bool, tmp_path: Path) -> None:
    """05 §5, where objects are records and not files."""
    store = Checkpoints(DirectoryStore(tmp_path / "root", fsync=fsync))
    await check(store)
    await store.close()


@pytest.mark.parametrize("check", CHECKS)
async def test_the_s3_store_conforms(check: Check, s3_store: S3Store) -> None:
    """05 §5."""
    await check(s3_store)
