from __future__ import annotations

import pickle
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cases.clock import clock_ms
from engine.cases.document import (
    BlockedTool,
    CalledTool,
    CaseDocument,
    CaseSchemaError,
    Decide,
    Deliver,
    FixtureRef,
    Grade,
    Mock,
    NotCalledTool,
    NoTraversal,
    Parked,
    Raised,
    RanWorkflow,
    ReachedState,
    Reply,
    Send,
    Succeeded,
    TrailCount,
    TriggerArrival,
    UsedNoTools,
    Variables,
)
from engine.cases.parse import parse_case_document
from engine.cases.serialize import serialize_case_document

FOLDER = "workflows/shop/tests"
FILE = f"{FOLDER}/refunds/late.test.yaml"
HEAD = "title: A title\ndescription: What it shows.\n"


def parse(text: str, file: str = FILE) -> CaseDocument:
    return parse_case_document(file, text, FOLDER)


def issues(text: str) -> tuple[str, ...]:
    with pytest.raises(CaseSchemaError) as caught:
        parse(text)
    assert caught.value.file == FILE
    assert str(caught.value) == f"{FILE}: {'; '.join(caught.value.issues)}"
    return caught.value.issues


def steps(text: str) -> str:
    return HEAD + "steps:\n  - send: hi\n" + "".join(f"  - {line}\n" for line in text.splitlines())


