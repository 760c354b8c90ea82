"""One sandbox for the tests of a module, a REPL for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from sandbox import Repl, Sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(spare_processes=1) as box:
        yield box


@pytest_asyncio.fixture(loop_scope="module")
async def repl(sandbox: Sandbox) -> AsyncIterator[Repl]:
    session = await sandbox.repl()
    yield session
    await session.close()
