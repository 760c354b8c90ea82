"""The application: routes, middleware, errors and the OpenAPI document around one `FleetService`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from api.answers import json_answer
from api.auth import SCOPES, Buckets, sent_key
from api.context import Api, api_of
from api.keys import KeyStore, Scope, fixed_keys
from api.metrics import ApiMetrics, Metered
from api.middleware import FORMS_UNDER, Bodies, LoopbackOnly, RawPaths, SecurityHeaders
from api.problems import (
    Problem,
    on_archmax_error,
    problem,
    problem_response,
    unreadable_problem,
    validation_problem,
)
from api.routes import accepting, content, operating, reading, workflows
from api.settings import ApiSettings
from api.shapes import Alive, Ready
from api.ui import actions as ui_actions
from api.ui import routes as ui_pages
from api.ui.signin import signed_in_key
from core.errors import ArchmaxError
from storage.objects import StoreConfigurationError, StoreUnavailable
from worker.service import FleetService
from worker.settings import FleetSettings

logger = logging.getLogger(__name__)

DESCRIPTION: Final = """\
Start and follow sessions of governed agent workflows. Ids in paths are percent-encoded: `a/b` is `a%2Fb`. Every error is
`application/problem+json` with a stable `code`. Every POST takes an `Idempotency-Key`.
"""


_V1: Final = (accepting.router, reading.router, content.router, workflows.router, operating.router)


def create_api(fleet_settings: FleetSettings, api_settings: ApiSettings) -> FastAPI:
    """The API of one fleet. Connects when it starts to serve.

    Raises: `KeyRefused` for unreadable fixed keys.
    """
    fixed = api_settings.api_keys
    service = FleetService(fleet_settings)
    metrics = ApiMetrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        await service.open()
        app.state.api = Api(
            settings=api_settings,
            service=service,
            keys=KeyStore(service.client.store, fixed.get_secret_value() if fixed else None),
            buckets=Buckets(api_settings.api_rate_per_second, api_settings.api_rate_burst),
        )
        try:
            async with metrics.serving(service):
                yield
        finally:
            await service.close()

    if fixed is not None:
        fixed_keys(fixed.get_secret_value())
    app = FastAPI(
        title="archmax-fleet",
        version="1",
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    v1 = APIRouter(prefix="/v1")
    for router in _V1:
        v1.include_router(router)
    app.include_router(v1)
    app.include_router(_health())
    app.include_router(metrics.router(service))
    for pages in (ui_actions.router, ui_pages.router):
        app.include_router(pages)
    _handle_errors(app)
    _describe(app)
    app.add_middleware(Bodies, limit=_max_body_bytes)
    if api_settings.auth_disabled:
        app.add_middleware(LoopbackOnly)
    if api_settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=api_settings.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "X-API-Key", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
            expose_headers=["ETag", "Location", "Retry-After"],
        )
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Metered, metrics=metrics)
    app.add_middleware(RawPaths)
    return app


async def _max_body_bytes(request: Request) -> int:
    """The limit of the key that came in a request's head, or the setting's. Raises: `RedisError`, `StoreUnavailable`."""
    settings = api_of(request).settings
    key = None
    if not settings.auth_disabled:
        form = request.scope["path"].startswith(FORMS_UNDER)
        key = await signed_in_key(request) if form else await sent_key(request)
    return settings.api_max_body_bytes if key is None or key.max_body_bytes is None else key.max_body_bytes


def _health() -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz", summary="Is the process alive", responses={200: {"model": Alive}})
    async def healthz() -> Response:
        return json_answer({"alive": True})

    @router.get(
        "/readyz",
        summary="Can it accept and read",
        responses={200: {"model": Ready}, 503: {"model": Ready, "description": "a part does not answer"}},
    )
    async def readyz(request: Request) -> Response:
        client = api_of(request).service.client
        found: list[str] = []
        try:
            await client.queue.alive()
        except (ArchmaxError, RedisError, OSError):
            found.append("broker")
        try:
            await client.store.get("_ready")
        except (StoreUnavailable, StoreConfigurationError, OSError) as error:
            found.append("store")
            logger.warning("not ready: %s", error, extra={"action": "store_away"})
        return json_answer({"ready": not found, "problems": found}, 503 if found else 200)

    return router


def _handle_errors(app: FastAPI) -> None:
    app.add_exception_handler(ArchmaxError, on_archmax_error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_request: Request, error: RequestValidationError) -> Response:
        return problem_response(validation_problem(list(error.errors()), error.body))

    @app.exception_handler(HTTPException)
    async def on_http(_request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, (ValueError, RecursionError)):  # FastAPI could not read the body
            return problem_response(unreadable_problem(error.__cause__))
        code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http")
        return problem_response(problem(error.status_code, code, error.detail), error.headers)

    @app.exception_handler(RedisError)
    async def on_redis(_request: Request, _error: RedisError) -> Response:
        return problem_response(problem(503, "broker-unavailable", "the broker does not answer"))

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, _error: Exception) -> Response:
        return problem_response(problem(500, "internal", "the server failed; its log says why"))


def _describe(app: FastAPI) -> None:
    """The generated document, with the one shape of problems and the scope each route asks for in it."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            shape = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(shape.pop("$defs", {}))
            schemas["Problem"] = shape
            schemas.pop("HTTPValidationError", None)
            schemas.pop("ValidationError", None)
            for (path, method), scope in _scopes().items():
                document["paths"][path][method]["description"] = f"Needs the scope `{scope}`."
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _scopes() -> dict[tuple[str, str], Scope]:
    """The scope of each route under `/v1`, by path and lower-case method."""
    return {
        (f"/v1{route.path_format}", method.lower()): SCOPES[dependency.call]
        for router in _V1
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
        for dependency in route.dependant.dependencies
        if dependency.call in SCOPES
    }
