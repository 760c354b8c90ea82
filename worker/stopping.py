"""Ending background tasks that talk to Redis.

One cancel should do. Before Python 3.12 `asyncio.wait_for`, which redis-py sends commands with, loses a cancel that comes as
its operation finishes (https://github.com/python/cpython/issues/81839), and a loop would go on for ever. So it is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_PAUSE_SECONDS = 0.05


async def stop_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel and wait until each has ended; what they raise is dropped."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=_PAUSE_SECONDS)
        for task in done:
            if not task.cancelled():
                task.exception()
