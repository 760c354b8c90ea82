"""A Redis that can be killed, frozen and started again under its address: empty, as one without persistence comes back."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from archmax.local.ports import free_port
from archmax.local.processes import dying_with_parent
from archmax.local.redis import find_server


class RestartableRedis:
    def __init__(self) -> None:
        self.port = free_port("127.0.0.1")
        self._folder = Path(tempfile.mkdtemp(prefix="test-redis-"))
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = [str(find_server()), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                dying_with_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """It accepts connections, by the kernel's grace, and never answers."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
