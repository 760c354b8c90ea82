"""The directory store on disk, among processes, and after crashes."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.directory import DirectoryStore
from storage.filelock import LockHeld
from storage.objects import InvalidKey, StoreConfigurationError, StoreUnavailable


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DirectoryStore]:
    opened = DirectoryStore(tmp_path / "root", fsync=False)
    yield opened
    await opened.close()


def files(root: Path) -> list[str]:
    """Names of all files below `root` but the locks."""
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root).parts[0] != "@locks"
    )


async def test_nothing_is_on_disk_before_the_first_write(store: DirectoryStore) -> None:
    """05 §5: lazy creation."""
    assert await store.get("S/head") is None
    assert [item async for item in store.list("")] == []
    await store.delete(["S/head"])
    assert not store.root.exists()


@pytest.mark.parametrize("fsync", [False, True])
async def test_objects_are_plain_files_and_nothing_else_stays(tmp_path: Path, fsync: bool) -> None:
    """05 §5: one file per object, but for checkpoints."""
    store = DirectoryStore(tmp_path / "root", fsync=fsync)
    etag = await store.put("_inbox/S/1", b"one", if_absent=True)
    await store.put("_inbox/S/1", b"two", if_absent=True)
    await store.put("_inbox/S/1", b"three", if_match=etag)
    await store.put("_inbox/S/1", b"four", if_match=etag)
    assert files(store.root) == ["_inbox/S/1"]
    assert (store.root / "_inbox/S/1").read_bytes() == b"three"
    await store.close()


async def test_folders_go_with_their_last_object(store: DirectoryStore) -> None:
    """05 §5: deleting leaves other sessions alone."""
    await store.put("S/log/1/1", b"x")
    await store.put("S/head", b"x")
    await store.put("T/head", b"x")
    await store.delete(["S/log/1/1"])
    assert sorted(os.listdir(store.root / "S")) == ["head"]
    await store.delete(["S/head", "T/head"])
    assert not (store.root / "S").exists() and store.root.exists()


async def test_peoples_files_beside_the_objects_are_never_listed(store: DirectoryStore) -> None:
    """Names outside the key alphabet are not the store's."""
    await store.put("S/head", b"x")
    (store.root / "S" / "my notes.txt").write_text("hello")
    (store.root / "S" / "link").symlink_to("/etc/hostname")
    assert [item.key async for item in store.list("")] == ["S/head"]
    assert await store.get("S/link") is None


async def test_a_pipe_under_a_key_is_no_object_and_nobody_waits_for_it(store: DirectoryStore) -> None:
    """Only plain files are objects."""
    await store.put("S/head", b"x")
    os.mkfifo(store.root / "S" / "pipe")
    assert await store.get("S/pipe") is None
    assert [item.key async for item in store.list("S/")] == ["S/head"]


async def test_keys_are_listed_in_the_order_of_their_bytes(store: DirectoryStore) -> None:
    """docs/protocol.md §1: a folder sorts where its objects do."""
    keys = sorted(["a/b", "a-b/c", "a.b/c", "a0", "a~1/x", "A/x", "a/b-c", "a/b.c/d", "b"])
    for key in reversed(keys):
        await store.put(key, b"x")
    assert [item.key async for item in store.list("")] == keys
    for position, key in enumerate(keys):
        assert [item.key async for item in store.list("", after=key)] == keys[position + 1 :]


@pytest.mark.parametrize("if_absent", [False, True])
async def test_a_key_below_or_above_another_is_refused(store: DirectoryStore, if_absent: bool) -> None:
    """No key is the folder of another."""
    await store.put("a/b", b"x")
    with pytest.raises(InvalidKey, match="is the folder of other objects"):
        await store.put("a", b"y", if_absent=if_absent)
    for below in ("a/b/c", "a/b/c/d"):
        with pytest.raises(InvalidKey, match="lies below an object"):
            await store.put(below, b"y", if_absent=if_absent)
        assert await store.get(below) is None
    assert files(store.root) == ["a/b"]


async def test_what_a_crash_left_is_removed_and_what_is_being_written_is_not(store: DirectoryStore) -> None:
    """Temporary files are cleaned after crashes."""
    folder = store.root / "@tmp"
    folder.mkdir(parents=True)
    (folder / "old").write_bytes(b"half")
    (folder / "new").write_bytes(b"half")
    two_hours_ago = time.time() - 7200
    os.utime(folder / "old", (two_hours_ago, two_hours_ago))
    await store.put("k", b"x")
    assert files(store.root) == ["@tmp/new", "k"]


async def test_creating_while_others_remove_the_folder_never_fails(store: DirectoryStore) -> None:
    """Folders come and go under concurrent writers."""

    async def churn(name: str) -> None:
        for number in range(100):
            assert (
                await store.put(f"S/log/{name}", f"{number}".encode(), if_absent=number % 2 == 0) is not None
            )
            await store.delete([f"S/log/{name}"])

    await asyncio.gather(*(churn(str(number)) for number in range(6)))
    assert not (store.root / "S").exists()


