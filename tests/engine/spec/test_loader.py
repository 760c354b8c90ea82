"""Loading: the pipeline, its order, and failing closed."""

from __future__ import annotations

import pytest

from engine.errors import UnsupportedRuntimeContractError, WorkflowLoadError
from engine.spec.loader import list_workflows, load_workflow, usable_workflow
from engine.spec.model import MountGrant, SignatureEntry, ToolEntry
from engine.spec.read_root import document_disabled
from engine.spec.tree import MemoryTree
from tests.support.spec import SPEC, load

LOAN_DESK = """
title: Outgoing loans
instructions: |-
  Object records live in skills/object-register/assets/objects.json.
runtime: { version: "3" }
settings: { model: small-model, timeoutMs: 20000, maxPtcCalls: null, prompt_cache: { ttl: 1h } }
tests: { judge: { model: big, modelOptions: { temperature: 0 } } }
metadata: { owner: desk }
tools:
  allow_always: [ls, archmax_run]
  forbid_always: [{ tool: "*", paths: ["donors/**"] }]
skills: { allow_always: [object-register] }
mounts: { allow_always: [ledger, { mount: archive, access: read }] }
states:
  screen:
    type: code
    script: scripts/screen.js
    triggers:
      manual:
        description: " Decide one loan request. "
        session: " case.id "
        message: false
        requires: [{ name: object_id, type: string, description: " The object. " }, from_day]
        returns: [{ name: verdict, type: string }]
        schedule: { every: 1h }
    on_error: desk
    transitions: [{ to: assess }, { to: desk }]
  assess:
    instructions: Weigh the request.
    requires: [verdict]
    locks: [verdict]
    budget: { timeoutMs: 90000, maxParks: 2.0 }
    tools: { allow: [{ tool: write_file, args: { file_path: [a, b] }, source: x }], forbid: [grep] }
    transitions:
      - { to: registrar, description: The verdict is recorded., type: approve }
  registrar:
    type: human
    instructions: Confirm or return the verdict.
    evidence: [scratchpad/verdict.md]
    approvers: [registrar@museum.example]
    transitions: [{ to: closed, type: approve, description: Confirm. }]
  desk: { instructions: Explain what went wrong. }
  closed:
"""


def test_a_whole_document_becomes_typed_data():
    """01 §5 to §10."""
    loaded = load(LOAN_DESK)
    assert loaded.usable
    assert loaded.spec_file == SPEC
    spec = loaded.spec
    assert spec is not None
    assert list(spec.states) == ["screen", "assess", "registrar", "desk", "closed"]
    assert spec.settings.timeout_ms == 20000
    assert spec.settings.ptc_unbounded
    assert spec.settings.prompt_cache_ttl == "1h"
    assert spec.tests.judge is not None
    assert (spec.tests.judge.model, spec.tests.judge.temperature) == ("big", 0.0)
    assert spec.tests.case_timeout_ms == 120_000
    assert spec.runtime.name == "archmax-harness@3"
    assert spec.runtime.source == "declared"
    assert spec.tools_allow_always == (ToolEntry("ls"), ToolEntry("archmax_run"))
    assert spec.tools_forbid_always == (ToolEntry("*", None, ("donors/**",)),)
    assert spec.mounts_allow_always == (MountGrant("ledger"), MountGrant("archive", "read"))
    manual = spec.trigger("manual")
    assert manual is not None
    assert (manual.session, manual.message) == ("case.id", False)
    assert manual.requires == (
        SignatureEntry("object_id", "string", "The object."),
        SignatureEntry("from_day"),
    )
    assert manual.host == {"schedule": {"every": "1h"}}
    assess = spec.states["assess"]
    assert assess.budget.max_parks == 2
    assert assess.tools_allow == (ToolEntry("write_file", {"file_path": ("a", "b")}, None, None, "x"),)
    assert assess.transitions[0].type == "approve"
    assert spec.states["closed"].terminal
    assert spec.metadata == {"owner": "desk"}


