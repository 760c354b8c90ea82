"""Problem details (RFC 9457): which status each error has, and one shape for all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from core.errors import ArchmaxError
from core.jsontext import JsonObject, dumps
from engine.errors import InvalidDecisionTargetError, UnknownTriggerError
from worker.protocol.errors import TurnOver
from worker.reading import shown_outcome
from worker.refusals import SignatureRefused
from worker.requests import MAX_ERRORS

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
#: documented under docs/web-developers.md#problems
TYPE_BASE: Final = "urn:archmax:problem:"

#: every code: its HTTP status, and what it means
CODES: Final[Mapping[str, tuple[int, str]]] = {
    "unauthenticated": (401, "no key was sent, or one that is not known or was revoked"),
    "forbidden": (403, "the key lacks the scope; or keys are off and the request comes from elsewhere"),
    "not-found": (404, "there is no such route, or the path is no percent-encoded UTF-8"),
    "workflow-unknown": (404, "no such workflow, or the key is not bound to it"),
    "session-unknown": (404, "no such session, or one of a workflow the key is not bound to"),
    "turn-unknown": (404, "no such turn, or one of a workflow the key is not bound to"),
    "file-unknown": (404, "the session has no such file or artifact"),
    "method-not-allowed": (405, "the route has other methods"),
    "session-not-parked": (409, "the session waits for no decision"),
    "session-not-awaiting-input": (409, "the session waits for no delivery"),
    "session-not-resumable": (409, "the session cannot go on from where it stands"),
    "invalid-decision-target": (409, "`to` is none of the transitions in `validTargets`"),
    "parked-state-removed": (409, "the workflow has no longer the state the session is parked in"),
    "session-busy": (409, "`onBusy: reject`, and a turn is running or waiting"),
    "session-held-locally": (409, "a process outside the fleet works on the session"),
    "child-session": (409, "a sub-workflow's session takes inputs from the session that called it only"),
    "turn-over": (409, "the turn has ended; `outcome` says how"),
    "workflow-mismatch": (409, "the session belongs to another workflow"),
    "workflow-disabled": (409, "the workflow takes no new sessions"),
    "workflow-load": (409, "the workflow's document is broken"),
    "contract.unsupported": (409, "the workflow asks for another version of the runtime"),
    "idempotency-key-reused": (409, "the key was used before, for another request"),
    "page-outdated": (409, "an operator's page shows what is no longer so"),
    "session-gone": (410, "the session was deleted"),
    "body-too-large": (413, "the body is longer than the server, or this key, allows"),
    "unsupported-media-type": (415, "the body is not `application/json`"),
    "range-not-satisfiable": (416, "the range lies behind the file's end"),
    "validation": (422, "the request is not of the documented shape; `errors` says where"),
    "signature": (422, "the variables are not what the trigger asks for; `errors` says which"),
    "empty-message": (422, "the message is empty"),
    "unknown-trigger": (422, "the workflow has no such trigger; `available` lists them"),
    "unknown-session-trigger": (422, "the workflow has no such trigger"),
    "missing-delivery-trigger": (422, "a delivery names no trigger"),
    "invalid-variable-name": (422, "a variable's name is not allowed"),
    "invalid-title": (422, "`title` is no short line of text"),
    "session-id": (422, "this id may not be used"),
    "invalid-key": (422, "an id is too long to be stored"),
    "webhook": (422, "the address may not be told: it is not public, no URL, or the fleet has no secret"),
    "cursor": (422, "no list gave out this cursor, or no stream this event id"),
    "rate-limited": (429, "this key asks too often; `Retry-After` says when to come back"),
    "internal": (500, "the server failed; its log says why"),
    "broker-unavailable": (503, "the broker does not answer; nothing was accepted"),
    "store-unavailable": (503, "the store does not answer; send an input again with its idempotency key"),
    "index-unavailable": (503, "lists run on an index in Redis, which does not answer"),
    "too-many-streams": (503, "this process serves as many streams and waits as it may"),
    "newer-format": (503, "a newer version wrote what this one cannot read; it is being upgraded"),
    "head-moved": (503, "the session moved on while it was read; ask again"),
}
STATUS: Final[Mapping[str, int]] = {code: status for code, (status, _) in CODES.items()}

TITLES: Final[Mapping[int, str]] = {
    400: "Bad request",
    401: "A key is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Not possible now",
    410: "Gone",
    413: "Too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    422: "Invalid input",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available now",
}


class FieldProblem(BaseModel):
    """What is wrong with one part of the request."""

    model_config = ConfigDict(extra="forbid")

    pointer: str = Field(
        description="JSON pointer into the body, or `#/query/<name>`, `#/path/<name>`, `#/header/<name>`"
    )
    code: str = Field(examples=["missing"])
    detail: str = Field(examples=["Field required"])


class Problem(BaseModel):
    """Problem details (RFC 9457). Compare `code`; `detail` is for people."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:archmax:problem:session-not-parked"])
    title: str = Field(examples=["Not possible now"])
    status: int = Field(examples=[409])
    detail: str = Field(examples=["session 'order-7' is not parked for a decision (status completed)"])
    code: str = Field(examples=["session-not-parked"])
    errors: list[FieldProblem] | None = None


