"""Event streams over SSE: recorded events with their id, live deltas without, a comment while it is quiet."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from typing import Final

from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response

from api.context import Api, api_of
from api.problems import HttpProblem, problem_of
from core.errors import ArchmaxError
from core.jsontext import text
from worker.events import parse_event_id
from worker.following import START, EventId, Told

#: names a position in a session's events
AFTER: Final = "Last-Event-ID"


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


def event_stream(request: Request, events: AsyncIterator[Told | None]) -> Response:
    """Raises: `HttpProblem`."""
    api = api_of(request)
    if api.streams >= api.settings.api_max_streams:
        raise HttpProblem("too-many-streams", "this process serves as many streams as it may; try again")
    return EventSourceResponse(
        _sent(api, events),
        ping=api.settings.api_heartbeat_seconds,
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        sep="\n",
    )


async def _sent(api: Api, events: AsyncIterator[Told | None]) -> AsyncGenerator[dict[str, str]]:
    with taken(api):
        try:
            async for told in events:
                if told is None:
                    continue
                item = {"event": str(told.event.get("type", "message")), "data": text(told.event)}
                if told.id is not None:
                    item["id"] = told.id
                yield item
        except ArchmaxError as error:
            yield {"event": "problem", "data": text(problem_of(error))}
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()