ROWS: list[tuple[str, str, list[str]]] = [
    ("title: [", "", ["YAML"]),
    (HEAD + "---\n" + HEAD, "", ["YAML"]),
    (HEAD + "title: again\n", "", ["YAML", "title"]),
    ("- a\n", "", ["mapping"]),
    ("", "", ["mapping"]),
    (HEAD + "sessions: 1\n", "", ["unknown key", "sessions", "title", "workspace", "steps"]),
    (HEAD + "version: 1\n", "", ["unknown key", "version"]),
    (HEAD + "trigger: { id: a, args: {} }\n", "trigger", ["unknown key", "args"]),
    (HEAD + "mocks: [{ tool: a, output: 1 }]\n", "mocks[0]", ["unknown key", "output"]),
    (steps("decide: { to: a, why: b }"), "steps[1].decide", ["unknown key", "why"]),
    (steps("trail: { to: a, count: 1, status: ok }"), "steps[1].trail", ["unknown key", "status"]),
    ("description: d\n", "", ["title", "required"]),
    ("title: ' '\ndescription: d\n", "", ["title", "required"]),
    ("title: 4\ndescription: d\n", "", ["title", "required"]),
    ("title: |\n  one\n  two\ndescription: d\n", "title", ["single line"]),
    (f"title: {'x' * 61}\ndescription: d\n", "title", ["60", "61"]),
    ("title: t\n", "", ["description", "required"]),
    ("title: t\ndescription: [d]\n", "", ["description", "required"]),
    (f"title: t\ndescription: {'x' * 201}\n", "description", ["200", "201"]),
    (HEAD + "skip: ''\n", "skip", ["reason"]),
    (HEAD + "skip: true\n", "skip", ["reason"]),
    (HEAD + "trigger: {}\n", "trigger.id", ["id"]),
    (HEAD + "trigger: { id: '' }\n", "trigger.id", ["id"]),
    (HEAD + "trigger: manual\n", "trigger", ["mapping"]),
    (HEAD + "variables: { Bad: 1 }\n", "variables.Bad", ["variable name"]),
    (HEAD + "variables: { a.b: 1 }\n", "variables.a.b", ["variable name"]),
    (HEAD + "variables: [a]\n", "variables", ["mapping"]),
    (
        steps("deliver: { trigger: t, variables: { 9x: 1 } }"),
        "steps[1].deliver.variables.9x",
        ["variable name"],
    ),
    (HEAD + "workspace: { '': x }\n", "workspace", ["path"]),
    (HEAD + "workspace: { a.txt: { from: '' } }\n", "workspace.a.txt", ["from"]),
    (HEAD + "workspace: { a.txt: { from: 3 } }\n", "workspace.a.txt", ["from"]),
    (HEAD + "mocks: {}\n", "", ["mocks", "must be a list"]),
    (HEAD + "steps: {}\n", "", ["steps", "must be a list"]),
    (HEAD + "steps:\n", "", ["steps", "must be a list"]),
    (HEAD + "mocks: [{ result: 1 }]\n", "mocks[0].tool", ["tool"]),
    (HEAD + "mocks: [{ tool: '' }]\n", "mocks[0].tool", ["tool"]),
    (HEAD + "mocks: [{ tool: a, whenInput: [1] }]\n", "mocks[0].whenInput", ["mapping"]),
    (HEAD + "mocks: [a]\n", "mocks[0]", ["mapping"]),
    (HEAD + "clock: 2026-02-30\n", "clock", ["date"]),
    (HEAD + "clock: 5\n", "clock", ["date"]),
    (HEAD + "steps: [send]\n", "steps[0]", ["single-key"]),
    (HEAD + "steps: [{}]\n", "steps[0]", ["exactly one key"]),
    (HEAD + "steps: [{ send: a, succeeded: true }]\n", "steps[0]", ["exactly one key", "send", "succeeded"]),
    (steps("sends: a"), "steps[1]", ["unknown step", "sends", "decide", "grade"]),
    (steps("judge: a"), "steps[1]", ["unknown step", "judge"]),
    (steps("expect: {}"), "steps[1]", ["unknown step", "expect", "assertions are steps themselves"]),
    (HEAD + "steps: [{ succeeded: true }]\n", "steps[0]", ["no preceding action", "succeeded"]),
    (steps("succeeded: false"), "steps[1].succeeded", ["true"]),
    (steps("usedNoTools: 1"), "steps[1].usedNoTools", ["true"]),
    (steps("noTraversal: yes"), "steps[1].noTraversal", ["true"]),
    (steps("parked: false"), "steps[1].parked", ["parked"]),
    (steps("parked: person"), "steps[1].parked", ["parked"]),
    (steps("parked: { channel: person }"), "steps[1].parked.channel", ["parked"]),
    (steps("parked: { state: '' }"), "steps[1].parked.state", ["string"]),
    (steps("raised: false"), "steps[1].raised", ["raised"]),
    (steps("raised: ''"), "steps[1].raised", ["raised"]),
    (steps("raised: [a]"), "steps[1].raised", ["raised"]),
    (HEAD + "steps: [{ send: '' }]\n", "steps[0].send", ["string"]),
    (HEAD + "steps: [{ send: 4 }]\n", "steps[0].send", ["string"]),
    (steps("decide: { to: '' }"), "steps[1].decide.to", ["string"]),
    (steps("deliver: {}"), "steps[1].deliver.trigger", ["string"]),
    (steps("reachedState: ''"), "steps[1].reachedState", ["string"]),
    (steps("triggerArrival: 4"), "steps[1].triggerArrival", ["string"]),
    (steps("calledTool: { name: '' }"), "steps[1].calledTool.name", ["string"]),
    (steps("calledTool: read_file"), "steps[1].calledTool", ["mapping"]),
    (steps("ranWorkflow: {}"), "steps[1].ranWorkflow.workflow", ["string"]),
    (steps("ranWorkflow: { workflow: a, status: parked }"), "steps[1].ranWorkflow.status", ["status"]),
    (steps("reply: {}"), "steps[1].reply", ["includes", "excludes"]),
    (steps("reply: { includes: [] }"), "steps[1].reply", ["includes", "excludes"]),
    (steps("reply: { includes: 42 }"), "steps[1].reply.includes", ["string"]),
    (steps("reply: { includes: [a, 42] }"), "steps[1].reply.includes[1]", ["string"]),
    (steps("reply: { includes: [ok, '/(/'] }"), "steps[1].reply.includes[1]", ["malformed regex", "/(/"]),
    (steps("reply: { excludes: '/a/b' }"), "steps[1].reply.excludes", ["malformed regex", "/a/b"]),
    (steps("raised: { reason: '/[/' }"), "steps[1].raised.reason", ["malformed regex", "/[/"]),
    (
        steps("calledTool: { name: a, input: { x: [{ y: '/*/' }] } }"),
        "steps[1].calledTool.input.x[0].y",
        ["malformed regex"],
    ),
    (
        steps("blockedTool: { name: a, input: { x: '/*/' } }"),
        "steps[1].blockedTool.input.x",
        ["malformed regex"],
    ),
    (HEAD + "mocks: [{ tool: a, whenInput: { x: '/*/' } }]\n", "mocks[0].whenInput.x", ["malformed regex"]),
    (steps("trail: { count: 1 }"), "steps[1].trail", ["to", "kind", "reason"]),
    (steps("trail: { kind: subworkflow, count: 1 }"), "steps[1].trail.kind", ["kind", "subworkflow"]),
    (steps("trail: { to: a }"), "steps[1].trail.count", ["count"]),
    (steps("trail: { to: a, count: -1 }"), "steps[1].trail.count", ["count"]),
    (steps("trail: { to: a, count: 1.5 }"), "steps[1].trail.count", ["count"]),
    (steps("trail: { to: a, count: true }"), "steps[1].trail.count", ["count"]),
    (steps("ranWorkflow: { workflow: a, count: -1 }"), "steps[1].ranWorkflow.count", ["count"]),
    (steps("variables: { expect: { a: 1 }, path: { b: x } }"), "steps[1].variables.path.b", ["expect"]),
    (
        steps("variables: { expect: { a: 1 }, locked: { b: true } }"),
        "steps[1].variables.locked.b",
        ["expect"],
    ),
    (steps("variables: { path: {} }"), "steps[1].variables.expect", ["expect"]),
    (steps("variables: { expect: { a: 1 }, path: { a: 1 } }"), "steps[1].variables.path.a", ["string"]),
    (
        steps("variables: { expect: { a: 1 }, locked: { a: 1 } }"),
        "steps[1].variables.locked.a",
        ["true or false"],
    ),
    (steps("grade: { closedQA: a, atLeast: 1.1 }"), "steps[1].grade.atLeast", ["atLeast"]),
    (steps("grade: { closedQA: a, atLeast: true }"), "steps[1].grade.atLeast", ["atLeast"]),
    (steps("grade: { closedQA: a }"), "steps[1].grade.atLeast", ["atLeast"]),
    (steps("grade: { closedQA: '', atLeast: 0 }"), "steps[1].grade.closedQA", ["string"]),
]


