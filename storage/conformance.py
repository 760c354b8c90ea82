"""What every object store must do, as checks anybody can run on theirs.

    for name, check in conformance_checks():
        await check(store)          # an AssertionError says what the store got wrong

Each check writes under a prefix of its own, so all may share one store. `unsafe_ids` and the rest are the cases that
real S3 servers and file systems are known to get wrong. Equal bodies may have equal etags: a digest is a good etag,
and whoever needs to tell two writes of the same bytes apart puts something fresh in the body.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from storage.keys import decode_segment, encode_segment
from storage.objects import InvalidKey, ObjectStore

Check: TypeAlias = Callable[[ObjectStore], Coroutine[Any, Any, None]]

#: Ids that keys made of them directly would confuse, lose or let escape.
UNSAFE_IDS = (
    "a b", "a+b", "100%", "%20", "\u00e9", "e\u0301", "\U0001f600", "a//b", "../x", "..", ".", "./x", "x/", "/x",
    "two\nlines", "_inbox", ".hidden", "=", "a=3D", "\ud800", "1", "10", "run-1", "run", "run~1", "a\x00b", "\\",
)  # fmt: skip

_UNSAFE_KEYS = (
    "",
    "/",
    "a//b",
    "/a",
    "a/",
    ".",
    "..",
    "a/../b",
    "a/./b",
    "a b",
    "a%b",
    "é",
    "a\nb",
    "x" * 256,
)

_WRITERS = 32
_LISTED = 1500
_BIG_BYTES = 8 * 1024 * 1024


def conformance_checks() -> list[tuple[str, Check]]:
    """Every check with the rule it holds the store to."""
    return [(check.__doc__ or check.__name__, check) for check in _CHECKS]


def _prefix() -> str:
    return f"conformance-{uuid.uuid4().hex}/"


def _require(holds: object, what: str) -> None:
    if not holds:
        raise AssertionError(what)


async def _listed(store: ObjectStore, prefix: str, after: str | None = None) -> list[str]:
    return [item.key async for item in store.list(prefix, after=after)]


async def _together(*work: Awaitable[str | None]) -> list[str | None]:
    return list(await asyncio.gather(*work))


async def reads_back(store: ObjectStore) -> None:
    """What was written is read, byte for byte, under the etag the write returned."""
    prefix = _prefix()
    for name, body in (("bytes", bytes(range(256))), ("empty", b""), ("text", "é\r\n".encode())):
        etag = await store.put(prefix + name, body)
        found = await store.get(prefix + name)
        _require(found is not None and found.body == body, f"{name}: another body came back")
        _require(found is not None and found.etag == etag, f"{name}: put and get name different etags")
        _require(
            found is not None and found.modified_ms > 1_500_000_000_000, f"{name}: no time in milliseconds"
        )


async def absent_reads_none(store: ObjectStore) -> None:
    """A key never written, or deleted, reads as None; so does the folder of a key."""
    prefix = _prefix()
    _require(await store.get(prefix + "none") is None, "something was read where nothing was written")
    await store.put(prefix + "folder/leaf", b"1")
    _require(await store.get(prefix + "folder") is None, "a folder was read as an object")
    await store.delete([prefix + "folder/leaf"])
    _require(await store.get(prefix + "folder/leaf") is None, "a deleted object was read")


async def replaces(store: ObjectStore) -> None:
    """A write without condition creates or replaces."""
    key = _prefix() + "k"
    first = await store.put(key, b"one")
    second = await store.put(key, b"two")
    found = await store.get(key)
    _require(found is not None and found.body == b"two", "the second write is not what is read")
    _require(first != second, "two bodies share an etag")


async def creates_once(store: ObjectStore) -> None:
    """A write if absent happens exactly if nothing is there, and changes nothing otherwise."""
    key = _prefix() + "k"
    _require(await store.put(key, b"one", if_absent=True) is not None, "refused although absent")
    _require(await store.put(key, b"two", if_absent=True) is None, "stored over an object")
    found = await store.get(key)
    _require(found is not None and found.body == b"one", "a refused write changed the object")
    await store.delete([key])
    _require(
        await store.put(key, b"three", if_absent=True) is not None, "refused after the object was deleted"
    )


async def replaces_what_it_read(store: ObjectStore) -> None:
    """A write if match happens exactly if the object still has that etag."""
    key = _prefix() + "k"
    first = await store.put(key, b"one")
    _require(first is not None, "an unconditional write was refused")
    second = await store.put(key, b"two", if_match=first)
    _require(second is not None, "refused although the etag matched")
    _require(await store.put(key, b"three", if_match=first) is None, "stored under an outdated etag")
    found = await store.get(key)
    _require(found is not None and found.body == b"two", "a refused write changed the object")
    _require(found is not None and found.etag == second, "put and get name different etags")


async def match_needs_an_object(store: ObjectStore) -> None:
    """A write if match on a missing key is refused, not an error."""
    key = _prefix() + "k"
    etag = await store.put(key, b"one")
    await store.delete([key])
    _require(
        await store.put(key, b"two", if_match=etag) is None, "stored although nothing was there to match"
    )
    _require(await store.get(key) is None, "a refused write left an object")


async def one_condition(store: ObjectStore) -> None:
    """Two conditions at once are a ValueError, and nothing is written."""
    key = _prefix() + "k"
    try:
        await store.put(key, b"x", if_absent=True, if_match="e")
    except ValueError:
        _require(await store.get(key) is None, "an invalid write left an object")
    else:
        raise AssertionError("two conditions were accepted")


async def creation_race(store: ObjectStore) -> None:
    """Of 32 writers that create one key at once exactly one is told it did, and its body is there."""
    for _ in range(3):
        key = _prefix() + "k"
        bodies = [f"writer {number}".encode() for number in range(_WRITERS)]
        answers = await _together(*(store.put(key, body, if_absent=True) for body in bodies))
        winners = [number for number, etag in enumerate(answers) if etag is not None]
        _require(len(winners) == 1, f"{len(winners)} winners")
        found = await store.get(key)
        _require(found is not None and found.body == bodies[winners[0]], "the winner's body is not there")


async def replacement_race(store: ObjectStore) -> None:
    """Of 32 writers that replace one version at once exactly one is told it did, and its body is there."""
    key = _prefix() + "k"
    etag = await store.put(key, b"start")
    bodies = [f"writer {number}".encode() for number in range(_WRITERS)]
    answers = await _together(*(store.put(key, body, if_match=etag) for body in bodies))
    winners = [number for number, answer in enumerate(answers) if answer is not None]
    _require(len(winners) == 1, f"{len(winners)} winners")
    found = await store.get(key)
    _require(found is not None and found.body == bodies[winners[0]], "the winner's body is not there")


async def counter(store: ObjectStore) -> None:
    """Tasks that read, add one and write back if match lose no addition."""
    key, tasks, each = _prefix() + "k", 6, 10
    await store.put(key, b"0 start")

    async def add() -> None:
        for _ in range(each):
            while True:
                found = await store.get(key)
                if found is None:
                    raise AssertionError("the counter is gone")
                body = f"{int(found.body.split()[0]) + 1} {uuid.uuid4().hex}".encode()
                if await store.put(key, body, if_match=found.etag) is not None:
                    break

    await asyncio.gather(*(add() for _ in range(tasks)))
    found = await store.get(key)
    total = int(found.body.split()[0]) if found else None
    _require(total == tasks * each, f"{tasks * each} additions made {total}")


async def read_your_writes(store: ObjectStore) -> None:
    """A read or listing that begins after a write or delete was answered shows it."""
    prefix = _prefix()
    for number in range(10):
        key = f"{prefix}{number}"
        await store.put(key, b"1")
        _require(await _listed(store, prefix) == [key], "a listing does not show what was written before it")
        await store.delete([key])
        _require(await _listed(store, prefix) == [], "a listing shows what was deleted before it")


async def never_half_written(store: ObjectStore) -> None:
    """A reader sees the old body or the new one, whole."""
    key, size = _prefix() + "k", 200_000
    await store.put(key, b"a" * size)
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            found = await store.get(key)
            if found is None or len(found.body) != size or len(set(found.body)) != 1:
                raise AssertionError("a reader saw a part of a body")
            await asyncio.sleep(0)

    reader = asyncio.create_task(read())
    try:
        for letter in b"bcdefghi":
            await store.put(key, bytes([letter]) * size)
    finally:
        done.set()
        await reader


async def long_listing(store: ObjectStore) -> None:
    """A listing gives all of 1,500 keys, each once, in key order; and goes on after any key."""
    prefix = _prefix()
    keys = [f"{prefix}{number:06}" for number in range(_LISTED)]
    gate = asyncio.Semaphore(_WRITERS)

    async def write(key: str) -> None:
        async with gate:
            await store.put(key, b"x")

    await asyncio.gather(*(write(key) for key in reversed(keys)))
    _require(await _listed(store, prefix) == keys, "keys are missing, doubled or out of order")
    _require(await _listed(store, prefix, keys[1200]) == keys[1201:], "going on after a key")
    _require(await _listed(store, prefix, keys[-1]) == [], "going on after the last key")
    _require(
        await _listed(store, prefix, f"{prefix}000010x") == keys[11:],
        "going on after a key that is not there",
    )
    await store.delete(keys)
    _require(await _listed(store, prefix) == [], "deleting 1,500 keys left some")


async def nested_listing(store: ObjectStore) -> None:
    """Keys are listed whole at any depth, with the sizes of their bodies."""
    prefix = _prefix()
    sizes = {
        f"{prefix}{name}": size for name, size in (("a/b/c/d", 3), ("a/b/e", 0), ("f", 5), ("log/9/1", 1))
    }
    for key, size in sizes.items():
        await store.put(key, b"x" * size)
    found = {item.key: item.size async for item in store.list(prefix)}
    _require(found == sizes, f"listed {found}")
    _require(
        await _listed(store, prefix + "a/b/", prefix + "a/b/c/d") == [prefix + "a/b/e"], "after, in a folder"
    )
    _require(await _listed(store, prefix + "nothing/") == [], "an empty prefix lists something")


async def prefixes_are_exact(store: ObjectStore) -> None:
    """A prefix is compared byte by byte: `run/1/` never shows `run/10`, `S~` shows only what starts so."""
    prefix = _prefix()
    names = [
        "run/1/x",
        "run/10/x",
        "deep/a1",
        "deep/a2",
        "deep/b",
        "S/x",
        "S1/x",
        "S~1/x",
        "S~12~1/x",
        "S-1/x",
        "s~1/x",
    ]
    for name in names:
        await store.put(prefix + name, b"x")
    _require(
        await _listed(store, prefix + "deep/") == [prefix + f"deep/{name}" for name in ("a1", "a2", "b")],
        "deep/",
    )
    _require(await _listed(store, prefix + "deep/a") == [prefix + "deep/a1", prefix + "deep/a2"], "deep/a")
    _require(await _listed(store, prefix + "run/1/") == [prefix + "run/1/x"], "run/1/")
    _require(set(await _listed(store, prefix + "S~")) == {prefix + "S~1/x", prefix + "S~12~1/x"}, "S~")
    _require(set(await _listed(store, prefix)) == {prefix + name for name in names}, "the whole prefix")


async def encoded_ids(store: ObjectStore) -> None:
    """Any id, encoded as a segment, is written, listed and read as itself."""
    prefix = _prefix()
    for number, name in enumerate(UNSAFE_IDS):
        stored = await store.put(f"{prefix}{encode_segment(name)}/head", str(number).encode(), if_absent=True)
        _require(stored is not None, f"{name!r} shares a key with another id")
    found = {decode_segment(key.split("/")[1]) for key in await _listed(store, prefix)}
    _require(found == set(UNSAFE_IDS), f"listed {found!r}")
    for number, name in enumerate(UNSAFE_IDS):
        item = await store.get(f"{prefix}{encode_segment(name)}/head")
        _require(item is not None and item.body == str(number).encode(), f"{name!r} reads as another id")


async def unsafe_keys(store: ObjectStore) -> None:
    """A key outside the safe alphabet is refused by every operation before anything happens."""
    for key in _UNSAFE_KEYS:
        for work in (lambda: store.put(key, b"x"), lambda: store.get(key), lambda: store.delete([key])):  # noqa: B023
            try:
                await work()
            except InvalidKey:
                continue
            raise AssertionError(f"{key!r} was accepted")


async def big_bodies(store: ObjectStore) -> None:
    """A body of 8 MiB is stored whole."""
    key, body = _prefix() + "k", uuid.uuid4().bytes * (_BIG_BYTES // 16)
    await store.put(key, body, if_absent=True)
    found = await store.get(key)
    _require(found is not None and found.body == body, "another body came back")
    await store.delete([key])


async def deletes(store: ObjectStore) -> None:
    """Deleting removes what is named and nothing else; missing keys, doubles and nothing at all are fine."""
    prefix = _prefix()
    for name in ("a", "b/c", "b/d"):
        await store.put(prefix + name, b"x")
    await store.delete(
        [prefix + "a", prefix + "b/c", prefix + "b/c", prefix + "missing", prefix + "a2/missing"]
    )
    await store.delete([])
    _require(await _listed(store, prefix) == [prefix + "b/d"], "the wrong objects were deleted")


async def aba(store: ObjectStore) -> None:
    """After a body came back, an etag of its first time matches or not, but never with other bytes there."""
    key = _prefix() + "k"
    first = await store.put(key, b"one")
    await store.put(key, b"two")
    _require(await store.put(key, b"x", if_match=first) is None, "the old etag matched other bytes")
    await store.put(key, b"one")
    answer = await store.put(key, b"three", if_match=first)
    found = await store.get(key)
    _require(
        found is not None and found.body == (b"one" if answer is None else b"three"),
        "answer and object differ",
    )


_CHECKS: tuple[Check, ...] = (
    reads_back, absent_reads_none, replaces, creates_once, replaces_what_it_read, match_needs_an_object,
    one_condition, creation_race, replacement_race, counter, read_your_writes, never_half_written, long_listing,
    nested_listing, prefixes_are_exact, encoded_ids, unsafe_keys, big_bodies, deletes, aba,
)  # fmt: skip
