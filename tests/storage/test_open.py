"""Addresses of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.directory import DirectoryStore
from storage.memory import MemoryStore
from storage.objects import ObjectStore, StoreConfigurationError
from storage.open import open_store
from storage.s3 import S3Store
from tests.support.seaweed import Seaweed


async def test_each_kind_of_address_opens_its_store(tmp_path: Path) -> None:
    """Configuration: `ARCHMAX_STORE`."""
    memory = open_store("memory:")
    folder = open_store(f"file://{tmp_path}/with%20space", fsync=False)
    bucket = open_store("s3://bucket/some/prefix/", endpoint_url="http://127.0.0.1:1", region="eu-central-1")
    assert isinstance(memory, MemoryStore)
    assert isinstance(folder, DirectoryStore) and folder.root == tmp_path / "with space"
    assert isinstance(bucket, S3Store) and bucket.name == "s3://bucket/some/prefix/ at http://127.0.0.1:1"
    for store in (memory, folder, bucket):
        assert isinstance(store, ObjectStore)
        await store.close()


async def test_options_reach_the_bucket(seaweed: Seaweed) -> None:
    """Configuration: endpoint, region, credentials, prefix, encryption."""
    store = open_store(
        f"s3://{seaweed.bucket}/opened",
        endpoint_url=seaweed.endpoint_url,
        region="us-east-1",
        access_key_id=seaweed.credentials.access_key_id,
        secret_access_key=seaweed.credentials.secret_access_key,
        sse="AES256",
    )
    await store.put("k", b"x")
    client = seaweed.client()
    assert client.head_object(Bucket=seaweed.bucket, Key="opened/k")["ServerSideEncryption"] == "AES256"
    client.close()
    await store.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "unknown kind of store"),
        ("/data/store", "write file:///dir"),
        ("http://host/x", "unknown kind of store"),
        ("file://data/store", "whole path"),
        ("file:store", "whole path"),
        ("file:///a%00b", "NUL"),
        ("file:///a?b=c", "no user, query or fragment"),
        ("s3://", "no bucket name"),
        ("s3://Bad_Bucket/x", "no bucket name"),
        ("s3://bucket/a b", "the prefix"),
        ("s3://bucket/a/../b", "the prefix"),
        ("memory://host", "unknown kind of store"),
        ("s3://[bad", "not an address"),
    ],
)
def test_a_wrong_address_is_refused_by_name(url: str, problem: str) -> None:
    """Bad input says what would be right."""
    with pytest.raises(StoreConfigurationError, match=problem):
        open_store(url)


@pytest.mark.parametrize(
    "url", ["s3://key:hunter2@bucket/x", "s3://bucket/x?secret=hunter2", "s3://bucket/x#hunter2"]
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    """Secrets never reach logs."""
    with pytest.raises(StoreConfigurationError, match="no user, query or fragment") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)


def test_options_that_make_no_sense_are_refused() -> None:
    """Bad input says what would be right."""
    with pytest.raises(StoreConfigurationError, match="come together"):
        open_store("s3://bucket", access_key_id="a")
    with pytest.raises(StoreConfigurationError, match="unknown encryption 'rot13'"):
        open_store("s3://bucket", sse="rot13")
