"""The order desk as a running fleet, and a key made by the command for the shops of `examples/clients`."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.command import archmax
from tests.support.desk import running_desk
from tests.support.fleet import RunningFleet


@pytest.fixture(scope="package")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningFleet]:
    with running_desk(tmp_path_factory.mktemp("desk")) as running:
        yield running


@pytest.fixture(scope="package")
def key(desk: RunningFleet) -> str:
    arguments = ("keys", "new", "shop", "--scopes", "read,enqueue,decide", "--workflows", "order-desk")
    made = archmax(*arguments, cwd=desk.root)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()