class HttpProblem(ArchmaxError):
    """A refusal that only HTTP knows."""

    code: ClassVar[str] = "http"

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code, detail, headers)
        self.problem_code, self.detail, self.headers = code, detail, dict(headers or {})

    def __str__(self) -> str:
        return self.detail


def status_of(error: ArchmaxError) -> int:
    code = error.problem_code if isinstance(error, HttpProblem) else error.code
    return STATUS.get(code, 500)


def problem_of(error: ArchmaxError) -> JsonObject:
    """The body for a deliberate error. What is not meant for callers says nothing but its code."""
    code = error.problem_code if isinstance(error, HttpProblem) else error.code
    status = status_of(error)
    detail = str(error)
    if status == 500:
        code, detail = "internal", "the server failed; its log says why"
    elif code == "store-unavailable":
        detail = (
            "the object store does not answer; with an Idempotency-Key the same request may be sent again"
        )
    body = problem(status, code, detail)
    match error:
        case SignatureRefused():
            body["errors"] = [
                {"pointer": f"/variables/{_escape(issue.name)}", "code": issue.kind, "detail": issue.message}
                for issue in error.issues
            ]
        case UnknownTriggerError():
            body["available"] = list(error.available)
        case InvalidDecisionTargetError():
            body["validTargets"] = list(error.valid_targets)
        case TurnOver():
            body["outcome"] = shown_outcome(error.outcome)
        case _:
            pass
    return body


def problem(status: int, code: str, detail: str) -> JsonObject:
    return {
        "type": f"{TYPE_BASE}{code}",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        "code": code,
    }


def problem_response(body: JsonObject, headers: Mapping[str, str] | None = None) -> Response:
    status = body["status"]
    extra = dict(headers or {})
    if status == 503:
        extra.setdefault("retry-after", "2")
    return Response(dumps(body), status, extra, MEDIA_TYPE)


def validation_problem(errors: list[Any], asked: Any = None) -> JsonObject:
    """From pydantic's errors over the body `asked`; values are not repeated, they may be secrets."""
    body = problem(422, "validation", "the request is not of the documented shape")
    body["errors"] = [
        {
            "pointer": _pointer(error.get("loc", ()), asked),
            "code": str(error.get("type", "invalid")),
            "detail": str(error.get("msg", "invalid")),
        }
        for error in errors[:MAX_ERRORS]
    ]
    if len(body["errors"]) == 1:
        body["detail"] = f"{body['errors'][0]['pointer'] or 'the body'}: {body['errors'][0]['detail']}"
    return body


def unreadable_problem(error: ValueError | RecursionError) -> JsonObject:
    """Of a body that JSON's reader gives up on, without an error of JSON."""
    match error:
        case UnicodeError():
            why = "the text is no UTF-8"
        case RecursionError():
            why = "too many levels of nesting"
        case _:
            why = "a number of too many digits"
    return validation_problem([{"loc": ("body",), "type": "json_invalid", "msg": f"no JSON: {why}"}])


def _pointer(location: Any, asked: Any) -> str:
    parts: list[Any] = list(location)
    if not parts or parts[0] != "body":
        return "#/" + "/".join(_escape(str(part)) for part in parts)
    pointer, at = "", asked
    for part in parts[1:]:
        fields = at if isinstance(at, dict) else {}
        if part not in fields and fields.get("op") == part:
            continue  # pydantic names the kind of a batch's item like a level of the body
        pointer += f"/{_escape(str(part))}"
        at = at[part] if isinstance(at, list) and isinstance(part, int) else fields.get(part)
    return pointer


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


async def on_archmax_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ArchmaxError)
    if status_of(error) == 500:  # the caller is told that the log says why
        logger.error(
            "%s %s failed: %s", request.method, request.url.path, error, extra={"action": "request_failed"}
        )
    return problem_response(problem_of(error), error.headers if isinstance(error, HttpProblem) else None)
