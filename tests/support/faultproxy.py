"""An HTTP proxy that loses replies on purpose: what a network does to a client, made repeatable.

`proxy.faults` holds what will happen to the next matching requests, in order; a request that matches none passes. The
proxy is a server on the test's own event loop and speaks just enough HTTP/1.1 for an S3 client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit


class Act(Enum):
    CUT_REPLY = "cut-reply"  #: the request gets through, its reply does not
    HOLD_REPLY = "hold-reply"  #: the same, and the connection stays open until the proxy ends
    CUT_REQUEST = "cut-request"  #: the connection closes before anything gets through
    SLOW = "slow"  #: the reply comes `seconds` late
    ANSWER = "answer"  #: nothing gets through; the reply is made up
    REPLACE_REPLY = "replace-reply"  #: the request gets through; the reply is made up


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests with this method whose target contains `target`."""

    act: Act
    method: str = "PUT"
    target: str = ""
    times: int = 1
    status: int = 503
    code: str = "InternalError"
    seconds: float = 0
    #: done after the request got through and before its reply is dropped, such as another writer's turn
    meanwhile: asyncio.Event | None = None
    #: set when this fault has struck (and `meanwhile` is awaited)
    struck: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class FaultProxy:
    endpoint_url: str
    faults: list[Fault] = field(default_factory=list)
    #: `METHOD target` of every request seen
    seen: list[str] = field(default_factory=list)
    #: their whole heads
    heads: list[bytes] = field(default_factory=list)

    def add(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    def take(self, method: str, target: str) -> Fault | None:
        """The fault this request meets, counted down."""
        for fault in self.faults:
            if fault.times > 0 and fault.method == method and fault.target in target:
                fault.times -= 1
                return fault
        return None


@asynccontextmanager
async def fault_proxy(upstream_url: str) -> AsyncGenerator[FaultProxy, None]:
    """A proxy before the server at `upstream_url`."""
    upstream = urlsplit(upstream_url)
    host, port = upstream.hostname or "127.0.0.1", upstream.port or 80
    ended = asyncio.Event()
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            connections.add(task)
            task.add_done_callback(connections.discard)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await _handle(proxy, reader, writer, host, port, ended)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = FaultProxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield proxy
    finally:
        ended.set()
        server.close()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()


async def _handle(
    proxy: FaultProxy,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    port: int,
    ended: asyncio.Event,
) -> None:
    """One request of one connection; the reply says that the connection closes."""
    head = await reader.readuntil(b"\r\n\r\n")
    proxy.heads.append(head)
    body = await reader.readexactly(_content_length(head))
    method, target = head.split(b" ", 2)[:2]
    proxy.seen.append(f"{method.decode()} {target.decode()}")
    fault = proxy.take(method.decode(), target.decode())
    if fault is not None and fault.act is Act.CUT_REQUEST:
        fault.struck.set()
        return
    reply = b""
    if fault is None or fault.act is not Act.ANSWER:
        reply = await _pass_on(head, body, host, port)
    if fault is not None:
        fault.struck.set()
        if fault.meanwhile is not None:
            await fault.meanwhile.wait()
        match fault.act:
            case Act.CUT_REPLY:
                return
            case Act.HOLD_REPLY:
                await ended.wait()
                return
            case Act.SLOW:
                await asyncio.sleep(fault.seconds)
            case _:
                reply = _made_up(fault)
    writer.write(reply)
    await writer.drain()


async def _pass_on(head: bytes, body: bytes, host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    writer.write(b"\r\n".join([lines[0], b"Connection: close", *lines[1:]]) + body)
    await writer.drain()
    reply = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    return reply


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _made_up(fault: Fault) -> bytes:
    body = b""
    if fault.status >= 300:
        body = f"<Error><Code>{fault.code}</Code><Message>made up by a test</Message></Error>".encode()
    return (
        f'HTTP/1.1 {fault.status} Made Up\r\nContent-Type: application/xml\r\nETag: "made-up"\r\n'
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body