@pytest.mark.parametrize(("text", "place", "words"), ROWS)
def test_a_parse_error_stands_at_its_place_and_says_its_words(
    text: str, place: str, words: list[str]
) -> None:
    """06 §14."""
    (issue,) = issues(text)
    if place:
        assert issue.startswith(f"{place}: ")
    assert [word for word in words if word not in issue] == []


def test_all_issues_of_a_document_are_reported_together() -> None:
    """06 §14."""
    text = "title: ''\nextra: 1\nsteps:\n  - succeeded: no\n  - send: ''\n  - reply: { includes: ['/(/', '/)/'] }\n"
    found = issues(text)
    assert len(found) == 8
    assert "; " in f"{'; '.join(found)}"


def test_the_error_survives_between_processes() -> None:
    """core.errors: errors pickle."""
    with pytest.raises(CaseSchemaError) as caught:
        parse("[]")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


WHOLE = """
title:   >-
  Late parcel
description: |
  A parcel nine days late
  goes straight to the refund state.
skip: not now
trigger: { id: order }
variables: { parcel_id: PX-77, days_late: 9, due: 2026-03-20, on: yes }
workspace:
  trigger.json: { a: 1 }
  scratchpad/note.txt: text
  scratchpad/fixture.bin: { from: files/x.bin }
  scratchpad/both.json: { from: x, other: 1 }
mocks:
  - { tool: read_file, whenInput: { path: /^a/ }, result: hello }
  - { tool: ls }
clock: 2026-03-20T10:00:00+02:00
steps:
  - send: Where is my parcel?
  - succeeded: true
  - parked: true
  - parked: {}
  - parked: decision
  - parked: { channel: input, state: wait }
  - raised: true
  - raised: lost
  - raised: { code: lost, reason: /gone/ }
  - reachedState: refund
  - trail: { to: refund, kind: sub-workflow, reason: r, count: 2.0 }
  - noTraversal: true
  - triggerArrival: order
  - reply: { includes: [PX-77, "/refund(ed)?/i"], excludes: sorry }
  - calledTool: { name: ls, input: { a: null } }
  - notCalledTool: { name: ls }
  - blockedTool: { name: ls, input: {} }
  - ranWorkflow: { workflow: child }
  - ranWorkflow: { workflow: child, status: error, count: 0 }
  - usedNoTools: true
  - variables: { expect: { a: [1], b: null }, path: { a: "0.x" }, locked: { b: false } }
  - grade: { closedQA: Is it kind?, atLeast: 0.7 }
  - decide: { to: refund, comment: fine }
  - deliver: { trigger: timer, variables: { a: 1 } }
"""


