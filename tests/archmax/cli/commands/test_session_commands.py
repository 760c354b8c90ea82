"""`run`, `sessions`, `decide`, `reply`, `deliver`: streams, exit codes and refusals (07 §6, §9, §10, §12)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.claims import CLAIM, SCRIPTED, write_claims
from tests.support.cli import Here
from tests.support.command import archmax


@pytest.fixture
def claims(here: Here) -> Here:
    write_claims(here.cwd)
    here.env |= SCRIPTED
    return here


def test_a_run_that_parks_says_who_decides_and_how_and_exits_0(claims: Here) -> None:
    """07 §6: reply on stdout, all else on stderr; hints are complete command lines."""
    run = claims("run", "claims", "Please", "pay", "--session", "c1")
    assert run.code == 0
    assert run.out == "I drafted it.\n\nPlease wait for the review.\n"
    assert run.err.split("✔ message\n")[1].splitlines()[:-1] == [
        "⚠ awaiting human decision",
        "  session  c1",
        "  state    review (Review the claim)",
        "  Instructions: Approve or return it.",
        "  Approvers: claims@desk.example",
        "  Evidence: scratchpad/claim.txt",
        "  [approve] paid — Pay it.",
        "  [refine] draft — Once more.",
        '  › archmax decide c1 --to paid [--comment "why"]',
        '  › archmax decide c1 --to draft [--comment "why"]',
        '  › archmax reply c1 "<message>"',
    ]
    assert run.err.splitlines()[-1].startswith("tokens     in ")
    assert run.err.startswith(f"◆ claims\n  directory  {claims.cwd}\n  model      scripted:model.yaml\n")


def test_a_reply_leaves_the_park_and_a_decision_finishes_the_session(claims: Here) -> None:
    """07 §9; §6 rule 2: `run` on a session parked for a decision is a reply."""
    claims("run", "claims", "Please pay", "--session", "c1")
    replied = claims("reply", "c1", "Which", "account?")
    assert (replied.code, replied.out) == (0, "The usual one.\n")
    assert "✔ replied" in replied.err
    assert "session c1 is still parked at review, awaiting a decision" in replied.err
    again = claims("run", "Which account again?", "--session", "c1")
    assert (again.code, again.out) == (0, "The usual one.\n")
    assert "✔ replied" in again.err
    wrong = claims("decide", "c1", "--to", "waiting")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err.splitlines()[-1].startswith("Error: ")
    assert "paid" in wrong.err.splitlines()[-1]
    assert "draft" in wrong.err.splitlines()[-1]
    returned = claims("decide", "c1", "--to", "draft", "--comment", "more words")
    assert (returned.code, returned.out) == (0, "Session c1 parked again (state=review).\n")
    assert "⚠ awaiting human decision" in returned.err
    decided = claims("decide", "c1", "--to", "paid")
    assert (decided.code, decided.out) == (0, "It is paid.\n")
    assert "✔ decided" in decided.err
    assert "    ✔ decision → paid\n✔ review → paid\n" in decided.err
    late = claims("decide", "c1", "--to", "paid")
    assert (late.code, late.out) == (1, "")
    assert claims("reply", "c1", "hello?").code == 1


def test_a_session_that_waits_shows_its_due_time_and_goes_on_after_a_delivery(claims: Here) -> None:
    """07 §6, §9."""
    parked = claims("run", "claims", "I have no receipt", "--session", "w1")
    assert parked.code == 0
    report = parked.err[parked.err.index("⚠ awaiting input\n") :].splitlines()
    assert report[:5] == [
        "⚠ awaiting input",
        "  session  w1",
        "  state    waiting",
        "  reason   the receipt",
        "  due      2031-05-10T09:00:00.000Z",
    ]
    assert report[5] == "  › archmax deliver w1 --trigger <id> [--variables '{…}']"
    listed = claims("sessions")
    assert "w1  awaiting_input  open  state=waiting  awaiting=waiting  vars=trigger" in listed.out
    assert "waiting for: the receipt  due=2031-05-10T09:00:00.000Z" in listed.out
    refused = claims("decide", "w1", "--to", "paid")
    assert (refused.code, refused.out) == (1, "")
    done = claims("deliver", "w1", "--trigger", "receipt", "--variables", '{"receipt": "R-1"}')
    assert (done.code, done.out) == (0, "It is paid.\n")
    assert "    ✔ receipt delivered, resuming waiting" in done.err
    assert "✔ delivered" in done.err
    one = claims("sessions", "w1")
    assert 'receipt (locked) = "R-1"' in one.out
    again = claims("deliver", "w1", "--trigger", "receipt")
    assert (again.code, again.out) == (1, "")


def test_what_fails_exits_1_with_the_session_the_state_and_why(claims: Here) -> None:
    """07 §6: a raise shows its code, a turn failure its exit code; §2: neither becomes the process's exit code."""
    raised = claims("run", "claims", "give up", "--session", "f1")
    assert (raised.code, raised.out) == (1, "")
    assert (
        "✖ failed\n  session  f1\n  state    draft\n  code     no-claim\n  reason   There is no claim.\n"
        in raised.err
    )
    broken = claims("run", "claims", "break down", "--session", "f2")
    assert (broken.code, broken.out) == (1, "")
    assert "  code     turn-error\n" in broken.err
    assert "the provider is away" in broken.err
    shown = claims("sessions", "f1")
    assert "no-claim" in shown.out
    assert "There is no claim." in shown.out


