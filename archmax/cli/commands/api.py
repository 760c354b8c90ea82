"""`archmax api`: serve the HTTP API, until TERM or INT."""

from __future__ import annotations

from api.server import run_api
from api.settings import ApiSettings
from archmax.cli.invocation import Invocation
from archmax.settings import read_settings
from worker.logs import configure_logging
from worker.settings import FleetSettings


def run(invocation: Invocation) -> int:
    given = {"api_host": invocation.options.get("bind"), "api_port": invocation.options.get("port")}
    api = read_settings(ApiSettings, **{name: value for name, value in given.items() if value is not None})
    settings = read_settings(FleetSettings).model_copy(update={"root": invocation.root})
    configure_logging(settings)
    return run_api(settings, api)
