"""Failpoints: what they are called, and that nothing is wrapped without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.crashes import CASES
from worker.client import FleetClient
from worker.failpoints import OPERATIONS, VARIABLE, FailingQueue, FailingStore, Failpoint
from worker.settings import FleetSettings


@pytest.mark.parametrize(
    "asked",
    [
        "put-step",
        "put-step.during",
        "nowhere.before",
        "put-step.before:x",
        ".before",
        "put-step.after:1:melt",
    ],
)
def test_a_name_that_is_no_failpoint_stops_the_process_at_its_start(asked: str) -> None:
    """A misspelt one would never strike, and its test would prove nothing."""
    with pytest.raises(ValueError, match="names no failpoint"):
        Failpoint(asked)


def test_every_crash_case_names_a_failpoint() -> None:
    for case in CASES:
        Failpoint(case.failpoint)
    assert len(set(CASES)) == len(CASES)
    assert len(OPERATIONS) == len(set(OPERATIONS))


async def test_nothing_is_wrapped_unless_a_failpoint_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked, wrapped in ((None, False), ("put-end.after", True)):
        if asked is None:
            monkeypatch.delenv(VARIABLE, raising=False)
        else:
            monkeypatch.setenv(VARIABLE, asked)
        client = FleetClient(FleetSettings(root=tmp_path))
        await client.open()
        assert isinstance(client.store, FailingStore) is wrapped
        assert isinstance(client.fleet.queue, FailingQueue) is wrapped
        await client.close()
