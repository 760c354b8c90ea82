"""Checkpoints of a directory store: records of one journal, whatever tears, kills, freezes or races its writers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import fcntl
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

import storage.directory
import storage.journal
import storage.open_journals
from storage.directory import DirectoryStore
from storage.journal import Journal
from storage.objects import InvalidKey, ListedObject, StoreConfigurationError, StoreUnavailable

HEAD = "S/checkpoints/head"
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DirectoryStore]:
    opened = DirectoryStore(tmp_path / "root", fsync=False)
    yield opened
    await opened.close()


def log(number: int) -> str:
    return f"S/checkpoints/life/log.{number:04}"


def journal_of(store: DirectoryStore) -> Path:
    return store.root / "S/checkpoints/@journal"


async def keys(store: DirectoryStore) -> list[str]:
    return [item.key async for item in store.list("")]


async def test_a_sessions_checkpoints_are_one_file_and_its_large_objects_are_not(
    store: DirectoryStore,
) -> None:
    """Decision 0195."""
    for key in (HEAD, log(1), log(2), "S/checkpoints/life/blob/aa"):
        assert await store.put(key, key.encode(), if_absent=True) is not None
    files = sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*") if path.is_file())
    assert files == ["S/checkpoints/@journal", "S/checkpoints/life/blob/aa"]
    assert await keys(store) == [HEAD, "S/checkpoints/life/blob/aa", log(1), log(2)]
    other = DirectoryStore(store.root, fsync=False)
    for key in await keys(store):
        found = await other.get(key)
        assert found is not None and found.body == key.encode()
    await other.close()


async def test_a_journal_goes_with_its_last_object(store: DirectoryStore) -> None:
    """05 §5: deleting leaves nothing of a session, and other sessions alone."""
    for key in (HEAD, log(1), "T/checkpoints/head"):
        await store.put(key, b"x")
    await store.delete([log(1), HEAD])
    assert not (store.root / "S").exists() and await keys(store) == ["T/checkpoints/head"]
    assert await store.put(HEAD, b"again", if_absent=True) is not None
    assert await keys(store) == [HEAD, "T/checkpoints/head"]


async def test_a_refused_write_leaves_no_byte(store: DirectoryStore) -> None:
    """A condition that is known not to hold is not written down."""
    await store.put(HEAD, b"x")
    size = journal_of(store).stat().st_size
    assert await store.put(HEAD, b"y", if_absent=True) is None
    assert await store.put(HEAD, b"y", if_match="other") is None
    await store.delete([log(7)])
    assert journal_of(store).stat().st_size == size


async def test_a_record_torn_at_any_byte_never_was_and_harms_no_other(store: DirectoryStore) -> None:
    """A power cut or a full disk leaves a part of the last record."""
    await store.put(HEAD, b"head")
    await store.put(log(1), b"one")
    whole = journal_of(store).stat().st_size
    await store.put(log(2), b"two")
    data = journal_of(store).read_bytes()
    for cut in range(whole, len(data)):
        for torn in (data[:cut], data[:cut] + bytes(len(data) - cut)):
            folder = store.root.parent / f"cut-{cut}-{len(torn)}"
            after = DirectoryStore(folder, fsync=False)
            path = journal_of(after)
            path.parent.mkdir(parents=True)
            path.write_bytes(torn)
            assert await keys(after) == [HEAD, log(1)]
            assert await after.put(log(2), b"anew", if_absent=True) is not None
            assert await after.put(log(3), b"three", if_absent=True) is not None
            fresh = DirectoryStore(folder, fsync=False)
            for reader in (after, fresh):
                assert await keys(reader) == [HEAD, log(1), log(2), log(3)]
                found = await reader.get(log(2))
                assert found is not None and found.body == b"anew"
                await reader.close()


async def test_a_first_record_that_is_torn_leaves_an_empty_journal(store: DirectoryStore) -> None:
    """The file's mark is that of its first record: without it nothing in the file counts."""
    await store.put(HEAD, b"head")
    data = journal_of(store).read_bytes()
    for cut in range(len(data)):
        after = DirectoryStore(store.root.parent / f"first-{cut}", fsync=False)
        path = journal_of(after)
        path.parent.mkdir(parents=True)
        path.write_bytes(data[:cut])
        assert await after.get(HEAD) is None and await keys(after) == []
        assert await after.put(HEAD, b"anew", if_absent=True) is not None
        found = await after.get(HEAD)
        assert found is not None and found.body == b"anew"
        await after.close()


