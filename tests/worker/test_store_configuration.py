"""A store that is set up wrongly: the worker stops by name, the API says it is not ready and lives on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx

from archmax.local.ports import free_port
from archmax.local.redis import EmbeddedRedis
from tests.support.command import command_environment, write_workflows
from tests.support.seaweed import Seaweed, seaweed
from tests.support.workers import until

__all__ = ["seaweed"]


def environment(server: Seaweed, redis_url: str, root: Path, **more: str) -> dict[str, str]:
    return command_environment(
        {
            "PATH": os.environ["PATH"],
            "ARCHMAX_ROOT": str(root),
            "ARCHMAX_REDIS_URL": redis_url,
            "ARCHMAX_STORE": f"s3://{server.bucket}/wrong",
            "ARCHMAX_S3_ENDPOINT_URL": server.endpoint_url,
            "ARCHMAX_S3_REGION": "us-east-1",
            "ARCHMAX_S3_ACCESS_KEY_ID": server.credentials.access_key_id,
            "ARCHMAX_S3_SECRET_ACCESS_KEY": "not the secret",
            **more,
        }
    )


def test_a_worker_with_a_wrong_secret_stops_and_says_so(seaweed: Seaweed, tmp_path: Path) -> None:
    """It would take turns and break them off, one after the other."""
    root = write_workflows(tmp_path, "w")
    with EmbeddedRedis.start() as redis:
        done = subprocess.run(
            [sys.executable, "-m", "archmax", "worker"],
            env=environment(seaweed, redis.url, root),
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
    assert done.returncode == 1
    assert "bad credentials" in done.stderr
    assert "Traceback" not in done.stderr
    assert "not the secret" not in done.stderr


async def test_an_api_with_a_wrong_secret_is_alive_and_not_ready(seaweed: Seaweed, tmp_path: Path) -> None:
    root, port = write_workflows(tmp_path, "w"), free_port()
    log = tmp_path / "api.log"
    with EmbeddedRedis.start() as redis, log.open("wb") as file:
        api = subprocess.Popen(  # noqa: ASYNC220 - starts at once
            [sys.executable, "-m", "archmax", "api", "--port", str(port)],
            env=environment(seaweed, redis.url, root, ARCHMAX_AUTH_DISABLED="1"),
            stdout=file,
            stderr=file,
        )
        try:
            base = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=60) as client:

                async def alive() -> bool:
                    try:
                        return (await client.get("/healthz")).status_code == 200
                    except httpx.TransportError:
                        return False

                await until(alive, what="the API")
                ready = await client.get("/readyz")
        finally:
            api.terminate()
            assert api.wait() == 0, "a clean stop"
    assert (ready.status_code, ready.json()) == (503, {"ready": False, "problems": ["store"]})
    assert "bad credentials" in log.read_text()
