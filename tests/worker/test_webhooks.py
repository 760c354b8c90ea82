"""Webhooks: where they may go, how they are signed, retried and given up (issue: webhooks on outcome and on park)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from archmax.local.redis import EmbeddedRedis
from core.jsontext import loads
from storage.memory import MemoryStore
from worker.settings import FleetSettings
from worker.webhooks import MAX_ATTEMPTS, WebhookPoster, signature, url_problem

SECRET = "a secret of the fleet"
OUTCOME = {"kind": "completed", "reply": "done", "answer": {"kind": "hidden"}}


@dataclass
class Receiver:
    """A web server that remembers what it was sent."""

    port: int = 0
    status: int = 204
    location: str | None = None
    hangs: bool = False
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((first, headers, body))
        if self.hangs:
            await reader.read()
        moved = f"location: {self.location}\r\n" if self.location else ""
        writer.write(
            f"HTTP/1.1 {self.status} x\r\n{moved}content-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()


@pytest.fixture(scope="module")
def server() -> Generator[EmbeddedRedis]:
    with EmbeddedRedis.start() as running:
        yield running


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    made = Receiver()
    listening = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()


@pytest.fixture
async def redis(server: EmbeddedRedis) -> AsyncGenerator[Redis]:
    client = Redis.from_url(server.url, decode_responses=True)
    await client.flushdb()
    yield client
    await client.aclose()


@pytest.fixture
async def poster(redis: Redis) -> AsyncGenerator[WebhookPoster]:
    settings = FleetSettings(webhook_secret=SecretStr(SECRET), webhook_allow_private=True)
    made = WebhookPoster(settings, redis, MemoryStore())
    yield made
    await made.close()


async def strict(redis: Redis) -> WebhookPoster:
    return WebhookPoster(FleetSettings(webhook_secret=SecretStr(SECRET)), redis, MemoryStore())


async def post(poster: WebhookPoster, url: str, turn: int = 1, outcome: dict[str, Any] | None = None) -> bool:
    return await poster.post("s", turn, {"due": "webhook", "url": url}, outcome or OUTCOME)


async def test_an_outcome_is_posted_and_signed(poster: WebhookPoster, receiver: Receiver) -> None:
    assert await post(poster, f"http://127.0.0.1:{receiver.port}/hook?x=1")
    first, headers, body = receiver.requests[0]
    assert first == "POST /hook?x=1 HTTP/1.1" and headers["host"] == f"127.0.0.1:{receiver.port}"
    assert loads(body) == {
        "type": "turn.settled",
        "turnId": "s.1",
        "sessionId": "s",
        "outcome": {"kind": "completed", "reply": "done"},
    }
    at, _, digest = headers["archmax-signature"].partition(",")
    stamp = at.removeprefix("t=")
    expected = hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert digest == f"v1={expected}" and signature(SECRET, int(stamp), body) == headers["archmax-signature"]


async def test_a_park_is_told_as_one(poster: WebhookPoster, receiver: Receiver) -> None:
    assert await post(poster, f"http://localhost:{receiver.port}/", outcome={"kind": "parked"})
    assert loads(receiver.requests[0][2])["type"] == "turn.parked"
    assert receiver.requests[0][1]["host"] == f"localhost:{receiver.port}"


async def test_a_delivery_keeps_its_key_over_attempts_and_differs_between_turns(
    poster: WebhookPoster, receiver: Receiver
) -> None:
    url = f"http://127.0.0.1:{receiver.port}/"
    for turn in (1, 1, 2):
        await post(poster, url, turn)
    keys = [headers["idempotency-key"] for _, headers, _ in receiver.requests]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("status", [302, 400, 404, 500, 503])
async def test_a_refused_delivery_is_owed_still(
    poster: WebhookPoster, receiver: Receiver, status: int
) -> None:
    receiver.status = status
    receiver.location = f"http://127.0.0.1:{receiver.port}/elsewhere"
    assert not await post(poster, f"http://127.0.0.1:{receiver.port}/")
    assert [first for first, _, _ in receiver.requests] == ["POST / HTTP/1.1"]  # no redirect is followed


async def test_it_is_not_tried_again_before_its_pause_is_over(
    poster: WebhookPoster, receiver: Receiver, redis: Redis
) -> None:
    url = f"http://127.0.0.1:{receiver.port}/"
    receiver.status = 500
    pauses: list[float] = []
    for attempt in range(1, 4):
        assert not await post(poster, url)
        assert not await post(poster, url)
        assert len(receiver.requests) == attempt
        held: Any = await redis.hgetall("archmax:webhook:s.1")
        assert held["attempts"] == str(attempt)
        seconds, _ = await redis.time()
        pauses.append(float(held["next"]) - seconds)
        await redis.hset("archmax:webhook:s.1", "next", "0")
    assert pauses[0] < pauses[1] < pauses[2]
    receiver.status = 200
    assert await post(poster, url)


async def test_after_its_attempts_it_lies_among_the_dead_letters(
    poster: WebhookPoster, receiver: Receiver, redis: Redis
) -> None:
    url = f"http://127.0.0.1:{receiver.port}/"
    receiver.status = 500
    for _ in range(MAX_ATTEMPTS - 1):
        assert not await post(poster, url)
        await redis.hset("archmax:webhook:s.1", "next", "0")
    assert await poster.dead() == []
    assert await post(poster, url)  # nothing is owed any more
    letters = await poster.dead()
    assert [(letter["turnId"], letter["problem"], letter["attempts"]) for letter in letters] == [
        ("s.1", "it answered 500", MAX_ATTEMPTS)
    ]


async def test_without_redis_it_is_put_off(receiver: Receiver) -> None:
    async with Redis.from_url("redis://127.0.0.1:1/0", socket_connect_timeout=1) as nowhere:
        settings = FleetSettings(webhook_secret=SecretStr(SECRET), webhook_allow_private=True)
        poster = WebhookPoster(settings, nowhere, MemoryStore())
        assert not await post(poster, f"http://127.0.0.1:{receiver.port}/")
    assert receiver.requests == []


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "[::ffff:127.0.0.1]",
    ],
)
async def test_what_is_not_public_is_never_reached(redis: Redis, receiver: Receiver, host: str) -> None:
    poster = await strict(redis)
    assert not await post(poster, f"http://{host}:{receiver.port}/")
    assert receiver.requests == []
    await poster.close()


async def test_a_name_that_leads_to_this_machine_is_judged_by_its_address(
    redis: Redis, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A public-looking name with a private address: judged after the look-up, and not looked up again."""
    looked: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        looked.append(host)
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    poster = await strict(redis)
    assert not await post(poster, f"http://harmless.example:{receiver.port}/")
    assert receiver.requests == [] and looked == ["harmless.example"]
    await poster.close()


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://hooks.example/x", True),
        ("http://hooks.example:8080/x?y=z", True),
        ("https://93.184.216.34/", True),
        ("ftp://hooks.example/", False),
        ("//hooks.example/", False),
        ("hooks.example", False),
        ("https://", False),
        ("https://user:pass@hooks.example/", False),
        ("https://hooks.example:0/", False),
        ("https://hooks.example:99999/", False),
        ("https://hooks.example/a b", False),
        ("https://hooks.example/\r\nx: y", False),
        ("https://ho\u043eks.example/", False),
        (f"https://hooks.example/{'x' * 2_048}", False),
        ("http://[::1]/", False),
        ("http://[64:ff9b::7f00:1]/", False),
        ("http://[64:ff9b:1::7f00:1]/", False),
        ("http://[fec0::1]/", False),
        ("http://[::127.0.0.1]/", False),
        ("http://[::ffff:0:127.0.0.1]/", False),
        ("http://[2606:4700::1111]/", True),
        ("http://[64:ff9b::5db8:d822]/", True),
        ("http://100.64.0.1/", False),
        ("http://224.0.0.1/", False),
        ("http://app.localhost/", False),
    ],
)
def test_which_addresses_may_be_asked_for(url: str, allowed: bool) -> None:
    assert (url_problem(url, allow_private=False) is None) is allowed


def test_private_addresses_may_be_allowed() -> None:
    assert url_problem("http://127.0.0.1/", allow_private=True) is None
    assert url_problem("ftp://127.0.0.1/", allow_private=True) is not None
