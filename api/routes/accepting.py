"""Routes that accept inputs: start, message, decision, reply, delivery, batch, cancel, delete."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Body
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.answers import (
    OF_SESSION,
    OF_TURN,
    IdempotencyKeyHeader,
    SessionId,
    Slug,
    TurnId,
    accepted_answer,
    accepted_body,
    json_answer,
    problems,
    turn_body,
)
from api.auth import Administers, Decides, Enqueues
from api.context import api_of
from api.problems import problem_of
from api.shapes import AcceptedTurn, BatchAnswer, Turn
from core.errors import ArchmaxError
from core.jsontext import JsonObject
from worker.requests import (
    Asked,
    DecisionRequest,
    DeliveryRequest,
    MessageRequest,
    ReplyRequest,
    StartRequest,
)
from worker.service import Caller, FleetService

router = APIRouter(tags=["inputs"])
_STORED = {202: {"model": AcceptedTurn, "description": "accepted; the turn will be worked"}}
#: what any input may be refused with, besides what its body or its session is refused with
_INPUT = (
    "body-too-large",
    "unsupported-media-type",
    "validation",
    "idempotency-key-reused",
    "workflow-unknown",
    "workflow-load",
    "contract.unsupported",
    "webhook",
)
_MESSAGE = (
    "empty-message",
    "unknown-trigger",
    "unknown-session-trigger",
    "invalid-variable-name",
    "invalid-title",
    "signature",
    "workflow-disabled",
    "workflow-mismatch",
    "session-busy",
    "session-held-locally",
    "child-session",
    "session-not-resumable",
    "parked-state-removed",
    "missing-delivery-trigger",
)
_START = {**_STORED, **problems(*_INPUT, *_MESSAGE, "session-id", "invalid-key", "session-gone")}
_SEND = {**_STORED, **problems(*_INPUT, *_MESSAGE, *OF_SESSION)}
_ANSWER = (
    *_INPUT,
    *OF_SESSION,
    "session-not-parked",
    "parked-state-removed",
    "child-session",
    "session-held-locally",
)
_DECIDE = {**_STORED, **problems(*_ANSWER, "invalid-decision-target")}
_REPLY = {**_STORED, **problems(*_ANSWER, "empty-message")}
_DELIVER = {
    **_STORED,
    **problems(
        *_INPUT,
        *OF_SESSION,
        "session-not-awaiting-input",
        "missing-delivery-trigger",
        "invalid-variable-name",
        "empty-message",
        "unknown-trigger",
        "parked-state-removed",
        "child-session",
        "session-held-locally",
    ),
}
#: items of one batch accepted side by side
_BATCH_WIDTH = 8
MAX_BATCH = 100


@router.post("/workflows/{slug}/sessions", status_code=202, responses=_START, summary="Start a session")
async def start(
    request: Request,
    slug: Slug,
    caller: Enqueues,
    body: Annotated[
        StartRequest,
        Body(
            openapi_examples={
                "words": {"summary": "A message", "value": {"message": "Please refund order 7."}},
                "typed": {
                    "summary": "Variables of a trigger's signature",
                    "value": {"trigger": "order", "variables": {"order_id": "A-7", "amount": 12.5}},
                },
            }
        ),
    ],
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    return accepted_answer(await api_of(request).service.start(slug, body, caller, key=idempotency_key))


@router.post("/sessions/{session_id}/turns", status_code=202, responses=_SEND, summary="Send a message")
async def send(
    request: Request,
    session_id: SessionId,
    caller: Enqueues,
    body: Annotated[MessageRequest, Body(examples=[{"message": "Also send me the invoice."}])],
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    return accepted_answer(await api_of(request).service.send(session_id, body, caller, key=idempotency_key))


@router.post(
    "/sessions/{session_id}/decisions",
    status_code=202,
    responses=_DECIDE,
    summary="Decide a parked session",
)
async def decide(
    request: Request,
    session_id: SessionId,
    caller: Decides,
    body: Annotated[DecisionRequest, Body(examples=[{"to": "pay", "comment": "checked with finance"}])],
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    return accepted_answer(
        await api_of(request).service.decide(session_id, body, caller, key=idempotency_key)
    )


@router.post(
    "/sessions/{session_id}/replies",
    status_code=202,
    responses=_REPLY,
    summary="Write to a session parked for a decision",
)
async def reply(
    request: Request,
    session_id: SessionId,
    caller: Decides,
    body: Annotated[ReplyRequest, Body(examples=[{"message": "Which account does it go to?"}])],
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    return accepted_answer(await api_of(request).service.reply(session_id, body, caller, key=idempotency_key))


@router.post(
    "/sessions/{session_id}/deliveries",
    status_code=202,
    responses=_DELIVER,
    summary="Deliver what a session waits for",
)
async def deliver(
    request: Request,
    session_id: SessionId,
    caller: Enqueues,
    body: Annotated[
        DeliveryRequest, Body(examples=[{"trigger": "payment", "variables": {"paid_at": "2031-05-09"}}])
    ],
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    return accepted_answer(
        await api_of(request).service.deliver(session_id, body, caller, key=idempotency_key)
    )


class BatchStart(StartRequest):
    """Start a session."""

    op: Literal["start"]
    workflow: str = Field(max_length=200, description="slug of the workflow")
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=255, description="of this item, as the header of a request"
    )


class BatchSend(MessageRequest):
    """Send a message to a session."""

    op: Literal["send"]
    session_id: str = Field(max_length=200, description="the session it goes to")
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=255, description="of this item, as the header of a request"
    )


class BatchDeliver(DeliveryRequest):
    """Deliver what a session waits for."""

    op: Literal["deliver"]
    session_id: str = Field(max_length=200, description="the session it goes to")
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=255, description="of this item, as the header of a request"
    )


BatchOperation = Annotated[BatchStart | BatchSend | BatchDeliver, Field(discriminator="op")]


class BatchRequest(Asked):
    """Inputs accepted or refused one by one; those of one session in the order given."""

    items: list[BatchOperation] = Field(
        min_length=1, max_length=MAX_BATCH, description="`op` says what each is: `start`, `send` or `deliver`"
    )


@router.post(
    "/batch",
    responses={
        200: {"model": BatchAnswer, "description": "one answer an item"},
        **problems("body-too-large", "unsupported-media-type", "validation"),
    },
    summary="Enqueue many inputs",
)
async def batch(
    request: Request,
    caller: Enqueues,
    body: Annotated[
        BatchRequest,
        Body(examples=[{"items": [{"op": "start", "workflow": "refund", "message": "Refund order 7."}]}]),
    ],
) -> Response:
    service = api_of(request).service
    lanes: dict[str, list[int]] = {}
    for index, item in enumerate(body.items):
        session = item.session_id
        lanes.setdefault(f"s{session}" if session else f"n{index}", []).append(index)
    answers: list[JsonObject] = [{} for _ in body.items]
    room = asyncio.Semaphore(_BATCH_WIDTH)

    async def lane(indexes: list[int]) -> None:
        for index in indexes:
            async with room:
                answers[index] = await _one(service, body.items[index], caller)

    async with asyncio.TaskGroup() as group:
        for indexes in lanes.values():
            group.create_task(lane(indexes))
    return json_answer({"items": answers})


async def _one(
    service: FleetService, item: BatchStart | BatchSend | BatchDeliver, caller: Caller
) -> JsonObject:
    own = {"op", "workflow", "idempotency_key"}
    given = {name: getattr(item, name) for name in item.model_fields_set if name not in own}
    key = item.idempotency_key
    try:
        match item:
            case BatchStart():
                accepted = await service.start(item.workflow, StartRequest(**given), caller, key=key)
            case BatchSend():
                given.pop("session_id")
                accepted = await service.send(item.session_id, MessageRequest(**given), caller, key=key)
            case BatchDeliver():
                given.pop("session_id")
                accepted = await service.deliver(item.session_id, DeliveryRequest(**given), caller, key=key)
    except ArchmaxError as error:
        refused = problem_of(error)
        return {"status": refused["status"], "problem": refused}
    return {"status": 202, "turn": accepted_body(accepted)}


@router.delete(
    "/turns/{turn_id}",
    status_code=202,
    responses={
        202: {"model": Turn, "description": "the cancel is stored; the turn says how it ended"},
        **problems(*OF_TURN, "turn-over"),
    },
    summary="Cancel a turn",
)
async def cancel(request: Request, turn_id: TurnId, caller: Enqueues) -> Response:
    return json_answer(turn_body(await api_of(request).service.cancel(turn_id, caller)), 202)


@router.delete(
    "/sessions/{session_id}",
    status_code=202,
    responses={
        202: {"model": AcceptedTurn, "description": "the deletion is stored as the session's next turn"},
        **problems(*OF_SESSION, "idempotency-key-reused", "child-session"),
    },
    summary="Delete a session and its children",
)
async def delete(
    request: Request,
    session_id: SessionId,
    caller: Administers,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    return accepted_answer(await api_of(request).service.delete(session_id, caller, key=idempotency_key))
