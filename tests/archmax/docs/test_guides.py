"""The web developer's and the reviewer's guides run as they stand, against a real fleet on the order desk."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from api.keys import Scope
from api.problems import CODES
from archmax.client import Client
from archmax.docs.configuration import settings_classes, variables
from tests.support.command import REPOSITORY
from tests.support.desk import ADMIN, refund, running_desk, signed_in
from tests.support.fleet import RunningFleet
from tests.support.pages import blocks, run_page
from worker.webhooks import signature

DEVELOPERS = REPOSITORY / "docs" / "web-developers.md"
REVIEWERS = REPOSITORY / "docs" / "reviewers.md"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningFleet]:
    with running_desk(tmp_path_factory.mktemp("desk")) as running:
        yield running


@pytest.mark.timeout(600)
def test_the_web_developers_page_runs_as_it_stands(desk: RunningFleet) -> None:
    named = {"ARCHMAX_URL": desk.url, "ARCHMAX_REDIS_URL": desk.redis.url, "no_proxy": "127.0.0.1"}
    printed = run_page(DEVELOPERS, desk.root, named)
    answers = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    turns = [answer for answer in answers if "outcome" in answer]
    assert [turn["outcome"]["kind"] for turn in turns] == ["parked", "completed"]
    assert [way["to"] for way in turns[0]["outcome"]["pending"]["transitions"]] == [
        "refund-closed",
        "refund-request",
    ]
    batch = next(
        answer
        for answer in answers
        if "status" in str(answer.get("items", [{}])[0])
        and "turn" in answer["items"][0]
        and "problem" not in answer
    )
    assert [item["status"] for item in batch["items"]] == [202, 202]
    for words in (
        '"decision": "approved"',
        "event: turn-settled",
        "at refund-review",
        "parked ['refund-closed', 'refund-request']",
        "409 invalid-decision-target",
        "Your refund for SO-4101 is approved.",
        "late-2.1",
        "revoked ",
    ):
        assert words in printed, printed
    with Client(desk.url, ADMIN) as fleet:  # what the Celery producer sent
        deadline = time.monotonic() + 120
        while "late-3" not in [line["sessionId"] for line in fleet.sessions()]:
            assert time.monotonic() < deadline, desk.worker_words()
            time.sleep(0.1)
        assert fleet.wait("late-3.1")["outcome"]["kind"] == "completed"
        assert fleet.wait("refund-1.3")["outcome"]["kind"] == "completed"


def test_the_function_that_checks_a_webhook_takes_the_fleets_and_no_other(tmp_path: Path) -> None:
    source = next(block for block in blocks(DEVELOPERS) if block.argument == "hooks.py")
    file = tmp_path / "hooks.py"
    file.write_text(source.text, "utf-8")
    spec = importlib.util.spec_from_file_location("hooks", file)
    assert spec is not None and spec.loader is not None
    hooks: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    now, body = int(time.time()), b'{"type":"turn.parked"}'
    header = signature("secret", now, body)
    assert hooks.genuine(header, body, b"secret")
    assert not hooks.genuine(header, body + b" ", b"secret")
    assert not hooks.genuine(header, body, b"other")
    assert not hooks.genuine(signature("secret", now - 3_600, body), body, b"secret")
    for broken in ("", "t=,v1=", "t=x,v1=00", f"t={now}", f"t={now},v1=é"):
        assert not hooks.genuine(broken, body, b"secret")


async def test_the_key_of_the_reviewers_page_signs_in_and_finds_what_the_page_describes(
    desk: RunningFleet,
) -> None:
    await refund(desk, "guide-1")
    printed = await asyncio.to_thread(run_page, REVIEWERS, desk.root)
    key = re.search(r"^amx_\S+$", printed, re.MULTILINE)
    assert key is not None, printed
    async with signed_in(desk, key[0]) as browser:
        page = (await browser.get("/ui/inbox", params={"session": "guide-1"})).text
    guide = REVIEWERS.read_text("utf-8")
    assert "Maria Keller" in page
    for words in ("Inbox", "Sessions", "Schedules", "Dead letters", "What to check", "Evidence"):
        assert words in page, words
        assert words.lower() in guide.lower(), words
    for link in re.findall(r"images/[\w.-]+", guide):
        assert (REVIEWERS.parent / link).is_file(), link


def test_the_pages_name_only_codes_scopes_settings_and_methods_that_exist() -> None:
    text = DEVELOPERS.read_text("utf-8")
    known = {name for settings in settings_classes() for name, _, _ in variables(settings)}
    assert set(re.findall(r"\bARCHMAX_[A-Z_]+\b", text + REVIEWERS.read_text("utf-8"))) <= known
    assert {"idempotency-key-reused"} <= CODES.keys()
    assert all(f"`{scope.value}`" in text for scope in Scope)
    listed = text.partition("`start`, `send`")[2].partition("are the routes")[0]
    methods = {"start", "send", *re.findall(r"`(\w+)`", listed)}
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert methods == public - {"close"}
