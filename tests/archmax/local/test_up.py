"""`archmax up` with its real parts, as a user has it: start, one turn over HTTP, Ctrl-C."""

from __future__ import annotations

import socket
import uuid
from pathlib import Path

import httpx

from archmax.client import Client
from archmax.local.ports import free_port
from tests.support.command import archmax, write_workflows
from tests.support.processes import Background, end, marked

MODEL = "- { when_state: hello, text: Good day., repeat: true }\n"


def test_up_runs_a_turn_says_where_each_part_listens_and_leaves_nothing(tmp_path: Path):
    root = write_workflows(tmp_path / "workspace", "greet", "part")
    (root / "model.yaml").write_text(MODEL)
    port, flower = free_port(), free_port()
    mark = uuid.uuid4().hex
    up = Background(
        ("-m", "archmax", "up", "--root", str(root), "--port", str(port), "--flower-port", str(flower)),
        cwd=tmp_path,
        log=tmp_path / "up.log",
        mark=mark,
        env={"ARCHMAX_MODEL": "scripted:model.yaml", "TMPDIR": str(tmp_path)},
    )
    try:
        up.until(lambda: "running; Ctrl-C stops everything" in up.output)
        for line in (
            "● redis   127.0.0.1:",
            "● worker  takes turns",
            "● beat    fires schedules",
            f"● api     http://127.0.0.1:{port} (no key needed from this machine)",
            f"● flower  http://127.0.0.1:{flower}",
        ):
            assert line in up.output
        assert httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).json()["ready"] is True
        assert httpx.get(f"http://127.0.0.1:{flower}/healthcheck", trust_env=False).status_code == 200
        with Client(f"http://127.0.0.1:{port}") as fleet:
            turn = fleet.start("greet", message="I am Ada", session_id="ada")
            assert fleet.wait(turn["turnId"], timeout_seconds=100)["outcome"]["reply"] == "Good day."
        listed = archmax("sessions", "ada", "--workflow", "greet", "--root", str(root), cwd=tmp_path)
        assert "completed" in listed.stdout
        assert up.interrupt() == 0, up.output
    finally:
        up.close()
    assert "stopped" in up.output.splitlines()[-1]
    assert end(mark), marked(mark)


def test_a_port_that_is_taken_is_an_error_before_anything_starts(tmp_path: Path):
    root = write_workflows(tmp_path / "workspace", "greet")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for option, part in (("--port", "the API"), ("--flower-port", "Flower")):
            free = "--flower-port" if option == "--port" else "--port"
            run = archmax("up", option, port, free, str(free_port()), "--root", str(root), cwd=tmp_path)
            assert (run.returncode, run.stdout) == (1, "")
            assert run.stderr == (
                f"Error: {part} cannot listen on 127.0.0.1:{port} (Address already in use); "
                f"choose another with {option}\n"
            )