def test_a_whole_document_is_read() -> None:
    """06 §2, §3, §6."""
    doc = parse(WHOLE)
    assert doc.id == "refunds/late"
    assert doc.file == FILE
    assert doc.title == "Late parcel"
    assert doc.description == "A parcel nine days late goes straight to the refund state."
    assert (doc.skip, doc.trigger, doc.clock) == ("not now", "order", "2026-03-20T10:00:00+02:00")
    # YAML 1.2: no dates, no yes
    assert doc.variables == {"parcel_id": "PX-77", "days_late": 9, "due": "2026-03-20", "on": "yes"}
    assert doc.workspace == {
        "trigger.json": {"a": 1},
        "scratchpad/note.txt": "text",
        "scratchpad/fixture.bin": FixtureRef("files/x.bin"),
        "scratchpad/both.json": {"from": "x", "other": 1},
    }
    assert doc.mocks == (Mock("read_file", {"path": "/^a/"}, "hello"), Mock("ls"))
    assert doc.steps == (
        Send("Where is my parcel?"),
        Succeeded(),
        Parked(),
        Parked(),
        Parked("decision"),
        Parked("input", "wait"),
        Raised(),
        Raised("lost"),
        Raised("lost", "/gone/"),
        ReachedState("refund"),
        TrailCount(2, "refund", "sub-workflow", "r"),
        NoTraversal(),
        TriggerArrival("order"),
        Reply(("PX-77", "/refund(ed)?/i"), ("sorry",)),
        CalledTool("ls", {"a": None}),
        NotCalledTool("ls"),
        BlockedTool("ls", {}),
        RanWorkflow("child"),
        RanWorkflow("child", "error", 0),
        UsedNoTools(),
        Variables({"a": [1], "b": None}, {"a": "0.x"}, {"b": False}),
        Grade("Is it kind?", 0.7),
        Decide("refund", "fine"),
        Deliver("timer", {"a": 1}),
    )


def test_steps_may_be_absent_or_empty() -> None:
    """06 §2."""
    assert parse(HEAD).steps == parse(HEAD + "steps: []\n").steps == ()


def test_regexes_elsewhere_are_plain_strings() -> None:
    """06 §4.1: only reply tokens, raised.reason, tool inputs and mocks take them."""
    text = steps(
        "variables: { expect: { a: '/(/' } }\ntrail: { reason: '/(/', count: 0 }\nraised: { code: '/(/' }\nreachedState: '/(/'"
    )
    assert len(parse(text).steps) == 5


def test_lengths_are_measured_on_collapsed_text() -> None:
    """06 §2."""
    long_but_short = "x " * 30 + "   "
    assert parse(f"title: '  {long_but_short}'\ndescription: d\n").title == "x " * 29 + "x"


@pytest.mark.parametrize(
    ("file", "identity"),
    [
        (f"{FOLDER}/a.test.yaml", "a"),
        (f"{FOLDER}/refunds/late.test.yml", "refunds/late"),
        (f"{FOLDER}/a.test.yaml.test.yaml", "a.test.yaml"),
    ],
)
def test_the_id_is_the_path_below_tests_without_its_extension(file: str, identity: str) -> None:
    """06 §1."""
    assert parse(HEAD, file).id == identity


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01t00:00:01.5z", 1500),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T23:00:00-01:00", 0),
        ("2024-02-29", 1709164800000),
        ("2023-02-29", None),
        ("2024-13-01", None),
        ("2024-1-01", None),
        ("2024-01-01T00:00Z", None),
        ("2024-01-01T00:00:00", None),
        ("2024-01-01 00:00:00Z", None),
        ("2024-01-01T24:00:00Z", None),
        ("2024-01-01T00:00:00+02:60", None),
        ("2024-01-01T00:00:00+0200", None),
        ("2024-01-01\n", None),
        ("٢٠٢٤-01-01", None),
        ("tomorrow", None),
    ],
)
def test_a_clock_is_a_calendar_day_or_an_rfc_3339_date_time(text: str, milliseconds: int | None) -> None:
    """06 §7.4."""
    assert clock_ms(text) == milliseconds


def test_a_document_survives_being_written_and_read() -> None:
    """06 §13."""
    doc = parse(WHOLE)
    text = serialize_case_document(doc)
    again = parse(text)
    assert again == doc
    assert again.variables == doc.variables
    assert list(yaml.safe_load(text)) == [
        "title",
        "description",
        "skip",
        "trigger",
        "variables",
        "workspace",
        "mocks",
        "clock",
        "steps",
    ]
    assert "/refund(ed)?/i" in text


def test_nothing_is_folded() -> None:
    """06 §13: no line folding."""
    doc = parse(HEAD + "steps:\n  - send: " + "word " * 200 + "\n")
    assert "word " * 199 + "word" in serialize_case_document(doc)


values: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
    | st.sampled_from(
        [
            "1e3",
            "0o17",
            "0x1F",
            "+1",
            ".5",
            "-.inf",
            ".nan",
            "~",
            "null",
            "yes",
            "2026-01-01",
            "1_0",
            "=",
            "a\x85 b",
            "\u2028",
            "\ufeff",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=5), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(values, st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20))
def test_any_value_and_text_survive_being_written_and_read(value: Any, text: str) -> None:
    """06 §13: `parse(serialize(doc)) == doc`."""
    doc = CaseDocument(
        "T",
        "D",
        variables={"a": value},
        mocks=(Mock("t", None, value),),
        steps=(Send(text), Variables({"a": value})),
    )
    again = parse(serialize_case_document(doc))
    assert again == doc
    assert repr(again.variables) == repr(doc.variables)  # 1, 1.0 and true stay apart