async def test_a_body_that_imitates_a_record_is_never_one(store: DirectoryStore) -> None:
    """Bodies are hostile: a torn record must not let what it held be read as records."""
    other = DirectoryStore(store.root.parent / "other", fsync=False)
    await other.put(HEAD, b"forged")
    await other.put(log(9), b"forged")
    imitation = journal_of(other).read_bytes()
    await store.put(HEAD, b"head")
    await store.put(log(1), imitation + b"!")
    data = journal_of(store).read_bytes()
    journal_of(store).write_bytes(data[:-1])
    fresh = DirectoryStore(store.root, fsync=False)
    assert await keys(fresh) == [HEAD]
    assert await fresh.put(log(2), b"two") is not None
    found = await fresh.get(HEAD)
    assert await keys(fresh) == [HEAD, log(2)] and found is not None and found.body == b"head"
    for opened in (fresh, other):
        await opened.close()


@pytest.mark.parametrize("content", [b"{}", b"SQLite format 3\x00", b"\xffAXK" + bytes(60)])
async def test_a_file_that_is_no_journal_is_told_and_kept(store: DirectoryStore, content: bytes) -> None:
    """A newer release's file, or anybody's, is not ours to write or remove."""
    journal_of(store).parent.mkdir(parents=True)
    journal_of(store).write_bytes(content)
    with pytest.raises(StoreConfigurationError, match="not a journal"):
        await store.get(HEAD)
    with pytest.raises(StoreConfigurationError, match="not a journal"):
        await store.put(HEAD, b"x")
    assert journal_of(store).read_bytes() == content


