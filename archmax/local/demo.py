"""The demo: a whole fleet works one refund of the reference workspace, over HTTP, and is gone again.

    python -m archmax.local.demo examples/order-desk

Redis (the embedded one, or `ARCHMAX_REDIS_URL`), a worker and the API are real processes. A customer's message is
POSTed, its events are streamed, the session parks for a person with its evidence, the decision is POSTed, and the
outcome and the trail are read. Only the model is scripted, by the same variable that chooses a real one. Everything
lies in a temporary directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import secrets
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import Final, TextIO

from typing_extensions import override

from archmax.cli.main import EXIT_INTERRUPTED
from archmax.cli.remote import TurnWatch, follow
from archmax.cli.render.parks import context_lines, decision_context
from archmax.cli.render.style import (
    ACTION,
    ACTIVE,
    ATTENTION,
    DONE,
    FAILED,
    HEADING,
    MOVE,
    PLAIN,
    one_line,
    style_for,
)
from archmax.client import Client
from archmax.local.fleet import LocalFleet
from archmax.local.ports import LOOPBACK, free_port
from archmax.local.redis import EmbeddedRedis
from archmax.local.supervisor import Supervisor
from core.errors import ArchmaxError
from core.jsontext import JsonObject, text
from engine.spec.loader import usable_workflow
from engine.spec.tree import DirectoryTree

WORKFLOW: Final = "order-desk"
MODEL: Final = "scripted:demo.model.yaml"
MESSAGE: Final = (
    "From: orders@harborbakery.example — The bread tins of SO-4101 are dented, please refund them."
)
COMMENT: Final = "Checked with the photos."
#: the parts' last lines that are shown when something fails
LAST_LINES: Final = 15


class DemoFailed(ArchmaxError):
    """The story did not go as it should."""

    code = "demo"


class Demo:
    """One telling, written to `out`."""

    def __init__(self, out: TextIO, workspace: Path, client: Client) -> None:
        self._out, self._workspace, self._client = out, workspace, client
        self._style = style_for(out)

    def tell(self) -> None:
        """Blocks for some seconds. Raises: `DemoFailed`, `ApiError`, `ApiUnreachable`."""
        self._heading("1  A customer writes")
        asked: JsonObject = {"message": MESSAGE}
        turn = self._posted(
            f"/v1/workflows/{WORKFLOW}/sessions", asked, self._client.start(WORKFLOW, message=MESSAGE)
        )
        parked = self._follow(turn)
        if parked["kind"] != "parked" or parked.get("parkedChannel") != "decision":
            raise DemoFailed(f"the session should wait for a person, but it {_told(parked)}")

        session_id = str(turn["sessionId"])
        self._heading("2  The session waits for a person, and holds no process while it does")
        self._show_park(session_id, parked["pending"])

        self._heading("3  The person decides")
        to = parked["pending"]["transitions"][0]["to"]
        decision = {"to": to, "comment": COMMENT}
        path = f"/v1/sessions/{session_id}/decisions"
        outcome = self._follow(self._posted(path, decision, self._client.decide(session_id, to, COMMENT)))

        self._heading("4  The outcome")
        if outcome["kind"] != "completed":
            raise DemoFailed(f"the session should be completed, but it {_told(outcome)}")
        self._say(f"{self._style.good(DONE)} completed: {one_line(str(outcome.get('reply')))}")
        self._show_trail(session_id)

    def say_where(self, port: int) -> None:
        self._say(f"{self._style.accent(ACTIVE)} worker   takes turns from the queue")
        self._say(f"{self._style.accent(ACTIVE)} api      http://{LOOPBACK}:{port}")

    def _posted(self, path: str, body: JsonObject, accepted: JsonObject) -> JsonObject:
        self._say(f"{self._style.accent(ACTION)} POST {path}")
        self._say(f"  {text(body)}")
        self._say(f"  202 accepted as turn {accepted['turnId']}; its events:")
        return accepted

    def _follow(self, turn: JsonObject) -> JsonObject:
        ended = follow(self._client, turn["turnId"], TurnWatch(self._out, self._style))
        if ended["status"] != "settled":
            raise DemoFailed(f"the turn {ended['turnId']} was {ended['status']}")
        outcome: JsonObject = ended["outcome"]
        return outcome

    def _show_park(self, session_id: str, pending: JsonObject) -> None:
        spec = usable_workflow(DirectoryTree(self._workspace), WORKFLOW)
        context = decision_context(pending, spec.states.get(pending["state"]))
        self._say(f"{self._style.warn(ATTENTION)} awaiting human decision at {pending['state']}")
        for line in context_lines(context):
            self._say(line)
        for path in context.evidence:
            self._say(f"  {path} holds:")
            for line in self._client.file(session_id, path).decode("utf-8", "replace").splitlines():
                self._say(f"    {self._style.dim('│')} {one_line(line)}")

    def _show_trail(self, session_id: str) -> None:
        self._say("  the trail, as an auditor reads it:")
        for step in self._client.trail(session_id):
            reason = one_line(str(step.get("reason") or ""))
            self._say(f"    {MOVE} {one_line(str(step['to'])):<20} {step['kind']:<8} {reason}".rstrip())

    def _heading(self, words: str) -> None:
        self._say(f"\n{self._style.accent(HEADING)} {self._style.bold(words)}")

    def _say(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()


def _told(outcome: JsonObject) -> str:
    end = outcome.get("exit") or {}
    return f"{outcome['kind']} ({end.get('code') or outcome.get('state')}: {end.get('reason') or '-'})"


async def run(source: Path, out: TextIO) -> int:
    """Start the fleet, tell the story, stop everything. Returns the exit code."""
    style = style_for(out)
    with _workspace(source) as workspace, contextlib.chdir(workspace), _redis(out) as redis_url:
        key = secrets.token_urlsafe(32)
        fleet = LocalFleet(
            root=workspace, redis_url=redis_url, port=free_port(), environment=_environment(workspace, key)
        )
        out.write(f"  workspace  {workspace} (a copy of {source})\n  model      {MODEL} (ARCHMAX_MODEL)\n")
        log = _LastLines()
        supervisor = Supervisor(fleet.parts(only=("worker", "api")), stream=log, style=PLAIN)
        running = asyncio.create_task(supervisor.run())
        with Client(f"http://{LOOPBACK}:{fleet.port}", key, retries=0) as client:
            telling = asyncio.create_task(_tell(supervisor, Demo(out, workspace, client), fleet.port))
            await asyncio.wait({running, telling}, return_when=asyncio.FIRST_COMPLETED)
            fleet_ended_first = supervisor.stopping
            if not fleet_ended_first:
                supervisor.stop()
            elif not supervisor.ready.is_set():
                telling.cancel()  # nothing of it has begun; otherwise its next request fails
            code = await running
            problem = (await asyncio.gather(telling, return_exceptions=True))[0]
    if problem is None:
        out.write(f"\n{style.good(DONE)} everything is stopped and the temporary workspace is removed\n")
        return 0
    if fleet_ended_first and code == 0:
        out.write(f"\n{style.warn(ATTENTION)} interrupted; everything is stopped\n")
        return EXIT_INTERRUPTED
    why = "a part of the fleet ended by itself" if fleet_ended_first else one_line(str(problem))
    out.write(f"\n{style.bad(FAILED)} the demo failed: {why}\n  the last lines of the fleet's log:\n")
    out.write("".join(f"  {line}\n" for line in log.lines))
    return 1


async def _tell(supervisor: Supervisor, demo: Demo, port: int) -> None:
    await supervisor.ready.wait()
    demo.say_where(port)
    await asyncio.to_thread(demo.tell)


class _LastLines(io.StringIO):
    """A stream that remembers the last lines written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LAST_LINES)

    @override
    def write(self, s: str, /) -> int:
        self.lines.extend(s.splitlines())
        return len(s)


