"""A golden file for each thing the command prints: both streams and the exit code, as a person or a program sees them.

`ARCHMAX_TEST_GOLDEN=write` writes the files anew; read the difference before you keep it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.claims import CLAIM, SCRIPTED, write_claims
from tests.support.cli import Here, Ran
from tests.support.command import REPOSITORY
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parents[1] / "golden"
#: what differs from run to run
_VARYING = [
    (re.compile(r"\(\d+ms\)"), "(<n>ms)"),
    (re.compile(r"tokens     in [\d,]+ · out [\d,]+"), "tokens     in <n> · out <n>"),
    (re.compile(r'"(\w+Tokens|durationMs)":( ?)\d+'), r'"\1":\2<n>'),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<hash>"),
    (re.compile(r"\b(call_|a-)[0-9a-f]{20,}\b"), r"\1<id>"),
    (re.compile(r"case-[a-z-]+-[0-9a-f]{12}"), "<case's session>"),
]


def told(arguments: tuple[str, ...], ran: Ran, root: Path) -> str:
    text = f"$ archmax {shlex.join(arguments)}\n"
    for name, stream in (("stdout", ran.out), ("stderr", ran.err)):
        text += f"--- {name}\n{stream}"
    text += f"--- exit {ran.code}\n"
    text = text.replace(str(root), "<root>")
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


def run(here: Here, name: str, *arguments: str) -> Ran:
    """Run a line and compare what it prints with its golden file."""
    ran = here(*arguments)
    assert_golden(GOLDEN / f"{name}.txt", told(arguments, ran, here.cwd))
    return ran


def test_everything_a_session_can_come_to(here: Here) -> None:
    """07 §6, §9, §10, §11: each row of the outcome tables."""
    write_claims(here.cwd)
    here.env |= SCRIPTED
    assert run(here, "sessions-none", "sessions").code == 0
    assert (
        run(here, "run-parks-for-a-decision", "run", "claims", "Please", "pay", "--session", "c1").code == 0
    )
    assert run(here, "reply", "reply", "c1", "Which account?").code == 0
    assert run(here, "run-replies", "run", "Which account again?", "--session", "c1").code == 0
    assert run(here, "decide-parks-again", "decide", "c1", "--to", "draft", "--comment", "more").code == 0
    assert run(here, "decide-finishes", "decide", "c1", "--to", "paid").code == 0
    assert run(here, "run-parks-for-input", "run", "I have no receipt", "--session", "w1").code == 0
    assert run(here, "run-raises", "run", "give up", "--session", "f1").code == 1
    assert run(here, "run-fails", "run", "break down", "--session", "f2").code == 1
    assert run(here, "run-refused", "run", "go", "--trigger", "order", "--session", "r1").code == 1
    here("run", "Please pay", "--session", "c2")
    assert run(here, "sessions", "sessions").code == 0
    assert run(here, "sessions-json", "sessions", "--json").code == 0
    assert run(here, "session", "sessions", "c2").code == 0
    assert run(here, "session-json", "sessions", "w1", "--json").code == 0
    deliver = ("deliver", "w1", "--trigger", "receipt", "--variables", '{"receipt": "R-1"}')
    assert run(here, "deliver-finishes", *deliver).code == 0
    assert run(here, "run-verbose", "run", "Please pay", "--session", "c3", "--verbose").code == 0
    assert run(here, "case", "case", "w1", "receipts/late").code == 0
    tests = here.cwd / "workflows/claims/tests/receipts"
    assert_golden(GOLDEN / "case.test.yaml", (tests / "late.test.yaml").read_text("utf-8"))
    assert_golden(GOLDEN / "case.model.yaml", (tests / "late.model.yaml").read_text("utf-8"))
    assert run(here, "test", "test").code == 0
    assert run(here, "test-json", "test", "--json").code == 0


GREETING = """
title: Greeting
instructions: Be brief.
states:
  hello:
    triggers: { manual: }
    instructions: Greet the person.
    requires: [name]
    transitions: [{ to: nobody, description: There is nobody. }]
  nobody:
