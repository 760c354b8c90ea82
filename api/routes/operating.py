"""Routes for operators: queues and workers, keys, webhooks that were given up."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.answers import json_answer, problems
from api.auth import Administers, Reads
from api.context import api_of
from api.shapes import DeadLetters, FleetStatus, KeyList
from worker.status import queue_lengths

router = APIRouter(tags=["operating"])


@router.get(
    "/fleet",
    responses={200: {"model": FleetStatus}, **problems("index-unavailable")},
    summary="Queues and workers right now",
)
async def fleet(request: Request, caller: Reads) -> Response:
    api = api_of(request)
    # the queues first: where the broker does not answer, nobody is asked
    queues = await queue_lengths(api.service.client, await api.service.workflows(caller))
    return json_answer({"queues": queues, "workers": await api.roll.call()})


@router.get("/keys", responses={200: {"model": KeyList}, **problems()}, summary="List API keys")
async def keys(request: Request, caller: Administers) -> Response:
    """A key bound to workflows sees those that reach no others."""
    keys = await api_of(request).keys.every()
    return json_answer({"items": [key.to_json() for key in keys if key.within(caller.workflows)]})


@router.get(
    "/webhooks/dead", responses={200: {"model": DeadLetters}, **problems()}, summary="Webhooks given up"
)
async def dead(request: Request, caller: Administers) -> Response:
    return json_answer({"items": await api_of(request).service.dead_webhooks(caller)})
