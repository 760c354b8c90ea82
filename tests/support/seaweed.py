"""A real S3 server for tests: SeaweedFS, started once per test process, with a fresh prefix per test.

A `conftest.py` that wants it imports the fixtures: `from tests.support.seaweed import s3_store, seaweed`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from storage.s3 import S3Credentials, S3Store

_START_SECONDS = 90
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Seaweed:
    """A running server. All tests share `bucket`; each takes a prefix of its own."""

    endpoint_url: str
    credentials: S3Credentials
    bucket: str = "tests"

    def store(self, prefix: str | None = None, **options: Any) -> S3Store:
        """A store under `prefix` (default: a fresh one). Options as `S3Store`'s."""
        given: dict[str, Any] = {
            "bucket": self.bucket,
            "endpoint_url": self.endpoint_url,
            "credentials": self.credentials,
            "region": "us-east-1",
        }
        return S3Store(prefix=prefix if prefix is not None else uuid.uuid4().hex, **{**given, **options})

    def client(self) -> Any:
        """A plain boto3 client, for looking behind the store's back."""
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=self.credentials.access_key_id,
            aws_secret_access_key=self.credentials.secret_access_key,
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=10),
        )


@pytest.fixture(scope="session")
def seaweed() -> Seaweed:
    """The server of this test process."""
    return running()


@pytest.fixture
async def s3_store(seaweed: Seaweed) -> AsyncIterator[S3Store]:
    """An empty store on the server."""
    store = seaweed.store()
    yield store
    await store.close()


@functools.cache
def running() -> Seaweed:
    """The server, started on the first call and killed with this process, however that ends."""
    folder = Path(tempfile.mkdtemp(prefix="seaweed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for _ in range(3):  # a port may be taken between choosing and using it
        process, server = _start(folder / uuid.uuid4().hex)
        if _answers(process, server):
            atexit.register(_stop, process)
            return server
        _stop(process)
    raise RuntimeError("SeaweedFS did not start")


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], Seaweed]:
    folder.mkdir()
    names = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    credentials = S3Credentials("testkey", uuid.uuid4().hex)
    command = [
        str(Path(sys.executable).with_name("weed")),
        "mini",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-admin.ui=false",
        "-webdav=false",
        "-master.telemetry=false",
        "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-filer.localSocket={folder}/f.sock",
        f"-s3.localSocket={folder}/s.sock",
    ]
    for room in ("master", "volume", "filer", "s3"):
        command += [f"-{room}.port={ports[room]}", f"-{room}.port.grpc={ports[room + '.grpc']}"]
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "AWS_ACCESS_KEY_ID": credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_access_key,
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_parent,
        )
    return process, Seaweed(f"http://127.0.0.1:{ports['s3']}", credentials)


def _answers(process: subprocess.Popen[bytes], server: Seaweed) -> bool:
    client = server.client()
    try:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(BotoCoreError, ClientError):
                client.create_bucket(Bucket=server.bucket)
                client.put_object(Bucket=server.bucket, Key="ready", Body=b"1")
                return True
            time.sleep(0.1)
        return False
    finally:
        client.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]
