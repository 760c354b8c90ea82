"""Keys: hashed, scoped, bound to workflows, limited in rate and body; what is open only on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from api.auth import Buckets
from api.keys import KeyRefused, KeyStore, Scope, fixed_keys
from api.settings import ApiSettings
from storage.memory import MemoryStore
from storage.open import open_store
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


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


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


def test_a_bucket_fills_again() -> None:
    buckets = Buckets(1e9, 1)
    assert all(buckets.take("a") == 0 for _ in range(100))
    slow = Buckets(0.5, 2)
    assert [slow.take("a") == 0 for _ in range(3)] == [True, True, False]
    assert 0 < slow.take("a") <= 2 and slow.take("b") == 0
