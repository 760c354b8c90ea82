"""The order desk of the examples as a running fleet, with workflows beside it whose every text is hostile.

The model is the example's own scripted one and a few lines more. The API asks for keys.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import httpx

from archmax.local.redis import EmbeddedRedis
from tests.support.fleet import REPOSITORY, TEST_SECRET, RunningFleet, eventually, run_turn

ADMIN = "administrator-key-of-the-desk"
READER = "reader-key-of-the-order-desk"
CLERK = "clerk-key-of-the-refund-desk"
OUTSIDER = "outsider-key-of-another-desk"
KEYS = f"{ADMIN},{READER}=read,{CLERK}=read+decide,{OUTSIDER}=read+decide@hostile,enqueue-only-key-of-the-desk=enqueue"
#: as decisions name them
ADMIN_NAME, CLERK_NAME = "ARCHMAX_API_KEYS[1]", "ARCHMAX_API_KEYS[3]"

MESSAGE = "From: orders@harborbakery.example — The bread tins of SO-4101 are dented, please refund them."

#: tries to become markup, an attribute, a script, a URL, a template, and to turn the text around
EVIL = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 'zq'*4 }}{% x %}javascript:alert(3)\u202etxt"
)


def yaml_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\u202e", "\\u202e")
    return f'"{escaped}"'


_EVIL_YAML = yaml_text(EVIL)
HOSTILE = f"""
title: {_EVIL_YAML}
states:
  work:
    title: {_EVIL_YAML}
    triggers: {{ manual: , nightly: {{ schedule: {{ cron: "0 3 * * *", timezone: Europe/Berlin, message: {_EVIL_YAML} }} }} }}
    tools: {{ allow: [write_file] }}
    transitions: [{{ to: ask, description: {_EVIL_YAML} }}]
  ask:
    type: human
    title: {_EVIL_YAML}
    instructions: {_EVIL_YAML}
    approvers: [{_EVIL_YAML}]
    evidence: [scratchpad/note.txt, scratchpad/data.json, scratchpad/page.html, scratchpad/picture.svg, scratchpad/none.txt]
    transitions:
      - {{ to: done, type: approve, description: {_EVIL_YAML} }}
      - {{ to: work, type: refine, description: {_EVIL_YAML} }}
  done:
    title: {_EVIL_YAML}
    instructions: x
"""

WAITER = """
title: Waiter
states:
  wait:
    triggers: { manual: }
    tools: { allow: [archmax_wait] }
"""

_HOSTILE_MODEL = """
- when_workflow: hostile
  when_state: work
  after_tool: write_file
  repeat: true
  text: EVIL
  tool_calls: [{ name: archmax_set_variables, args: { variables: { title: SHORT, evil: EVIL, deep: { EVIL: [EVIL] } } } }]
- when_workflow: hostile
  when_state: work
  after_tool: archmax_set_variables
  repeat: true
  tool_calls: [{ name: archmax_advance, args: { to: ask, reason: EVIL } }]
- when_workflow: hostile
  when_state: work
  repeat: true
  tool_calls:
    - { name: write_file, args: { file_path: /scratchpad/note.txt, content: EVIL } }
    - { name: write_file, args: { file_path: /scratchpad/data.json, content: '{"b":1,"a":[EVILJSON]}' } }
    - { name: write_file, args: { file_path: /scratchpad/page.html, content: EVIL } }
    - { name: write_file, args: { file_path: /scratchpad/picture.svg, content: EVIL } }
- { when_workflow: hostile, when_state: ask, repeat: true, text: EVIL }
- { when_workflow: hostile, when_state: done, repeat: true, text: EVIL }
- when_workflow: waiter
  repeat: true
  tool_calls: [{ name: archmax_wait, args: { reason: EVIL, until: 3d } }]