def test_absent_allow_always_differs_from_an_empty_list():
    """01 §5.5, 01 §22.5."""
    absent = load("states: { a: { triggers: { manual: } } }").spec
    empty = load("tools: { allow_always: [] }\nstates: { a: { triggers: { manual: } } }").spec
    assert absent is not None
    assert empty is not None
    assert absent.tools_allow_always is None
    assert empty.tools_allow_always == ()


def test_the_minimal_workspace_draws_one_warning():
    """07 §1.1."""
    loaded = load(
        "states:\n  hello:\n    triggers: { manual: }\n    instructions: Greet the person by name.\n"
    )
    assert loaded.usable
    assert [item.id for item in loaded.lint] == ["instructions.absent"]


def test_all_shape_errors_are_collected_and_document_rules_wait():
    """01 §3, 01 §22.7."""
    loaded = load("title: 1\nfoo: 2\nstates: { a: { type: x, transitions: [{ to: gone }] } }")
    assert [item.id for item in loaded.issues] == ["schema.unknown-key", "schema.type", "schema.state-type"]
    assert loaded.lint == ()
    assert loaded.document == {
        "title": 1,
        "foo": 2,
        "states": {"a": {"type": "x", "transitions": [{"to": "gone"}]}},
    }
    assert not loaded.shape_held


def test_lint_runs_beside_document_errors():
    """01 §3, order (5)."""
    loaded = load("states: { a: { transitions: [{ to: gone }] } }")
    assert [item.id for item in loaded.issues] == ["doc.undefined-target", "doc.no-start-state"]
    assert [item.id for item in loaded.lint] == ["instructions.absent"]
    assert loaded.shape_held


def test_lint_errors_do_not_block_loading():
    """01 §22.6."""
    loaded = load("states: { A: { triggers: { manual: } } }")
    assert loaded.usable
    assert "state-slug.shape" in [item.id for item in loaded.lint]


def test_messages_carry_file_field_line_and_column():
    """01 §3."""
    (issue,) = load("states:\n  a:\n    triggers: { manual: }\n    title: null\n").issues
    assert issue.message.startswith(f"{SPEC}: 'states.a.title': ")
    assert (issue.line, issue.column) == (4, 12)
    assert issue.kind == "schema"
    assert issue.to_json() == {
        "severity": "error", "id": "schema.type", "message": issue.message, "file": SPEC, "field": "states.a.title", "line": 4, "column": 12,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("instrutions", "instructions"),
        ("onError", "on_error"),
        ("transition", "transitions"),
        ("Requires", "requires"),
    ],
)
def test_a_misspelt_key_is_told_its_neighbour(key: str, near: str):
    """01 §19.2, `schema.unknown-key`."""
    (issue,) = load(f"states: {{ a: {{ triggers: {{ manual: }}, {key}: x }} }}").issues
    assert issue.field == "states.a"
    assert f'Unrecognized key: "{key}" (states.a.{key})' in issue.message
    assert near in issue.message


@pytest.mark.parametrize(
    "text",
    [
        "title",
        "instructions",
        "disabled",
        "runtime",
        "settings",
        "tests",
        "tools",
        "skills",
        "mounts",
        "metadata",
        "states",
    ],
)
def test_an_explicit_null_at_the_root_is_no_absence(text: str):
    """01 §3, Nulls."""
    base = "" if text == "states" else "states: { a: { triggers: { manual: } } }\n"
    assert load(f"{base}{text}: null").issues


@pytest.mark.parametrize("text", ["", "null", "x", "[1]", "a: 1\n---\nb: 1", "a: [", "a: 1\na: 2", "a: !x 1"])
def test_what_is_no_mapping_stops_everything_else(text: str):
    """01 §2.2, 01 §19.1."""
    loaded = load(text)
    assert [item.id for item in loaded.issues] == ["not-a-mapping"]
    assert loaded.spec is None
    assert loaded.document is None
    assert "YAML mapping" in loaded.issues[0].message


