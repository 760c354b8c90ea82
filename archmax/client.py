"""A small client of the fleet's HTTP API, for programs and for the command's own `submit` and `turns`.

    from archmax import Client

    with Client("http://127.0.0.1:8000", key="amx_…") as fleet:
        turn = fleet.start("refund", message="Please refund order 7.")
        for event in fleet.events(turn["turnId"]):
            print(event["type"])
        print(fleet.wait(turn["turnId"])["outcome"])

Bodies are the API's own JSON objects (`GET /openapi.json`), errors are `ApiError` with its stable `code`. Every input
carries an `Idempotency-Key`, minted when none is given, so that a connection that breaks is tried again without doing
anything twice. A client serves one thread at a time.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx
from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import JsonObject

#: one request may ask the server to wait this long
_WAIT_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 10.0
_RETRIED: Final = frozenset({429, 503})
OVER: Final = frozenset({"settled", "refused", "cancelled"})


class ApiError(ArchmaxError):
    """The API refused: `status` is HTTP's, `code` the problem's, `problem` the whole body (RFC 9457)."""

    def __init__(self, status: int, problem: JsonObject) -> None:
        super().__init__(status, problem)
        self.status, self.problem = status, problem
        self.code = str(problem.get("code") or "http")  # type: ignore[misc]  # each problem's own

    @override
    def __str__(self) -> str:
        return str(self.problem.get("detail") or self.problem.get("title") or f"HTTP {self.status}")


class ApiUnreachable(ArchmaxError):
    """No answer from the API."""

    code = "api-unreachable"
    retryable = True

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)
        self.url, self.why = url, why

    @override
    def __str__(self) -> str:
        return f"no answer from {self.url} ({self.why})"


class Client:
    """`key` goes with every request. `retries`: how often a request that got no answer, 429 or 503 is sent again."""

    def __init__(
        self, url: str, key: str | None = None, *, timeout_seconds: float = 30, retries: int = 4
    ) -> None:
        self.url = url.rstrip("/")
        self.keyed = key is not None
        self._retries = retries
        headers = {"authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(timeout_seconds, read=timeout_seconds + _WAIT_SECONDS)
        try:
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise ApiUnreachable(self.url, str(error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # -- inputs: each returns the accepted turn, `{turnId, sessionId, status, repeated, links}` ------------------------

    def start(
        self,
        workflow: str,
        *,
        message: str | None = None,
        trigger: str | None = None,
        variables: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        on_busy: str | None = None,
        labels: Mapping[str, str] | None = None,
        webhook: str | None = None,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """Start a session, or send to the one that `session_id` or the trigger's session path names."""
        body = _given(
            message=message,
            trigger=trigger,
            variables=variables,
            sessionId=session_id,
            onBusy=on_busy,
            labels=labels,
            webhook={"url": webhook} if webhook else None,
        )
        return self._input(f"/v1/workflows/{_part(workflow)}/sessions", body, idempotency_key)

    def send(
        self,
        session_id: str,
        message: str | None = None,
        *,
        trigger: str | None = None,
        variables: Mapping[str, Any] | None = None,
        on_busy: str | None = None,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """Send a message; what it becomes is decided by where the session stands."""
        body = _given(message=message, trigger=trigger, variables=variables, onBusy=on_busy)
        return self._input(f"{_session(session_id)}/turns", body, idempotency_key)

    def decide(
        self, session_id: str, to: str, comment: str | None = None, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """Take a transition of a session that is parked for a decision."""
        return self._input(
            f"{_session(session_id)}/decisions", _given(to=to, comment=comment), idempotency_key
        )

    def reply(self, session_id: str, message: str, *, idempotency_key: str | None = None) -> JsonObject:
        """Write to a session that is parked for a decision; it stays parked."""
        return self._input(f"{_session(session_id)}/replies", {"message": message}, idempotency_key)

    def deliver(
        self,
        session_id: str,
        trigger: str,
        variables: Mapping[str, Any] | None = None,
        message: str | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """Deliver what a session waits for."""
        body = _given(trigger=trigger, variables=variables, message=message)
        return self._input(f"{_session(session_id)}/deliveries", body, idempotency_key)

    def cancel(self, turn_id: str) -> JsonObject:
        """Ask a turn to stop; its outcome says how it ended. Returns the turn."""
        return self._json("DELETE", _turn(turn_id))

    def delete(self, session_id: str) -> JsonObject:
        """Delete a session and its children. Needs the scope `admin`."""
        return self._json("DELETE", _session(session_id), headers={"idempotency-key": uuid.uuid4().hex})

    # -- reading -------------------------------------------------------------------------------------------------------

    def turn(self, turn_id: str, *, wait_seconds: float = 0) -> JsonObject:
        """The turn as it is now, or once it is over if that comes within `wait_seconds` (the server has a bound)."""
        query = {"wait": wait_seconds} if wait_seconds > 0 else None
        return self._json("GET", _turn(turn_id), query=query)

    def wait(self, turn_id: str, *, timeout_seconds: float | None = None) -> JsonObject:
        """The turn once it is over. Raises: `TimeoutError` when it is not within `timeout_seconds`."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            left = _WAIT_SECONDS if deadline is None else deadline - time.monotonic()
            turn = self.turn(turn_id, wait_seconds=max(0.0, min(left, _WAIT_SECONDS)))
            if turn["status"] in OVER:
                return turn
            if left <= 0:
                raise TimeoutError(f"turn {turn_id} is still {turn['status']} after {timeout_seconds:g} s")

    def events(self, turn_id: str, *, after: str | None = None) -> Iterator[JsonObject]:
        """The events of a turn until it is over, each once and in order, whatever happens to the connection.

        A recorded event has its `id`, which is what `after` takes; a live one (text deltas) has none.
        """
        return self._follow(f"{_turn(turn_id)}/events", after)

    def session_events(self, session_id: str, *, after: str | None = None) -> Iterator[JsonObject]:
        """The events of a session, without an end."""
        return self._follow(f"{_session(session_id)}/events", after)

    def session(self, session_id: str) -> JsonObject:
        return self._json("GET", _session(session_id))

    def sessions(self, *, limit: int | None = None, **filters: Any) -> Iterator[JsonObject]:
        """Sessions, newest first; `filters` are the route's: `status`, `workflow`, `label`, `updatedAfter`, …"""
        return self._pages("/v1/sessions", filters, limit)

    def history(self, session_id: str) -> Iterator[JsonObject]:
        """The session's messages, oldest first."""
        return self._pages(f"{_session(session_id)}/history", {}, None)

    def trail(self, session_id: str) -> list[JsonObject]:
        """How the session moved, oldest first."""
        found: list[JsonObject] = self._json("GET", f"{_session(session_id)}/trail")["items"]
        return found

    def variables(self, session_id: str) -> JsonObject:
        """`{name: {value, locked}}`."""
        found: JsonObject = self._json("GET", f"{_session(session_id)}/variables")["variables"]
        return found

    def file(self, session_id: str, path: str) -> bytes:
        """A file of the session."""
        return self._send("GET", f"{_session(session_id)}/files/{quote(path.lstrip('/'))}").content

    def workflows(self) -> list[JsonObject]:
        found: list[JsonObject] = self._json("GET", "/v1/workflows")["items"]
        return found

    def workflow(self, slug: str) -> JsonObject:
        return self._json("GET", f"/v1/workflows/{_part(slug)}")

    def fleet(self) -> JsonObject:
        """Queues and workers right now."""
        return self._json("GET", "/v1/fleet")

    def dead_webhooks(self) -> list[JsonObject]:
        """Webhooks that were given up. Needs the scope `admin`."""
        found: list[JsonObject] = self._json("GET", "/v1/webhooks/dead")["items"]
        return found

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _input(self, path: str, body: JsonObject, key: str | None) -> JsonObject:
        return self._json("POST", path, body=body, headers={"idempotency-key": key or uuid.uuid4().hex})

    def _json(self, method: str, path: str, **given: Any) -> JsonObject:
        try:
            found: JsonObject = self._send(method, path, **given).json()
        except ValueError:
            raise ApiUnreachable(self.url, "what answers there is not the fleet's API") from None
        return found

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Every request here may be repeated: it reads, or it carries an idempotency key, or it asks for an end."""
        pause = _PAUSE_SECONDS
        for attempt in range(self._retries + 1):
            try:
                answer = self._http.request(method, path, json=body, params=query, headers=headers)
            except httpx.TransportError as error:
                if attempt == self._retries:
                    raise ApiUnreachable(self.url, str(error) or type(error).__name__) from None
                wait = pause
            else:
                if answer.is_success:
                    return answer
                if answer.status_code not in _RETRIED or attempt == self._retries:
                    raise ApiError(answer.status_code, _problem(answer.content))
                wait = max(pause, _seconds(answer.headers.get("retry-after")))
            time.sleep(min(wait, _LONGEST_PAUSE_SECONDS))
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    def _pages(self, path: str, filters: Mapping[str, Any], limit: int | None) -> Iterator[JsonObject]:
        cursor: str | None = None
        told = 0
        while True:
            page = self._json("GET", path, query={**filters, **_given(cursor=cursor)})
            for item in page["items"]:
                if limit is not None and told >= limit:
                    return
                told += 1
                yield item
            cursor = page.get("cursor")
            if cursor is None:
                return

    def _follow(self, path: str, after: str | None) -> Iterator[JsonObject]:
        broken = 0
        while True:
            headers = {"accept": "text/event-stream", **_given(**{"last-event-id": after})}
            try:
                with self._http.stream("GET", path, headers=headers) as answer:
                    if not answer.is_success:
                        raise ApiError(answer.status_code, _problem(answer.read()))
                    for name, identity, data in _server_sent(answer.iter_bytes()):
                        broken = 0
                        event: JsonObject = json.loads(data)
                        if name == "problem":
                            raise ApiError(int(event.get("status") or 500), event)
                        after = identity or after
                        yield {**event, "id": identity} if identity else event
                        if name == "turn-settled" and path.startswith("/v1/turns/"):
                            return
                why = "the stream ended early"
            except httpx.TransportError as error:
                why = str(error) or type(error).__name__
            except ApiError as error:
                if error.status not in _RETRIED:
                    raise
                why = str(error)
            if broken >= self._retries:
                raise ApiUnreachable(self.url, why)
            time.sleep(min(_PAUSE_SECONDS * 2**broken, _LONGEST_PAUSE_SECONDS))
            broken += 1


def _server_sent(chunks: Iterator[bytes]) -> Iterator[tuple[str, str | None, str]]:
    """`(event, id, data)` of a stream. By bytes: text may hold characters that other line splitters take for line ends."""
    fields: dict[str, str] = {}
    pending = b""
    for chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line:
                name, _, value = line.decode("utf-8", "replace").partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            if "data" in fields:
                yield fields.get("event", "message"), fields.get("id"), fields["data"]
            fields = {}


def _problem(content: bytes) -> JsonObject:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _seconds(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _given(**values: Any) -> JsonObject:
    return {name: value for name, value in values.items() if value is not None}


def _part(text: str) -> str:
    return quote(text, safe="")


def _session(session_id: str) -> str:
    return f"/v1/sessions/{_part(session_id)}"


def _turn(turn_id: str) -> str:
    return f"/v1/turns/{_part(turn_id)}"
