"""Flower under a path and behind a password: page, static files and API all answer (known fault H25)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import urljoin

import httpx
import pytest

from archmax.local.fleet import flower_part
from archmax.local.ports import free_port
from archmax.local.redis import EmbeddedRedis
from archmax.settings import LocalSettings
from tests.support.chart_values import NASTY, NASTY_AUTH
from tests.support.workers import until


@contextmanager
def running(redis_url: str, port: int, prefix: str) -> Generator[None]:
    part = flower_part(redis_url, port, prefix=prefix, auth=NASTY_AUTH)
    assert not any(NASTY in word for word in part.command), "arguments are anybody's to list"
    environment = {**os.environ, **part.environment}
    process = subprocess.Popen(part.command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("prefix", "path"), [("/", ""), ("/a/b/", "/a/b")])
async def test_every_link_of_flower_answers_under_any_prefix_to_those_who_know_the_password(
    prefix: str, path: str
) -> None:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    with EmbeddedRedis.start() as server, running(server.url, port, prefix):
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:

            async def healthy() -> bool:
                try:
                    return (await client.get(f"{base}{path}/healthcheck")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(healthy, what="Flower")
            page = f"{base}{path}/workers"
            assert (await client.get(page)).status_code == 401
            client.auth = httpx.BasicAuth("admin", NASTY)
            answer = await client.get(page)
            assert answer.status_code == 200
            links = {urljoin(page, link) for link in re.findall(r'(?:href|src)="([^"#]+)"', answer.text)}
            own = {link for link in links if link.startswith(base)}
            assert any("/static/" in link for link in own)
            for link in sorted(own):
                assert "//" not in link.removeprefix("http://"), link
                assert (await client.get(link)).status_code == 200, link
            assert (await client.get(f"{base}{path}/api/workers")).status_code == 200


def test_the_settings_of_up_hold_flowers_path_and_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCHMAX_FLOWER_PREFIX", "ops")
    monkeypatch.setenv("ARCHMAX_FLOWER_AUTH", NASTY_AUTH)
    settings = LocalSettings()
    assert settings.flower_prefix == "ops"
    assert settings.flower_auth is not None
    assert NASTY not in repr(settings)
