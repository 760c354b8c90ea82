"""What the API tells Prometheus: its requests, its open streams, and the queues it feeds.

`/metrics` takes a key that may read, like everything that names workflows. With `ARCHMAX_METRICS_PORT` the same stands
on a port of its own without a key, for a scraper inside the deployment.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.answers import problems
from api.auth import Reads
from worker.celery_app import queues_of
from worker.metrics import Exporter, QueueCollector, Queues, StoreCollector, StoreWatch, look_at_queues
from worker.service import INTERNAL, FleetService
from worker.stopping import stop_tasks

#: how often the queues are looked at for the exporter
LOOK_SECONDS = 5.0
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})
#: the route of a request that matched none: its path is the client's text
UNMATCHED = "(none)"
#: appended to the route of a request that asked to wait, or every quick look would seem to take half a minute
WAITS = "?wait"
WAITING_ROUTE = "/v1/turns/{turn_id}"
_PARAMETER = re.compile(r"\{([^}:]+)(?::[^}]*)?\}")


class ApiMetrics:
    """The numbers of one API process, in a registry of their own. `open` and `close` on the loop that serves."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry(auto_describe=True)
        self.requests = Counter(
            "archmax_http_requests",
            "Requests answered, by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "archmax_http_request_seconds",
            "Seconds until an answer began; a stream's goes on afterwards.",
            ["route"],
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self._queues = Queues()
        self._exporter: Exporter | None = None
        self._store = StoreWatch()
        self._looks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def serving(self, service: FleetService) -> AsyncGenerator[None]:
        """While the API serves. Raises: `OSError` when `ARCHMAX_METRICS_PORT` and those above it are taken."""
        settings = service.settings
        self.registry.register(QueueCollector(lambda: self._queues))
        self.registry.register(StoreCollector(self._store))
        if settings.metrics_port:
            self._exporter = Exporter(self.registry, settings.metrics_host, settings.metrics_port)
            self._looks = [
                asyncio.create_task(self._keep_looking(service), name="archmax-queues"),
                asyncio.create_task(self._store.run(service.client.store), name="archmax-store"),
            ]
        try:
            yield
        finally:
            await stop_tasks(self._looks)
            if self._exporter is not None:
                await asyncio.to_thread(self._exporter.close)

    async def text(self, service: FleetService, workflows: list[str]) -> bytes:
        """The exposition, with the store and the queues of `workflows` as they are now."""
        await self._store.look(service.client.store)
        self._queues = await look_at_queues(service.client.redis, queues_of(workflows))
        return generate_latest(self.registry)

    async def _keep_looking(self, service: FleetService) -> None:
        while True:
            names = queues_of(await service.workflows(INTERNAL))
            self._queues = await look_at_queues(service.client.redis, names)
            await asyncio.sleep(LOOK_SECONDS)

    def router(self, service: FleetService) -> APIRouter:
        router = APIRouter(tags=["health"])

        @router.get("/metrics", summary="Prometheus metrics", response_class=Response, responses=problems())
        async def metrics(caller: Reads) -> Response:
            body = await self.text(service, await service.workflows(caller))
            return Response(body, media_type=CONTENT_TYPE_LATEST)

        return router


class Metered:
    """Middleware, next inside `RawPaths`, which copies the scope: counts every request by the route it matched, never by its path."""

    def __init__(self, app: ASGIApp, metrics: ApiMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                route = route_of(scope)
                if route == WAITING_ROUTE and b"wait=" in scope.get("query_string", b""):
                    route += WAITS
                self._metrics.seconds.labels(route).observe(time.monotonic() - began)
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.requests.labels(method, route_of(scope), str(status)).inc()


def route_of(scope: Scope) -> str:
    """The template of the route a request matched, with the prefixes of the routers around it.

    The router writes route and parameters into the scope, yet the route knows only the path below its own router. What
    stands before it in the request's path is the prefix: literal text of ours, whatever the client sent.
    """
    template = getattr(scope.get("route"), "path", None)
    if not isinstance(template, str):
        return UNMATCHED
    values = scope.get("path_params", {})
    below = _PARAMETER.sub(lambda found: str(values.get(found[1], "")), template)
    path: str = scope["path"]
    prefix = path.removesuffix(below)
    return f"{prefix}{template}" if len(prefix) < len(path) or not below else template
