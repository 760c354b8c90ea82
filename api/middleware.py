"""What every request passes: raw paths, security headers, the body limit, JSON only. Plain ASGI, nothing buffers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from redis.exceptions import RedisError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import problem, problem_of, problem_response
from api.settings import is_loopback
from core.errors import ArchmaxError

SECURITY: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
_WRITES: Final = frozenset({"POST", "PUT", "PATCH"})
#: read and thrown away of a body that is too long
_DISCARDED_BYTES: Final = 16 << 20


class RawPaths:
    """Routes match the path as it was sent, so that an id may hold `/` as `%2F`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            raw = scope["raw_path"].partition(b"?")[0].decode("latin-1")
            scope = {**scope, "path": raw}
        await self._app(scope, receive, send)


class SecurityHeaders:
    """A response that names its own keeps it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


#: where forms are sent to; each carries a token of its own (`api.ui.signin`)
FORMS_UNDER: Final = "/ui/"
_FORM: Final = "application/x-www-form-urlencoded"


class Bodies:
    """Bodies are JSON, forms for the operator pages, and bounded whatever their length header says.

    `limit` gives the longest body of a request in bytes, from its head alone: no more than that is ever held.
    """

    def __init__(self, app: ASGIApp, *, limit: Callable[[Request], Awaitable[int]]) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WRITES:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        length = headers.get("content-length", "")
        has_body = length not in ("", "0") or "transfer-encoding" in headers
        wanted = _FORM if scope["path"].startswith(FORMS_UNDER) else "application/json"
        if has_body and kind != wanted:
            refused = problem(415, "unsupported-media-type", f"send the body as {wanted}")
            await problem_response(refused)(scope, receive, send)
            return
        try:
            max_bytes = await self._limit(Request(scope))
        except ArchmaxError as error:
            await problem_response(problem_of(error))(scope, receive, send)
            return
        except RedisError:
            away = problem(503, "broker-unavailable", "the broker does not answer")
            await problem_response(away)(scope, receive, send)
            return
        received = 0
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            chunk = message.get("body", b"")
            received += len(chunk)
            if received > max_bytes:
                chunks.clear()
                if not message.get("more_body"):
                    receive = _nothing_more
                await _too_large(max_bytes, scope, receive, send)
                return
            chunks.append(chunk)
            if not message.get("more_body"):
                break
        whole = b"".join(chunks)
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": whole, "more_body": False}

        await self._app(scope, again, send)


async def _too_large(max_bytes: int, scope: Scope, receive: Receive, send: Send) -> None:
    # A client that is still sending reads no answer; what little more it has is thrown away first.
    left = _DISCARDED_BYTES
    while left > 0:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            break
        left -= len(message.get("body", b"")) + 1
    refused = problem(413, "body-too-large", f"a body has at most {max_bytes} bytes")
    await problem_response(refused, {"connection": "close"})(scope, receive, send)


async def _nothing_more() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


class LoopbackOnly:
    """Without keys, a page from elsewhere must not reach the API through the visitor's browser.

    The host asked for must name this machine (a rebound DNS name does not), and no other origin may ask.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = _host_name(headers.get("host", ""))
            origin = headers.get("origin")
            foreign = origin is not None and not _same_origin(origin, headers.get("host", ""))
            if not is_loopback(host) or foreign:
                refused = problem(403, "forbidden", "without keys only requests of this machine are served")
                await problem_response(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _same_origin(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False
