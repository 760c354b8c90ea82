from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from archmax.local import redis as local
from archmax.local.ports import free_port
from archmax.local.redis import EmbeddedRedis, RedisUnavailable, find_server
from tests.support.command import command_environment
from tests.support.processes import alive


def wait_until(condition: Callable[[], bool], *, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


def test_the_servers_answers_lists_scripts_and_streams_work():
    """What the queue and the leases are made of."""
    with EmbeddedRedis.start() as server:
        client = Redis.from_url(server.url)
        client.rpush("q", "a")
        assert client.blpop(["q"], timeout=1) == (b"q", b"a")
        assert (
            client.eval("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 5000)", 1, "lease", "7")
            == b"OK"
        )
        assert client.xadd("events", {"x": "1"})
        client.close()
        pid = server.pid
    assert not alive(pid)


def test_two_servers_live_side_by_side_and_know_nothing_of_each_other():
    with EmbeddedRedis.start() as one, EmbeddedRedis.start() as two:
        assert one.port != two.port
        with Redis.from_url(one.url) as first, Redis.from_url(two.url) as second:
            first.set("k", "v")
            assert second.get("k") is None


def test_a_client_without_the_password_is_refused_and_the_address_does_not_hold_it():
    with EmbeddedRedis.start() as server:
        password = server.url.split(":")[2].split("@")[0]
        assert len(password) >= 24
        assert password not in server.address
        assert password not in Path(f"/proc/{server.pid}/cmdline").read_text()
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(b"PING\r\n")
            assert connection.recv(100).startswith(b"-NOAUTH")


def test_stopping_removes_the_temporary_directory_and_may_be_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local.tempfile, "tempdir", str(tmp_path))
    server = EmbeddedRedis.start()
    assert len(list(tmp_path.iterdir())) == 1
    server.stop()
    server.stop()
    assert list(tmp_path.iterdir()) == []
    assert server.poll() is not None
    assert not server.answers()


def test_append_only_data_outlives_the_server(tmp_path: Path):
    directory = tmp_path / 'a "quoted" place'
    with (
        EmbeddedRedis.start(data_directory=directory, append_only=True) as server,
        Redis.from_url(server.url) as client,
    ):
        client.set("k", "v")
    with (
        EmbeddedRedis.start(data_directory=directory, append_only=True) as server,
        Redis.from_url(server.url) as client,
    ):
        assert client.get("k") == b"v"


def test_a_killed_parent_takes_the_server_with_it(tmp_path: Path):
    """A parent killed outright runs no clean-up; the kernel does it."""
    script = (
        "import time\nfrom archmax.local.redis import EmbeddedRedis\n"
        "server = EmbeddedRedis.start()\nprint(server.pid, flush=True)\ntime.sleep(600)\n"
    )
    environment = command_environment({"TMPDIR": str(tmp_path)})
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not alive(pid))


def test_a_server_that_ignores_its_end_is_killed():
    server = EmbeddedRedis.start()
    os.kill(server.pid, signal.SIGSTOP)
    server.stop(grace_seconds=0.05)
    assert not alive(server.pid)


def test_a_port_that_is_taken_meanwhile_is_given_up_for_another(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = iter([taken.getsockname()[1]])

        def next_port(host: str) -> int:
            return next(ports, None) or free_port(host)

        monkeypatch.setattr(local, "free_port", next_port)
        with EmbeddedRedis.start() as server:
            assert server.port != taken.getsockname()[1]
            assert server.answers()


def test_the_wheels_binary_is_preferred_and_a_missing_one_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert find_server().name == "valkey-server"

    def nothing(_name: str) -> None:
        return None

    monkeypatch.setattr(local, "find_spec", nothing)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RedisUnavailable, match="ARCHMAX_REDIS_URL"):
        find_server()
    fallback = tmp_path / "redis-server"
    fallback.write_text("#!/bin/sh\n")
    fallback.chmod(0o755)
    assert find_server() == fallback


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho 'out of luck'\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(local, "find_server", lambda: broken)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(local.tempfile, "tempdir", str(scratch))
    with pytest.raises(RedisUnavailable, match="out of luck"):
        EmbeddedRedis.start()
    assert list(scratch.iterdir()) == []
