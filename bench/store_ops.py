"""What one operation of each store costs: `python -m bench.store_ops [directory] [--s3]`.

Prints microseconds per operation, one at a time and with 32 under way. `--s3` starts the tests' S3 server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence

from storage.directory import DirectoryStore
from storage.memory import MemoryStore
from storage.objects import ObjectStore

BODY = os.urandom(2048)
TOGETHER = 32


async def measure(name: str, store: ObjectStore, count: int) -> None:
    prefix = uuid.uuid4().hex
    keys = [f"{prefix}/log/{number:06}" for number in range(count)]

    async def listed() -> None:
        async for _ in store.list(prefix):
            pass

    async def replace(key: str) -> None:
        found = await store.get(key)
        await store.put(key, BODY + os.urandom(8), if_match=found.etag if found else None)

    columns = {
        "create": await timed(keys, lambda key: store.put(key, BODY, if_absent=True)),
        "get": await timed(keys, store.get),
        "get+replace": await timed(keys[: count // 4], replace),
        "list": await timed(["all"], lambda _: listed()) / count,
        "delete": await timed(["all"], lambda _: store.delete(keys)) / count,
        f"create x{TOGETHER}": await timed(keys, lambda key: store.put(key, BODY, if_absent=True), TOGETHER),
        f"get x{TOGETHER}": await timed(keys, store.get, TOGETHER),
    }
    await store.delete(keys)
    await store.close()
    print(f"{name:16}", *(f"{column} {cost:8.1f}" for column, cost in columns.items()), sep="  ")


async def timed(keys: Sequence[str], work: Callable[[str], Awaitable[object]], together: int = 1) -> float:
    """Microseconds per key."""
    waiting = iter(keys)

    async def run() -> None:
        for key in waiting:
            await work(key)

    begun = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(together)))
    return (time.perf_counter() - begun) / len(keys) * 1e6


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("directory", nargs="?", default=None)
    arguments.add_argument("--s3", action="store_true")
    chosen = arguments.parse_args()
    print("us per operation, 2 KiB bodies")
    await measure("memory", MemoryStore(), 5000)
    with tempfile.TemporaryDirectory(dir=chosen.directory) as folder:
        await measure("directory", DirectoryStore(folder, fsync=False), 2000)
        await measure("directory fsync", DirectoryStore(folder), 200)
    if chosen.s3:
        from tests.support.seaweed import running

        await measure("s3", running().store(), 300)


if __name__ == "__main__":
    asyncio.run(main())