@pytest.mark.parametrize("slug", ["", ".", "..", "../shop", "a/b"])
def test_a_slug_that_names_no_folder_is_missing(slug: str):
    """01 §4."""
    tree = MemoryTree({SPEC: LOAN_DESK, "shop/workflow.yaml": LOAN_DESK, "workflow.yaml": LOAN_DESK})
    assert [item.id for item in load_workflow(tree, slug).issues] == ["missing"]


def test_the_body_is_the_prose_file():
    """01 §16."""
    loaded = load(LOAN_DESK, {"workflows/shop/WORKFLOW.md": "# Loans\n---\nMore."})
    assert loaded.usable
    assert loaded.body == "# Loans\n---\nMore."


def test_frontmatter_beside_the_document_competes_even_with_other_faults():
    """01 §16."""
    loaded = load("states: 1", {"workflows/shop/WORKFLOW.md": "---\r\na: 1\r\n---\r\n"})
    assert [item.id for item in loaded.issues] == ["schema.states", "competing-machines"]
    assert loaded.issues[1].file == "workflows/shop/WORKFLOW.md"


def test_assembly_of_an_unusable_workflow_fails_by_name():
    """01 §3, Fail closed."""
    with pytest.raises(WorkflowLoadError) as caught:
        usable_workflow(MemoryTree({SPEC: "states: {}\nfoo: 1"}), "shop")
    assert caught.value.workflow == "shop"
    assert caught.value.path == SPEC
    assert "and 1 more" in caught.value.problem
    assert "archmax validate shop" in str(caught.value)


@pytest.mark.parametrize("version", ["1", "2", "3.5", "four"])
def test_assembly_under_another_contract_fails(version: str):
    """01 §5.2."""
    text = f"runtime: {{ version: {version} }}\nstates: {{ a: {{ triggers: {{ manual: }} }} }}"
    assert load(text).usable
    with pytest.raises(UnsupportedRuntimeContractError) as caught:
        usable_workflow(MemoryTree({SPEC: text}), "shop")
    assert caught.value.requested == f"archmax-harness@{version}"
    assert caught.value.supported == ("archmax-harness@3",)


@pytest.mark.parametrize(
    ("text", "name", "source"),
    [
        ("", "archmax-harness@3", "defaulted"),
        ("runtime: {}", "archmax-harness@3", "defaulted"),
        ("runtime: { version: 3 }", "archmax-harness@3", "declared"),
        ("runtime: { version: 3.0 }", "archmax-harness@3", "declared"),
        ("runtime: { engine: other }", "other@3", "declared"),
        ("runtime: { version: .inf }", "archmax-harness@Infinity", "declared"),
        ("runtime: { version: .nan }", "archmax-harness@nan", "declared"),
    ],
)
def test_the_contract_takes_defaults_key_by_key(text: str, name: str, source: str):
    """01 §5.2."""
    spec = load(f"{text}\nstates: {{ a: {{ triggers: {{ manual: }} }} }}").spec
    assert spec is not None
    assert (spec.runtime.name, spec.runtime.source) == (name, source)


def test_a_usable_workflow_is_its_typed_document():
    """01 §3."""
    assert usable_workflow(MemoryTree({SPEC: LOAN_DESK}), "shop").title == "Outgoing loans"


def test_disabled_is_read_fail_closed():
    """01 §5.7 and 01 OP-7."""
    assert [document_disabled({"disabled": value}) for value in (True, "no", 0, False, None)] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert not document_disabled({})
    spec = load("disabled: 'no'\nstates: { a: { triggers: { manual: } } }").spec
    assert spec is not None
    assert spec.disabled