async def test_a_disk_that_is_full_is_unavailable_and_leaves_nothing(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is an error of the store, not of the program."""

    def full(descriptor: int, body: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(StoreUnavailable, match=r"put 'k': No space left on device"):
            await store.put("k", b"x")
    assert files(store.root) == []
    assert await store.put("k", b"x", if_absent=True) is not None


async def test_a_root_that_is_a_file_is_a_configuration_error(tmp_path: Path) -> None:
    """Misconfiguration is told apart from an outage."""
    (tmp_path / "file").write_text("x")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        store = DirectoryStore(root)
        for condition in (True, False):
            with pytest.raises(StoreConfigurationError, match="is a file"):
                await store.put("k", b"x", if_absent=condition)
        await store.close()


async def test_a_file_system_without_hard_links_is_a_configuration_error(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating if absent rests on them."""

    def refuse(source: object, target: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreConfigurationError, match="hard links"):
        await store.put("k", b"x", if_absent=True)
    assert files(store.root) == []


async def test_a_write_forces_its_file_and_every_new_folder_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answered write survives a power cut."""
    forced: list[str] = []
    real = os.fsync

    def recorded(descriptor: int) -> None:
        forced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    store = DirectoryStore(tmp_path / "root")
    await store.put("S/log/1", b"x", if_absent=True)
    assert forced[0].startswith(str(store.root / "@tmp"))
    assert set(forced[1:]) == {str(tmp_path), *(str(store.root / name) for name in ("", "S", "S/log"))}
    forced.clear()
    await store.put("S/log/2", b"x", if_absent=True)
    assert forced[1:] == [str(store.root / "S/log")]
    await store.close()


COUNTER = """
    import asyncio, sys, uuid
    from storage.directory import DirectoryStore

    async def main(root, additions):
        store = DirectoryStore(root, fsync=False)
        for _ in range(additions):
            while True:
                found = await store.get("S/count")
                body = f"{int(found.body.split()[0]) + 1} {uuid.uuid4().hex}".encode()
                if await store.put("S/count", body, if_match=found.etag):
                    break
        won = [n for n in range(50) if await store.put(f"S/slot/{n:03}", uuid.uuid4().bytes, if_absent=True)]
        print(len(won))
        await store.close()

    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_processes_lose_no_update_and_share_no_slot(store: DirectoryStore) -> None:
    """05 §8: safe among processes."""
    await store.put("S/count", b"0 start")
    command = [sys.executable, "-c", textwrap.dedent(COUNTER), str(store.root), "40"]
    processes = [
        await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        for _ in range(4)
    ]
    won = [int((await process.communicate())[0]) for process in processes]
    found = await store.get("S/count")
    assert found is not None and found.body.split()[0] == b"160"
    assert sum(won) == 50


WRITER = """
    import asyncio, sys
    from storage.directory import DirectoryStore

    async def main(root):
        store = DirectoryStore(root, fsync=False)
        print("ready", flush=True)
        number = 0
        while True:
            number += 1
            await store.put("S/head", str(number % 10).encode() * 300_000)
            await store.put(f"S/log/{number:06}", b"x" * 100_000, if_absent=True)

    asyncio.run(main(sys.argv[1]))
"""


async def test_a_writer_killed_at_any_moment_leaves_whole_objects_and_no_lock(store: DirectoryStore) -> None:
    """A killed process neither tears an object nor blocks the next writer."""
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(WRITER), str(store.root), stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readline()
        while await store.get("S/log/000003") is None:
            pass
        process.kill()
        await process.communicate()
        head = await store.get("S/head")
        assert head is not None and len(head.body) == 300_000 and len(set(head.body)) == 1
        keys = [item async for item in store.list("S/log/")]
        assert all(item.size == 100_000 for item in keys)
        await store.delete([item.key for item in keys])
        assert await store.put("S/head", b"next", if_match=head.etag) is not None


async def test_a_session_is_held_by_one_process(store: DirectoryStore) -> None:
    """05 §8, ruling 11: library and command hold a session by a file lock."""
    async with store.exclusive("any id / at all"):
        with pytest.raises(LockHeld) as caught:
            async with store.exclusive("any id / at all"):
                pass
        assert caught.value.holder == os.getpid()
        async with store.exclusive("another"):
            pass
    async with store.exclusive("any id / at all"):
        pass
    assert not list((store.root / "@locks" / "held").iterdir())
    assert [item async for item in store.list("")] == []


async def test_a_root_that_is_a_file_is_told_by_reads_too(tmp_path: Path) -> None:
    """A store that cannot be read must not pass for an empty one: readiness is judged by a read."""
    (tmp_path / "root").write_text("not a folder")
    for fsync in (False, True):
        store = DirectoryStore(tmp_path / "root", fsync=fsync)
        with pytest.raises(StoreConfigurationError, match="is a file"):
            await store.get("S/head")
        with pytest.raises(StoreConfigurationError, match="is a file"):
            _ = [item async for item in store.list("")]
        await store.close()
