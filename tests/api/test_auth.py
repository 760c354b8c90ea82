"""Keys: hashed, scoped, bound to workflows, limited in rate and body; what is open only on the loopback."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Send
from starlette.types import Scope as AsgiScope

from api.auth import Buckets
from api.keys import ApiKey, KeyRefused, KeyStore, RateLimit, Scope, fixed_keys
from api.middleware import Bodies
from api.settings import ApiSettings
from core.jsontext import dumps
from storage.memory import MemoryStore
from storage.open import open_store
from tests.support.desk import bearer
from tests.support.documented import Document
from tests.support.fleet import FIXED_KEY as FIXED
from tests.support.fleet import READER_KEY as READER
from tests.support.fleet import RunningFleet, eventually, run_turn


@pytest.fixture
async def locked(guarded: str, document: Document) -> AsyncGenerator[httpx.AsyncClient]:
    hooks = {"response": [document.check]}
    async with httpx.AsyncClient(base_url=guarded, timeout=30, trust_env=False, event_hooks=hooks) as client:
        yield client


@pytest.fixture
async def keys(fleet: RunningFleet) -> AsyncGenerator[KeyStore]:
    store = open_store((fleet.root / "sessions").as_uri(), fsync=False)
    yield KeyStore(store)
    await store.close()


def stored_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("nothing"),
        bearer("amx_0123456789abcdef_" + "x" * 43),
        {"Authorization": "Basic eDp5"},
        {"X-API-Key": "é"},
    ],
)
async def test_without_a_known_key_nothing_is_served(
    locked: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    for method, path in (
        ("GET", "/v1/sessions"),
        ("POST", "/v1/workflows/chat/sessions"),
        ("GET", "/v1/turns/a.1/events"),
    ):
        answer = await locked.request(
            method,
            path,
            headers=[(k.encode(), v.encode()) for k, v in headers.items()],
            json={} if method == "POST" else None,
        )
        assert answer.status_code == 401 and answer.json()["code"] == "unauthenticated"
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_health_needs_no_key(locked: httpx.AsyncClient) -> None:
    assert (await locked.get("/healthz")).status_code == 200
    assert (await locked.get("/readyz")).status_code == 200


async def test_a_key_is_taken_from_either_header(locked: httpx.AsyncClient) -> None:
    assert (await locked.get("/v1/workflows", headers=bearer(FIXED))).status_code == 200
    assert (await locked.get("/v1/workflows", headers={"X-API-Key": FIXED})).status_code == 200


async def test_a_made_key_works_until_it_is_revoked(locked: httpx.AsyncClient, keys: KeyStore) -> None:
    key, text = await keys.create("ci", ["read", "enqueue"])
    answer = await locked.post("/v1/workflows/chat/sessions", json={"message": "x"}, headers=bearer(text))
    assert answer.status_code == 202
    assert [revoked.id for revoked in await keys.revoke("ci")] == [key.id]

    async def refused() -> bool:
        return (await locked.get("/v1/workflows", headers=bearer(text))).status_code == 401

    await eventually(refused)


async def test_a_secret_is_stored_nowhere(fleet: RunningFleet, keys: KeyStore) -> None:
    key, text = await keys.create("hidden", ["read"])
    secret = text.split("_", 2)[2]
    stored = stored_files(fleet.root / "sessions" / "_apikeys")
    assert any(key.id in path.read_text() for path in stored)
    assert not any(text in path.read_text() or secret in path.read_text() for path in stored)
    assert text not in repr(key) and secret not in str(key.to_json())


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["read"], {"read"}),
        (["enqueue"], {"enqueue"}),
        (["decide"], {"decide"}),
        (["read", "decide"], {"read", "decide"}),
        (["admin"], {"read", "enqueue", "decide", "admin"}),
    ],
)
async def test_a_scope_allows_its_routes_and_no_other(
    locked: httpx.AsyncClient, keys: KeyStore, scopes: list[str], allowed: set[str]
) -> None:
    _, text = await keys.create("scoped", scopes)
    asked = {
        "read": ("GET", "/v1/sessions/never-was", None, 404),
        "enqueue": ("POST", "/v1/sessions/never-was/turns", {"message": "x"}, 404),
        "decide": ("POST", "/v1/sessions/never-was/decisions", {"to": "x"}, 404),
        "admin": ("DELETE", "/v1/sessions/never-was", None, 404),
    }
    for scope, (method, path, body, otherwise) in asked.items():
        answer = await locked.request(method, path, json=body, headers=bearer(text))
        assert answer.status_code == (otherwise if scope in allowed else 403), (scope, answer.text)


async def test_a_key_bound_to_workflows_sees_no_other(locked: httpx.AsyncClient, keys: KeyStore) -> None:
    _, bound = await keys.create("bound", ["read", "enqueue", "decide"], ["chat"])
    other = await locked.post("/v1/workflows/refund/sessions", json={"message": "x"}, headers=bearer(FIXED))
    session, turn = other.json()["sessionId"], other.json()["turnId"]
    mine = await locked.post("/v1/workflows/chat/sessions", json={"message": "x"}, headers=bearer(bound))
    assert mine.status_code == 202
    for method, path, body in (
        ("POST", "/v1/workflows/refund/sessions", {"message": "x"}),
        ("GET", "/v1/workflows/refund", None),
        ("GET", f"/v1/sessions/{session}", None),
        ("GET", f"/v1/sessions/{session}/files", None),
        ("GET", f"/v1/sessions/{session}/events", None),
        ("GET", f"/v1/sessions/{session}/artifacts", None),
        ("GET", f"/v1/turns/{turn}", None),
        ("GET", f"/v1/turns/{turn}/events", None),
        ("DELETE", f"/v1/turns/{turn}", None),
        ("POST", f"/v1/sessions/{session}/turns", {"message": "x"}),
        ("POST", f"/v1/sessions/{session}/decisions", {"to": "pay"}),
    ):
        answer = await locked.request(method, path, json=body, headers=bearer(bound))
        assert answer.status_code == 404, (method, path, answer.text)
    listed = (await locked.get("/v1/workflows", headers=bearer(bound))).json()["items"]
    assert [line["slug"] for line in listed] == ["chat"]
    page = (await locked.get("/v1/sessions", params={"limit": 500}, headers=bearer(bound))).json()["items"]
    assert {line["workflow"] for line in page} == {"chat"}
    page = await locked.get("/v1/sessions", params={"workflow": "refund"}, headers=bearer(bound))
    assert page.json()["items"] == []
    assert (await locked.get("/v1/workflows/refund", headers=bearer(READER))).status_code == 404


async def test_an_administrator_of_one_workflow_sees_no_keys_and_webhooks_of_others(
    fleet: RunningFleet, locked: httpx.AsyncClient, keys: KeyStore
) -> None:
    """A webhook's address may hold a secret, and its turn's id names a session."""
    mine, bound = await keys.create("bound administrator", ["admin"], ["chat"])
    await keys.create("of another", ["read"], ["refund"])
    await keys.create("of both", ["read"], ["chat", "refund"])
    await keys.create("of all", ["read"])
    turns: dict[str, str] = {}
    store = open_store((fleet.root / "sessions").as_uri(), fsync=False)
    for workflow in ("chat", "refund"):
        started = await locked.post(
            f"/v1/workflows/{workflow}/sessions", json={"message": "x"}, headers=bearer(FIXED)
        )
        turns[workflow] = started.json()["turnId"]
        letter = {"turnId": turns[workflow], "url": "https://x.example", "problem": "p", "attempts": 10}
        await store.put(f"_webhooks/dead/{workflow}-of-a-test", dumps({**letter, "at": 1}))
    lost = {"turnId": "never-was.1", "url": "https://x.example", "problem": "p", "attempts": 10, "at": 1}
    await store.put("_webhooks/dead/unknown-of-a-test", dumps(lost))
    listed = (await locked.get("/v1/keys", headers=bearer(bound))).json()["items"]
    assert [key["id"] for key in listed if key["workflows"] != ["chat"]] == []
    assert mine.id in {key["id"] for key in listed}
    dead = (await locked.get("/v1/webhooks/dead", headers=bearer(bound))).json()["items"]
    assert [item["turnId"] for item in dead] == [turns["chat"]]
    dead = (await locked.get("/v1/webhooks/dead", headers=bearer(FIXED))).json()["items"]
    assert {item["turnId"] for item in dead} >= {*turns.values(), "never-was.1"}
    for name in ("chat", "refund", "unknown"):
        await store.delete([f"_webhooks/dead/{name}-of-a-test"])
    await store.close()


async def test_two_keys_may_use_the_same_idempotency_key(locked: httpx.AsyncClient, keys: KeyStore) -> None:
    _, one = await keys.create("one", ["enqueue"])
    _, two = await keys.create("two", ["enqueue"])
    turns = set()
    for text in (one, two):
        headers = {**bearer(text), "Idempotency-Key": "shared"}
        answer = await locked.post("/v1/workflows/chat/sessions", json={"message": "x"}, headers=headers)
        turns.add(answer.json()["turnId"])
    assert len(turns) == 2


async def test_a_decision_says_who_made_it(
    locked: httpx.AsyncClient, keys: KeyStore, client: httpx.AsyncClient
) -> None:
    _, text = await keys.create("the reviewer", ["decide"])
    turn = await run_turn(client, "/v1/workflows/refund/sessions", {"message": "x"})
    path = f"/v1/sessions/{turn['sessionId']}"
    answer = await locked.post(f"{path}/decisions", json={"to": "pay"}, headers=bearer(text))
    events = (await client.get(f"{answer.json()['links']['events']}")).text
    assert '"by":"the reviewer"' in events


async def test_keys_are_listed_to_admins_without_their_digests(
    locked: httpx.AsyncClient, keys: KeyStore
) -> None:
    key, _ = await keys.create("listed", ["read"], ["chat"])
    items = (await locked.get("/v1/keys", headers=bearer(FIXED))).json()["items"]
    line = next(item for item in items if item["id"] == key.id)
    assert line["scopes"] == ["read"] and line["workflows"] == ["chat"] and "digest" not in line


@pytest.mark.parametrize("text", ["short", "a" * 23, f"{'k' * 30}=fly", f"{'k' * 30}=read@No Slug"])
def test_a_fixed_key_that_cannot_be_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(KeyRefused) as caught:
        fixed_keys(text)
    assert "k" * 30 not in str(caught.value) and "a" * 23 not in str(caught.value)


async def test_a_key_of_nothing_is_refused() -> None:
    store = KeyStore(MemoryStore())
    for name, scopes, workflows in (
        ("", ["read"], None),
        ("x", [], None),
        ("x", ["fly"], None),
        ("x", ["read"], ["A b"]),
    ):
        with pytest.raises(KeyRefused):
            await store.create(name, scopes, workflows)
    key, text = await store.create("x", [Scope.READ])
    assert await store.find(text) == key and await store.find(text[:-1] + "_") is None


@pytest.mark.parametrize(
    ("written", "limit"),
    [("30/min", RateLimit(30, 60)), ("5/s", RateLimit(5, 1)), (" 5 ", RateLimit(5, 1))],
)
def test_a_rate_limit_is_requests_a_second_or_a_minute(written: str, limit: RateLimit) -> None:
    assert RateLimit.parse(written) == limit
    assert RateLimit.parse(str(limit)) == limit


@pytest.mark.parametrize("written", ["", "0", "0/min", "-1", "1.5/s", "5/h", "5 / s", "٥", "9" * 10, "min"])
def test_what_is_no_rate_limit_is_refused(written: str) -> None:
    with pytest.raises(KeyRefused):
        RateLimit.parse(written)


async def test_a_body_limit_of_nothing_is_refused() -> None:
    with pytest.raises(KeyRefused):
        await KeyStore(MemoryStore()).create("x", ["read"], max_body_bytes=0)


async def test_the_limits_of_a_key_are_kept_with_its_record(
    keys: KeyStore, locked: httpx.AsyncClient
) -> None:
    limited, _ = await keys.create(
        "limited", ["read"], rate_limit=RateLimit.parse("30/min"), max_body_bytes=4096
    )
    plain, _ = await keys.create("plain", ["read"])
    assert await keys.live(limited.id) == limited and await keys.live(plain.id) == plain
    items = (await locked.get("/v1/keys", headers=bearer(FIXED))).json()["items"]
    shown = {item["id"]: (item["rateLimit"], item["maxBodyBytes"]) for item in items}
    assert shown[limited.id] == ("30/min", 4096)
    assert shown[plain.id] == (None, None), "it has the limits of the settings"


def test_a_record_of_before_there_were_limits_has_those_of_the_settings() -> None:
    old = b'{"v":1,"id":"a","name":"n","scopes":["read"],"workflows":null,"createdAt":1,"digest":"d"}'
    key = ApiKey.read(old)
    assert key.rate_limit is None and key.max_body_bytes is None


def test_serving_without_keys_is_refused_beyond_the_loopback() -> None:
    with pytest.raises(ValueError, match="auth_disabled"):
        ApiSettings(auth_disabled=True, api_host="0.0.0.0")
    assert ApiSettings(auth_disabled=True, api_host="::1").auth_disabled


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "127.0.0.1.evil.example"},
    ],
)
async def test_without_keys_no_page_from_elsewhere_reaches_it(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    """A rebound name, or a form of another site."""
    answer = await client.get("/v1/sessions", headers=headers)
    assert answer.status_code == 403


async def test_a_form_is_no_request(client: httpx.AsyncClient) -> None:
    path = "/v1/workflows/chat/sessions"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await client.post(path, content=b'{"message":"x"}', headers={"Content-Type": kind})
        assert answer.status_code == 415
    assert (
        await client.post(path, content=b"{", headers={"Content-Type": "application/json"})
    ).status_code == 422


async def test_a_body_is_bounded_whatever_its_header_says(client: httpx.AsyncClient) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        yield b'{"message":"'
        for _ in range(64):
            yield b"x" * 65_536
            await asyncio.sleep(0)

    path, headers = "/v1/workflows/chat/sessions", {"Content-Type": "application/json"}
    answer = await client.post(path, content=b'"' + b"x" * (3 << 20) + b'"', headers=headers)
    assert answer.status_code == 413
    answer = await client.post(path, content=endless(), headers=headers)
    assert answer.status_code == 413


async def test_a_key_s_own_body_limit_takes_the_place_of_the_setting(
    locked: httpx.AsyncClient, keys: KeyStore
) -> None:
    _, narrow = await keys.create("narrow", ["enqueue"], max_body_bytes=100)
    _, wide = await keys.create("wide", ["enqueue"], max_body_bytes=4 << 20)
    path, kind = "/v1/workflows/chat/sessions", {"Content-Type": "application/json"}

    async def sent(text: str, size: int) -> httpx.Response:
        body = b'{"message":"x"}'.ljust(size)
        return await locked.post(path, content=body, headers={**kind, **bearer(text)})

    assert (await sent(narrow, 100)).status_code == 202
    refused = await sent(narrow, 101)
    assert refused.status_code == 413 and refused.json()["code"] == "body-too-large"
    assert "100 bytes" in refused.json()["detail"]
    named = {"X-API-Key": narrow, **kind}
    assert (await locked.post(path, content=b" " * 101, headers=named)).status_code == 413
    assert (await sent(wide, 3 << 20)).status_code == 202
    assert (await sent(FIXED, 3 << 20)).status_code == 413
    assert (await sent("nobody-s-key", 3 << 20)).status_code == 413, "who has no key has the setting"


async def test_of_a_body_that_is_too_long_no_more_than_the_limit_is_held() -> None:
    """However much is sent: 12 MiB here, against a limit of 64 KiB."""
    left, answered = 192, list[Message]()

    async def asked(_request: Request) -> int:
        return 64 << 10

    async def inner(scope: AsgiScope, receive: Receive, send: Send) -> None:
        raise AssertionError("it was let through")

    async def receive() -> Message:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": bytes(64 << 10), "more_body": left > 0}

    async def send(message: Message) -> None:
        answered.append(message)

    head = [(b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
    tracemalloc.start()
    try:
        scope = {"type": "http", "method": "POST", "path": "/v1/batch", "headers": head}
        await Bodies(inner, limit=asked)(scope, receive, send)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answered[0]["status"] == 413
    assert peak < 1 << 20


async def test_every_answer_carries_security_headers_and_no_cors(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/v1/sessions", "/v1/nothing", "/openapi.json"):
        headers = (await client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers and "server" not in headers


async def test_only_named_origins_may_call_from_a_browser(fleet: RunningFleet) -> None:
    process, url = await asyncio.to_thread(
        fleet.start_api, ARCHMAX_API_KEYS=FIXED, ARCHMAX_CORS_ORIGINS="https://shop.example"
    )
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        for origin, allowed in (("https://shop.example", True), ("https://evil.example", False)):
            flight = await client.options("/v1/batch", headers={"Origin": origin, **asked})
            answer = await client.get("/v1/workflows", headers={"Origin": origin, **bearer(FIXED)})
            assert answer.status_code == 200
            for found in (flight, answer):
                assert (found.headers.get("access-control-allow-origin") == origin) is allowed
                assert "access-control-allow-credentials" not in found.headers, "no cookie goes along"
    await asyncio.to_thread(process.stop)


async def test_a_key_that_asks_too_often_is_told_when_to_come_back(fleet: RunningFleet) -> None:
    process, url = await asyncio.to_thread(
        fleet.start_api,
        ARCHMAX_API_KEYS=f"{FIXED},{READER}",
        ARCHMAX_API_RATE_PER_SECOND="0.01",
        ARCHMAX_API_RATE_BURST="3",
    )
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
        found = [(await client.get("/v1/workflows", headers=bearer(FIXED))).status_code for _ in range(4)]
        assert found == [200, 200, 200, 429]
        limited = await client.get("/v1/workflows", headers=bearer(FIXED))
        assert limited.json()["code"] == "rate-limited" and int(limited.headers["retry-after"]) > 1
        assert (await client.get("/v1/workflows", headers=bearer(READER))).status_code == 200
    await asyncio.to_thread(process.stop)


async def test_a_key_s_own_rate_takes_the_place_of_the_setting(
    locked: httpx.AsyncClient, keys: KeyStore
) -> None:
    _, slow = await keys.create("slow", ["read"], rate_limit=RateLimit.parse("2/min"))
    _, free = await keys.create("free", ["read"])

    async def asked(text: str) -> httpx.Response:
        return await locked.get("/v1/workflows", headers=bearer(text))

    assert [(await asked(slow)).status_code for _ in range(2)] == [200, 200]
    limited = await asked(slow)
    assert limited.status_code == 429 and limited.json()["code"] == "rate-limited"
    assert 1 < int(limited.headers["retry-after"]) <= 30, "one request in 30 seconds"
    assert [(await asked(free)).status_code for _ in range(5)] == [200] * 5


def test_a_bucket_fills_again() -> None:
    buckets = Buckets(1e9, 1)
    assert all(buckets.take("a") == 0 for _ in range(100))
    slow = Buckets(0.5, 2)
    assert [slow.take("a") == 0 for _ in range(3)] == [True, True, False]
    assert 0 < slow.take("a") <= 2 and slow.take("b") == 0
    own = RateLimit(3, 60)
    assert [slow.take("c", own) == 0 for _ in range(4)] == [True, True, True, False]
    assert 10 < slow.take("c", own) <= 20
