"""Following events over SSE: each recorded event once and in order, wherever the reader was (design: Events)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from api.keys import KeyStore
from storage.open import open_store
from tests.support.desk import sign_in
from tests.support.fleet import FIXED_KEY, RunningFleet, eventually, new_session, run_turn, settled, sse


async def read(
    client: httpx.AsyncClient, path: str, *, until: str | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Events up to the stream's end, or to the first of a type."""
    found: list[dict[str, Any]] = []
    async with client.stream("GET", path, **options) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        async for item in sse(answer):
            if "comment" in item:
                continue
            found.append(item)
            if item["event"] == until:
                break
    return found


def recorded(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(item["id"], item["event"]) for item in items if "id" in item]


def numbers(identity: str) -> tuple[int, ...]:
    return tuple(int(part) for part in identity.split("."))


async def test_a_turns_stream_ends_when_it_has_settled(client: httpx.AsyncClient) -> None:
    started = (await client.post("/v1/workflows/chat/sessions", json={"message": "a while"})).json()
    items = await read(client, started["links"]["events"])
    assert items[-1]["event"] == "turn-settled" and items[-1]["data"]["outcome"]["kind"] == "completed"
    ids = [numbers(item["id"]) for item in items if "id" in item]
    assert ids == sorted(set(ids))
    assert all(item["data"]["turnId"] == started["turnId"] for item in items)
    text = "".join(item["data"]["text"] for item in items if item["event"] == "agent-text")
    assert text == "after a while"


async def test_live_deltas_carry_no_id(client: httpx.AsyncClient) -> None:
    session = new_session()
    await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "one"})
    live: list[dict[str, Any]] = []
    async with client.stream("GET", f"/v1/sessions/{session}/events") as answer:
        events = sse(answer)
        while "comment" not in await anext(events):  # then it follows
            pass
        await client.post(f"/v1/sessions/{session}/turns", json={"message": "two"})
        async for item in events:
            if item.get("event") == "turn-settled":
                break
            if "comment" not in item and "id" not in item:
                live.append(item)
    assert live and all(item["data"]["live"] is True for item in live)


async def test_a_reader_goes_on_behind_the_last_event_it_saw(client: httpx.AsyncClient) -> None:
    session = new_session()
    turn = await run_turn(client, "/v1/workflows/refund/sessions", {"sessionId": session, "message": "x"})
    whole = recorded(await read(client, turn["links"]["events"]))
    for at in range(0, len(whole), 3):
        identity = whole[at][0]
        by_header = await read(client, turn["links"]["events"], headers={"Last-Event-ID": identity})
        assert recorded(by_header) == whole[at + 1 :]
        by_query = await read(client, turn["links"]["events"], params={"after": identity})
        assert recorded(by_query) == whole[at + 1 :]


async def test_what_redis_lost_is_derived_from_the_store(
    fleet: RunningFleet, client: httpx.AsyncClient
) -> None:
    session = new_session()
    first = await run_turn(client, "/v1/workflows/refund/sessions", {"sessionId": session, "message": "x"})
    second = await run_turn(client, f"/v1/sessions/{session}/decisions", {"to": "pay"})
    async with Redis.from_url(fleet.redis.url, decode_responses=True) as redis:
        last = recorded(await read(client, second["links"]["events"]))[-1][0]
        published: list[str] = []

        async def whole() -> bool:
            told: Any = await redis.xrange(f"archmax:events:{session}")
            published[:] = [fields["id"] for _, fields in told if "id" in fields]
            return last in published

        await eventually(whole)  # the end is in the store before it is told
        await redis.delete(f"archmax:events:{session}")
    derived = [
        *recorded(await read(client, first["links"]["events"])),
        *recorded(await read(client, second["links"]["events"])),
    ]
    assert [identity for identity, _ in derived] == published


