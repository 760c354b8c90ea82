"""Validation as a whole: its order, its reach, and that nothing malformed stops it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.governance.zones import MountPrefixes
from engine.spec.diagnostics import Diagnostic
from engine.spec.model import Spec
from engine.spec.skills import discover_skills
from engine.spec.tree import AuthoringTree, DirectoryTree, MemoryTree
from engine.spec.validate import validate_workflow
from tests.support.spec import BUNDLES, MOUNTS, SPEC, found, validate


def ids(spec: str | dict[str, str], mounts: MountPrefixes | None = MOUNTS) -> list[str]:
    return [item.id for item in validate(spec, mounts=mounts).diagnostics]


EVERYTHING = """
instructions: Work.
runtime: { version: 2 }
skills: { allow_always: [none] }
mounts: { allow_always: [none] }
tools: { allow_always: [task] }
states:
  A: { triggers: { manual: }, tools: { allow: [task, archmax_workflow_none] }, transitions: [{ to: gone, description: x }] }
  b: { type: code, script: scripts/none.js }
"""


def test_findings_come_in_the_contract_s_order():
    """01 §19.1."""

    def cases(tree: AuthoringTree, slug: str, spec: Spec) -> Sequence[Diagnostic]:
        assert (slug, list(spec.states)) == ("My Shop", ["A", "b"])
        return [Diagnostic("warning", "case.mock-control-tool", "m", "f")]

    tree = MemoryTree({**BUNDLES, "workflows/My Shop/workflow.yaml": EVERYTHING})
    result = validate_workflow(
        tree, "My Shop", skills=discover_skills(tree), mounts=MountPrefixes(("skills",)), case_checks=cases
    )
    assert [item.id for item in result.diagnostics] == [
        "workflow-slug.shape",
        "doc.undefined-target",
        "state-slug.shape",
        "automated.no-on-error",
        "contract.unsupported",
        "skills.unknown",
        "mounts.unknown",
        "tools.ungrantable",
        "code.script-not-found",
        "tools.ungrantable",
        "delegation.missing",
        "case.mock-control-tool",
    ]
    assert not result.valid
    assert (result.errors, result.warnings) == (10, 2)


def test_the_json_form_has_the_contract_s_keys():
    """01 §20, 07 §8."""
    record = validate("states: { hello: { triggers: { manual: } } }", mounts=None).to_json()
    assert (record["workflow"], record["valid"]) == ("shop", True)
    assert {"severity", "message", "file", "field", "id"} <= set(record["diagnostics"][0])


@pytest.mark.parametrize("spec", ["- 1", "a: ["])
def test_a_file_that_is_no_mapping_stops_everything_after_it(spec: str):
    """01 §19.1."""
    assert ids({SPEC: spec, "workflows/shop/tests/tests.config.js": ""}) == ["not-a-mapping"]


def test_a_disabled_workflow_is_validated_in_full():
    """01 §20."""
    result = validate("disabled: true\nstates: { a: { triggers: { manual: }, tools: { allow: [task] } } }")
    assert {"workflow.disabled", "tools.ungrantable"} <= {item.id for item in result.diagnostics}


def test_readable_parts_of_a_refused_shape_are_still_checked():
    """01 §19.1."""
    found_ids = ids(
        "skills: { allow_always: [none, 3] }\nstates: { a: { triggers: 5, tools: { allow: [task, {}] } }, b: 7 }"
    )
    assert {
        "schema.skill-slug",
        "schema.triggers",
        "schema.tool-entry",
        "schema.type",
        "skills.unknown",
        "tools.ungrantable",
    } <= set(found_ids)


def test_a_malformed_value_is_not_reported_as_absent_too():
    """01 §19.1: a non-list is read as empty."""
    assert "skills.no-root-block" not in ids("skills: 4\nstates: { a: { triggers: { manual: } } }")


MALFORMED = [
    "null",
    "3",
    "x",
    "[]",
    "[[]]",
    "{}",
    "{ a: { b: [1] } }",
    "[null]",
    "[{}]",
    "true",
    ".nan",
    "{ allow: 3 }",
    "{ allow: [{ tool: 3 }], forbid: x }",
    '{ "": "" }',
]


@pytest.mark.parametrize("value", MALFORMED)
@pytest.mark.parametrize(
    "place",
    [
        "title: {}",
        "settings: {}",
        "tests: {}",
        "tools: {}",
        "skills: {}",
        "mounts: {}",
        "runtime: {}",
        "states: {}",
    ]
    + [
        f"states: {{{{ a: {{{{ {key}: {{}} }}}} }}}}"
        for key in (
            "type",
            "triggers",
            "requires",
            "locks",
            "tools",
            "skills",
            "mounts",
            "budget",
            "on_error",
            "transitions",
            "evidence",
            "script",
            "instructions",
        )
    ],
)
def test_malformed_values_never_stop_validation(place: str, value: str):
    """01 §19.1."""
    text = place.format(value)
    base = "" if text.startswith("states") else "states: { a: { triggers: { manual: } } }\n"
    result = validate(base + text)
    assert all(item.message and item.id for item in result.diagnostics)


def test_a_glob_longer_than_the_limit_is_no_entry():
    """02 §5: guards are asked at every call."""
    spec = "states: {{ a: {{ triggers: {{ manual: }}, tools: {{ allow: [{{ tool: ls, paths: [{}] }}] }} }} }}"
    assert "schema.tool-entry" not in ids(spec.format("x" * 1024))
    assert "schema.tool-entry" in ids(spec.format("x" * 1025))


def test_without_a_mount_table_mounts_are_not_judged():
    """01 §19.5."""
    spec = "mounts: { allow_always: [anything] }\nstates: { a: { triggers: { manual: }, tools: { allow: [{ tool: write_file, paths: [AGENTS.md] }] } } }"
    assert not [
        id_ for id_ in ids(spec, mounts=None) if id_.startswith("mounts.") or id_ == "tools.read-only"
    ]


def test_an_unreachable_state_widens_no_delegation():
    """01 §14."""
    spec = "states: { a: { triggers: { manual: } }, b: { tools: { allow: [archmax_workflow_none] } } }"
    assert "delegation.missing" not in ids(spec)
    assert "delegation.missing" in ids(spec.replace("manual: }", "manual: }, on_error: b"))


def test_a_chain_of_three_is_allowed_and_a_diamond_is_no_cycle():
    """02 §19.6, 04 §13."""

    def calls(*slugs: str) -> str:
        tools = ", ".join(f"archmax_workflow_{slug}" for slug in slugs)
        return f"states: {{ a: {{ triggers: {{ manual: }}, tools: {{ allow: [{tools}] }} }} }}"

    files = {
        SPEC: calls("x", "y"),
        "workflows/x/workflow.yaml": calls("z"),
        "workflows/y/workflow.yaml": calls("x"),
        "workflows/z/workflow.yaml": calls(),
    }
    assert not [id_ for id_ in ids(files) if id_.startswith("delegation.")]
    files["workflows/z/workflow.yaml"] = calls("shop")
    (cycle,) = found(validate(files).diagnostics, "delegation.cycle")
    assert "shop → x → z → shop" in cycle.message


def test_a_sub_workflow_of_another_contract_cannot_be_used():
    """01 §5.2, 04 §1."""
    call = "states: { a: { triggers: { manual: }, tools: { allow: [archmax_workflow_old] } } }"
    old = "runtime: { version: 2 }\nstates: { a: { triggers: { manual: } } }"
    (missing,) = found(
        validate({SPEC: call, "workflows/old/workflow.yaml": old}).diagnostics, "delegation.missing"
    )
    assert "archmax-harness@2" in missing.message


def test_duplicate_targets_are_an_error_where_a_person_decides():
    """01 OP-15."""
    human = "states: { a: { triggers: { manual: } }, h: { type: human, instructions: x, transitions: [{ to: a, description: y }, { to: a, description: z }] } }"
    (finding,) = found(validate(human).diagnostics, "transition.duplicate-target")
    assert finding.severity == "error"


def test_a_loop_of_failure_routes_is_told_once():
    """01 OP-16."""
    spec = "states: { a: { triggers: { manual: }, on_error: c }, b: { on_error: c }, c: { on_error: d }, d: { on_error: b } }"
    (loop,) = found(validate(spec).diagnostics, "on-error.loop")
    assert loop.field == "states.b.on_error"


def test_a_root_denial_of_what_sub_workflows_may_grant_is_not_judged():
    """02 §19: `forbid_always` binds every descendant."""
    spec = "tools: { forbid_always: [post_notice] }\nstates: { a: { triggers: { manual: }, tools: { allow: [ls] } } }"
    assert "tools.forbid-nothing" in ids(spec)
    assert "tools.forbid-nothing" not in ids(spec.replace("[ls]", "[archmax_workflow_other]"))


def test_the_title_is_never_guaranteed_and_a_root_entry_binds_everywhere():
    """02 §14.5, 01 §19.5."""
    spec = 'tools: { forbid_always: [{ tool: ls, paths: ["${{title}}"] }] }\nstates: { a: { triggers: { manual: { requires: [title] } } } }'
    (finding,) = found(validate(spec).diagnostics, "guard.unguaranteed")
    assert finding.field == "tools.forbid_always"
    assert "every state" in finding.message


def test_a_directory_workspace_is_validated_from_its_files(tmp_path: Path):
    """01 §20."""
    (tmp_path / "workflows/shop/scripts").mkdir(parents=True)
    (tmp_path / "workflows/shop/workflow.yaml").write_text(
        "instructions: x\nstates:\n  a: { triggers: { manual: }, type: code, script: scripts/a.js, on_error: b }\n  b: { instructions: Sorry. }\n"
    )
    (tmp_path / "workflows/shop/scripts/a.js").write_text(
        "import { defineCodeState } from '@archmax-ai/harness/code'\n"
    )
    result = validate_workflow(DirectoryTree(tmp_path), "shop", mounts=MountPrefixes())
    assert result.diagnostics == ()
    assert result.valid
