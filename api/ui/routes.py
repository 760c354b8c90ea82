"""The addresses under `/ui` that only read: lists, a session, its files and its events."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.answers import SessionId, decoded_path
from api.context import api_of
from api.files import file_response
from api.keys import Scope
from api.problems import HttpProblem
from api.streams import event_stream, position
from api.ui.decision import decision_of, queued
from api.ui.lists import STATUSES, Asked, fingerprint, search, waiting
from api.ui.operations import dead_turns, schedules, timers
from api.ui.pages import FOLDER, PageRoute, page, see_other, session_path
from api.ui.signin import Visitor, signed_in_key, visitor_of
from api.ui.story import drawing, recorded, trail_of, transcript
from core.errors import ArchmaxError
from core.jsontext import JsonObject
from engine.models.usage import UsageSummary
from engine.session.outcome import delegation_of
from worker.following import SETTLED_INDEX, Told
from worker.reading import SessionView
from worker.refusals import SessionUnknown
from worker.session_index import Filters

router = APIRouter(prefix="/ui", route_class=PageRoute, include_in_schema=False)

STATIC: Final = {"ui.css": "text/css", "ui.js": "text/javascript", "icon.svg": "image/svg+xml"}
#: how often a list's stream looks whether the list has changed
LOOK_SECONDS: Final = 1.0
_CHILDREN: Final = 100
_LAST: Final = 999_999_999
#: what a page says after a form, by the word in its address
DONE: Final = {
    "decided": "Your decision is on its way; the session goes on.",
    "written": "Your message is on its way; the session stays parked.",
    "redriven": "The input was sent again as a new turn.",
}


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    if name not in STATIC:
        raise HttpProblem("not-found", "there is no such file")
    content = await asyncio.to_thread((FOLDER / "static" / name).read_bytes)
    tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, STATIC[name])


@router.get("")
@router.get("/")
async def first(request: Request) -> Response:
    """The inbox when something waits there, else the sessions."""
    visitor = await visitor_of(request)
    items, _ = await waiting(api_of(request).service, visitor.caller, 1)
    return see_other("/ui/inbox" if items else "/ui/sessions")


@router.get("/inbox")
async def inbox(request: Request) -> Response:
    visitor = await visitor_of(request)
    service = api_of(request).service
    items, whole = await waiting(service, visitor.caller)
    chosen = request.query_params.get("session")
    values: dict[str, Any] = {
        "items": items,
        "whole": whole,
        "chosen": chosen,
        "decision": None,
        "view": None,
    }
    if chosen is not None:
        view = await service.session(chosen, visitor.caller)
        values |= await _parked(request, visitor, view)
    return page(request, "inbox.html", visitor, waiting_count=len(items), **values)


@router.get("/sessions")
async def sessions(request: Request) -> Response:
    visitor = await visitor_of(request)
    service = api_of(request).service
    asked = Asked.of(request.query_params)
    found, workflows = await asyncio.gather(
        search(service, asked, visitor.caller), service.workflows(visitor.caller)
    )
    return page(
        request,
        "sessions.html",
        visitor,
        asked=asked,
        found=found,
        workflows=workflows,
        statuses=STATUSES,
        query=request.url.query,
        waiting_count=await _count(request, visitor),
    )


@router.get("/changes")
async def changes(request: Request) -> Response:
    """Tells a list that it has changed."""
    visitor = await visitor_of(request)
    asked = Asked.of(request.query_params)
    return event_stream(request, _changes(request, visitor, asked), signed_in_key)


@router.get("/sessions/{session_id}")
async def session(request: Request, session_id: SessionId) -> Response:
    visitor = await visitor_of(request)
    return await session_page(request, visitor, session_id)


async def session_page(
    request: Request,
    visitor: Visitor,
    session_id: str,
    *,
    code: int = 200,
    alert: str | None = None,
    comment: str = "",
) -> Response:
    """One session; `alert` says why a form was not accepted, `comment` is what was written in it."""
    service = api_of(request).service
    try:
        view = await service.session(session_id, visitor.caller)
    except SessionUnknown:
        # accepted, and not begun: there is nothing to show of it yet
        workflow = await service.workflow_of(session_id, visitor.caller)
        return page(
            request,
            "queued.html",
            visitor,
            session=session_id,
            workflow=workflow,
            waiting_count=await _count(request, visitor),
        )
    state = view.state
    waits = not view.open and await queued(service, view)
    known = recorded(await service.reader.records(state.session_id))
    graph = None
    problem = None
    try:
        graph = drawing(await service.spec(view.head.workflow, visitor.caller), state)
    except ArchmaxError as error:
        problem = str(error)
    start = request.query_params.get("from", "")
    children = await service.sessions(Filters(parent=state.session_id), visitor.caller, limit=_CHILDREN)
    title = state.variables.get("title")
    words = await _parked(request, visitor, view)
    return page(
        request,
        "session.html",
        visitor,
        code=code,
        alert=alert,
        done=DONE.get(request.query_params.get("done", "")),
        comment=comment,
        title=str(title.value) if title is not None else None,
        status="running" if view.open else "queued" if waits else state.status,
        graph=graph,
        problem=problem,
        trail=trail_of(state, known.decisions),
        transcript=transcript(state, known, int(start) if _is_number(start) else None),
        files=await service.files(state.session_id, visitor.caller),
        children=children,
        delegation=delegation_of(state),
        usage=UsageSummary.from_json(state.usage),
        events=f"{session_path(state.session_id)}/events?after={_now(view)}",
        waiting_count=await _count(request, visitor),
        **words,
    )


@router.get("/sessions/{session_id}/events")
async def events(request: Request, session_id: SessionId) -> Response:
    visitor = await visitor_of(request)
    after = position(request.headers.get("last-event-id"), request.query_params.get("after"))
    followed = await api_of(request).service.events(session_id, after, visitor.caller)
    return event_stream(request, followed, signed_in_key)


@router.get("/sessions/{session_id}/files/{path:path}")
async def file(request: Request, session_id: SessionId, path: str) -> Response:
    visitor = await visitor_of(request)
    name = decoded_path(path)
    content = await api_of(request).service.file(session_id, name, visitor.caller)
    if content is None:
        raise HttpProblem("file-unknown", f"the session has no file {name!r}")
    return file_response(request, name, content, hashlib.sha256(content).hexdigest()[:32])


@router.get("/schedules")
async def planned(request: Request) -> Response:
    visitor = await visitor_of(request)
    service = api_of(request).service
    lines, parked, count = await asyncio.gather(
        schedules(service, visitor.caller), timers(service, visitor.caller), _count(request, visitor)
    )
    return page(request, "schedules.html", visitor, schedules=lines, timers=parked, waiting_count=count)


@router.get("/dead-letters")
async def dead_letters(request: Request) -> Response:
    return await dead_letters_page(request, await visitor_of(request))


async def dead_letters_page(
    request: Request, visitor: Visitor, *, code: int = 200, alert: str | None = None
) -> Response:
    service = api_of(request).service
    turns, count = await asyncio.gather(dead_turns(service, visitor.caller), _count(request, visitor))
    # a webhook's target is the business of administrators, as at /v1/webhooks/dead
    webhooks = await service.dead_webhooks(visitor.caller) if visitor.may(Scope.ADMIN) else None
    return page(
        request,
        "dead.html",
        visitor,
        code=code,
        alert=alert,
        turns=turns,
        webhooks=webhooks,
        waiting_count=count,
    )


@router.get("/{rest:path}")
async def nothing(request: Request, rest: str) -> Response:
    raise HttpProblem("not-found", "there is no such page")


async def _parked(request: Request, visitor: Visitor, view: SessionView) -> JsonObject:
    decision = await decision_of(api_of(request).service, view, visitor.caller)
    return {"view": view, "decision": decision, "once": secrets.token_urlsafe(18)}


async def _count(request: Request, visitor: Visitor) -> int:
    items, _ = await waiting(api_of(request).service, visitor.caller, 100)
    return len(items)


async def _changes(request: Request, visitor: Visitor, asked: Asked) -> AsyncGenerator[Told | None]:
    service = api_of(request).service
    before: str | None = None
    while True:
        now = await fingerprint(service, asked, visitor.caller)
        yield Told(None, {"type": "changed"}) if before not in (None, now) else None
        before = now
        await asyncio.sleep(LOOK_SECONDS)


def _now(view: SessionView) -> str:
    """The position behind everything this view shows: an open turn is told from its beginning."""
    turn = view.head.turn - 1 if view.open else view.head.turn
    return f"{turn}.{_LAST}.0.{SETTLED_INDEX}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 9