async def test_a_gap_in_what_redis_brings_is_filled(fleet: RunningFleet, client: httpx.AsyncClient) -> None:
    """An event that was committed and never told is read from the store before the next one."""
    session = new_session()
    turn = await run_turn(client, "/v1/workflows/refund/sessions", {"sessionId": session, "message": "x"})
    whole = recorded(await read(client, turn["links"]["events"]))
    async with (
        Redis.from_url(fleet.redis.url, decode_responses=True) as redis,
        client.stream(
            "GET", f"/v1/sessions/{session}/events", headers={"Last-Event-ID": whole[-1][0]}
        ) as answer,
    ):
        events = sse(answer)
        assert "comment" in await anext(events)  # it follows now
        await redis.set("archmax:test", "1")
        second = await run_turn(client, f"/v1/sessions/{session}/decisions", {"to": "pay"})
        found = []
        async for item in events:
            if "id" in item:
                found.append((item["id"], item["event"]))
                if item["event"] == "turn-settled":
                    break
    assert found == recorded(await read(client, second["links"]["events"]))


async def test_a_session_stream_goes_on_over_turns_and_beats_while_it_is_quiet(
    client: httpx.AsyncClient,
) -> None:
    session = new_session()
    await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "one"})
    turns: list[str] = []
    beats = 0
    async with client.stream("GET", f"/v1/sessions/{session}/events") as answer:
        async for item in sse(answer):
            if "comment" in item:
                beats += 1
                if beats == 1:
                    sent = await client.post(f"/v1/sessions/{session}/turns", json={"message": "two"})
                    await settled(client, sent.json()["turnId"])
            elif item["event"] == "turn-settled":
                turns.append(item["data"]["turnId"])
                if len(turns) == 2:
                    break
    assert turns == [f"{session}.1", f"{session}.2"] and beats >= 1


async def test_an_event_id_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    session = new_session()
    await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "one"})
    for given in ("x", "1.2.3", "1.2.3.x", "-1.0.0.0"):
        answer = await client.get(f"/v1/sessions/{session}/events", headers={"Last-Event-ID": given})
        assert answer.status_code == 422 and answer.json()["code"] == "cursor"


async def test_a_stream_of_nothing_is_refused_before_it_begins(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/sessions/never-was/events")).status_code == 404
    assert (await client.get("/v1/turns/never-was.1/events")).status_code == 404


@pytest.mark.parametrize("way", ["api", "pages"])
async def test_an_open_stream_ends_once_its_key_is_revoked(
    fleet: RunningFleet, guarded: str, client: httpx.AsyncClient, way: str
) -> None:
    """With a problem, so that a client does not take it for a broken connection; other keys' streams go on."""
    session = new_session()
    await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "one"})
    store = open_store((fleet.root / "sessions").as_uri(), fsync=False)
    keys = KeyStore(store)
    name = new_session("key")
    _, text = await keys.create(name, ["read"])
    async with httpx.AsyncClient(base_url=guarded, timeout=30, trust_env=False) as reader:
        path, headers = f"/v1/sessions/{session}/events", {"Authorization": f"Bearer {text}"}
        if way == "pages":
            await sign_in(reader, text)
            path, headers = f"/ui/sessions/{session}/events", {}
        async with (
            reader.stream("GET", path, headers=headers) as theirs,
            reader.stream(
                "GET", f"/v1/sessions/{session}/events", headers={"X-API-Key": FIXED_KEY}
            ) as another,
        ):
            assert theirs.status_code == another.status_code == 200
            events = sse(theirs)
            while "comment" not in await anext(events):  # it is open and quiet
                pass
            await keys.revoke(name)
            last: dict[str, Any] = {}
            async for item in events:
                last = item if "event" in item else last
            assert last["event"] == "problem"
            assert (last["data"]["code"], last["data"]["status"]) == ("unauthenticated", 401)
            await client.post(f"/v1/sessions/{session}/turns", json={"message": "two"})
            async for item in sse(another):
                if item.get("event") == "turn-settled" and item["data"]["turnId"] == f"{session}.2":
                    break
    await store.close()
