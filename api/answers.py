"""Answers and the parameters routes share: JSON bodies, ETags, links, path ids, documented problems."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

from fastapi import Depends, Header, Path
from starlette.requests import Request
from starlette.responses import Response

from api.problems import MEDIA_TYPE, STATUS, TITLES, HttpProblem
from core.jsontext import Json, JsonObject, clean, dumps
from worker.protocol.accept import Accepted
from worker.reading import TurnView

#: what any route under `/v1` may answer
ALWAYS: Final = (
    "unauthenticated",
    "forbidden",
    "rate-limited",
    "internal",
    "broker-unavailable",
    "store-unavailable",
    "newer-format",
    "head-moved",
)
#: of a path that names a session, and one that names a turn
OF_SESSION: Final = (
    "session-unknown",
    "session-gone",
    "not-found",
    "session-id",
    "invalid-key",
    "validation",
)
OF_TURN: Final = ("turn-unknown", "session-gone", "not-found", "session-id", "invalid-key", "validation")
NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "the reader has this version (`If-None-Match`)"}
}


def problems(*codes: str) -> dict[int | str, dict[str, Any]]:
    """`responses=` of a route that refuses with these codes, beside those of every route."""
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys((*ALWAYS, *codes)):
        by_status.setdefault(STATUS[code], []).append(code)
    return {
        status: {
            "description": f"{TITLES[status]}: {', '.join(f'`{code}`' for code in listed)}",
            "content": {MEDIA_TYPE: {"schema": _problem_schema(listed)}},
        }
        for status, listed in sorted(by_status.items())
    }


def _problem_schema(codes: list[str]) -> JsonObject:
    shape = {"$ref": "#/components/schemas/Problem"}
    return {"allOf": [shape, {"type": "object", "properties": {"code": {"enum": codes}}}]}


def json_answer(body: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(clean(body)), status, headers, "application/json")


def tagged(request: Request, body: Json, *, version: str | None = None) -> Response:
    """A body under its ETag, or 304 when the reader has it. `version` names the content without hashing it."""
    content = dumps(clean(body))
    seed = content if version is None else version.encode()
    tag = f'W/"{hashlib.sha256(seed).hexdigest()[:24]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if matches(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, "application/json")


def matches(request: Request, tag: str) -> bool:
    asked = request.headers.get("if-none-match", "")
    known = [item.strip().removeprefix("W/") for item in asked.split(",")]
    return "*" in known or tag.removeprefix("W/") in known


def _decoded(text: str) -> str:
    """Raises: `HttpProblem` for what is no percent-encoded UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise HttpProblem("not-found", "the path is not percent-encoded UTF-8") from None


def _session_id(
    session_id: Annotated[str, Path(description="the session's id, percent-encoded", examples=["order-7"])],
) -> str:
    return _decoded(session_id)


def _turn_id(
    turn_id: Annotated[str, Path(description="`<session>.<n>`, percent-encoded", examples=["order-7.1"])],
) -> str:
    return _decoded(turn_id)


def decoded_path(path: str) -> str:
    return _decoded(path)


SessionId = Annotated[str, Depends(_session_id)]
Slug = Annotated[str, Path(description="slug of the workflow")]
TurnId = Annotated[str, Depends(_turn_id)]
IdempotencyKeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="the same key with the same body is the same turn for a day; with another body it is refused",
    ),
]


def links(session: str, n: int) -> JsonObject:
    turn = f"/v1/turns/{quote(f'{session}.{n}', safe='')}"
    return {"turn": turn, "events": f"{turn}/events", "session": f"/v1/sessions/{quote(session, safe='')}"}


def accepted_body(accepted: Accepted) -> JsonObject:
    return {
        "turnId": f"{accepted.session}.{accepted.n}",
        "sessionId": accepted.session,
        "status": "queued",
        "repeated": accepted.repeated,
        "links": links(accepted.session, accepted.n),
    }


def accepted_answer(accepted: Accepted) -> Response:
    body = accepted_body(accepted)
    return json_answer(body, 202, {"location": body["links"]["turn"]})


def turn_body(view: TurnView) -> JsonObject:
    return {**view.to_json(), "links": links(view.session, view.n)}


def offset_page(items: list[Any], cursor: str | None, limit: int) -> tuple[list[Any], str | None]:
    """A page of a list that only grows. Raises: `HttpProblem`."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 12):
        raise HttpProblem("cursor", "this cursor was not given out by this list")
    start = int(cursor or 0)
    end = start + limit
    return items[start:end], str(end) if end < len(items) else None


def joined(words: Iterable[str]) -> list[str]:
    """Query values given several times or separated by commas."""
    return [part.strip() for word in words for part in word.split(",") if part.strip()]