def test_workflows_are_folders_with_a_document():
    """07 §1."""
    tree = MemoryTree(
        {
            "workflows/b/workflow.yaml": "",
            "workflows/a/workflow.yaml": "",
            "workflows/c/WORKFLOW.md": "",
            "workflows/d/tests/workflow.yaml": "",
            "workflows/workflow.yaml": "",
        }
    )
    assert list_workflows(tree) == ["a", "b"]


UNDESCRIBED = [
    ("human", "agent", "instructions: x", True),
    ("code", "grader", "instructions: x", False),
    ("agent", "grader", "instructions: x", True),
    ("grader", "grader", "instructions: x", True),
    ("agent", "code", "script: scripts/a.js", True),
    ("grader", "code", "script: scripts/a.js", True),
    ("agent", "agent", "instructions: x", False),
    ("agent", "human", "instructions: x", False),
    ("grader", "agent", "instructions: x", False),
    ("agent", "agent", "instructions: ' '", True),
    ("agent", "human", "title: x", True),
    ("code", "agent", "title: x", False),
]


@pytest.mark.parametrize("description", ["", "description: ''", "description: ' '"])
@pytest.mark.parametrize(("source", "target", "keys", "refused"), UNDESCRIBED)
def test_the_six_rows_of_undescribed_edges(
    source: str, target: str, keys: str, refused: bool, description: str
):
    """01 §7.4."""
    script = "script: scripts/b.js, " if source == "code" else ""
    text = (
        "states:\n"
        f"  a: {{ triggers: {{ manual: }}, type: {source}, {script}transitions: [{{ to: b, {description} }}] }}\n"
        f"  b: {{ type: {target}, {keys} }}\n"
    )
    assert ("doc.undescribed-edge" in [item.id for item in load(text).issues]) is refused


@pytest.mark.parametrize("script", ["scripts/a.js", "scripts/a/b.mjs", "scripts/..a.js", "scripts/a..js"])
def test_scripts_inside_the_folder_are_accepted(script: str):
    """01 §4."""
    assert load(f"states: {{ a: {{ triggers: {{ manual: }}, type: code, script: {script} }} }}").usable


@pytest.mark.parametrize(
    "script",
    [
        "a.js",
        "/scripts/a.js",
        "scripts//a.js",
        "scripts/../a.js",
        "scripts/a/../b.js",
        "scripts/a.ts",
        "scripts/a.js\\n",
        "./scripts/a.js",
        "scripts",
    ],
)
def test_scripts_elsewhere_are_refused(script: str):
    """01 §4."""
    loaded = load(f'states: {{ a: {{ triggers: {{ manual: }}, type: code, script: "{script}" }} }}')
    assert [item.id for item in loaded.issues] == ["schema.script-path"]


@pytest.mark.parametrize("name", ["ledger", "a/b", ".platform", "AGENTS.md", "..a"])
def test_mount_names_are_keys_without_outer_slashes(name: str):
    """01 §4."""
    assert load(
        f"mounts: {{ allow_always: ['{name}'] }}\nstates: {{ a: {{ triggers: {{ manual: }} }} }}"
    ).usable


@pytest.mark.parametrize(
    "name", ["", " a", "a ", "/a", "a/", "a//b", "a/./b", "../a", "a*", "a?", "[a]", "{a}"]
)
def test_other_mount_names_are_refused(name: str):
    """01 §4."""
    loaded = load(f"mounts: {{ allow_always: ['{name}'] }}\nstates: {{ a: {{ triggers: {{ manual: }} }} }}")
    assert [item.id for item in loaded.issues] == ["schema.mount-name"]


@pytest.mark.parametrize("name", ["a\n", "a\u0661", "A", "1a", "_a", "a.b", "a-b", "é", ""])
def test_variable_names_are_ascii_and_whole(name: str):
    """01 §4, 01 §22.3."""
    loaded = load(
        f"states: {{ a: {{ triggers: {{ manual: }}, requires: [{name!r}] }} }}".replace("'a\\n'", '"a\\n"')
    )
    assert [item.id for item in loaded.issues] == ["schema.variable-name"]
