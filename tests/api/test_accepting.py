"""Starting sessions and giving them input over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.fleet import RunningFleet, eventually, new_session, quoted, run_turn, settled


def pointers(answer: httpx.Response) -> set[str]:
    return {error["pointer"] for error in answer.json()["errors"]}


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["code"] == code and body["status"] == status
    assert body["type"].endswith(code) and body["title"] and body["detail"]
    return body


async def test_a_start_is_accepted_with_its_turn_and_where_to_follow_it(client: httpx.AsyncClient) -> None:
    """design: Surfaces."""
    answer = await client.post("/v1/workflows/chat/sessions", json={"message": "hi"})
    body = answer.json()
    assert answer.status_code == 202
    assert body["turnId"] == f"{body['sessionId']}.1" and body["status"] == "queued"
    assert body["sessionId"].startswith("session-")
    assert answer.headers["location"] == body["links"]["turn"]
    turn = await settled(client, body["turnId"])
    assert turn["outcome"]["kind"] == "completed" and turn["outcome"]["reply"] == "hello from the model"


async def test_a_start_without_a_message_opens_over_its_variables(client: httpx.AsyncClient) -> None:
    """Ruling 16."""
    turn = await run_turn(
        client,
        "/v1/workflows/refund/sessions",
        {"trigger": "order", "variables": {"order_id": "A-7", "amount": 12.5}},
    )
    assert turn["outcome"]["kind"] == "parked"
    history = (await client.get(f"/v1/sessions/{turn['sessionId']}/history")).json()["items"]
    assert history[0]["role"] == "runtime" and "A-7" in history[0]["text"]


@pytest.mark.parametrize("levels", [150, 300, 900])
async def test_variables_nested_too_deeply_are_refused_by_place(
    client: httpx.AsyncClient, levels: int
) -> None:
    deep = "[" * levels + "]" * levels
    start = f'{{"message": "x", "variables": {{"a": {deep}}}}}'
    batch = f'{{"items": [{{"op": "start", "workflow": "chat", {start[1:]}]}}'
    json_kind = {"content-type": "application/json"}
    answer = await client.post("/v1/workflows/chat/sessions", content=start, headers=json_kind)
    assert "levels deep" in refused(answer, 422, "validation")["detail"]
    assert pointers(answer) == {"/variables"}
    answer = await client.post("/v1/batch", content=batch, headers=json_kind)
    assert "levels deep" in refused(answer, 422, "validation")["detail"]


async def test_a_whole_run_over_http(client: httpx.AsyncClient) -> None:
    """Start, park, reply, decide: 03 §2.2."""
    session = new_session()
    turn = await run_turn(
        client, "/v1/workflows/refund/sessions", {"sessionId": session, "message": "refund"}
    )
    assert turn["turnId"] == f"{session}.1" and turn["outcome"]["parkedChannel"] == "decision"
    reply = await run_turn(client, f"/v1/sessions/{session}/replies", {"message": "how much?"})
    assert reply["outcome"]["disposition"] == "reply" and reply["outcome"]["kind"] == "parked"
    decided = await run_turn(client, f"/v1/sessions/{session}/decisions", {"to": "pay", "comment": "fine"})
    assert decided["outcome"]["kind"] == "completed" and decided["outcome"]["state"] == "pay"
    trail = (await client.get(f"/v1/sessions/{session}/trail")).json()["items"]
    assert [(step["to"], step["kind"]) for step in trail] == [
        ("draft", "trigger"),
        ("review", "agent"),
        ("pay", "human"),
    ]
    assert trail[2]["reason"] == "fine"


async def test_a_delivery_wakes_a_wait(client: httpx.AsyncClient) -> None:
    """03 §10.8: any trigger id resumes a wait park."""
    session = new_session()
    turn = await run_turn(
        client, "/v1/workflows/reminder/sessions", {"sessionId": session, "message": "wait"}
    )
    assert turn["outcome"]["parkedChannel"] == "input"
    delivered = await run_turn(
        client,
        f"/v1/sessions/{session}/deliveries",
        {"trigger": "payment", "variables": {"paid_at": "2031-05-09"}},
    )
    assert delivered["outcome"]["disposition"] == "deliver"
    variables = (await client.get(f"/v1/sessions/{session}/variables")).json()["variables"]
    assert variables["paid_at"] == {"value": "2031-05-09", "locked": True}


async def test_a_message_to_a_finished_session_is_its_next_turn(client: httpx.AsyncClient) -> None:
    session = new_session()
    await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "one"})
    second = await run_turn(client, f"/v1/sessions/{session}/turns", {"message": "two"})
    assert second["turnId"] == f"{session}.2"


async def test_an_id_with_slashes_and_signs_is_percent_encoded_in_paths(client: httpx.AsyncClient) -> None:
    """known-faults H23; ids in paths."""
    session = f"tenant/a b+c%20/é😀.{new_session()}"
    turn = await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "hi"})
    assert turn["sessionId"] == session
    again = await run_turn(client, f"/v1/sessions/{quoted(session)}/turns", {"message": "more"})
    assert again["turnId"] == f"{session}.2"
    read = (await client.get(again["links"]["session"])).json()
    assert read["sessionId"] == session and read["turn"] == 2


async def test_the_triggers_session_path_names_the_session(client: httpx.AsyncClient) -> None:
    """05 §2.1."""
    thread = new_session("thread")
    asked = {"trigger": "mail", "variables": {"mail": {"thread": thread}}, "message": "refund"}
    turn = await run_turn(client, "/v1/workflows/refund/sessions", asked)
    assert turn["sessionId"] == thread


@pytest.mark.parametrize(
    ("variables", "wrong"),
    [
        ({}, {"/variables/order_id", "/variables/amount"}),
        ({"order_id": 7, "amount": 1}, {"/variables/order_id"}),
        ({"order_id": "A", "amount": "12"}, {"/variables/amount"}),
        ({"order_id": None, "amount": True}, {"/variables/order_id", "/variables/amount"}),
    ],
)
async def test_variables_are_held_to_the_triggers_signature_before_anything_is_written(
    client: httpx.AsyncClient, variables: dict[str, Any], wrong: set[str]
) -> None:
    """05 §11.4."""
    session = new_session()
    asked = {"sessionId": session, "trigger": "order", "variables": variables}
    answer = await client.post("/v1/workflows/refund/sessions", json=asked)
    body = refused(answer, 422, "signature")
    assert pointers(answer) == wrong
    assert body["detail"].startswith("Refusing to start: trigger 'order'")
    refused(await client.get(f"/v1/sessions/{session}"), 404, "session-unknown")


async def test_a_later_turn_is_satisfied_by_what_the_session_holds(client: httpx.AsyncClient) -> None:
    """Ruling 1."""
    session = new_session()
    held = {"order_id": "A-7", "amount": 12.5}
    await run_turn(
        client, "/v1/workflows/refund/sessions", {"sessionId": session, "trigger": "order", "variables": held}
    )
    await run_turn(client, f"/v1/sessions/{session}/decisions", {"to": "pay"})
    later = await run_turn(client, f"/v1/sessions/{session}/turns", {"trigger": "order", "message": "again"})
    assert later["outcome"]["kind"] == "completed"
    wrong = await client.post(
        f"/v1/sessions/{session}/turns",
        json={"trigger": "order", "variables": {"amount": "x"}, "message": "a"},
    )
    refused(wrong, 422, "signature")


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/workflows/nothing/sessions", {"message": "x"}, 404, "workflow-unknown"),
        ("/v1/workflows/..%2Fchat/sessions", {"message": "x"}, 404, "workflow-unknown"),
        ("/v1/workflows/chat/sessions", {"message": "  "}, 422, "empty-message"),
        ("/v1/workflows/chat/sessions", {"message": "x", "trigger": "nope"}, 422, "unknown-session-trigger"),
        (
            "/v1/workflows/chat/sessions",
            {"message": "x", "variables": {"A b": 1}},
            422,
            "invalid-variable-name",
        ),
        (
            "/v1/workflows/chat/sessions",
            {"message": "x", "variables": {"title": "a\nb"}},
            422,
            "invalid-title",
        ),
        ("/v1/workflows/chat/sessions", {"message": "x", "sessionId": "a/../b"}, 422, "session-id"),
        ("/v1/workflows/chat/sessions", {"message": "x", "sessionId": "tenant~7"}, 422, "session-id"),
        ("/v1/workflows/chat/sessions", {"message": "x", "sessionId": "scratchpad/x"}, 422, "session-id"),
        ("/v1/workflows/chat/sessions", {"mesage": "x"}, 422, "validation"),
        ("/v1/workflows/chat/sessions", {"message": 7}, 422, "validation"),
        ("/v1/workflows/chat/sessions", [], 422, "validation"),
        ("/v1/sessions/never-was/turns", {"message": "x"}, 404, "session-unknown"),
        ("/v1/sessions/never-was~1/turns", {"message": "x"}, 404, "session-unknown"),
        ("/v1/sessions/never-was/decisions", {"to": "x"}, 404, "session-unknown"),
        ("/v1/sessions/x/decisions", {}, 422, "validation"),
        ("/v1/sessions/%FF/turns", {"message": "x"}, 404, "not-found"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    client: httpx.AsyncClient, path: str, body: Any, status: int, code: str
) -> None:
    refused(await client.post(path, json=body), status, code)


async def test_an_input_that_the_session_does_not_wait_for_is_refused_at_once(
    client: httpx.AsyncClient,
) -> None:
    """03 §2.3, and design: refused at once with 409."""
    session = new_session()
    await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "x"})
    path = f"/v1/sessions/{session}"
    refused(await client.post(f"{path}/decisions", json={"to": "pay"}), 409, "session-not-parked")
    refused(await client.post(f"{path}/replies", json={"message": "x"}), 409, "session-not-parked")
    refused(await client.post(f"{path}/deliveries", json={"trigger": "x"}), 409, "session-not-awaiting-input")
    parked = new_session()
    await run_turn(client, "/v1/workflows/refund/sessions", {"sessionId": parked, "message": "x"})
    answer = await client.post(f"/v1/sessions/{parked}/decisions", json={"to": "review"})
    assert refused(answer, 409, "invalid-decision-target")["validTargets"] == ["pay", "draft"]
    answer = await client.post(f"/v1/sessions/{parked}/replies", json={"message": " "})
    refused(answer, 422, "empty-message")
    answer = await client.post(f"/v1/sessions/{parked}/deliveries", json={"trigger": "x"})
    refused(answer, 409, "session-not-awaiting-input")


async def test_a_session_stays_with_its_workflow(client: httpx.AsyncClient) -> None:
    session = new_session()
    await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "x"})
    asked = {"sessionId": session, "message": "x"}
    refused(await client.post("/v1/workflows/refund/sessions", json=asked), 409, "workflow-mismatch")


async def test_the_same_idempotency_key_is_the_same_turn(client: httpx.AsyncClient) -> None:
    """design: Durability 1."""
    headers = {"Idempotency-Key": new_session("key")}
    first = await client.post("/v1/workflows/chat/sessions", json={"message": "x"}, headers=headers)
    second = await client.post("/v1/workflows/chat/sessions", json={"message": "x"}, headers=headers)
    assert first.status_code == second.status_code == 202
    assert first.json()["turnId"] == second.json()["turnId"]
    assert not first.json()["repeated"] and second.json()["repeated"]
    other = await client.post("/v1/workflows/chat/sessions", json={"message": "y"}, headers=headers)
    refused(other, 409, "idempotency-key-reused")


async def test_a_repeated_decision_is_answered_as_before_although_the_park_is_over(
    client: httpx.AsyncClient,
) -> None:
    session = new_session()
    await run_turn(client, "/v1/workflows/refund/sessions", {"sessionId": session, "message": "x"})
    headers = {"Idempotency-Key": new_session("key")}
    path = f"/v1/sessions/{session}/decisions"
    first = await run_turn(client, path, {"to": "pay"}, headers=headers)
    again = await client.post(path, json={"to": "pay"}, headers=headers)
    assert again.status_code == 202 and again.json()["turnId"] == first["turnId"]


async def test_two_messages_at_once_wait_for_each_other(client: httpx.AsyncClient) -> None:
    """known-faults H14."""
    session = new_session()
    await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "zero"})
    path = f"/v1/sessions/{session}/turns"
    one = await client.post(path, json={"message": "one a while"})
    two = await client.post(path, json={"message": "two"})
    assert [one.json()["turnId"], two.json()["turnId"]] == [f"{session}.2", f"{session}.3"]
    await settled(client, two.json()["turnId"])
    history = (await client.get(f"/v1/sessions/{session}/history")).json()["items"]
    assert [(item["role"], item["text"]) for item in history[2:]] == [
        ("user", "one a while"),
        ("assistant", "after a while"),
        ("user", "two"),
        ("assistant", history[-1]["text"]),
    ]


async def test_a_busy_session_refuses_when_asked_to(client: httpx.AsyncClient) -> None:
    """design: onBusy."""
    session = new_session()
    running = await client.post(
        "/v1/workflows/chat/sessions", json={"sessionId": session, "message": "slowly"}
    )
    await _running(client, running.json()["turnId"])
    path = f"/v1/sessions/{session}/turns"
    refused(await client.post(path, json={"message": "x", "onBusy": "reject"}), 409, "session-busy")
    assert (await client.get(f"/v1/sessions/{session}")).json()["busy"] is True
    answer = await client.post(path, json={"message": "now", "onBusy": "interrupt"})
    assert answer.status_code == 202
    first = await settled(client, running.json()["turnId"])
    assert first["outcome"]["exit"]["code"] == "turn-cancelled"
    await client.delete(
        answer.json()["links"]["turn"]
    )  # its model would be as slow: the words are still there
    await settled(client, answer.json()["turnId"])


async def _running(client: httpx.AsyncClient, turn_id: str) -> None:
    async def running() -> bool:
        return bool((await client.get(f"/v1/turns/{quoted(turn_id)}")).json()["status"] == "running")

    await eventually(running)


async def test_a_running_turn_is_cancelled(client: httpx.AsyncClient) -> None:
    """03 §16; docs/protocol.md §7."""
    started = await client.post("/v1/workflows/chat/sessions", json={"message": "slowly"})
    turn_id = started.json()["turnId"]
    await _running(client, turn_id)
    answer = await client.delete(f"/v1/turns/{quoted(turn_id)}")
    assert answer.status_code == 202
    turn = await settled(client, turn_id)
    assert turn["outcome"]["kind"] == "failed" and turn["outcome"]["exit"]["code"] == "turn-cancelled"
    body = refused(await client.delete(f"/v1/turns/{quoted(turn_id)}"), 409, "turn-over")
    assert body["outcome"]["kind"] == "failed"


async def test_a_session_is_deleted_and_gone(client: httpx.AsyncClient) -> None:
    """docs/protocol.md §8."""
    session = new_session()
    await run_turn(client, "/v1/workflows/chat/sessions", {"sessionId": session, "message": "x"})
    answer = await client.delete(f"/v1/sessions/{session}")
    assert answer.status_code == 202

    async def gone() -> bool:
        return (await client.get(f"/v1/sessions/{session}")).status_code == 410

    await eventually(gone)
    for path in ("", "/history", "/trail", "/variables", "/files", "/artifacts/trail.json", "/events"):
        refused(await client.get(f"/v1/sessions/{session}{path}"), 410, "session-gone")
    refused(await client.get(f"/v1/turns/{session}.1"), 410, "session-gone")
    refused(await client.post(f"/v1/sessions/{session}/turns", json={"message": "x"}), 410, "session-gone")

    async def unlisted() -> bool:
        listed = (await client.get("/v1/sessions", params={"limit": 500})).json()["items"]
        return session not in {line["sessionId"] for line in listed}

    await eventually(unlisted)


async def test_a_batch_is_accepted_item_by_item(client: httpx.AsyncClient) -> None:
    session = new_session()
    items = [
        {"op": "start", "workflow": "chat", "sessionId": session, "message": "one"},
        {"op": "start", "workflow": "nothing", "message": "x"},
        {"op": "start", "workflow": "chat", "message": "x", "idempotencyKey": new_session("k")},
        {"op": "send", "sessionId": session, "message": "two"},
        {"op": "deliver", "sessionId": "never-was", "trigger": "x"},
    ]
    answer = await client.post("/v1/batch", json={"items": items})
    assert answer.status_code == 200
    found = answer.json()["items"]
    assert [item["status"] for item in found] == [202, 404, 202, 202, 404]
    assert found[0]["turn"]["turnId"] == f"{session}.1" and found[3]["turn"]["turnId"] == f"{session}.2"
    assert found[1]["problem"]["code"] == "workflow-unknown"
    await settled(client, found[3]["turn"]["turnId"])
    refused(await client.post("/v1/batch", json={"items": []}), 422, "validation")
    refused(await client.post("/v1/batch", json={"items": items[:1] * 101}), 422, "validation")


async def test_any_celery_producer_enqueues_what_post_does(
    fleet: RunningFleet, client: httpx.AsyncClient
) -> None:
    """design: Celery. The same task sent again is the same turn."""
    from celery import Celery

    session = new_session()
    app = Celery("elsewhere", broker=fleet.redis.url, set_as_current=False)
    asked = {"workflow": "chat", "sessionId": session, "message": "from celery"}
    for _ in range(2):
        await asyncio.to_thread(
            app.send_task,
            "archmax.turn.enqueue",
            kwargs=asked,
            queue="archmax.intake",
            task_id=f"task-{session}",
            ignore_result=True,
        )

    async def accepted() -> bool:
        return (await client.get(f"/v1/turns/{session}.1")).status_code == 200

    await eventually(accepted)
    turn = await settled(client, f"{session}.1")
    assert turn["outcome"]["kind"] == "completed"
    app.close()


async def test_of_two_workflows_that_begin_one_session_at_once_one_gets_it(client: httpx.AsyncClient) -> None:
    """A session is one workflow's; a key bound to the other must not put turns into it."""
    for _ in range(5):
        session = new_session("race")
        answers = await asyncio.gather(
            *(
                client.post(
                    f"/v1/workflows/{('chat', 'reminder')[number % 2]}/sessions",
                    json={"sessionId": session, "message": "hi"},
                )
                for number in range(6)
            )
        )
        taken = {number % 2 for number, answer in enumerate(answers) if answer.status_code == 202}
        assert len(taken) == 1, [answer.text for answer in answers]
        for number, answer in enumerate(answers):
            if number % 2 not in taken:
                refused(answer, 409, "workflow-mismatch")
