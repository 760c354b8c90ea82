"""Blobs of a session."""

from __future__ import annotations

import hashlib

import pytest

from storage.blobs import BlobDamaged, Blobs
from storage.memory import MemoryStore


async def test_a_blob_is_stored_once_under_its_digest() -> None:
    """H15: big values are stored once and referred to."""
    store = MemoryStore()
    blobs = Blobs(store, "S/checkpoints/l1")
    name = await blobs.put(b"big")
    assert await blobs.put(b"big") == name == hashlib.sha256(b"big").hexdigest()
    assert [item.key async for item in store.list("")] == [f"S/checkpoints/l1/blob/{name}"]
    assert await blobs.get(name) == b"big"
    assert await Blobs(store, "S/checkpoints/l2").get(name) is None


@pytest.mark.parametrize("name", ["", "../../head", "A" * 64, "0" * 63, "0" * 64 + "\n"])
async def test_what_is_no_digest_is_not_asked_for(name: str) -> None:
    """A record's text is hostile."""
    with pytest.raises(ValueError, match="SHA-256"):
        await Blobs(MemoryStore(), "S").get(name)


async def test_a_damaged_blob_is_not_returned() -> None:
    """A name promises its bytes."""
    store = MemoryStore()
    name = hashlib.sha256(b"right").hexdigest()
    await store.put(f"S/blob/{name}", b"wrong")
    with pytest.raises(BlobDamaged, match=name):
        await Blobs(store, "S").get(name)
