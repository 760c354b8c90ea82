"""Serving: uvicorn around the application."""

from __future__ import annotations

import signal
from typing import NoReturn

import uvicorn

from api.app import create_api
from api.settings import ApiSettings
from worker.settings import FleetSettings

#: how long streams and requests may go on after TERM
GRACE_SECONDS = 10


def run_api(fleet_settings: FleetSettings, api_settings: ApiSettings) -> int:
    """Serve until TERM or INT; returns the exit code. Raises: configuration errors before listening."""
    server = uvicorn.Server(
        uvicorn.Config(
            create_api(fleet_settings, api_settings),
            host=api_settings.api_host,
            port=api_settings.api_port,
            # its lines go where all others go, in the same format
            log_config=None,
            log_level=fleet_settings.log_level,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=64 * 1024,
        )
    )
    # uvicorn raises the signal that stopped it once more, when all is closed: TERM is how it is meant to end
    signal.signal(signal.SIGTERM, _end)
    server.run()
    return 0 if server.started else 1


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)
