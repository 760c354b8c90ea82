"""Reading turns, sessions, lists, files, artifacts and workflows over HTTP."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from tests.support.fleet import RunningFleet, eventually, new_session, quoted, run_turn


@pytest.fixture
async def refund(client: httpx.AsyncClient) -> str:
    """A session parked at review, with a file."""
    session = new_session()
    asked = {"sessionId": session, "message": "refund", "labels": {"tenant": session}}
    await run_turn(client, "/v1/workflows/refund/sessions", asked)
    return session


async def test_a_session_shows_its_summary_and_what_it_waits_for(
    client: httpx.AsyncClient, refund: str
) -> None:
    """05 §7.1."""
    body = (await client.get(f"/v1/sessions/{refund}")).json()
    assert body["status"] == "awaiting_decision" and body["classification"] == "open"
    assert body["state"] == "review" and body["workflow"] == "refund" and body["busy"] is False
    assert [edge["to"] for edge in body["pendingDecision"]["transitions"]] == ["pay", "draft"]
    assert body["labels"] == {"tenant": refund}
    assert body["usage"]["outputTokens"] > 0


async def test_a_reader_that_has_the_version_is_told_so(client: httpx.AsyncClient, refund: str) -> None:
    for path in (
        f"/v1/sessions/{refund}",
        f"/v1/sessions/{refund}/trail",
        f"/v1/sessions/{refund}/history",
        f"/v1/sessions/{refund}/files/scratchpad/note.txt",
        f"/v1/turns/{refund}.1",
        "/v1/workflows/refund",
        "/v1/workflows/refund/graph",
    ):
        first = await client.get(path)
        assert first.status_code == 200, path
        again = await client.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304 and not again.content, path
        other = await client.get(path, headers={"If-None-Match": '"other"'})
        assert other.status_code == 200, path


async def test_a_turn_that_is_not_over_answers_after_the_wait(client: httpx.AsyncClient) -> None:
    started = await client.post("/v1/workflows/chat/sessions", json={"message": "slowly"})
    path = started.json()["links"]["turn"]
    body = (await client.get(path, params={"wait": 0.2})).json()
    assert body["status"] in ("queued", "running") and "outcome" not in body
    await client.delete(path)


async def test_a_waiter_is_woken_by_the_end_of_its_turn(client: httpx.AsyncClient) -> None:
    started = await client.post("/v1/workflows/chat/sessions", json={"message": "a while"})
    body = (await client.get(started.json()["links"]["turn"], params={"wait": 60})).json()
    assert body["status"] == "settled" and body["outcome"]["reply"] == "after a while"


@pytest.mark.parametrize(
    "turn", ["nothing", "nothing.x", "nothing.0", "nothing.01", ".1", "a.99999999", "a.123456789"]
)
async def test_a_turn_that_never_was_is_unknown(client: httpx.AsyncClient, turn: str) -> None:
    answer = await client.get(f"/v1/turns/{turn}")
    assert answer.status_code == 404 and answer.json()["code"] == "turn-unknown"


async def test_history_and_lists_are_paged_by_cursor(client: httpx.AsyncClient, refund: str) -> None:
    path = f"/v1/sessions/{refund}/history"
    whole = (await client.get(path)).json()
    assert whole["cursor"] is None
    items, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(path, params=params)).json()
        items += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert items == whole["items"]


async def test_sessions_are_listed_by_status_workflow_label_and_time(client: httpx.AsyncClient) -> None:
    """design: Lists and filters run on an index in Redis."""
    mark, before = new_session("mark"), time.time_ns() // 1_000_000
    made = [new_session() for _ in range(5)]
    for session in made:
        asked = {"sessionId": session, "message": "x", "labels": {"mark": mark}}
        await run_turn(client, "/v1/workflows/chat/sessions", asked)
    parked = new_session()
    asked = {"sessionId": parked, "message": "x", "labels": {"mark": mark, "kind": "parked"}}
    await run_turn(client, "/v1/workflows/refund/sessions", asked)

    async def listed(**params: object) -> list[str]:
        found: list[str] = []
        cursor = None
        while True:
            query = {"label": f"mark:{mark}", "limit": 2, **params} | ({"cursor": cursor} if cursor else {})
            page = (await client.get("/v1/sessions", params=query)).json()  # type: ignore[arg-type]
            found += [line["sessionId"] for line in page["items"]]
            cursor = page["cursor"]
            if cursor is None:
                return found

    async def complete() -> bool:
        return len(await listed(status="completed,awaiting_decision")) == 6

    await eventually(complete)
    assert await listed() == [parked, *reversed(made)]
    assert await listed(status="awaiting_decision") == [parked]
    assert await listed(status="completed,awaiting_decision", workflow="chat") == list(reversed(made))
    assert await listed(updatedAfter=before) == [parked, *reversed(made)]
    assert await listed(updatedBefore=before - 1) == []
    assert await listed(workflow="nothing") == []
    odd = await client.get("/v1/sessions", params={"cursor": "nonsense"})
    assert odd.status_code == 422 and odd.json()["code"] == "cursor"


async def test_the_index_is_rebuilt_from_the_store_when_redis_forgot_it(
    fleet: RunningFleet, client: httpx.AsyncClient, refund: str
) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(fleet.redis.url) as redis:
        await redis.delete(
            "archmax:sessions", "archmax:sessions:time", "archmax:sessions:whole", "archmax:sessions:open"
        )

    async def found() -> bool:
        answer = await client.get("/v1/sessions", params={"label": f"tenant:{refund}"})
        return [line["sessionId"] for line in answer.json()["items"]] == [refund]

    await eventually(found)


async def test_files_are_listed_and_read_as_data(client: httpx.AsyncClient, refund: str) -> None:
    listed = (await client.get(f"/v1/sessions/{refund}/files")).json()["items"]
    assert [(line["path"], line["size"]) for line in listed] == [("scratchpad/note.txt", 17)]
    answer = await client.get(f"/v1/sessions/{refund}/files/scratchpad/note.txt")
    assert answer.text == "refund 0123456789"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"].startswith('inline; filename="note.txt"')


@pytest.mark.parametrize(
    ("asked", "status", "content", "span"),
    [
        ("bytes=0-5", 206, "refund", "bytes 0-5/17"),
        ("bytes=7-", 206, "0123456789", "bytes 7-16/17"),
        ("bytes=-3", 206, "789", "bytes 14-16/17"),
        ("bytes=-99", 206, "refund 0123456789", "bytes 0-16/17"),
        ("bytes=5-99", 206, "d 0123456789", "bytes 5-16/17"),
        ("bytes=17-", 416, None, "bytes */17"),
        ("bytes=-0", 416, None, "bytes */17"),
        ("bytes=5-2", 200, "refund 0123456789", None),
        ("bytes=0-1,3-4", 200, "refund 0123456789", None),
        ("lines=0-1", 200, "refund 0123456789", None),
    ],
)
async def test_a_range_of_a_file(
    client: httpx.AsyncClient, refund: str, asked: str, status: int, content: str | None, span: str | None
) -> None:
    """RFC 9110 §14."""
    path = f"/v1/sessions/{refund}/files/scratchpad/note.txt"
    answer = await client.get(path, headers={"Range": asked})
    assert answer.status_code == status
    assert answer.headers.get("content-range") == span
    if content is not None:
        assert answer.text == content


@pytest.mark.parametrize(
    "path",
    [
        "scratchpad/none.txt",
        "checkpoints/head",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/x",
        "scratchpad",
        "a%00b",
        "%FF",
    ],
)
async def test_only_a_sessions_own_files_can_be_read(
    client: httpx.AsyncClient, refund: str, path: str
) -> None:
    answer = await client.get(f"/v1/sessions/{refund}/files/{path}")
    assert answer.status_code == 404 and answer.headers["content-type"] == "application/problem+json"


async def test_artifacts_are_derived_from_the_log(client: httpx.AsyncClient, refund: str) -> None:
    """05 §16."""
    base = f"/v1/sessions/{refund}/artifacts"
    names = (await client.get(base)).json()["items"]
    found = {name: await client.get(f"{base}/{name}") for name in names}
    assert all(answer.status_code == 200 for answer in found.values())
    graph = found["graph.json"].json()
    assert [node["id"] for node in graph["nodes"]] == ["__start__", "draft", "review", "pay"]
    assert graph["finals"] == ["pay"] and graph["entry"] == "draft"
    assert {"source": "__start__", "target": "draft", "conditional": True, "label": "order"} in graph["edges"]
    assert found["graph.mmd"].text == graph["mermaid"] and graph["mermaid"].startswith("flowchart")
    trajectory = found["trajectory.json"].json()
    assert trajectory["prompt"] == "refund" and trajectory["finalAnswer"] == "Please review."
    assert [segment["state"] for segment in trajectory["segments"]] == ["draft", "review"]
    calls = [item for item in trajectory["segments"][0]["items"] if item["kind"] == "tool_call"]
    assert [call["name"] for call in calls] == ["write_file", "archmax_advance"] and calls[0]["result"]
    assert [step["to"] for step in found["trail.json"].json()["steps"]] == ["draft", "review"]
    assert found["metadata.json"].json()["runtimeContract"]["engine"] == "archmax-harness"
    assert found["variables.json"].json()["variables"]["trigger"]["value"] == "manual"
    unknown = await client.get(f"{base}/nothing.json")
    assert unknown.status_code == 404


async def test_workflows_show_triggers_and_signatures_as_json_schema(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/workflows")).json()["items"]
    assert [line["slug"] for line in listed] == ["chat", "refund", "reminder"]
    body = (await client.get("/v1/workflows/refund")).json()
    order = next(trigger for trigger in body["triggers"] if trigger["id"] == "order")
    assert order["requires"]["properties"] == {"order_id": {"type": "string"}, "amount": {"type": "number"}}
    assert order["description"] == "An order came in."
    assert (await client.get("/v1/workflows/..%2Fx")).status_code == 404


async def test_queues_and_workers_are_shown(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/fleet")).json()
    names = [queue["name"] for queue in body["queues"]]
    assert "archmax.turns.chat" in names and "archmax.children.refund" in names

    async def answered() -> bool:
        workers = (await client.get("/v1/fleet")).json()["workers"]
        return [worker["concurrency"] for worker in workers] == [200]

    await eventually(answered)  # who is too busy to answer a ping in time is not shown


async def test_health_and_readiness(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"alive": True}
    assert (await client.get("/readyz")).json() == {"ready": True, "problems": []}


async def test_an_unknown_route_and_method_are_problems_too(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/nothing")
    assert answer.status_code == 404 and answer.json()["code"] == "not-found"
    answer = await client.put("/v1/sessions")
    assert answer.status_code == 405 and answer.headers["content-type"] == "application/problem+json"


async def test_reads_go_on_side_by_side(client: httpx.AsyncClient, refund: str) -> None:
    answers = await asyncio.gather(*(client.get(f"/v1/sessions/{quoted(refund)}") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}


async def test_every_label_must_hold_and_running_is_a_status(client: httpx.AsyncClient) -> None:
    """design: filters by status, workflow, label, time."""
    mark = new_session("mark")
    one, two = new_session(), new_session()
    for session, kind in ((one, "a"), (two, "b")):
        asked = {"sessionId": session, "message": "x", "labels": {"mark": mark, "kind": kind}}
        await run_turn(client, "/v1/workflows/chat/sessions", asked)
    slow = await client.post(
        "/v1/workflows/chat/sessions", json={"message": "slowly", "labels": {"mark": mark}}
    )

    async def listed(*query: tuple[str, str]) -> set[str]:
        answer = await client.get("/v1/sessions", params=[("label", f"mark:{mark}"), *query])
        return {line["sessionId"] for line in answer.json()["items"]}

    async def running() -> bool:
        return await listed(("status", "running")) == {slow.json()["sessionId"]}

    async def done() -> bool:
        return await listed(("status", "completed"), ("status", "failed")) == {one, two}

    await eventually(running)
    await eventually(done)
    assert await listed(("label", "kind:a")) == {one}
    assert await listed(("label", "kind:a"), ("label", "kind:b")) == set()
    await client.delete(slow.json()["links"]["turn"])
    wrong = await client.get("/v1/sessions", params={"label": "nothing"})
    assert wrong.status_code == 422 and wrong.json()["code"] == "validation"


async def test_a_page_goes_on_where_it_was_although_a_session_has_moved_to_the_top(
    client: httpx.AsyncClient,
) -> None:
    mark = new_session("mark")
    made = [new_session() for _ in range(4)]
    for session in made:
        asked = {"sessionId": session, "message": "x", "labels": {"mark": mark}}
        await run_turn(client, "/v1/workflows/chat/sessions", asked)
    query = {"label": f"mark:{mark}", "limit": 2}

    async def complete() -> bool:
        asked = {**query, "limit": 9, "status": "completed"}
        return len((await client.get("/v1/sessions", params=asked)).json()["items"]) == 4

    await eventually(complete)
    first = (await client.get("/v1/sessions", params=query)).json()
    assert [line["sessionId"] for line in first["items"]] == [made[3], made[2]]
    # one that was shown moves, and is not shown again; the others keep their places
    await run_turn(client, f"/v1/sessions/{made[2]}/turns", {"message": "again"})
    second = (await client.get("/v1/sessions", params={**query, "cursor": first["cursor"]})).json()
    assert [line["sessionId"] for line in second["items"]] == [made[1], made[0]]


async def test_a_wait_is_no_longer_than_the_server_allows(
    fleet: RunningFleet, client: httpx.AsyncClient
) -> None:
    process, url = await asyncio.to_thread(
        fleet.start_api, ARCHMAX_AUTH_DISABLED="1", ARCHMAX_API_MAX_WAIT_SECONDS="0.2"
    )
    started = await client.post("/v1/workflows/chat/sessions", json={"message": "slowly"})
    path = started.json()["links"]["turn"]
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=25) as hasty:
        body = (await hasty.get(path, params={"wait": 3_600})).json()
    assert body["status"] in ("queued", "running")
    await client.delete(path)
    await asyncio.to_thread(process.stop)
