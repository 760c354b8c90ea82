"""What the Celery application is set to, where a turn's safety or speed hangs on it."""

from __future__ import annotations

from pathlib import Path

from worker.celery_app import create_app
from worker.settings import FleetSettings


def test_a_message_is_acknowledged_late_and_only_one_is_fetched_ahead(tmp_path: Path) -> None:
    """Known fault H5: the two settings that keep a busy worker from reserving what an idle one could run."""
    conf = create_app(FleetSettings(root=tmp_path)).conf
    assert (conf.task_acks_late, conf.worker_prefetch_multiplier) == (True, 1)
