"""One order desk for all tests of the operator pages."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.desk import running_desk
from tests.support.fleet import RunningFleet


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningFleet]:
    with running_desk(tmp_path_factory.mktemp("desk")) as running:
        yield running
