"""The addresses under `/ui` that take forms: signing in and out, deciding, writing to a park, sending again."""

from __future__ import annotations

import logging
from typing import Final

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from api.answers import SessionId
from api.context import api_of
from api.keys import Scope
from api.problems import HttpProblem, problem_of
from api.ui.decision import asked_now, park_name
from api.ui.operations import redrive
from api.ui.pages import PageRoute, page, see_other, session_path
from api.ui.routes import dead_letters_page, session_page
from api.ui.signin import (
    SignInNeeded,
    Visitor,
    begin_session,
    begin_visit,
    checked_form,
    end_session,
    form_token,
    safe_target,
    session_token,
    signins_of,
    visit_seed,
    visitor_of,
)
from core.errors import ArchmaxError
from worker.requests import DecisionRequest, ReplyRequest

logger = logging.getLogger(__name__)

router = APIRouter(prefix="/ui", route_class=PageRoute, include_in_schema=False)
_LOGIN: Final = "login"
_ONCE_CHARS: Final = 24


@router.get("/login")
async def sign_in(request: Request) -> Response:
    target = safe_target(request.query_params.get("next", "/ui"))
    if api_of(request).settings.auth_disabled:
        return see_other(target)
    try:
        await visitor_of(request)
    except (SignInNeeded, HttpProblem):
        return _login_page(request, target)
    return see_other(target)


@router.post("/login")
async def signed_in(request: Request) -> Response:
    seed = visit_seed(request)
    fields = await checked_form(request, seed, _LOGIN)
    target = safe_target(fields.get("next", "/ui"))
    signins = signins_of(request)
    address = request.client.host if request.client is not None else "unknown"
    await signins.tried(address)
    key = await api_of(request).keys.find(fields.get("key", "").strip())
    if key is None:
        logger.warning("sign-in refused", extra={"action": "ui_sign_in_refused", "address": address})
        return _login_page(request, target, 401, "This key is not known or was revoked.")
    if not key.allows(Scope.READ):
        return _login_page(request, target, 403, "This key lacks the scope 'read', which every page needs.")
    await signins.forgive(address)
    await signins.end(session_token(request))
    response = see_other(target)
    begin_session(request, response, await signins.begin(key))
    logger.info("signed in", extra={"action": "ui_signed_in", "key_id": key.id})
    return response


@router.post("/logout")
async def signed_out(request: Request) -> Response:
    visitor = await visitor_of(request)
    await checked_form(request, visitor.seed, "logout")
    await signins_of(request).end(session_token(request))
    response = see_other("/ui/login")
    end_session(request, response)
    return response


@router.post("/sessions/{session_id}/decide")
async def decide(request: Request, session_id: SessionId) -> Response:
    """The key's name is who decided."""
    visitor = await visitor_of(request)
    fields = await checked_form(request, visitor.seed, f"decide {session_id}")
    visitor.require(Scope.DECIDE)
    comment = fields.get("comment", "").replace("\r\n", "\n").strip()
    try:
        await _still_asked(request, visitor, session_id, fields.get("park", ""))
        asked = DecisionRequest(to=fields.get("to", ""), comment=comment or None)
        await api_of(request).service.decide(session_id, asked, visitor.caller, key=_key(fields))
    except (ArchmaxError, ValidationError) as error:
        code, alert = _refusal(error)
        return await session_page(request, visitor, session_id, code=code, alert=alert, comment=comment)
    logger.info("decided", extra={"action": "ui_decided", "session_id": session_id, "by": visitor.name})
    return see_other(f"{session_path(session_id)}?done=decided")


@router.post("/sessions/{session_id}/reply")
async def reply(request: Request, session_id: SessionId) -> Response:
    visitor = await visitor_of(request)
    fields = await checked_form(request, visitor.seed, f"reply {session_id}")
    visitor.require(Scope.DECIDE)
    message = fields.get("message", "").replace("\r\n", "\n").strip()
    try:
        await _still_asked(request, visitor, session_id, fields.get("park", ""))
        asked = ReplyRequest(message=message)
        await api_of(request).service.reply(session_id, asked, visitor.caller, key=_key(fields))
    except (ArchmaxError, ValidationError) as error:
        code, alert = _refusal(error)
        return await session_page(request, visitor, session_id, code=code, alert=alert)
    return see_other(f"{session_path(session_id)}?done=written")


@router.post("/dead-letters/redrive")
async def send_again(request: Request) -> Response:
    visitor = await visitor_of(request)
    fields = await checked_form(request, visitor.seed, "redrive")
    visitor.require(Scope.ENQUEUE)
    turn_id = fields.get("turn", "")
    try:
        accepted = await redrive(api_of(request).service, turn_id, visitor.caller)
    except ArchmaxError as error:
        code, alert = _refusal(error)
        return await dead_letters_page(request, visitor, code=code, alert=alert)
    logger.info("sent again", extra={"action": "ui_redriven", "turn_id": turn_id, "by": visitor.name})
    return see_other(f"{session_path(accepted.session)}?done=redriven")


async def _still_asked(request: Request, visitor: Visitor, session_id: str, park: str) -> None:
    """Whether the question is the one the page showed: what was read is what is decided. Raises: `HttpProblem`."""
    service = api_of(request).service
    pending = await asked_now(service, await service.session(session_id, visitor.caller))
    if pending is None or park_name(pending) != park:
        raise HttpProblem(
            "page-outdated",
            "this question was answered or has changed since the page was loaded; read it again",
        )


def _key(fields: dict[str, str]) -> str:
    """One turn for one drawn form, however often it is sent. Raises: `HttpProblem`."""
    once = fields.get("once", "")
    if len(once) != _ONCE_CHARS:
        raise HttpProblem("page-outdated", "this form is incomplete; load its page again")
    return f"ui/{once}"


def _refusal(error: ArchmaxError | ValidationError) -> tuple[int, str]:
    """Status and words for the page that is shown again."""
    if isinstance(error, ValidationError):
        return 422, "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
    body = problem_of(error)
    return int(body["status"]), str(body["detail"])


def _login_page(request: Request, target: str, code: int = 200, alert: str | None = None) -> Response:
    seed = visit_seed(request)
    response = page(
        request, "login.html", None, code=code, alert=alert, target=target, token=form_token(seed, _LOGIN)
    )
    begin_visit(request, response, seed)
    return response
