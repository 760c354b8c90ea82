"""A sandbox and a REPL for each test, closed and gone afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandbox import Repl, Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(spare_processes=1) as box:
        yield box


@pytest.fixture
async def repl(sandbox: Sandbox) -> Repl:
    return await sandbox.repl()