@contextlib.contextmanager
def _workspace(source: Path) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="archmax-demo-") as directory:
        workspace = Path(directory).resolve() / source.name
        shutil.copytree(source, workspace, ignore=shutil.ignore_patterns("sessions", ".env", "__pycache__"))
        yield workspace


@contextlib.contextmanager
def _redis(out: TextIO) -> Generator[str]:
    accent = style_for(out).accent(ACTIVE)
    given = os.environ.get("ARCHMAX_REDIS_URL", "").strip()
    if given:
        out.write(f"{accent} redis    ARCHMAX_REDIS_URL\n")
        yield given
        return
    with EmbeddedRedis.start() as server:
        out.write(f"{accent} redis    {server.address}\n")
        yield server.url


def _environment(workspace: Path, key: str) -> dict[str, str]:
    """What the fleet's processes get: none of the user's settings, so that the demo is the same everywhere.

    No `.env` file is near either: the current directory is the copied workspace.
    """
    blank = {name: "" for name in os.environ if name.startswith("ARCHMAX_")}
    store = (workspace / "sessions").as_uri()
    return blank | {"ARCHMAX_MODEL": MODEL, "ARCHMAX_API_KEYS": key, "ARCHMAX_STORE": store}


def main(argv: list[str]) -> int:
    if len(argv) != 1 or not (Path(argv[0]) / "workflows" / WORKFLOW / "workflow.yaml").is_file():
        sys.stderr.write("Usage: python -m archmax.local.demo <reference workspace>\n")
        return 2
    source, out = Path(argv[0]).resolve(), sys.stdout
    style = style_for(out)
    out.write(
        f"{style.accent(HEADING)} {style.bold('archmax: a refund, worked by a fleet on this machine')}\n"
    )
    try:
        code = asyncio.run(run(source, out))
    except ArchmaxError as error:
        sys.stderr.write(f"Error: {one_line(str(error))}\n")
        return 1
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    if code == 0:
        out.write(_NEXT)
    return code


_NEXT = """\

Try next:
  .venv/bin/archmax test order-desk --root examples/order-desk       the cases of this workspace
  .venv/bin/archmax graph order-desk --root examples/order-desk      its state machine
  .venv/bin/archmax new front-desk                                   a first workflow of your own
  ARCHMAX_MODEL=scripted:demo.model.yaml .venv/bin/archmax up --root examples/order-desk
                                                                     the same fleet, until Ctrl-C
"""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
