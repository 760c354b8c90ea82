"""Every store passes the published suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.conformance import Check, conformance_checks
from storage.directory import DirectoryStore
from storage.memory import MemoryStore
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


@pytest.mark.parametrize("check", CHECKS)
async def test_the_s3_store_conforms(check: Check, s3_store: S3Store) -> None:
    """05 §5."""
    await check(s3_store)
