"""Signing in with a key, cookies, form tokens, and what each key may."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator

import httpx
import pytest
from redis.asyncio import Redis

from api.ui.signin import MAX_TRIES, safe_target
from tests.support.desk import (
    ADMIN,
    CLERK,
    OUTSIDER,
    READER,
    bearer,
    form_fields,
    hostile,
    refund,
    sign_in,
    signed_in,
)
from tests.support.fleet import RunningFleet, eventually

PAGES = ["/ui/inbox", "/ui/sessions", "/ui/sessions/x", "/ui/schedules", "/ui/dead-letters", "/ui/nothing"]


@pytest.fixture
async def visitor(desk: RunningFleet) -> AsyncGenerator[httpx.AsyncClient]:
    async with desk.client() as client:
        yield client


@pytest.fixture
async def redis(desk: RunningFleet) -> AsyncGenerator[Redis]:
    client = Redis.from_url(desk.redis.url, decode_responses=True)
    yield client
    await client.aclose()


@pytest.mark.parametrize(
    "path", [*PAGES[:-1], "/ui", "/ui/changes", "/ui/sessions/x/events", "/ui/sessions/x/files/a"]
)
async def test_a_visitor_is_sent_to_sign_in_and_comes_back(visitor: httpx.AsyncClient, path: str) -> None:
    answer = await visitor.get(path)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/ui/login?next=" + path.replace("/", "%2F")


async def test_a_page_has_a_strict_policy_and_nothing_inline_or_from_elsewhere(desk: RunningFleet) -> None:
    await refund(desk, "policy-1")
    async with signed_in(desk, CLERK) as client:
        for path in [*PAGES, "/ui/login?next=/ui", "/ui/sessions/policy-1", "/ui/inbox?session=policy-1"]:
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy, path
            assert "frame-ancestors 'none'" in policy and "form-action 'self'" in policy
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"
            for inline in ("<style", "style=", "onclick", "onload", "<script>", "http://", "https://"):
                body = answer.text.replace('xmlns="http://www.w3.org/2000/svg"', "")
                assert inline not in body, (path, inline)


async def test_a_cookie_is_closed_to_scripts_and_other_sites_and_secure_under_https(
    desk: RunningFleet,
) -> None:
    async with desk.client() as client:
        answer = await sign_in(client, CLERK)
        kept = answer.headers["set-cookie"].lower()
        assert answer.status_code == 303 and answer.headers["location"] == "/ui"
        assert "httponly" in kept and "samesite=strict" in kept and "secure" not in kept
    async with desk.client(headers={"x-forwarded-proto": "https"}) as client:
        page = await client.get("/ui/login")
        cookie = page.headers["set-cookie"]
        assert cookie.startswith("__Host-") and "secure" in cookie.lower() and "path=/" in cookie.lower()


async def test_the_store_of_sign_ins_holds_neither_key_nor_token(desk: RunningFleet, redis: Redis) -> None:
    async with signed_in(desk, CLERK) as client:
        token = client.cookies["archmax-ui"]
        digest = hashlib.sha256(token.encode()).hexdigest()
        names = [name async for name in redis.scan_iter("*ui:session:*")]
        assert any(name.endswith(digest) for name in names)
        for name in names:
            held = str(await redis.get(name))
            assert token not in name + held and CLERK not in name + held
            assert 0 < await redis.ttl(name) <= 12 * 3600


async def test_signing_out_ends_the_session_everywhere(desk: RunningFleet) -> None:
    async with signed_in(desk, CLERK) as client:
        token = client.cookies["archmax-ui"]
        page = await client.get("/ui/sessions")
        answer = await client.post("/ui/logout", data=form_fields(page.text, "/ui/logout"))
        assert answer.status_code == 303 and answer.headers["location"] == "/ui/login"
        client.cookies.set("archmax-ui", token)
        assert (await client.get("/ui/sessions")).status_code == 303


async def test_a_token_brought_along_is_never_signed_in(desk: RunningFleet) -> None:
    async with desk.client() as client:
        client.cookies.set("archmax-ui", "chosen-by-an-attacker")
        await sign_in(client, CLERK)
        assert client.cookies.get("archmax-ui", domain="127.0.0.1") != "chosen-by-an-attacker"
    async with desk.client(cookies={"archmax-ui": "chosen-by-an-attacker"}) as client:
        assert (await client.get("/ui/sessions")).status_code == 303


async def test_a_revoked_key_s_pages_end(desk: RunningFleet) -> None:
    async with desk.client(headers=bearer(ADMIN)) as api:
        from api.keys import KeyStore
        from storage.open import open_store

        store = open_store((desk.root / "sessions").as_uri(), fsync=False)
        keys = KeyStore(store)
        _, text = await keys.create("short-lived", ["read"])
        async with signed_in(desk, text) as client:
            page = await client.get("/ui/sessions")
            assert page.status_code == 200 and "short-lived" in page.text
            await keys.revoke("short-lived")

            async def out() -> bool:
                return (await client.get("/ui/sessions")).status_code == 303

            await eventually(out)
        await store.close()
        assert (await api.get("/v1/keys")).status_code == 200


async def test_a_key_s_own_limits_hold_on_its_pages(desk: RunningFleet) -> None:
    from api.keys import KeyStore, RateLimit
    from storage.open import open_store

    store = open_store((desk.root / "sessions").as_uri(), fsync=False)
    keys = KeyStore(store)
    _, narrow = await keys.create("narrow", ["read"], max_body_bytes=200)
    _, slow = await keys.create("slow", ["read"], rate_limit=RateLimit.parse("1/min"))
    await store.close()
    async with signed_in(desk, narrow) as client:
        answer = await client.post("/ui/logout", data={"csrf": "x" * 200})
        assert answer.status_code == 413 and "200 bytes" in answer.text
        assert (await client.post("/ui/logout", data={"csrf": "x"})).status_code == 403
    async with signed_in(desk, slow) as client:
        codes = [(await client.get("/ui/sessions")).status_code for _ in range(2)]
        assert codes == [200, 429]


@pytest.mark.parametrize(
    "key", ["", "nothing", "amx_0123456789abcdef_" + "x" * 43, "é" * 30, "enqueue-only-key-of-the-desk"]
)
async def test_a_key_that_may_not_read_does_not_sign_in(
    visitor: httpx.AsyncClient, redis: Redis, key: str
) -> None:
    answer = await sign_in(visitor, key)
    assert answer.status_code in (401, 403)
    assert "archmax-ui" not in visitor.cookies
    await redis.delete("archmax:ui:tries:127.0.0.1")


async def test_attempts_to_sign_in_are_limited(visitor: httpx.AsyncClient, redis: Redis) -> None:
    await redis.delete("archmax:ui:tries:127.0.0.1")
    codes = [(await sign_in(visitor, "wrong")).status_code for _ in range(MAX_TRIES)]
    assert codes == [401] * MAX_TRIES
    answer = await sign_in(visitor, CLERK)
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0
    assert 0 < await redis.ttl("archmax:ui:tries:127.0.0.1") <= 60
    await redis.delete("archmax:ui:tries:127.0.0.1")
    assert (await sign_in(visitor, CLERK)).status_code == 303


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/ui/../v1",
        "/uix",
        "javascript:1",
        "/ui/login",
        "/ui/\nx",
    ],
)
async def test_after_signing_in_nobody_is_sent_elsewhere(visitor: httpx.AsyncClient, target: str) -> None:
    answer = await sign_in(visitor, CLERK, target)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/ui") and "evil" not in answer.headers["location"]
    assert safe_target("/ui/sessions?q=a%20b") == "/ui/sessions?q=a%20b"


async def test_a_form_without_its_own_token_or_from_another_site_is_refused(desk: RunningFleet) -> None:
    await refund(desk, "forms-1")
    async with signed_in(desk, CLERK) as client, signed_in(desk, CLERK) as other:
        page = (await client.get("/ui/sessions/forms-1")).text
        action = "/ui/sessions/forms-1/decide"
        good = {**form_fields(page, action), "to": "refund-closed"}
        theirs = form_fields((await other.get("/ui/sessions/forms-1")).text, action)["csrf"]
        another = form_fields(page, "/ui/sessions/forms-1/reply")["csrf"]
        for csrf in ("", "x", theirs, another):
            answer = await client.post(action, data={**good, "csrf": csrf})
            assert answer.status_code == 403, csrf
        for headers in (
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"origin": "https://evil.example"},
            {"origin": "null"},
        ):
            assert (await client.post(action, data=good, headers=headers)).status_code == 403
        assert (await client.post(action, json=good)).status_code == 415
        for path in ("/ui/login", "/ui/logout", "/ui/dead-letters/redrive", "/ui/sessions/forms-1/reply"):
            assert (await client.post(path, data={"key": CLERK})).status_code == 403, path
        assert "awaiting decision" in (await client.get("/ui/sessions/forms-1")).text
    async with desk.client() as nobody:
        assert (await nobody.post(action, data=good)).status_code == 303


async def test_a_key_that_only_reads_sees_and_does_not_decide(desk: RunningFleet) -> None:
    await refund(desk, "reader-1")
    async with signed_in(desk, READER) as client:
        page = (await client.get("/ui/inbox", params={"session": "reader-1"})).text
        assert "Your key may read but not decide" in page and "Confirm the decision" in page
        assert "/decide" not in page and "<textarea" not in page
        async with signed_in(desk, CLERK) as clerk:
            shown = (await clerk.get("/ui/sessions/reader-1")).text
        fields = form_fields(shown, "/ui/sessions/reader-1/decide")
        answer = await client.post("/ui/sessions/reader-1/decide", data={**fields, "to": "refund-closed"})
        assert answer.status_code == 403
        # even with a token of its own: every cookie's token for a purpose can be told by who holds the cookie
        from api.ui.signin import form_token

        own = form_token(client.cookies["archmax-ui"], "decide reader-1")
        answer = await client.post(
            "/ui/sessions/reader-1/decide", data={**fields, "csrf": own, "to": "refund-closed"}
        )
        assert answer.status_code == 403 and "decide" in answer.text


async def test_a_key_of_one_workflow_sees_no_other(desk: RunningFleet) -> None:
    await refund(desk, "private-1")
    await hostile(desk, "public-1")
    async with signed_in(desk, OUTSIDER) as client:
        for path in (
            "/ui/inbox",
            "/ui/sessions",
            "/ui/sessions?q=private-1",
            "/ui/schedules",
            "/ui/dead-letters",
        ):
            page = (await client.get(path)).text
            assert "/ui/sessions/private-1" not in page and "order-desk" not in page, path
        assert "public-1" in (await client.get("/ui/sessions")).text
        for path in ("", "/events", "/files/scratchpad/refund.json"):
            answer = await client.get(f"/ui/sessions/private-1{path}")
            assert answer.status_code == 404, path
        assert "Webhooks given up" not in (await client.get("/ui/dead-letters")).text


async def test_without_keys_everybody_of_this_machine_may_and_forms_keep_their_tokens(
    desk: RunningFleet,
) -> None:
    await refund(desk, "open-1")
    process, url = desk.start_api(ARCHMAX_API_KEYS="", ARCHMAX_AUTH_DISABLED="1")
    async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
        page = await client.get("/ui/inbox", params={"session": "open-1"})
        assert page.status_code == 200 and "Sign out" not in page.text
        action = "/ui/sessions/open-1/decide"
        fields = {**form_fields(page.text, action), "to": "refund-closed"}
        async with httpx.AsyncClient(base_url=url, trust_env=False) as other:
            assert (await other.post(action, data=fields)).status_code == 403
        assert (await client.post(action, data=fields)).status_code == 303
        assert (await client.get("/ui/login")).status_code == 303
        assert (await client.get("/ui/sessions", headers={"host": "evil.example"})).status_code == 403
    process.stop()


async def test_styles_and_scripts_are_served_to_anyone_and_nothing_else_is(
    visitor: httpx.AsyncClient,
) -> None:
    for name, kind in (("ui.css", "text/css"), ("ui.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        answer = await visitor.get(f"/ui/static/{name}")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
        again = await visitor.get(f"/ui/static/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304
    for name in ("..%2Fpages.py", "base.html", "%2Fetc%2Fpasswd"):
        assert (await visitor.get(f"/ui/static/{name}")).status_code == 404
