"""Problem details (RFC 9457): which status each error has, and one shape for all of them."""

from __future__ import annotations

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

MEDIA_TYPE: Final = "application/problem+json"
#: documented under docs/web-developers.md#problems
TYPE_BASE: Final = "urn:archmax:problem:"

STATUS: Final[Mapping[str, int]] = {
    "session-unknown": 404,
    "workflow-unknown": 404,
    "turn-unknown": 404,
    "not-found": 404,
    "file-unknown": 404,
    "session-gone": 410,
    "session-busy": 409,
    "session-held-locally": 409,
    "child-session": 409,
    "idempotency-key-reused": 409,
    "turn-over": 409,
    "workflow-mismatch": 409,
    "workflow-disabled": 409,
    "workflow-load": 409,
    "contract.unsupported": 409,
    "page-outdated": 409,
    "session-not-parked": 409,
    "session-not-awaiting-input": 409,
    "session-not-resumable": 409,
    "parked-state-removed": 409,
    "invalid-decision-target": 409,
    "session-id": 422,
    "unknown-trigger": 422,
    "unknown-session-trigger": 422,
    "empty-message": 422,
    "invalid-variable-name": 422,
    "invalid-title": 422,
    "missing-delivery-trigger": 422,
    "signature": 422,
    "webhook": 422,
    "cursor": 422,
    "invalid-key": 422,
    "newer-format": 503,
    "head-moved": 503,
    "broker-unavailable": 503,
    "store-unavailable": 503,
    "index-unavailable": 503,
    "unauthenticated": 401,
    "forbidden": 403,
    "body-too-large": 413,
    "rate-limited": 429,
    "too-many-streams": 503,
    "unsupported-media-type": 415,
    "range-not-satisfiable": 416,
}

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
    code: str
    detail: str


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


def validation_problem(errors: list[Any]) -> JsonObject:
    """From pydantic's errors; values are not repeated, they may be secrets."""
    body = problem(422, "validation", "the request is not of the documented shape")
    body["errors"] = [
        {
            "pointer": _pointer(error.get("loc", ())),
            "code": str(error.get("type", "invalid")),
            "detail": str(error.get("msg", "invalid")),
        }
        for error in errors[:50]
    ]
    if len(body["errors"]) == 1:
        body["detail"] = f"{body['errors'][0]['pointer'] or 'the body'}: {body['errors'][0]['detail']}"
    return body


def _pointer(location: Any) -> str:
    parts = [str(part) for part in location]
    if parts and parts[0] == "body":
        return "".join(f"/{_escape(part)}" for part in parts[1:])
    return "#/" + "/".join(_escape(part) for part in parts)


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


async def on_archmax_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ArchmaxError)
    return problem_response(problem_of(error), error.headers if isinstance(error, HttpProblem) else None)
