"""What one operation of each store costs, one at a time and with 32 under way; bodies of 2 KiB."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bench.figures import Figures
from storage.directory import DirectoryStore
from storage.memory import MemoryStore
from storage.objects import ObjectStore
from tests.support.seaweed import running

BODY = os.urandom(2048)
TOGETHER = 32


async def store(figures: Figures, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="archmax-bench-") as folder:
        for name, store_, count in (
            ("memory", MemoryStore(), 5000),
            ("directory", DirectoryStore(Path(folder) / "plain", fsync=False), 2000),
            ("directory, fsync", DirectoryStore(Path(folder) / "synced"), 400),
            ("S3", running().store(), 300),
        ):
            await _measure(figures, name, store_, count // 10 if quick else count)


async def _measure(figures: Figures, name: str, store_: ObjectStore, count: int) -> None:
    prefix = uuid.uuid4().hex
    keys = [f"{prefix}/log/{number:06}" for number in range(count)]

    async def listed() -> None:
        async for _ in store_.list(prefix):
            pass

    async def replace(key: str) -> None:
        found = await store_.get(key)
        await store_.put(key, BODY + os.urandom(8), if_match=found.etag if found else None)

    for operation, each in (
        ("create", await timed(keys, lambda key: store_.put(key, BODY, if_absent=True))),
        ("get", await timed(keys, store_.get)),
        ("get and replace", await timed(keys[: count // 4], replace)),
        ("list", await timed(["all"], lambda _: listed()) / count),
        ("delete", await timed(["all"], lambda _: store_.delete(keys)) / count),
        (
            f"create, {TOGETHER} at once",
            await timed(keys, lambda key: store_.put(key, BODY, if_absent=True), TOGETHER),
        ),
        (f"get, {TOGETHER} at once", await timed(keys, store_.get, TOGETHER)),
    ):
        figures.add("store", name, operation, "µs", [each])
    await store_.delete(keys)
    await store_.close()


async def timed(keys: Sequence[str], work: Callable[[str], Awaitable[object]], together: int = 1) -> float:
    """Microseconds per key."""
    waiting = iter(keys)

    async def run() -> None:
        for key in waiting:
            await work(key)

    begun = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(together)))
    return (time.perf_counter() - begun) / len(keys) * 1e6
