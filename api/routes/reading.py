"""Routes that read turns and sessions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from api.answers import (
    NOT_MODIFIED,
    OF_SESSION,
    OF_TURN,
    SessionId,
    TurnId,
    joined,
    json_answer,
    offset_page,
    problems,
    tagged,
    turn_body,
)
from api.auth import Reads, sent_key
from api.context import api_of
from api.problems import HttpProblem
from api.shapes import HistoryPage, SessionPage, SessionSummary, Trail, Turn, Variables
from api.streams import event_stream, position, taken
from core.jsontext import JsonObject
from engine.session.messages import history_entry
from engine.session.outcome import summary_of
from worker.reading import SessionView, split_turn_id
from worker.session_index import Filters

router = APIRouter(tags=["reading"])
_OF_SESSION = {**NOT_MODIFIED, **problems(*OF_SESSION)}
Limit = Annotated[int, Query(ge=1, le=500, description="items of one page")]
Cursor = Annotated[str | None, Query(max_length=2_000, description="where the page before ended")]
After = Annotated[
    str | None, Query(max_length=60, description="as `Last-Event-ID`, for clients that cannot set it")
]
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=60,
        description="go on behind this event; browsers send it by themselves",
    ),
]
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "server-sent events: `id` is `turn.fence.commit.index`, `data` a JSON event; live deltas carry no id",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get(
    "/turns/{turn_id}",
    responses={200: {"model": Turn}, **NOT_MODIFIED, **problems(*OF_TURN, "too-many-streams")},
    summary="Read a turn",
)
async def read_turn(
    request: Request,
    turn_id: TurnId,
    caller: Reads,
    wait: Annotated[
        float, Query(ge=0, le=3600, description="seconds to wait for its end; bounded by the server")
    ] = 0,
) -> Response:
    api = api_of(request)
    if wait > 0:
        with taken(api):
            seconds = min(wait, api.settings.api_max_wait_seconds)
            return tagged(request, turn_body(await api.service.wait(turn_id, seconds, caller)))
    return tagged(request, turn_body(await api.service.turn(turn_id, caller)))


@router.get(
    "/turns/{turn_id}/events",
    responses={**_STREAM, **problems(*OF_TURN, "session-unknown", "cursor", "too-many-streams")},
    summary="Follow a turn until it settles",
)
async def turn_events(
    request: Request, turn_id: TurnId, caller: Reads, after: After = None, last_event_id: LastEventId = None
) -> Response:
    start = position(last_event_id, after)
    service = api_of(request).service
    await service.turn(turn_id, caller)
    session, n = split_turn_id(turn_id)
    return event_stream(request, await service.events(session, start, caller, turn=n), sent_key)


@router.get(
    "/sessions/{session_id}/events",
    responses={**_STREAM, **problems(*OF_SESSION, "cursor", "too-many-streams")},
    summary="Follow a session",
)
async def session_events(
    request: Request,
    session_id: SessionId,
    caller: Reads,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    start = position(last_event_id, after)
    events = await api_of(request).service.events(session_id, start, caller)
    return event_stream(request, events, sent_key)


@router.get(
    "/sessions",
    responses={200: {"model": SessionPage}, **problems("validation", "cursor", "index-unavailable")},
    summary="List sessions",
)
async def sessions(
    request: Request,
    caller: Reads,
    status: Annotated[
        list[str] | None,
        Query(
            description="`queued`, `running`, `awaiting_decision`, `awaiting_input`, `completed`, `failed`, `rejected`; any "
            "of them, given several times or separated by commas"
        ),
    ] = None,
    workflow: Annotated[list[str] | None, Query(description="slugs; any of them")] = None,
    label: Annotated[list[str] | None, Query(description="`name:value`; all must hold")] = None,
    updated_after: Annotated[
        int | None, Query(alias="updatedAfter", ge=0, le=2**53, description="epoch milliseconds")
    ] = None,
    updated_before: Annotated[
        int | None, Query(alias="updatedBefore", ge=0, le=2**53, description="epoch milliseconds")
    ] = None,
    parent: Annotated[str | None, Query(max_length=400, description="children of this session only")] = None,
    children: Annotated[bool, Query(description="child sessions, too")] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    labels: list[tuple[str, str]] = []
    for word in label or ():
        name, colon, value = word.partition(":")
        if not colon:
            raise HttpProblem("validation", "#/query/label: a label filter is name:value")
        labels.append((name, value))
    filters = Filters(
        status=frozenset(joined(status)) if status else None,
        workflows=frozenset(joined(workflow)) if workflow else None,
        labels=labels,
        updated_after=updated_after,
        updated_before=updated_before,
        parent=parent,
        children=children,
    )
    page = await api_of(request).service.sessions(filters, caller, cursor=cursor, limit=limit)
    return json_answer({"items": page.items, "cursor": page.cursor, "complete": page.whole})


@router.get(
    "/sessions/{session_id}",
    responses={200: {"model": SessionSummary}, **_OF_SESSION},
    summary="Read a session",
)
async def session(request: Request, session_id: SessionId, caller: Reads) -> Response:
    view = await api_of(request).service.session(session_id, caller)
    return tagged(request, session_body(view), version=view.version)


def session_body(view: SessionView) -> JsonObject:
    state = view.state
    body: JsonObject = {
        **summary_of(state),
        "workflow": view.head.workflow,
        "turn": view.head.turn,
        "busy": view.open,
        "messageCount": len(state.messages),
    }
    for name, value in (
        ("pendingDecision", state.pending_decision),
        ("pendingInput", state.pending_input),
        ("pendingDelegations", state.pending_delegations),
        ("labels", state.labels),
        ("todos", state.todos),
        ("trigger", state.trigger),
        ("rejected", state.rejected),
        ("createdAt", state.created_at),
        ("updatedAt", state.updated_at),
    ):
        if value:
            body[name] = value
    return body


@router.get(
    "/sessions/{session_id}/history",
    responses={200: {"model": HistoryPage}, **NOT_MODIFIED, **problems(*OF_SESSION, "cursor")},
    summary="Read a session's conversation",
)
async def history(
    request: Request, session_id: SessionId, caller: Reads, cursor: Cursor = None, limit: Limit = 100
) -> Response:
    view = await api_of(request).service.session(session_id, caller)
    messages, following = offset_page(view.state.messages, cursor, limit)
    return tagged(request, {"items": [history_entry(message) for message in messages], "cursor": following})


@router.get(
    "/sessions/{session_id}/trail",
    responses={200: {"model": Trail}, **_OF_SESSION},
    summary="Read how a session moved",
)
async def trail(request: Request, session_id: SessionId, caller: Reads) -> Response:
    view = await api_of(request).service.session(session_id, caller)
    return tagged(request, {"items": view.state.trail})


@router.get(
    "/sessions/{session_id}/variables",
    responses={200: {"model": Variables}, **_OF_SESSION},
    summary="Read a session's variables",
)
async def variables(request: Request, session_id: SessionId, caller: Reads) -> Response:
    view = await api_of(request).service.session(session_id, caller)
    held = {name: variable.to_json() for name, variable in view.state.variables.items()}
    return tagged(request, {"variables": held})