"""


def test_a_completion_and_a_rejection(here: Here) -> None:
    """07 §6: without a word, and with the state that could not be left."""
    (here.cwd / "workflows/greeting").mkdir(parents=True)
    document = here.cwd / "workflows/greeting/workflow.yaml"
    document.write_text(GREETING.replace("    requires: [name]\n", ""))
    here.env["ARCHMAX_MODEL"] = "scripted:m.yaml"
    script = here.cwd / "m.yaml"
    script.write_text("- { text: Hello., usage: { input: 20369, output: 287, cache_read: 18000 } }\n")
    assert run(here, "run-completes", "run", "I am Ada", "--session", "a").code == 0
    script.write_text("- {}\n- {}\n- {}\n")
    assert run(here, "run-completes-silently", "run", "I am Ada", "--session", "b").code == 0
    document.write_text(GREETING.replace("instructions: Greet the person.", "budget: { maxTurns: 1 }"))
    script.write_text(
        "- { text: One moment., tool_calls: [{ name: archmax_get_variables }], repeat: true, optional: true }\n"
    )
    assert run(here, "run-is-rejected", "run", "I am Ada", "--session", "c").code == 1


def test_a_decision_that_a_child_of_a_child_asks_for(here: Here) -> None:
    """07 §6: the context is the child's, and the lines name its workflow."""
    write_claims(here.cwd)
    for slug, below in (("office", "desk"), ("desk", "claims")):
        (here.cwd / "workflows" / slug).mkdir()
        (here.cwd / "workflows" / slug / "workflow.yaml").write_text(
            f"instructions: Be brief.\nstates:\n  start:\n    triggers: {{ manual: }}\n"
            f"    tools: {{ allow: [archmax_workflow_{below}] }}\n"
        )
    calls = [
        f"- {{ when_workflow: {slug}, tool_calls: [{{ name: archmax_workflow_{below} }}] }}\n"
        f"- {{ when_workflow: {slug}, text: The {slug} waits. }}\n"
        f"- {{ when_workflow: {slug}, text: The {slug} is done. }}\n"
        for slug, below in (("office", "desk"), ("desk", "claims"))
    ]
    script = here.cwd / "model.yaml"
    script.write_text("".join(calls) + script.read_text())
    here.env |= SCRIPTED
    assert run(here, "run-parks-for-a-childs-decision", "run", "office", "Pay", "--session", "o1").code == 0
    assert run(here, "session-waits-for-a-child", "sessions", "o1", "--workflow", "office").code == 0
    assert run(here, "decide-for-a-child", "decide", "o1", "--to", "paid", "--workflow", "office").code == 0


def test_diagnostics(here: Here) -> None:
    """07 §8; a broken workflow of every kind: tests/archmax/cli/commands/broken_desk."""
    directory = write_claims(here.cwd) / "workflows/claims"
    assert run(here, "validate", "validate").code == 0
    (directory / "workflow.yaml").write_text(
        CLAIM.replace("to: review,", "to: reviw,")
        .replace("instructions: Be brief.", "")
        .replace("title: Claims", "")
    )
    assert run(here, "validate-invalid", "validate", "claims").code == 1
    assert run(here, "validate-json", "validate", "--json").code == 1
    assert run(here, "explain", "explain", "doc.undefined-target").code == 0
    assert run(here, "new", "new", "front-desk", "--title", "Front desk").code == 0


def test_help_and_completion(here: Here) -> None:
    """07 §9, §3: generated from the one table."""
    lines = [("help",)]
    lines += [("help", name) for name in re.findall(r"^  (\w+) ", here("help").out, re.MULTILINE)]
    texts = [f"$ archmax {' '.join(line)}\n{here(*line).out}" for line in lines]
    assert_golden(GOLDEN / "help.txt", "\n".join(texts))
    for shell in ("bash", "zsh", "fish"):
        assert_golden(GOLDEN / f"completion.{shell}", here("completion", shell).out)


@pytest.mark.parametrize("form", ["mermaid", "dot", "svg"])
def test_drawings(here: Here, form: str) -> None:
    """Issue 5 §4; what is drawn how: tests/engine/graph."""
    root = REPOSITORY / "examples/refund"
    drawn = here("graph", "refund", "--format", form, "--root", str(root))
    assert (drawn.code, drawn.err) == (0, "")
    suffix = {"mermaid": "mmd"}.get(form, form)
    assert_golden(GOLDEN / f"refund.{suffix}", drawn.out)
    if form == "mermaid":
        assert here("graph", "--root", str(root)).out == drawn.out