def test_refusals_come_before_any_model_call_and_create_no_session(claims: Here) -> None:
    """07 §6, §12: one line, exit 1, nothing on stdout."""
    undeclared = claims("run", "claims", "go", "--trigger", "fax")
    unmet = claims("run", "claims", "go", "--trigger", "order")
    pathless = claims("run", "claims", "go", "--session-path", "mail.thread")
    document = claims.cwd / "workflows/claims/workflow.yaml"
    document.write_text("disabled: true\n" + CLAIM)
    disabled = claims("run", "claims", "go")
    for run, words in (
        (undeclared, ["fax", "manual", "order", "mail"]),
        (pathless, ["mail.thread"]),
        (disabled, ["disabled"]),
    ):
        assert (run.code, run.out) == (1, ""), run
        error = run.err.splitlines()[-1]
        assert error.startswith("Error: ")
        assert all(word in error for word in words), error
    assert (unmet.code, unmet.out) == (1, "")
    assert "order_id" in unmet.err
    assert "tokens" not in "".join(run.err for run in (undeclared, unmet, pathless, disabled))


def test_a_session_path_finds_the_conversation_and_variables_are_locked(claims: Here) -> None:
    """07 §6 rule 1: the trigger's own path; `--session` beats nothing here but is not needed."""
    mail = '{"mail": {"thread": "thread-7"}}'
    run = claims("run", "claims", "pay", "--trigger", "mail", "--variables", mail)
    assert run.code == 0
    assert "  session  thread-7\n" in run.err
    lost = claims("run", "claims", "pay", "--trigger", "mail")
    assert lost.code == 0
    assert "mail.thread" in next(line for line in lost.err.splitlines() if line.startswith("⚠ ["))
    option = claims(
        "run", "claims", "pay", "--variables", '{"where": {"id": "other-1"}}', "--session-path", "where.id"
    )
    assert "  session  other-1\n" in option.err
    shown = json.loads(claims("sessions", "thread-7", "--json").out)
    assert shown["variables"]["mail"] == {"value": {"thread": "thread-7"}, "locked": True}


def test_the_sessions_of_a_disabled_workflow_are_read_decided_and_listed(claims: Here) -> None:
    """07 §9."""
    claims("run", "claims", "Please pay", "--session", "c1")
    document = claims.cwd / "workflows/claims/workflow.yaml"
    document.write_text("disabled: true\n" + CLAIM)
    listed = claims("sessions")
    assert "c1  awaiting_decision  open  state=review  awaiting=review  vars=trigger" in listed.out
    assert "    Instructions: Approve or return it." in listed.out
    assert claims("reply", "c1", "Which account?").code == 0
    assert claims("decide", "c1", "--to", "paid").out == "It is paid.\n"


def test_listings_are_json_when_asked_and_say_when_there_is_nothing(claims: Here) -> None:
    """07 §9."""
    assert claims("sessions").out == "No durable sessions found.\n"
    assert json.loads(claims("sessions", "--json").out) == []
    missing = claims("sessions", "nobody")
    assert (missing.code, missing.out) == (1, "")
    assert "archmax sessions" in missing.err.splitlines()[-1]
    claims("run", "claims", "Please pay", "--session", "c1")
    (summary,) = json.loads(claims("sessions", "--json").out)
    assert (summary["sessionId"], summary["status"], summary["classification"]) == (
        "c1",
        "awaiting_decision",
        "open",
    )
    assert summary["workflowState"] == "review"


