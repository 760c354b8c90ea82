"""The demo as `scripts/demo` runs it: real Redis, worker and API."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from archmax.local.demo import main
from tests.support.command import REPOSITORY
from tests.support.processes import Background, end, marked

COMMAND = ("-m", "archmax.local.demo", "examples/order-desk")


def test_the_demo_works_a_refund_over_http_and_leaves_nothing_running(tmp_path: Path):
    """Milestones of the story, in order; the user's own settings do not reach the fleet."""
    mark = uuid.uuid4().hex
    demo = Background(
        COMMAND,
        cwd=REPOSITORY,
        log=tmp_path / "demo.log",
        mark=mark,
        env={"TMPDIR": str(tmp_path), "ARCHMAX_STORE": "file:///nowhere", "ARCHMAX_HOST": "no.such:host"},
    )
    try:
        assert demo.process.wait(250) == 0, demo.output
    finally:
        demo.close()
    position = 0
    for milestone in (
        "● redis    127.0.0.1:",
        "model      scripted:demo.model.yaml",
        "● api      http://127.0.0.1:",
        "POST /v1/workflows/order-desk/sessions",
        "202 accepted as turn",
        "● screen-request",
        "✔ screen-request → identify-case",
        "✔ refund-request → check-refund",
        "⚠ awaiting human decision at refund-review",
        "Approvers: refunds@supplier.example",
        "[approve] refund-closed",
        '"decision": "approved"',
        "/decisions",
        "✔ decision → refund-closed",
        "✔ completed: Your refund for SO-4101 is approved.",
        "→ refund-closed        human",
        "everything is stopped",
        "Try next:",
    ):
        position = demo.output.find(milestone, position)
        assert position >= 0, f"{milestone!r} is missing or out of order in:\n{demo.output}"
    assert end(mark), marked(mark)
    assert [path.name for path in tmp_path.iterdir()] == ["demo.log"]
    assert not (REPOSITORY / "examples/order-desk/sessions").exists()


def test_an_interrupted_demo_stops_everything(tmp_path: Path):
    mark = uuid.uuid4().hex
    demo = Background(
        COMMAND, cwd=REPOSITORY, log=tmp_path / "demo.log", mark=mark, env={"TMPDIR": str(tmp_path)}
    )
    try:
        demo.until(lambda: "202 accepted" in demo.output)
        assert demo.interrupt() == 130, demo.output
    finally:
        demo.close()
    assert "interrupted; everything is stopped" in demo.output
    assert "Traceback" not in demo.output
    assert end(mark), marked(mark)
    assert [path.name for path in tmp_path.iterdir()] == ["demo.log"]


def test_a_part_that_fails_is_told_with_the_last_lines_of_its_log(tmp_path: Path):
    """A Redis that is not there: one line says the demo failed, the log says why."""
    mark = uuid.uuid4().hex
    workspace = tmp_path / "desk"
    (workspace / "workflows" / "order-desk").mkdir(parents=True)
    (workspace / "workflows" / "order-desk" / "workflow.yaml").write_text("states: nothing\n")
    demo = Background(
        ("-m", "archmax.local.demo", str(workspace)), cwd=REPOSITORY, log=tmp_path / "demo.log", mark=mark
    )
    try:
        assert demo.process.wait(250) == 1, demo.output
    finally:
        demo.close()
    assert "✖ the demo failed: workflow 'order-desk' cannot be used" in demo.output
    assert "the last lines of the fleet's log:" in demo.output
    assert "Traceback" not in demo.output
    assert end(mark), marked(mark)


def test_the_demo_wants_the_reference_workspace(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path)]) == 2
    assert "Usage:" in capsys.readouterr().err
