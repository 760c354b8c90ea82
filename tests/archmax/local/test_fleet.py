from __future__ import annotations

import asyncio
import io
import urllib.error
import urllib.request
from pathlib import Path

from archmax.cli.render.style import Style
from archmax.local.fleet import LocalFleet, flower_part
from archmax.local.ports import free_port
from archmax.local.redis import EmbeddedRedis
from archmax.local.supervisor import Supervisor


def get(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_no_argument_of_any_part_holds_the_password_of_redis():
    fleet = LocalFleet(root=Path("/srv"), redis_url="redis://:hunter2@127.0.0.1:1/0", workers=2)
    parts = fleet.parts()
    assert [part.name for part in parts] == ["worker-1", "worker-2", "beat", "api", "flower"]
    assert not any("hunter2" in word for part in parts for word in part.command)
    assert not any("hunter2" in (part.listens or "") for part in parts)
    assert all("hunter2" in "".join(part.environment.values()) for part in parts)


def test_workers_start_before_the_api_and_so_stop_after_it():
    stages = {part.name: part.stage for part in LocalFleet(root=Path("/srv"), redis_url="redis://h").parts()}
    assert stages["worker"] < stages["api"]


def test_a_wildcard_address_is_shown_as_one_that_can_be_opened():
    def api(bind: str) -> tuple[str, str | None]:
        fleet = LocalFleet(root=Path("/srv"), redis_url="redis://h", bind=bind)
        part = next(part for part in fleet.parts() if part.name == "api")
        return part.host, part.listens

    assert api("0.0.0.0") == ("127.0.0.1", "http://127.0.0.1:8000")
    assert api("::1") == ("::1", "http://[::1]:8000")


async def test_flower_runs_over_the_embedded_redis_and_stops_with_everything_else():
    port = free_port()
    stream = io.StringIO()
    with EmbeddedRedis.start() as server:
        password = server.url.split(":")[2].split("@")[0]
        supervisor = Supervisor([flower_part(server.url, port)], stream=stream, style=Style())
        task = asyncio.create_task(supervisor.run())
        async with asyncio.timeout(120):
            while "● flower" not in stream.getvalue():
                assert not task.done(), stream.getvalue()
                await asyncio.sleep(0.05)
        assert await asyncio.to_thread(get, f"http://127.0.0.1:{port}/healthcheck") == 200
        assert await asyncio.to_thread(get, f"http://127.0.0.1:{port}/api/tasks") == 401
        supervisor.stop()
        assert await task == 0
    assert password not in stream.getvalue()


async def test_what_fails_beside_the_parts_ends_them_and_is_told():
    stream = io.StringIO()
    with EmbeddedRedis.start() as server:
        supervisor = Supervisor([flower_part(server.url, free_port())], stream=stream, style=Style())
        task = asyncio.create_task(supervisor.run())
        await asyncio.sleep(0)
        supervisor.fail("redis ended by itself (exit code 1)")
        assert await task == 1
    assert "✖ redis ended by itself (exit code 1); stopping everything" in stream.getvalue()
