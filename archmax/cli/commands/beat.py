"""`archmax beat`: fires the schedules of the workspace's triggers, until TERM or INT. Several may run."""

from __future__ import annotations

from archmax.cli.invocation import Invocation
from archmax.settings import read_settings
from worker.beat import run_beat
from worker.logs import configure_logging
from worker.settings import FleetSettings


def run(invocation: Invocation) -> int:
    settings = read_settings(FleetSettings).model_copy(update={"root": invocation.root})
    configure_logging(settings)
    return run_beat(settings)
