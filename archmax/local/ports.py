"""TCP ports of this machine: a free one, and whether one is taken."""

from __future__ import annotations

import socket
from typing import ClassVar

from typing_extensions import override

from core.errors import ArchmaxError

LOOPBACK = "127.0.0.1"


class PortTaken(ArchmaxError):
    """Another program listens where a part of the fleet should."""

    code: ClassVar[str] = "port-taken"

    def __init__(self, part: str, host: str, port: int, why: str, option: str) -> None:
        super().__init__(part, host, port, why, option)
        self.part, self.host, self.port, self.why, self.option = part, host, port, why, option

    @override
    def __str__(self) -> str:
        return f"{self.part} cannot listen on {self.host}:{self.port} ({self.why}); choose another with {self.option}"


def free_port(host: str = LOOPBACK) -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def require_free(part: str, host: str, port: int, option: str) -> None:
    """Raises: `PortTaken` when nothing could listen there now."""
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(address[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself does
            probe.bind(address[4])
    except OSError as error:
        raise PortTaken(part, host, port, error.strerror or str(error), option) from None
