"""`archmax worker`: one worker process of the fleet, until TERM or INT."""

from __future__ import annotations

from archmax.cli.invocation import Invocation
from archmax.settings import read_settings
from worker.logs import configure_logging
from worker.settings import FleetSettings, ModelEnvironment
from worker.tasks import run_worker


def run(invocation: Invocation) -> int:
    settings = read_settings(FleetSettings).model_copy(update={"root": invocation.root})
    configure_logging(settings)
    return run_worker(settings, read_settings(ModelEnvironment))
