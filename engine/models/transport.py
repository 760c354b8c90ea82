"""HTTP connections that live and die with the event loop that opened them.

An async HTTP client keeps connections open between requests, and a connection belongs to the loop it was opened in: a
model kept across two loops (`asyncio.run` twice in a process) fails with "Event loop is closed". So the client is
shared, and below it every loop has a transport of its own, closed when that loop shuts down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary


class Closable(Protocol):
    async def aclose(self) -> None: ...


T = TypeVar("T", bound=Closable)


class PerLoop(Generic[T]):
    """One `make()` for each running loop.

    The closing hook is an asynchronous generator left suspended: a loop's shutdown (`asyncio.run`, `Runner`) closes
    every such generator, and nothing else tells that a loop is about to go.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None]]] = (
            WeakKeyDictionary()
        )

    async def get(self) -> T:
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            made = self._make()
            keeper = self._keep(loop, made)
            held = self._held[loop] = (made, keeper)
            await anext(keeper)
        return held[0]

    async def close(self) -> None:
        """Close what the running loop holds; the next `get` makes a new one."""
        held = self._held.get(asyncio.get_running_loop())
        if held is not None:
            await held[1].aclose()

    async def _keep(self, loop: asyncio.AbstractEventLoop, made: T) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._held.pop(loop, None)
            await made.aclose()
