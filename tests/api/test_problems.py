"""Problems: what an answer says is so."""

from __future__ import annotations

import asyncio
from pathlib import Path

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