"""


def write_desk(root: Path, source: Path) -> None:
    """The example and the hostile workflow, in a folder of their own."""
    shutil.copytree(
        source, root, ignore=shutil.ignore_patterns("sessions", "__pycache__"), dirs_exist_ok=True
    )
    for slug, document in (("hostile", HOSTILE), ("waiter", WAITER)):
        folder = root / "workflows" / slug
        folder.mkdir(parents=True)
        (folder / "workflow.yaml").write_text(document, "utf-8")
    in_json = EVIL.replace('"', '\\"').replace("'", "''")
    model = _HOSTILE_MODEL.replace("EVILJSON", f'"{in_json}"')
    model = re.sub(r"\bEVIL\b", lambda _: yaml_text(EVIL), model)
    model = model.replace("SHORT", yaml_text(EVIL[:60]))
    # paced answers are for people; tests do not wait for them
    script = re.sub(r" *delay_ms: \d+\n", "", (root / "demo.model.yaml").read_text("utf-8"))
    (root / "model.yaml").write_text(script + model, "utf-8")


@contextlib.contextmanager
def running_desk(folder: Path) -> Generator[RunningFleet]:
    root = folder / "workspace"
    write_desk(root, REPOSITORY / "examples" / "order-desk")
    redis = EmbeddedRedis.start()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCHMAX_")}
    environment = {
        "PYTHONPATH": str(REPOSITORY),
        "ARCHMAX_ROOT": str(root),
        "ARCHMAX_REDIS_URL": redis.url,
        "ARCHMAX_MODEL": "scripted:model.yaml",
        "ARCHMAX_STORE_FSYNC": "0",
        "ARCHMAX_API_KEYS": KEYS,
        "ARCHMAX_WEBHOOK_SECRET": TEST_SECRET,
        "ARCHMAX_WEBHOOK_ALLOW_PRIVATE": "1",
        "ARCHMAX_PRICE_INPUT": "1.5",
        "ARCHMAX_PRICE_OUTPUT": "6",
    }
    fleet = RunningFleet(root, redis, {**kept, **environment})
    try:
        fleet.start_worker()
        fleet.api, fleet.url = fleet.start_api()
        fleet.await_worker()
        yield fleet
    finally:
        fleet.stop()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@contextlib.asynccontextmanager
async def signed_in(fleet: RunningFleet, key: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A browser without a screen: an HTTP client that has signed in through the form."""
    async with httpx.AsyncClient(base_url=fleet.url, timeout=30, trust_env=False) as client:
        answer = await sign_in(client, key)
        assert answer.status_code == 303, answer.text
        yield client


async def sign_in(client: httpx.AsyncClient, key: str, target: str = "/ui") -> httpx.Response:
    page = await client.get("/ui/login", params={"next": target})
    fields = form_fields(page.text, "/ui/login")
    return await client.post("/ui/login", data={**fields, "key": key})


def form_fields(page: str, action: str) -> dict[str, str]:
    """The hidden fields of the form with that action."""
    form = re.search(rf'<form[^>]*action="{re.escape(action)}".*?</form>', page, re.DOTALL)
    assert form is not None, f"no form {action}:\n{page}"
    return dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form[0]))


async def refund(fleet: RunningFleet, session: str) -> None:
    """A refund that waits for its decision."""
    await _parked(
        fleet, "order-desk", {"sessionId": session, "message": MESSAGE, "labels": {"customer": "harbor"}}
    )


async def hostile(fleet: RunningFleet, session: str) -> None:
    """A park whose every text is hostile."""
    asked = {"sessionId": session, "message": EVIL, "labels": {"note": EVIL}, "variables": {"given": EVIL}}
    await _parked(fleet, "hostile", asked)


async def _parked(fleet: RunningFleet, workflow: str, body: dict[str, Any]) -> None:
    async with fleet.client(headers=bearer(ADMIN)) as client:
        turn = await run_turn(client, f"/v1/workflows/{workflow}/sessions", body)
        assert turn["outcome"]["kind"] == "parked", turn

        async def waits() -> bool:
            asked = {"status": "awaiting_decision", "workflow": workflow, "limit": "500"}
            page = (await client.get("/v1/sessions", params=asked)).json()
            return turn["sessionId"] in [line["sessionId"] for line in page["items"]]

        await eventually(waits)  # a list may hear of it later than who waits for the turn
