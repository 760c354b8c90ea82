"""A whole fleet for tests: Redis, one worker and one API, each a real process, over a small workspace.

Started once per test session (`fleet` in a conftest); tests use sessions of their own. The model is scripted and never used up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from archmax.local.ports import free_port
from archmax.local.processes import dying_with_parent
from archmax.local.redis import EmbeddedRedis

REPOSITORY = Path(__file__).resolve().parents[2]

REFUND = """
title: Refund
states:
  draft:
    triggers:
      manual: {}
      order:
        description: An order came in.
        requires:
          - { name: order_id, type: string }
          - { name: amount, type: number }
      mail:
        session: mail.thread
        message: mail.text
    tools:
      allow: [write_file]
    transitions:
      - { to: review, description: ready }
  review:
    type: human
    title: Review the refund
    transitions:
      - { to: pay, type: approve, description: pay it }
      - { to: draft, type: refine, description: once more }
  pay:
    instructions: Say that it is paid.
"""

REMINDER = """
title: Reminder
states:
  work:
    triggers:
      manual: {}
    tools:
      allow: [archmax_wait]
"""

CHAT = """
title: Chat
states:
  talk:
    triggers:
      manual: {}
    instructions: Talk.
"""

MODEL = """
- { when_workflow: chat, when_contains: "slowly", delay_ms: 30000, text: "late", repeat: true }
- { when_workflow: chat, when_contains: "a while", delay_ms: 400, text: "after a while", repeat: true }
- { when_workflow: chat, text: "hello from the model", repeat: true }
- { when_workflow: reminder, after_tool: archmax_wait, text: "I wait.", repeat: true }
- { when_workflow: reminder, when_contains: "[event]", text: "It came.", repeat: true }
- when_workflow: reminder
  tool_calls: [{ name: archmax_wait, args: { reason: "the payment" } }]
  repeat: true
- { when_state: pay, text: "It is paid.", repeat: true }
- { when_state: review, text: "Please review.", repeat: true }
- { when_state: draft, after_tool: write_file, tool_calls: [{ name: archmax_advance, args: { to: review, reason: drafted } }], repeat: true }
- when_state: draft
  tool_calls: [{ name: write_file, args: { file_path: /scratchpad/note.txt, content: "refund 0123456789" } }]
  repeat: true
"""

WORKFLOWS: Mapping[str, str] = {"refund": REFUND, "reminder": REMINDER, "chat": CHAT}
FIXED_KEY = "a-fixed-key-of-the-environment"
READER_KEY = "another-key-that-only-reads-chat"
TEST_SECRET = "webhook-secret-for-tests"


def write_workspace(root: Path) -> Path:
    for slug, document in WORKFLOWS.items():
        folder = root / "workflows" / slug
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "workflow.yaml").write_text(document, "utf-8")
    (root / "model.yaml").write_text(MODEL, "utf-8")
    return root


def new_session(prefix: str = "s") -> str:
    """An id no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


@dataclass
class Process:
    """A child of the tests, with its output in a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def words(self) -> str:
        return self.log.read_text("utf-8", "replace")


@dataclass
class RunningFleet:
    root: Path
    redis: EmbeddedRedis
    environment: dict[str, str]
    worker: Process | None = None
    api: Process | None = None
    url: str = ""
    extra: list[Process] = field(default_factory=list)

    def start_worker(self) -> Process:
        code = "import sys; from worker.tasks import run_worker; from worker.settings import FleetSettings, ModelEnvironment; sys.exit(run_worker(FleetSettings(), ModelEnvironment()))"
        self.worker = self.python(code, "worker")
        return self.worker

    def await_worker(self) -> None:
        assert self.worker is not None
        _until(lambda: "ready" in self.worker_words(), self.worker)

    def worker_words(self) -> str:
        return self.worker.words() if self.worker is not None else ""

    def start_api(self, **environment: str) -> tuple[Process, str]:
        """An API process of its own settings, and its base URL."""
        port = free_port()
        code = "import sys; from api.server import run_api; from api.settings import ApiSettings; from worker.settings import FleetSettings; sys.exit(run_api(FleetSettings(), ApiSettings()))"
        process = self.python(code, f"api-{port}", ARCHMAX_API_PORT=str(port), **environment)
        url = f"http://127.0.0.1:{port}"
        _until(lambda: _answers(url), process)
        return process, url

    def python(self, code: str, name: str, **environment: str) -> Process:
        log = self.root.parent / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                dying_with_parent([sys.executable, "-c", code]),
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env={**self.environment, **environment},
                start_new_session=True,
            )
        started = Process(process, log)
        self.extra.append(started)
        return started

    def client(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=30, trust_env=False, **options)

    def stop(self) -> None:
        for process in reversed(self.extra):
            process.stop()
        self.redis.stop()


@contextlib.contextmanager
def running_fleet(folder: Path) -> Generator[RunningFleet]:
    root = write_workspace(folder / "workspace")
    redis = EmbeddedRedis.start()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCHMAX_")}
    fleet = RunningFleet(
        root,
        redis,
        {
            **kept,
            "PYTHONPATH": str(REPOSITORY),
            "ARCHMAX_ROOT": str(root),
            "ARCHMAX_REDIS_URL": redis.url,
            "ARCHMAX_MODEL": "scripted:model.yaml",
            "ARCHMAX_STORE_FSYNC": "0",
            "ARCHMAX_WEBHOOK_SECRET": TEST_SECRET,
            "ARCHMAX_WEBHOOK_ALLOW_PRIVATE": "1",
            "ARCHMAX_API_HEARTBEAT_SECONDS": "1",
            "ARCHMAX_API_RATE_PER_SECOND": "100000",
            "ARCHMAX_API_RATE_BURST": "100000",
        },
    )
    try:
        fleet.start_worker()
        fleet.api, fleet.url = fleet.start_api(ARCHMAX_AUTH_DISABLED="1")
        fleet.await_worker()
        yield fleet
    finally:
        fleet.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=1, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _until(condition: Any, process: Process) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if process.process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"did not come up:\n{process.words()[-4000:]}")
        time.sleep(0.05)


async def settled(client: httpx.AsyncClient, turn_id: str) -> dict[str, Any]:
    """The turn once it is over."""
    for _ in range(10):
        answer = await client.get(f"/v1/turns/{quoted(turn_id)}", params={"wait": 10})
        answer.raise_for_status()
        if answer.json()["status"] in ("settled", "refused", "cancelled"):
            body: dict[str, Any] = answer.json()
            return body
    raise AssertionError(f"turn {turn_id} never ended: {answer.text}")


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds; the test's own time limit ends a wait in vain."""
    while True:
        if await holds():
            return
        await asyncio.sleep(0.05)


async def run_turn(
    client: httpx.AsyncClient, path: str, body: Mapping[str, Any], **options: Any
) -> dict[str, Any]:
    """POST an input and wait for its turn."""
    answer = await client.post(path, json=body, **options)
    assert answer.status_code == 202, answer.text
    return await settled(client, answer.json()["turnId"])


def quoted(identity: str) -> str:
    return quote(identity, safe="")


async def sse(answer: httpx.Response) -> AsyncGenerator[dict[str, Any]]:
    """Server-sent events of a streamed answer; a comment is `{"comment": text}`."""
    item: dict[str, Any] = {}
    async for line in answer.aiter_lines():
        if not line:
            if "data" in item:
                yield {**item, "data": json.loads(item["data"])}
            item = {}
        elif line.startswith(":"):
            yield {"comment": line}
        else:
            name, _, value = line.partition(": ")
            item[name] = value