def test_sessions_needs_no_model_and_none_of_the_environment(claims: Here) -> None:
    """07 §4."""
    claims("run", "claims", "Please pay", "--session", "c1")
    claims.env.clear()
    assert claims("sessions", "c1").code == 0


def test_verbose_adds_a_raw_line_before_each_drawn_one(claims: Here) -> None:
    """07 §11: hidden kinds included."""
    run = claims("run", "claims", "Please pay", "--verbose")
    lines = run.err.splitlines()
    position = lines.index("✔ draft → review")
    assert lines[position - 1].startswith("· state-leave [draft]")
    assert any(line.startswith("· model-usage") for line in lines)


def test_the_hints_of_a_workspace_with_two_workflows_name_root_and_workflow(claims: Here) -> None:
    """07 §13: the hint must work as printed."""
    other = claims.cwd / "workflows" / "other"
    other.mkdir()
    (other / "workflow.yaml").write_text("states: { a: { triggers: { manual: }, instructions: x } }\n")
    run = claims("run", "claims", "Please pay", "--session", "c 1", "--root", str(claims.cwd))
    hint = next(line for line in run.err.splitlines() if "archmax decide" in line)
    assert hint == (
        f"  › archmax decide 'c 1' --to paid [--comment \"why\"] --root {claims.cwd} --workflow claims"
    )


def test_run_records_a_script_that_plays_the_same_turn_again(claims: Here) -> None:
    """09: the recorded file is a model script; nothing is written over."""
    first = claims("run", "claims", "Please pay", "--record", "said.yaml", "--session", "c1")
    assert first.err.splitlines()[-1] == "✔ recorded said.yaml"
    again = claims("run", "claims", "Please pay", env={"ARCHMAX_MODEL": "scripted:said.yaml"})
    assert (again.code, again.out) == (0, first.out)
    third = claims("run", "claims", "Please pay", "--record", "said.yaml")
    assert third.code == 1
    assert "said.yaml exists already; nothing was written" in third.err.splitlines()[-1]


def test_a_stored_session_becomes_a_case_that_passes(claims: Here) -> None:
    claims(
        "run",
        "claims",
        "I have no receipt",
        "--session",
        "w1",
        "--trigger",
        "order",
        "--variables",
        '{"order_id": "7"}',
    )
    claims("deliver", "w1", "--trigger", "receipt", "--variables", '{"receipt": "R-1"}')
    made = claims("case", "w1", "receipts/late")
    assert made.code == 0
    assert made.out.splitlines() == [
        "workflows/claims/tests/receipts/late.test.yaml",
        "workflows/claims/tests/receipts/late.model.yaml",
    ]
    assert "archmax test claims receipts/late" in made.err
    run = claims("test", "receipts/late")
    assert (run.code, run.out) == (0, "1 passed, 0 failed, 0 skipped\n"), run.err
    again = claims("case", "w1", "receipts/late")
    assert (again.code, again.out) == (1, "")
    elsewhere = claims("case", "w1", "--out", "drafts")
    assert elsewhere.out.splitlines() == ["drafts/w1.test.yaml", "drafts/w1.model.yaml"]
    named = claims("case", "w1", "--out", "drafts/slow.test.yaml")
    assert named.out.splitlines() == ["drafts/slow.test.yaml", "drafts/slow.model.yaml"]
    twice = claims("case", "w1", "late", "--out", "drafts/other.test.yaml")
    assert (twice.code, twice.out) == (2, "")
    assert claims("case", "nobody").code == 1
    assert claims("case", "w1", "../up").code == 2


def test_the_real_command_keeps_the_reply_alone_on_stdout(claims: Here) -> None:
    """07 §2, in a process of its own."""
    run = archmax("run", "claims", "Please pay", cwd=claims.cwd, env=claims.env)
    assert (run.returncode, run.stdout) == (0, "I drafted it.\n\nPlease wait for the review.\n")
    assert Path(claims.cwd / "sessions").is_dir()
