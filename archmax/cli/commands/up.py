"""`archmax up`: a whole fleet on this machine until Ctrl-C, everything stopped and nothing left running after it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from api.settings import ApiSettings, is_loopback
from archmax.cli.invocation import Invocation
from archmax.cli.parser import UsageError
from archmax.cli.render.style import ACTIVE, style_for
from archmax.local.fleet import LocalFleet
from archmax.local.ports import LOOPBACK, require_free
from archmax.local.redis import EmbeddedRedis
from archmax.local.supervisor import Supervisor
from archmax.settings import LocalSettings, read_settings
from worker.settings import FleetSettings

_WATCH_SECONDS = 0.2


async def run(invocation: Invocation) -> int:
    local, fleet_settings = read_settings(LocalSettings), read_settings(FleetSettings)
    api = read_settings(ApiSettings)
    bind = invocation.options.get("bind", api.api_host)
    port = _count(invocation, "port", api.api_port, most=65535)
    flower_port = _count(invocation, "flower-port", local.flower_port, most=65535)
    workers = _count(invocation, "workers", 1, most=64)
    require_free("the API", bind, port, "--port")
    require_free("Flower", LOOPBACK, flower_port, "--flower-port")
    with _redis(fleet_settings) as (url, server):
        fleet = LocalFleet(
            root=invocation.root,
            redis_url=url,
            workers=workers,
            bind=bind,
            port=port,
            flower_port=flower_port,
            flower_prefix=local.flower_prefix,
            flower_auth=local.flower_auth.get_secret_value() if local.flower_auth else None,
            open=is_loopback(bind) and api.api_keys is None,
        )
        style = style_for(invocation.err)
        supervisor = Supervisor(fleet.parts(), stream=invocation.err, style=style)
        where = server.address if server else "ARCHMAX_REDIS_URL"
        invocation.err.write(f"{style.accent(ACTIVE)} redis   {where}\n")
        watch = asyncio.create_task(_watch(server, supervisor)) if server else None
        try:
            return await supervisor.run()
        finally:
            if watch is not None:
                watch.cancel()


def _count(invocation: Invocation, name: str, default: int, *, most: int) -> int:
    value = int(invocation.options.get(name, default))
    if not 1 <= value <= most:
        raise UsageError(f"option '--{name}' is between 1 and {most}, not {value}", invocation.line.command)
    return value


@contextlib.contextmanager
def _redis(settings: FleetSettings) -> Generator[tuple[str, EmbeddedRedis | None]]:
    """The URL of the configured Redis, or of one of our own. It is started on the loop's thread, with which it dies."""
    if "redis_url" in settings.model_fields_set:
        yield settings.redis_url.get_secret_value(), None
        return
    with EmbeddedRedis.start() as server:
        yield server.url, server


async def _watch(server: EmbeddedRedis, supervisor: Supervisor) -> None:
    while server.poll() is None:  # noqa: ASYNC110 - a process tells nobody's event loop of its end
        await asyncio.sleep(_WATCH_SECONDS)
    supervisor.fail(f"redis ended by itself (exit code {server.poll()})")
