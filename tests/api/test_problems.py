"""Problems: what an answer says is so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fleet import RunningFleet


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"message": "x", "variables": {"n": ' + b"9" * 5000 + b"}}", "a number of too many digits"),
        (
            b'{"message": "x", "variables": {"n": ' + b"[" * 20_000 + b"]" * 20_000 + b"}}",
            "too many levels of nesting",
        ),
        (b'{"message": "\xff"}', "the text is no UTF-8"),
        (b'{"message": "x"', "JSON decode error"),
    ],
)
async def test_a_body_that_cannot_be_read_is_invalid_like_any_other(
    client: httpx.AsyncClient, body: bytes, said: str
) -> None:
    answer = await client.post(
        "/v1/workflows/chat/sessions", content=body, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "validation")
    (error,) = answer.json()["errors"]
    assert error["code"] == "json_invalid" and said in error["detail"]
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "pointer", "said"),
    [
        ("/v1/workflows/chat/sessions", {"mesage": "x"}, "/mesage", "did you mean 'message'?"),
        ("/v1/workflows/chat/sessions", {"onbuzy": "reject"}, "/onbuzy", "did you mean 'onBusy'?"),
        (
            "/v1/sessions/x/decisions",
            {"to": "pay", "because": "x"},
            "/because",
            "the fields are to, comment, webhook",
        ),
        (
            "/v1/sessions/x/replies",
            {"message": "x", "webhook": {"url": "https://example.com", "uri": 1}},
            "/webhook/uri",
            "did you mean 'url'?",
        ),
        (
            "/v1/batch",
            {"items": [{"op": "start", "workflow": "chat", "idempotencykey": "x"}]},
            "/items/0/idempotencykey",
            "did you mean 'idempotencyKey'?",
        ),
        ("/v1/batch", {"item": [], "items": []}, "/item", "did you mean 'items'?"),
        ("/v1/workflows/chat/sessions", {"x" * 50_000: 1}, "/" + "x" * 50_000, "the fields are sessionId, "),
    ],
)
async def test_an_unknown_field_is_told_which_there_are(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], pointer: str, said: str
) -> None:
    answer = await client.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "validation")
    error = next(each for each in answer.json()["errors"] if each["pointer"] == pointer)
    assert error["code"] == "extra_forbidden" and error["detail"].startswith(f"unknown field; {said}")


async def test_other_problems_are_told_beside_unknown_fields(client: httpx.AsyncClient) -> None:
    """`{n}` is not filled in from anywhere."""
    answer = await client.post("/v1/sessions/x/decisions", json={"comment": 7, "{n}": 1})
    assert [(each["pointer"], each["code"]) for each in answer.json()["errors"]] == [
        ("/to", "missing"),
        ("/comment", "string_type"),
        ("/{n}", "extra_forbidden"),
    ]
    assert answer.json()["errors"][1]["detail"] == "Input should be a valid string"
    deep = {"message": "x", "variables": {"v": json.loads("[" * 200 + "]" * 200)}, "bogus": 1}
    answer = await client.post("/v1/workflows/chat/sessions", json=deep)
    details = [each["detail"] for each in answer.json()["errors"]]
    assert details[0] == "Value error, nested more than 100 levels deep" and len(details) == 2


async def test_an_answer_that_sends_the_reader_to_the_log_finds_the_reason_there(
    fleet: RunningFleet, tmp_path: Path
) -> None:
    (tmp_path / "sessions").write_text("a file where the store's folder should be")
    process, url = await asyncio.to_thread(
        fleet.start_api, ARCHMAX_AUTH_DISABLED="1", ARCHMAX_STORE=f"file://{tmp_path / 'sessions'}"
    )
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as broken:
            answer = await broken.post("/v1/workflows/chat/sessions", json={"message": "x"})
        assert answer.status_code == 500
        assert answer.json()["detail"] == "the server failed; its log says why"
        assert str(tmp_path) not in answer.text
        assert (
            f"POST /v1/workflows/chat/sessions failed: object store {tmp_path / 'sessions'}"
            in process.words()
        )
    finally:
        await asyncio.to_thread(process.stop)