async def test_a_record_of_a_newer_kind_is_told(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known-faults: a reader that does not know a form does not guess."""
    await store.put(HEAD, b"x")
    newer = DirectoryStore(store.root, fsync=False)
    real = storage.journal._packed

    def packed(mark: bytes, kind: int, *rest: object) -> bytes:
        record = bytearray(real(mark, kind, *rest))  # type: ignore[arg-type]
        record[12] = 99
        end = storage.journal._FIELDS.size
        checksum = zlib.crc32(record[end + 4 :], zlib.crc32(record[:end]))
        record[end : end + 4] = storage.journal._CHECKSUM.pack(checksum)
        return bytes(record)

    with monkeypatch.context() as patched:
        patched.setattr(storage.journal, "_packed", packed)
        with pytest.raises(StoreConfigurationError, match="newer release"):
            await newer.put(log(1), b"x")
    with pytest.raises(StoreConfigurationError, match="newer release"):
        await store.get(HEAD)
    await newer.close()


async def test_a_disk_that_is_full_is_told_and_what_was_there_stays(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is an error of the store; the part of a record that was written counts for nothing."""
    await store.put(HEAD, b"head")
    real = os.write

    def part(descriptor: int, body: bytes) -> int:
        return real(descriptor, body[:20])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", part)
        with pytest.raises(StoreUnavailable, match="No space left"):
            await store.put(log(1), b"one", if_absent=True)
    assert await keys(store) == [HEAD]
    assert await store.put(log(1), b"one", if_absent=True) is not None
    assert await keys(store) == [HEAD, log(1)]


async def test_a_file_system_that_does_not_append_in_one_step_is_told(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordering writers rests on it; a write that is not where it must be is never answered as stored."""
    await store.put(HEAD, b"head")
    real = os.write

    def torn(descriptor: int, body: bytes) -> int:
        written = real(descriptor, body[:10])
        real(descriptor, b"another's")
        return written + real(descriptor, body[10:])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", torn)
        with pytest.raises(StoreUnavailable, match="append in one step"):
            await store.put(log(1), b"one")
    assert await keys(store) == [HEAD]
    assert await store.put(log(2), b"two") is not None
    assert await keys(store) == [HEAD, log(2)]


async def test_a_journal_does_not_grow_with_what_was_deleted(store: DirectoryStore) -> None:
    """A session's file is bounded by what it holds, not by its history."""
    await store.put(HEAD, b"0" * 100)
    for turn in range(200):
        written = [log(turn * 10 + step) for step in range(8)]
        for key in written:
            await store.put(key, b"x" * 500, if_absent=True)
        await store.put(HEAD, str(turn).encode())
        await store.delete(written)
    assert journal_of(store).stat().st_size < 100_000
    fresh = DirectoryStore(store.root, fsync=False)
    found = await fresh.get(HEAD)
    assert found is not None and found.body == b"199" and await keys(fresh) == [HEAD]
    await fresh.close()


async def test_what_was_written_when_survives_a_replacement(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`modified_ms` says when an object was written; seals are removed by it."""
    monkeypatch.setattr(storage.journal, "_SUPERFLUOUS_BYTES", 10)
    etag = await store.put(log(1), b"old", if_absent=True)
    before = await store.get(log(1))
    await asyncio.sleep(0.02)
    for _ in range(20):
        await store.put(HEAD, b"x" * 100)
    closed = journal_of(store).stat().st_ino
    await store.put(log(3), b"x")
    await store.delete([log(3)])
    assert journal_of(store).stat().st_ino != closed
    after = await store.get(log(1))
    assert before == after and after is not None and after.etag == etag


async def test_whoever_finds_a_closed_journal_whose_closer_died_replaces_it(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the closing and the replacement loses nothing and blocks nobody."""
    monkeypatch.setattr(storage.journal, "_SUPERFLUOUS_BYTES", 10)
    other = DirectoryStore(store.root, fsync=False)
    for number in range(9):
        await store.put(log(number), b"x" * 50)
    await store.put(HEAD, b"head")
    closed = journal_of(store).stat().st_ino

    def dies(journal: Journal, image: str | None) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_publish", dies)
        with pytest.raises(RuntimeError):
            await store.delete([log(number) for number in range(8)])
    await store.close()
    assert await keys(other) == [HEAD, log(8)]  # still as it was closed
    assert journal_of(other).stat().st_ino == closed
    assert await other.put(log(8), b"y", if_absent=True) is None
    assert await other.put(log(10), b"ten", if_absent=True) is not None
    assert journal_of(other).stat().st_ino != closed
    assert await keys(other) == [HEAD, log(8), log(10)]
    await other.close()


async def test_writers_wait_for_a_replacement_that_is_under_way_and_readers_do_not(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the replacement of a file is done by one process at a time."""
    monkeypatch.setattr(storage.directory, "_REPLACED_SECONDS", 0.3)
    other = DirectoryStore(store.root, fsync=False)
    await store.put(HEAD, b"head")

    def left_undone(journal: Journal, image: str | None) -> None:
        """As if the process stood still behind the closing."""

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_publish", left_undone)
        await store.delete([HEAD])
    held = os.open(journal_of(store), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert await keys(other) == []
    with pytest.raises(StoreUnavailable, match="begun to replace it"):
        await other.put(HEAD, b"anew", if_absent=True)
    writing = asyncio.create_task(other.put(HEAD, b"anew", if_absent=True))
    await asyncio.sleep(0.05)
    assert not writing.done() and await store.get(HEAD) is None
    os.close(held)
    assert await writing is not None
    found = await store.get(HEAD)
    assert found is not None and found.body == b"anew"
    await other.close()


async def test_more_sessions_than_journals_are_kept_open(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open files are bounded; what a session holds does not depend on who has it open."""
    monkeypatch.setattr(storage.open_journals, "_OPEN_JOURNALS", 3)

    async def session(name: str) -> None:
        for number in range(20):
            assert await store.put(f"{name}/checkpoints/life/log.{number}", b"x", if_absent=True) is not None
            assert await store.get(f"{name}/checkpoints/life/log.{number}") is not None

    await asyncio.gather(*(session(f"s{number}") for number in range(40)))
    assert len(await keys(store)) == 800
    assert _open_journals(store.root) <= 3


async def test_a_key_below_or_above_another_is_refused(store: DirectoryStore) -> None:
    """No key is the folder of another, among records and between records and files."""
    await store.put("S/checkpoints/a/b", b"x")
    await store.put("S/checkpoints/c", b"x")
    await store.put("S/checkpoints/d/blob/x", b"x")
    for above in ("S/checkpoints/a", "S/checkpoints/d", "S/checkpoints/d/blob", "S/checkpoints", "S"):
        with pytest.raises(InvalidKey, match="is the folder of other objects"):
            await store.put(above, b"y", if_absent=True)
    for below in ("S/checkpoints/c/d", "S/checkpoints/c/blob/x", "S/checkpoints/a/b/c"):
        with pytest.raises(InvalidKey, match="lies below an object"):
            await store.put(below, b"y", if_absent=True)
    await store.put("file", b"x")
    with pytest.raises(InvalidKey, match="lies below an object"):
        await store.put("file/checkpoints/head", b"x")
    assert await store.get("file/checkpoints/head") is None


async def test_a_write_is_forced_to_disk_before_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answered write survives a power cut: its record each time, and once the folders that lead to it."""
    forced: list[str] = []
    force, sync = storage.journal._force, os.fsync

    def recorded(how: object) -> object:
        def done(descriptor: int) -> None:
            forced.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(str(tmp_path)))
            (force if how == "force" else sync)(descriptor)

        return done

    monkeypatch.setattr(storage.journal, "_force", recorded("force"))
    monkeypatch.setattr(os, "fsync", recorded("sync"))
    store = DirectoryStore(tmp_path / "root")
    await store.put(HEAD, b"x", if_absent=True)
    journal = "/root/S/checkpoints/@journal"
    assert forced == [journal, "/root/S/checkpoints", "/root/S", "/root", ""]
    forced.clear()
    await store.put(log(1), b"x", if_absent=True)
    assert forced == [journal]
    forced.clear()
    monkeypatch.setattr(storage.journal, "_SUPERFLUOUS_BYTES", 0)
    await store.put(HEAD, b"x" * 1000)
    await store.put(HEAD, b"x")
    forced.clear()
    await store.delete([log(1)])
    assert forced[0].startswith("/root/@tmp/") and forced[1:] == ["/root/S/checkpoints"]
    await store.close()


RACER = """
    import asyncio, sys, uuid
    import storage.journal
    from storage.directory import DirectoryStore

    storage.journal._SUPERFLUOUS_BYTES = 2000

    async def main(root, additions):
        store = DirectoryStore(root, fsync=False)
        for number in range(additions):
            while True:
                found = await store.get("S/checkpoints/count")
                body = f"{int(found.body.split()[0]) + 1} {uuid.uuid4().hex}".encode()
                if await store.put("S/checkpoints/count", body, if_match=found.etag):
                    break
            mine = f"S/checkpoints/life/{uuid.uuid4().hex}"
            assert await store.put(mine, b"x" * 300, if_absent=True)
            assert await store.get(mine)
            await store.delete([mine])
            assert await store.get(mine) is None
            # a session of its own that comes and goes with its folder
            await store.put("T/checkpoints/head", mine.encode(), if_absent=True)
            await store.delete(["T/checkpoints/head"])
        won = [n for n in range(50) if await store.put(f"S/checkpoints/slot/{n:03}", uuid.uuid4().bytes, if_absent=True)]
        print(len(won))
        await store.close()

    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_processes_lose_no_update_while_the_file_is_replaced_under_them(store: DirectoryStore) -> None:
    """05 §8: safe among processes."""
    await store.put("S/checkpoints/count", b"0 start")
    command = [sys.executable, "-c", textwrap.dedent(RACER), str(store.root), "60"]
    processes = [
        await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=REPOSITORY)
        for _ in range(4)
    ]
    won = [(await process.communicate())[0] for process in processes]
    found = await store.get("S/checkpoints/count")
    assert found is not None and found.body.split()[0] == b"240"
    assert sum(map(int, won)) == 50
    assert not (store.root / "T").exists()


WRITER = """
    import asyncio, sys
    import storage.journal
    from storage.directory import DirectoryStore

    storage.journal._SUPERFLUOUS_BYTES = 2000

    async def main(root):
        store = DirectoryStore(root, fsync=False)
        number = 0
        while True:
            number += 1
            key = f"S/checkpoints/life/log.{number:06}"
            await store.put(key, str(number % 10).encode() * 9000, if_absent=True)
            await store.put("S/checkpoints/head", str(number).encode())
            print(number, flush=True)
            if number > 3:
                await store.delete([f"S/checkpoints/life/log.{number - 3:06}"])

    asyncio.run(main(sys.argv[1]))
"""


async def writer(store: DirectoryStore) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, int]:
    """A process that writes for ever, after its twentieth number, which is returned."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(WRITER), str(store.root), stdout=subprocess.PIPE, cwd=REPOSITORY
    )
    assert process.stdout is not None
    last = 0
    while last < 20:
        last = int(await process.stdout.readline())
    return process, process.stdout, last


async def test_a_writer_killed_at_any_moment_loses_nothing_it_answered(store: DirectoryStore) -> None:
    """What a process said it wrote is there, whole, and others write on."""
    for _ in range(12):
        process, said, last = await writer(store)
        process.kill()
        last = max([last, *map(int, (await said.read()).split())])
        await process.wait()
        head = await store.get(HEAD)
        assert head is not None and int(head.body) in (last, last + 1)
        one = await store.get(f"S/checkpoints/life/log.{last:06}")
        assert one is not None and one.body == str(last % 10).encode() * 9000
        assert await store.put(HEAD, b"mine", if_match=head.etag) is not None
        await store.delete(await keys(store))
        assert await keys(store) == [] and not (store.root / "S").exists()


async def test_a_frozen_writer_holds_up_nobody(store: DirectoryStore) -> None:
    """One that is frozen while it replaces the file, for a moment of every hundred, is waited for."""
    for _ in range(12):
        process, _, last = await writer(store)
        process.send_signal(signal.SIGSTOP)
        if _is_replacing(journal_of(store)):
            process.send_signal(signal.SIGCONT)
        head = await store.get(HEAD)
        assert head is not None and int(head.body) >= last
        assert await asyncio.wait_for(store.put(HEAD, b"100000000"), 10) is not None
        process.kill()
        await process.wait()


def _open_journals(root: Path) -> int:
    opened = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(path.startswith(str(root)) and path.endswith("@journal") for path in opened)


def _is_replacing(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


async def test_listing_below_a_life_reads_the_journal_and_not_on_the_loop(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of children are listed by their prefix; a long journal must not stop the loop."""
    for name in ("join.1.0", "join.1.1", "join.2.0", "log.1"):
        await store.put(f"S/checkpoints/life/{name}", b"x")
    threads: set[str] = set()
    real = Journal.listed

    def listed(journal: Journal) -> list[ListedObject]:
        threads.add(threading.current_thread().name)
        return real(journal)

    monkeypatch.setattr(Journal, "listed", listed)
    other = DirectoryStore(store.root, fsync=False)
    found = [item.key async for item in other.list("S/checkpoints/life/join.1.")]
    assert found == ["S/checkpoints/life/join.1.0", "S/checkpoints/life/join.1.1"]
    after = other.list("S/checkpoints/life/", after="S/checkpoints/life/join.1.1")
    assert [item.key async for item in after] == ["S/checkpoints/life/join.2.0", "S/checkpoints/life/log.1"]
    assert threads and all(name.startswith("directory-store") for name in threads)
    await other.close()


async def test_an_object_deleted_while_its_write_was_being_forced_stays_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A create takes effect once, whatever goes with it in the meantime."""
    store, other = DirectoryStore(tmp_path / "root"), DirectoryStore(tmp_path / "root")
    real = storage.journal._force

    def slow(descriptor: int) -> None:
        real(descriptor)
        if not deleted.done():
            asyncio.run_coroutine_threadsafe(other.delete([HEAD]), loop).result(10)
            deleted.set_result(None)

    loop = asyncio.get_running_loop()
    deleted: concurrent.futures.Future[None] = concurrent.futures.Future()
    monkeypatch.setattr(storage.journal, "_force", slow)
    assert await store.put(HEAD, b"x", if_absent=True) is not None
    assert await store.get(HEAD) is None and await other.get(HEAD) is None
    for opened in (store, other):
        await opened.close()


async def test_nothing_rests_on_a_record_that_could_not_be_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed force the disk may keep the old pages, and a second one would not say so: the file is written anew."""
    store = DirectoryStore(tmp_path / "root")
    await store.put(HEAD, b"v0", if_absent=True)
    doubted = journal_of(store).stat().st_ino

    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(storage.journal, "_force", fails)
        with pytest.raises(StoreUnavailable):
            await store.put(log(1), b"one", if_absent=True)
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", fails)
            for asked in (store.get(HEAD), store.put(log(1), b"one", if_absent=True)):
                with pytest.raises(StoreUnavailable):
                    await asked
    found = await store.get(log(1))
    assert found is not None and found.body == b"one"
    assert journal_of(store).stat().st_ino != doubted
    assert await store.put(log(1), b"two", if_absent=True) is None
    await store.close()


async def test_a_frozen_replacement_holds_up_its_own_session_alone(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits holds no thread and no lock."""
    other = DirectoryStore(store.root, fsync=False)
    await store.put(HEAD, b"head")
    await store.put(log(1), b"one")

    def left_undone(journal: Journal, image: str | None) -> None:
        """As if the process stood still behind the closing."""

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_publish", left_undone)
        patched.setattr(storage.journal, "_SUPERFLUOUS_BYTES", -1)
        await store.delete([log(1)])
    held = os.open(journal_of(store), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    waiting = [asyncio.create_task(other.put(log(number), b"x", if_absent=True)) for number in range(8)]
    await asyncio.sleep(0.05)
    for number in range(20):
        assert await asyncio.wait_for(other.put(f"T{number}/checkpoints/head", b"x"), 1) is not None
        assert await asyncio.wait_for(other.get(HEAD), 1) is not None
    assert not any(task.done() for task in waiting)
    os.close(held)
    assert None not in await asyncio.gather(*waiting)
    await other.close()


async def test_a_closed_store_leaves_no_file_open(store: DirectoryStore) -> None:
    """Descriptors are closed once: a number may be another file's by then."""
    sessions = [f"s{number}/checkpoints/head" for number in range(30)]
    writing = [asyncio.create_task(store.put(key, b"x")) for key in sessions]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*writing, return_exceptions=True)
    for key in sessions:
        await store.get(key)
    assert _open_journals(store.root) == 0


async def test_what_is_mounted_read_only_can_be_read(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot, or another user's sessions."""
    await store.put(HEAD, b"head")
    real = os.open

    def read_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    other = DirectoryStore(store.root, fsync=False)
    found = await other.get(HEAD)
    assert found is not None and await keys(other) == [HEAD]
    for etag in (None, found.etag):
        with pytest.raises(StoreConfigurationError):
            await other.put(HEAD, b"x", if_match=etag)
    with pytest.raises(StoreConfigurationError):
        await other.delete([HEAD])
    await other.close()


async def test_a_refused_replacement_makes_no_folder(store: DirectoryStore) -> None:
    """A stale writer of a deleted session leaves nothing behind it."""
    assert await store.put(HEAD, b"x", if_match="0") is None
    assert not store.root.exists()


async def test_a_replacement_there_is_no_room_for_leaves_the_session_writable(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tidying is never the reason that a write or a delete fails, and leaves nothing under `@tmp`."""
    await store.put(HEAD, b"head")
    await store.put(log(1), b"one")

    def full(body: bytes) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(storage.journal, "_SUPERFLUOUS_BYTES", -1)
        around = replace(store._around, temporary=full)
        patched.setattr(store._journals._held["S/checkpoints"], "_around", around)
        await store.delete([log(1)])
        assert await store.put(log(2), b"two", if_absent=True) is not None
    assert await keys(store) == [HEAD, log(2)]

    def refused(source: str, target: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched:
        patched.setattr(storage.journal, "_SUPERFLUOUS_BYTES", -1)
        patched.setattr(os, "rename", refused)
        await store.delete([log(2)])
    assert os.listdir(store.root / "@tmp") == []
    assert await store.put(log(3), b"three", if_absent=True) is not None
    assert await keys(store) == [HEAD, log(3)]


def link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, link])
async def test_what_is_no_file_is_told(store: DirectoryStore, make: Callable[[Path], None]) -> None:
    """And never waited for."""
    journal_of(store).parent.mkdir(parents=True)
    make(journal_of(store))
    for asked in (store.get(HEAD), store.put(HEAD, b"x")):
        with pytest.raises(StoreConfigurationError, match="not a file"):
            await asked


async def test_a_name_that_could_not_be_forced_is_forced_before_anything_rests_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose entry in its folder is lost is lost with all its records."""
    store = DirectoryStore(tmp_path / "root")
    await store.put("other/checkpoints/head", b"x")
    real, failed = os.fsync, list[str]()

    def fails(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith("S/checkpoints") and len(failed) < 2:
            failed.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreUnavailable):
        await store.put(HEAD, b"head", if_absent=True)
    assert len(failed) == 2
    first = journal_of(store).stat().st_ino
    found = await store.get(HEAD)
    assert found is not None and found.body == b"head"
    assert journal_of(store).stat().st_ino != first
    await store.close()


async def test_a_store_that_is_forgotten_leaves_no_file_open(tmp_path: Path) -> None:
    """A host may make one for each request."""
    for number in range(5):
        store = DirectoryStore(tmp_path / "root", fsync=False)
        await store.put(f"s{number}/checkpoints/head", b"x")
        assert _open_journals(store.root) == 1
        root = store.root
        del store
        for _ in range(200):
            gc.collect()
            if not _open_journals(root):
                break
            await asyncio.sleep(0.01)  # the thread that wrote lets go of its work a moment after it is done
        assert _open_journals(root) == 0
