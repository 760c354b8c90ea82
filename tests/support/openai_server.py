"""A small real HTTP server that speaks OpenAI's chat completions, misbehaving on request.

async with openai_server() as server:
    server.plan(Reply(text="hi"), Status(429), …)     # one entry a request, in order
    server.base_url, server.requests
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass
class Reply:
    """A completion. `calls` are `(name, arguments' text)`; `role=None` leaves the role out."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    role: str | None = "assistant"
    usage: Mapping[str, Any] | None = None
    model: str = "served-model"


@dataclass
class Status:
    """An error answer."""

    code: int
    body: Mapping[str, Any] = field(
        default_factory=lambda: {"error": {"message": "no", "type": "x", "code": "y"}}
    )
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Hang:
    """Accepts and never answers."""


@dataclass
class Cut:
    """Streams the beginning of a text and closes. `clean` ends the HTTP body properly, without the answer's end."""

    text: str
    clean: bool = False


@dataclass
class Body:
    """Any JSON as a successful answer."""

    value: Any


Plan: TypeAlias = Reply | Status | Hang | Cut | Body


class OpenAIServer:
    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.arrived = asyncio.Event()  # set by the first request
        self.abandoned = asyncio.Event()  # set when a client leaves a request that hangs
        self.port = 0
        self._plan: list[Plan] = []
        self._open: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def plan(self, *steps: Plan) -> None:
        self._plan.extend(steps)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            del self._open[task]
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)
        }
        request = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))))
        assert lines[0].startswith("POST /v1/chat/completions "), lines[0]
        self.requests.append(request)
        self.headers.append(headers)
        self.arrived.set()
        step = self._plan.pop(0) if self._plan else Status(500)
        match step:
            case Reply() if request.get("stream"):
                await _stream(
                    writer, step, usage=bool((request.get("stream_options") or {}).get("include_usage"))
                )
            case Reply():
                await _json(writer, 200, _completion(step))
            case Body(value):
                await _json(writer, 200, value)
            case Status(code, body, extra):
                await _json(writer, code, body, extra)
            case Hang():
                await reader.read()  # until the client gives up
                self.abandoned.set()
                return False
            case Cut(text, clean):
                await _start_stream(writer)
                await _event(writer, _delta({"role": "assistant", "content": text}))
                if clean:
                    writer.write(b"0\r\n\r\n")
                await writer.drain()
                return False
        return True

    async def close(self) -> None:
        tasks = list(self._open)
        for writer in self._open.values():
            writer.close()
        await asyncio.gather(*tasks)


def _completion(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"content": reply.text or None}
    if reply.role:
        message["role"] = reply.role
    if reply.calls:
        message["tool_calls"] = [
            {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(reply.calls)
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": reply.model,
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.calls else "stop"}
        ],
        **({"usage": dict(reply.usage)} if reply.usage else {}),
    }


def _delta(
    delta: Mapping[str, Any], finish: str | None = None, model: str = "served-model"
) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish}],
    }


async def _stream(writer: asyncio.StreamWriter, reply: Reply, *, usage: bool) -> None:
    await _start_stream(writer)
    role = {"role": reply.role} if reply.role else {}
    await _event(writer, _delta({**role, "content": ""}))
    for start in range(0, len(reply.text), 4):
        await _event(writer, _delta({"content": reply.text[start : start + 4]}, model=reply.model))
    for index, (name, arguments) in enumerate(reply.calls):
        head = {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        await _event(writer, _delta({"tool_calls": [head]}))
        for start in range(0, len(arguments), 3):
            piece = {"index": index, "function": {"arguments": arguments[start : start + 3]}}
            await _event(writer, _delta({"tool_calls": [piece]}))
    await _event(writer, _delta({}, "tool_calls" if reply.calls else "stop", model=reply.model))
    if usage and reply.usage:
        last: dict[str, Any] = {**_delta({}), "choices": [], "usage": dict(reply.usage), "model": reply.model}
        await _event(writer, last)
    await _chunk(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _start_stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    await writer.drain()


async def _event(writer: asyncio.StreamWriter, value: Mapping[str, Any]) -> None:
    await _chunk(writer, f"data: {json.dumps(value)}\n\n".encode())


async def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


async def _json(
    writer: asyncio.StreamWriter, status: int, value: Any, headers: Mapping[str, str] | None = None
) -> None:
    body = json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} X", "content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name}: {text}" for name, text in (headers or {}).items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()


@asynccontextmanager
async def openai_server() -> AsyncGenerator[OpenAIServer]:
    server = OpenAIServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await server.close()
        await listener.wait_closed()
