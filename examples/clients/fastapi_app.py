"""A shop that hands refunds to a fleet: FastAPI, and the fleet's API by plain HTTP.

    ARCHMAX_KEY=amx_… uvicorn fastapi_app:app --port 9000

Browsers talk to the shop alone, the fleet's key stays here. One order is one session, so the shop keeps no table of ids.
"""

import hashlib
import hmac
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, Header, HTTPException, Path, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

FLEET = os.environ.get("ARCHMAX_URL", "http://127.0.0.1:8000")
KEY = os.environ["ARCHMAX_KEY"]
#: the fleet's, to check that a webhook comes from it; and where the fleet reaches this shop
SECRET = os.environ.get("ARCHMAX_WEBHOOK_SECRET", "")
PUBLIC_URL = os.environ.get("SHOP_URL", "")
OLDEST_SECONDS = 300


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with httpx.AsyncClient(
        base_url=FLEET,
        headers={"Authorization": f"Bearer {KEY}"},
        # a quiet event stream sends a comment every 15 seconds
        timeout=httpx.Timeout(10, read=60),
    ) as fleet:
        app.state.fleet = fleet
        app.state.told = {}
        yield


app = FastAPI(title="Shop", lifespan=lifespan)


def connection(request: Request) -> httpx.AsyncClient:
    found: httpx.AsyncClient = request.app.state.fleet
    return found


Fleet = Annotated[httpx.AsyncClient, Depends(connection)]
Order = Annotated[str, Path(pattern=r"^[A-Z]{2}-[0-9]{4}$")]


class Refund(BaseModel):
    customer: str
    why: str


class Decision(BaseModel):
    to: str
    comment: str | None = None


def session_of(order: str) -> str:
    return f"refund-{order}"


async def asked(fleet: httpx.AsyncClient, method: str, path: str, **given: Any) -> Any:
    """The fleet's answer. Its refusals become the shop's own: `code` is stable, `detail` is for people."""
    try:
        answer = await fleet.request(method, path, **given)
    except httpx.TransportError:
        raise HTTPException(503, "the fleet does not answer", {"Retry-After": "5"}) from None
    if answer.is_success:
        return answer.json()
    if answer.status_code in (401, 403):
        raise HTTPException(502, "the shop's key is not accepted")
    retry = answer.headers.get("retry-after")
    raise HTTPException(
        answer.status_code, answer.json()["detail"], {"Retry-After": retry} if retry else None
    )


@app.post("/refunds/{order}", status_code=202)
async def ask(order: Order, refund: Refund, fleet: Fleet) -> dict[str, str]:
    """Enqueue. The key makes it safe to send again: the same order and words are the same turn."""
    body: dict[str, Any] = {
        "sessionId": session_of(order),
        "message": f"From: {refund.customer} — {order}: {refund.why}",
        "labels": {"order": order},
    }
    if PUBLIC_URL:
        body["webhook"] = {"url": f"{PUBLIC_URL}/hooks/fleet"}
    turn = await asked(
        fleet,
        "POST",
        "/v1/workflows/order-desk/sessions",
        json=body,
        headers={"Idempotency-Key": f"refund/{order}"},
    )
    return {"order": order, "turn": turn["turnId"]}


@app.get("/refunds/{order}")
async def show(order: Order, fleet: Fleet) -> dict[str, Any]:
    """Where it stands. `ways` are the answers a person can give now."""
    session = await asked(fleet, "GET", f"/v1/sessions/{session_of(order)}")
    pending = session.get("pendingDecision") or {}
    ways = [{"to": way["to"], "means": way["description"]} for way in pending.get("transitions", ())]
    return {"order": order, "status": session["status"], "ways": ways}


@app.get("/refunds/{order}/events")
async def follow(
    order: Order, fleet: Fleet, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """For `new EventSource("/refunds/SO-4101/events")`: it reconnects by itself, with the id of the last event it saw."""
    position = {"Last-Event-ID": last_event_id} if last_event_id else {}
    request = fleet.build_request("GET", f"/v1/sessions/{session_of(order)}/events", headers=position)
    answer = await fleet.send(request, stream=True)
    if not answer.is_success:
        await answer.aclose()
        raise HTTPException(answer.status_code, "there is nothing to follow")

    async def passed_on() -> AsyncGenerator[bytes]:
        try:
            async for chunk in answer.aiter_raw():
                yield chunk
        finally:
            await answer.aclose()

    return StreamingResponse(
        passed_on(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


@app.post("/refunds/{order}/decision", status_code=202)
async def decide(order: Order, decision: Decision, fleet: Fleet) -> dict[str, str]:
    """Needs a key with the scope `decide`; its name is recorded as who decided, so say in the comment for whom."""
    turn = await asked(
        fleet, "POST", f"/v1/sessions/{session_of(order)}/decisions", json=decision.model_dump()
    )
    return {"order": order, "turn": turn["turnId"]}


@app.post("/hooks/fleet", status_code=204)
async def told(request: Request, archmax_signature: Annotated[str, Header()]) -> None:
    """The fleet tells how a turn ended, or that it waits. It tells at least once, so keep what is told under its turn."""
    body = await request.body()
    if not genuine(archmax_signature, body):
        raise HTTPException(401, "not signed by the fleet")
    event = await request.json()
    request.app.state.told[event["turnId"]] = event


@app.get("/told")
async def heard(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = request.app.state.told
    return found


def genuine(header: str, body: bytes) -> bool:
    """Whether `Archmax-Signature: t=<seconds>,v1=<hex>` is the fleet's, over this body, and fresh."""
    fields = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    at = fields.get("t", "")
    if not SECRET or not (at.isascii() and at.isdigit()) or abs(time.time() - int(at)) > OLDEST_SECONDS:
        return False
    expected = hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), fields.get("v1", "").encode())
