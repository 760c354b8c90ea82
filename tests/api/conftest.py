"""One fleet for all API tests: every test works on sessions of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import httpx
import pytest

from tests.support.documented import Document
from tests.support.fleet import FIXED_KEY, READER_KEY, RunningFleet, running_fleet


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningFleet]:
    with running_fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture(scope="session")
def document(fleet: RunningFleet) -> Document:
    return Document(httpx.get(f"{fleet.url}/openapi.json", trust_env=False).json())


@pytest.fixture
async def client(fleet: RunningFleet, document: Document) -> AsyncGenerator[httpx.AsyncClient]:
    """Every answer it gets is held to the document."""
    async with fleet.client(event_hooks={"response": [document.check]}) as opened:
        yield opened


@pytest.fixture(scope="session")
def guarded(fleet: RunningFleet) -> str:
    """The base URL of an API that asks for keys."""
    _, url = fleet.start_api(ARCHMAX_API_KEYS=f"{FIXED_KEY},{READER_KEY}=read@chat")
    return url
