"""The API's metrics: requests by route, queues, and who may read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from pydantic import SecretStr

from api.auth import Buckets
from api.context import Api
from api.keys import KeyStore
from api.metrics import UNMATCHED, ApiMetrics, Metered
from api.middleware import RawPaths
from api.problems import on_archmax_error
from api.settings import ApiSettings
from archmax.local.ports import free_port
from archmax.local.redis import EmbeddedRedis
from core.errors import ArchmaxError
from tests.support.command import write_workflows
from worker.service import FleetService
from worker.settings import FleetSettings

KEY, BOUND = "k" * 24, "b" * 24


class Serving:
    def __init__(self, client: httpx.AsyncClient, metrics: ApiMetrics, port: int) -> None:
        self.client, self.metrics, self.port = client, metrics, port


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncGenerator[Serving]:
    write_workflows(tmp_path, "orders", "mail")
    metrics, port = ApiMetrics(), free_port()
    with EmbeddedRedis.start() as redis:
        settings = FleetSettings(root=tmp_path, redis_url=SecretStr(redis.url), metrics_port=port)
        service = FleetService(settings)
        await service.open()
        keys = KeyStore(service.client.store, f"{KEY},{BOUND}=read@orders")

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
            app.state.api = Api(ApiSettings(), service, keys, Buckets(100, 200))
            async with metrics.serving(service):
                yield

        app = FastAPI(lifespan=lifespan)
        app.include_router(metrics.router(service))

        inner, v1 = APIRouter(), APIRouter(prefix="/v1")

        @inner.get("/things/{thing}")
        async def thing(thing: str) -> dict[str, str]:
            return {"thing": thing}

        @inner.get("/turns/{turn_id}")
        async def turn(turn_id: str) -> dict[str, str]:
            return {"turn": turn_id}

        v1.include_router(inner)
        app.include_router(v1)
        app.add_exception_handler(ArchmaxError, on_archmax_error)
        app.add_middleware(Metered, metrics=metrics)
        app.add_middleware(RawPaths)
        async with lifespan(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
                yield Serving(client, metrics, port)
        await service.close()


async def test_requests_are_counted_by_route_never_by_path(serving: Serving) -> None:
    for path in ("/v1/things/a", "/v1/things/b%2Fc", "/nowhere/at/all"):
        await serving.client.get(path)
    read = serving.metrics.registry.get_sample_value
    counted = {"method": "GET", "route": "/v1/things/{thing}", "status": "200"}
    assert read("archmax_http_requests_total", counted) == 2
    assert read("archmax_http_requests_total", {"method": "GET", "route": UNMATCHED, "status": "404"}) == 1
    assert read("archmax_http_request_seconds_count", {"route": "/v1/things/{thing}"}) == 2


async def test_a_request_that_asked_to_wait_does_not_make_the_quick_ones_look_slow(serving: Serving) -> None:
    for query in ("", "?wait=30", "?other=1"):
        await serving.client.get(f"/v1/turns/s.1{query}")
    await serving.client.get("/v1/things/a?wait=1")
    read = serving.metrics.registry.get_sample_value
    assert read("archmax_http_request_seconds_count", {"route": "/v1/turns/{turn_id}"}) == 2
    assert read("archmax_http_request_seconds_count", {"route": "/v1/turns/{turn_id}?wait"}) == 1
    assert read("archmax_http_request_seconds_count", {"route": "/v1/things/{thing}"}) == 1


async def test_the_api_tells_whether_its_store_answers(serving: Serving) -> None:
    answer = await serving.client.get("/metrics", headers={"authorization": f"Bearer {KEY}"})
    assert "archmax_store_up 1.0" in answer.text


async def test_metrics_ask_for_a_key_and_show_a_bound_one_its_own_queues(serving: Serving) -> None:
    assert (await serving.client.get("/metrics")).status_code == 401
    whole = await serving.client.get("/metrics", headers={"authorization": f"Bearer {KEY}"})
    assert whole.status_code == 200
    assert whole.headers["content-type"].startswith("text/plain")
    assert 'archmax_queue_depth{queue="archmax.turns.mail"} 0.0' in whole.text
    assert "archmax_broker_up 1.0" in whole.text
    bound = await serving.client.get("/metrics", headers={"authorization": f"Bearer {BOUND}"})
    assert "archmax.turns.orders" in bound.text
    assert "archmax.turns.mail" not in bound.text


async def test_a_scraper_inside_the_deployment_asks_on_a_port_of_its_own(serving: Serving) -> None:
    await serving.client.get("/v1/things/a")
    async with httpx.AsyncClient(trust_env=False) as scraper:
        text = (await scraper.get(f"http://127.0.0.1:{serving.port}/metrics")).text
    assert 'archmax_http_requests_total{method="GET",route="/v1/things/{thing}",status="200"} 1.0' in text
    assert "archmax_broker_up" in text
