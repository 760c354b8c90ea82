"""Event streams over SSE: recorded events with their id, live deltas without, a comment while it is quiet."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from typing import TypeAlias

from redis.exceptions import RedisError
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response

from api.context import Api, api_of
from api.keys import ApiKey
from api.problems import HttpProblem, problem_of
from core.errors import ArchmaxError
from core.jsontext import text
from worker.events import parse_event_id
from worker.following import START, EventId, Told

#: The live key of a request. Raises: `RedisError`, `StoreUnavailable`.
KeyOf: TypeAlias = Callable[[Request], Awaitable[ApiKey | None]]


def position(header: str | None, query: str | None) -> EventId:
    """Where a reader goes on: the header of a reconnecting one, else the query's. Raises: `HttpProblem`."""
    given = header or query
    if not given:
        return START
    parsed = parse_event_id(given)
    if parsed is None:
        raise HttpProblem("cursor", "an event id has four numbers: turn.fence.commit.index")
    return parsed


@contextlib.contextmanager
def taken(api: Api) -> Generator[None]:
    """One of the process's places for long requests. Raises: `HttpProblem`."""
    if api.streams >= api.settings.api_max_streams:
        raise HttpProblem("too-many-streams", "this process serves as many streams as it may; try again")
    api.streams += 1
    try:
        yield
    finally:
        api.streams -= 1


def event_stream(request: Request, events: AsyncIterator[Told | None], key_of: KeyOf) -> Response:
    """`events` as long as the key the stream was opened with lives: it is asked for at every heartbeat.

    `events` gives None at least as often. Raises: `HttpProblem`.
    """
    api = api_of(request)
    if api.streams >= api.settings.api_max_streams:
        raise HttpProblem("too-many-streams", "this process serves as many streams as it may; try again")
    return EventSourceResponse(
        _sent(request, events, key_of),
        ping=api.settings.api_heartbeat_seconds,
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        sep="\n",
    )


async def _sent(
    request: Request, events: AsyncIterator[Told | None], key_of: KeyOf
) -> AsyncGenerator[dict[str, str]]:
    api = api_of(request)
    asked = time.monotonic()
    with taken(api):
        try:
            async for told in events:
                if time.monotonic() - asked >= api.settings.api_heartbeat_seconds:
                    if not api.settings.auth_disabled and await key_of(request) is None:
                        raise HttpProblem(
                            "unauthenticated", "the key was revoked, or its user has signed out"
                        )
                    asked = time.monotonic()
                if told is None:
                    continue
                item = {"event": str(told.event.get("type", "message")), "data": text(told.event)}
                if told.id is not None:
                    item["id"] = told.id
                yield item
        except ArchmaxError as error:
            yield {"event": "problem", "data": text(problem_of(error))}
        except RedisError:  # a reader that connects again is told why
            return
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()
