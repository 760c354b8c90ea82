"""The client and the commands that use it, against a real fleet: `submit`, `turns`, `keys`."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from archmax.client import ApiError, ApiUnreachable, Client, _server_sent
from archmax.local.ports import free_port
from tests.support.cli import Here
from tests.support.fleet import RunningFleet, running_fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningFleet]:
    with running_fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture
def client(fleet: RunningFleet) -> Generator[Client]:
    with Client(fleet.url) as opened:
        yield opened


@pytest.fixture
def here(
    fleet: RunningFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Here:
    command = Here(monkeypatch, capsys, tmp_path)
    command.env["ARCHMAX_URL"] = fleet.url
    return command


def test_a_session_is_started_followed_decided_and_read(client: Client) -> None:
    turn = client.start(
        "refund", message="Please refund.", session_id="a/b ü", labels={"team": "east"}, idempotency_key="k-1"
    )
    assert client.start(
        "refund", message="Please refund.", session_id="a/b ü", labels={"team": "east"}, idempotency_key="k-1"
    )["repeated"]
    events = list(client.events(turn["turnId"]))
    assert events[-1]["type"] == "turn-settled"
    recorded = [event["id"] for event in events if "id" in event]
    assert len(recorded) == len(set(recorded))
    rest = list(client.events(turn["turnId"], after=recorded[2]))
    assert [event["id"] for event in rest if "id" in event] == recorded[3:]
    parked = client.wait(turn["turnId"])["outcome"]
    assert (parked["kind"], parked["pending"]["state"]) == ("parked", "review")
    assert client.file("a/b ü", "scratchpad/note.txt") == b"refund 0123456789"
    answered = client.wait(client.reply("a/b ü", "Why?")["turnId"])
    assert answered["outcome"]["kind"] == "parked"
    with pytest.raises(ApiError) as refused:
        client.decide("a/b ü", "nowhere")
    assert (refused.value.status, refused.value.code) == (409, "invalid-decision-target")
    assert set(refused.value.problem["validTargets"]) == {"pay", "draft"}
    done = client.wait(client.decide("a/b ü", "pay", "checked")["turnId"], timeout_seconds=60)
    assert done["outcome"]["reply"] == "It is paid."
    assert [step["to"] for step in client.trail("a/b ü")] == ["draft", "review", "pay"]
    assert client.session("a/b ü")["status"] == "completed"
    assert client.variables("a/b ü")["trigger"] == {"value": "manual", "locked": True}
    assert next(client.history("a/b ü"))["role"] == "user"
    assert "a/b ü" in [line["sessionId"] for line in client.sessions(label="team:east")]
    assert len(list(client.sessions(limit=1))) == 1


def test_a_session_that_waits_is_delivered_to_and_one_that_runs_is_cancelled(client: Client) -> None:
    turn = client.start("reminder", message="Remind me")
    assert client.wait(turn["turnId"])["outcome"]["parkedChannel"] == "input"
    delivered = client.deliver(turn["sessionId"], "payment", {"amount": 3})
    assert client.wait(delivered["turnId"])["outcome"]["reply"] == "It came."
    slow = client.start("chat", message="slowly please")
    assert client.turn(slow["turnId"])["status"] in ("queued", "running")
    with pytest.raises(TimeoutError, match="is still"):
        client.wait(slow["turnId"], timeout_seconds=0.2)
    client.cancel(slow["turnId"])
    ended = client.wait(slow["turnId"], timeout_seconds=60)
    assert ended["status"] in ("settled", "cancelled")
    deleted = client.delete(slow["sessionId"])
    with pytest.raises(ApiError) as gone:
        client.wait(deleted["turnId"], timeout_seconds=60)
    assert (gone.value.status, gone.value.code) == (410, "session-gone")


def test_workflows_and_the_fleet_are_shown(client: Client) -> None:
    assert {line["slug"] for line in client.workflows()} == {"refund", "reminder", "chat"}
    assert client.workflow("refund")["title"] == "Refund"
    assert client.fleet()["queues"]
    assert client.dead_webhooks() == []


def test_submit_prints_the_turns_id_and_turns_shows_it(here: Here, client: Client) -> None:
    queued = here("submit", "chat", "hello", "there", "--session", "s-1", "--idempotency-key", "once")
    assert (queued.code, queued.out) == (0, "s-1.1\n")
    assert "archmax turns s-1.1 --follow" in queued.err
    again = here("submit", "chat", "hello", "there", "--session", "s-1", "--idempotency-key", "once")
    assert again.out == "s-1.1\n"
    assert "it is that turn" in again.err
    followed = here("turns", "s-1.1", "--follow")
    assert (followed.code, followed.out) == (0, "hello from the model\n")
    assert "● talk\n    │ hello from the model\n✔ talk → done\n✔ answer\n" in followed.err
    shown = here("turns", "s-1.1")
    assert shown.code == 0
    assert "status     settled\n" in shown.out
    assert "outcome    completed\n" in shown.out
    assert "reply      hello from the model\n" in shown.out
    assert json.loads(here("turns", "s-1.1", "--json").out)["turnId"] == "s-1.1"
    while "  s-1.1  chat  completed" not in here("turns").out:
        pass  # the list may hear of the end a little later; the test's time limit ends a wait in vain
    assert here("turns", "--dead").out == "No turn was given up.\n"


def test_submit_waits_draws_and_reports_like_run(here: Here, fleet: RunningFleet) -> None:
    """07 §6: a park exits 0; its hints are requests that can be sent as printed."""
    run = here("submit", "refund", "Please refund", "--session", "s-2", "--wait")
    assert run.code == 0
    assert "Please review." in run.out
    assert "✔ draft → review" in run.err
    assert "    › write_file /scratchpad/note.txt" in run.err
    assert "⚠ awaiting human decision\n  session  s-2\n" in run.err
    assert f"{fleet.url}/v1/sessions/s-2/decisions" in run.err
    assert """-d '{"to":"pay"}'""" in run.err
    whole = json.loads(here("submit", "chat", "hi", "--wait", "--json").out)
    assert whole["outcome"]["kind"] == "completed"


def test_submit_exits_1_when_the_turn_it_waits_for_does_not_complete(here: Here, client: Client) -> None:
    """07 §6."""
    asked = client.start("chat", message="slowly", session_id="s-3")
    client.cancel(asked["turnId"])
    client.wait(asked["turnId"], timeout_seconds=60)
    run = here("turns", asked["turnId"], "--follow")
    assert run.code == 1, run.err
    assert run.out == ""
    assert "cancelled" in run.err


def test_refusals_of_the_api_are_one_line_and_exit_1(here: Here) -> None:
    for arguments, words in (
        (("submit", "nothing", "hi"), "there is no workflow 'nothing'"),
        (("submit", "chat", "hi", "--trigger", "fax"), "fax"),
        (("turns", "nobody.7"), "there is no turn nobody.7"),
    ):
        run = here(*arguments)
        assert (run.code, run.out) == (1, ""), arguments
        assert run.err.count("\n") == 1
        assert words in run.err
    assert here("turns", "--follow").code == 2


def test_a_key_is_made_used_listed_and_revoked(here: Here, fleet: RunningFleet) -> None:
    root = ("--root", str(fleet.root))
    made = here("keys", "new", "ci", "--scopes", "read,enqueue", "--workflows", "chat", *root)
    key = made.out.strip()
    assert made.code == 0
    assert key.startswith("amx_")
    assert key not in made.err
    _, url = fleet.start_api()
    open_door = here("submit", "chat", "hi", "--url", url)
    assert open_door.code == 1
    assert "key" in open_door.err
    here.env["ARCHMAX_KEY"] = key
    assert here("submit", "chat", "hi", "--wait", "--url", url).out == "hello from the model\n"
    assert here("submit", "refund", "hi", "--url", url).code == 1
    listed = here("keys", "list", *root)
    assert "ci  enqueue,read · chat" in listed.out
    assert key not in listed.out
    assert here("keys", "revoke", "ci", *root).out.startswith("revoked ")
    assert here("keys", "revoke", "ci", *root).code == 1
    assert "revoked" in here("keys", "list", *root).out
    assert here("keys", "new", *root).code == 2
    assert here("keys", "list", "x", *root).code == 2
    assert here("keys", "revoke", "x", "--scopes", "read", *root).code == 2
    bad = here("keys", "new", "x", "--scopes", "fly", *root)
    assert (bad.code, bad.out) == (1, "")


def test_a_key_is_made_and_listed_with_limits_of_its_own(here: Here, fleet: RunningFleet) -> None:
    root = ("--root", str(fleet.root))
    made = here("keys", "new", "metered", "--rate-limit", "30/min", "--max-body-bytes", "4096", *root)
    assert made.code == 0
    assert "30/min · 4096 bytes" in made.err
    listed = here("keys", "list", *root).out
    assert "metered  enqueue,read · all workflows · 30/min · 4096 bytes" in listed
    shown = json.loads(here("keys", "list", "--json", *root).out)
    assert [(key["rateLimit"], key["maxBodyBytes"]) for key in shown if key["name"] == "metered"] == [
        ("30/min", 4096)
    ]
    for option, value, code in (
        ("--rate-limit", "often", 1),
        ("--max-body-bytes", "0", 1),
        ("--max-body-bytes", "4k", 2),
    ):
        refused = here("keys", "new", "x", option, value, *root)
        assert (refused.code, refused.out) == (code, ""), (option, value)
    assert here("keys", "list", "--rate-limit", "1", *root).code == 2
    assert here("keys", "revoke", "metered", "--max-body-bytes", "1", *root).code == 2


def test_nobody_there_is_one_line_and_soon() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Client(url, retries=0) as client, pytest.raises(ApiUnreachable, match=url):
        client.turn("a.1")


class _Flaky(BaseHTTPRequestHandler):
    """Refuses with 503 once, then breaks a stream in the middle of it, then ends it."""

    asked: ClassVar[list[tuple[str, str | None, str | None]]] = []

    def do_POST(self) -> None:
        self.asked.append((self.path, self.headers.get("idempotency-key"), None))
        self.rfile.read(int(self.headers["content-length"]))
        if len(self.asked) == 1:
            self._send(503, b'{"code": "broker-unavailable", "detail": "later"}', ("retry-after", "0"))
        else:
            self._send(202, b'{"turnId": "s.1"}')

    def do_GET(self) -> None:
        after = self.headers.get("last-event-id")
        self.asked.append((self.path, None, after))
        first = b'id: 1.1.1.0\nevent: agent-text\ndata: {"type":"agent-text","text":"a\xe2\x80\xa8b"}\n\n: ping\n\n'
        last = b'id: 1.1.2.999999\nevent: turn-settled\ndata: {"type":"turn-settled"}\n\n'
        self._send(200, first if after is None else last)

    def _send(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("content-length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_a_refused_input_is_sent_again_under_its_key_and_a_broken_stream_goes_on_where_it_was() -> None:
    _Flaky.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), _Flaky)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        with Client(f"http://127.0.0.1:{server.server_port}") as client:
            assert client.start("chat", message="hi") == {"turnId": "s.1"}
            (first, second) = _Flaky.asked
            assert first == second
            assert first[1]
            events = list(client.events("s.1"))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert [event["type"] for event in events] == ["agent-text", "turn-settled"]
    assert events[0]["text"] == "a\u2028b"
    assert [after for _, _, after in _Flaky.asked[2:]] == [None, "1.1.1.0"]


def test_server_sent_events_are_read_whatever_the_chunks() -> None:
    body = 'id: 1\nevent: x\ndata: {"a": "ü"}\n\n: comment\n\ndata: 2\r\n\r\n'.encode()
    found = list(_server_sent(body[at : at + 1] for at in range(len(body))))
    assert found == [("x", "1", '{"a": "ü"}'), ("message", None, "2")]
