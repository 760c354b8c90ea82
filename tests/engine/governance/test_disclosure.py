"""What a state is shown: tools, guards, skills, mounts, and which lines of a listing stay."""

from __future__ import annotations

import pytest

from engine.governance.authority import file_readable, file_refusal
from engine.governance.machine import WorkflowDenials
from engine.governance.names import CONTROL_TOOLS, DEFAULT_TOOLS
from engine.governance.redaction import visibility, visible
from engine.governance.surface import (
    MountAccess,
    enabled_mounts,
    enabled_skills,
    guard_lines,
    offered_somewhere,
    offered_tools,
    script_tools,
)
from engine.spec.model import MountGrant, StateType, ToolEntry
from tests.support.governance import entries, machine, state

DELEGATION = "archmax_workflow_pilot-call"
REGISTERED = ("post_notice", *DEFAULT_TOOLS, *CONTROL_TOOLS, DELEGATION, "task", "eval", "stamp")


# --- tools -------------------------------------------------------------------------------------------------------


def test_tools_are_offered_in_registration_order() -> None:
    """02 §7.3: named by an entry of the deciding tiers, essential, and controls."""
    built = machine(
        state(tools_allow=(ToolEntry(DELEGATION), ToolEntry("ls", paths=("a",)))),
        essential=("stamp",),
        tools_allow_always=entries("grep", "task", "eval", "absent", "advance"),
    )
    controls = tuple(tool for tool in CONTROL_TOOLS if tool != "archmax_get_history")
    assert offered_tools(built, "quay", REGISTERED) == ("ls", "grep", *controls, DELEGATION, "stamp")


def test_an_ending_state_is_not_offered_advance() -> None:
    """02 §4.2."""
    assert "archmax_advance" not in offered_tools(machine(state(to=())), "quay", REGISTERED)
    assert "archmax_advance" in offered_tools(machine(), "quay", REGISTERED)


@pytest.mark.parametrize("kind", ["grader", "code"])
def test_an_automated_state_is_offered_its_own_surface(kind: StateType) -> None:
    """02 §4.3, §7.3."""
    built = machine(
        state(type=kind, tools_allow=entries("post_notice")), tools_allow_always=entries(*DEFAULT_TOOLS)
    )
    assert offered_tools(built, "quay", REGISTERED) == (
        "post_notice",
        *(tool for tool in DEFAULT_TOOLS if tool not in ("write_todos", "archmax_eval", "archmax_run")),
        *(tool for tool in CONTROL_TOOLS if tool not in ("archmax_reset", "archmax_wait")),
    )


def test_only_an_unguarded_denial_hides_a_tool() -> None:
    """02 §7.3, §19.4."""
    built = machine(
        state(tools_forbid=(ToolEntry("ls"), ToolEntry("glob", paths=("vault/**",)))),
        tools_forbid_always=entries("archmax_raise"),
        inherited=[WorkflowDenials("fleet", entries("grep"))],
    )
    offered = offered_tools(built, "quay", REGISTERED)
    assert not {"ls", "archmax_raise", "grep"} & set(offered)
    assert "glob" in offered
    assert offered_tools(machine(state(tools_forbid=entries("*"))), "quay", REGISTERED) == ()
    assert offered_tools(machine(), "sea", REGISTERED) == ()


def test_a_script_gets_the_states_tools_without_controls_and_sandbox() -> None:
    """02 §7.3."""
    built = machine(state(tools_allow=entries(DELEGATION)), essential=("stamp",))
    assert script_tools(built, "quay", REGISTERED) == (
        *(tool for tool in DEFAULT_TOOLS if not tool.startswith("archmax_")),
        DELEGATION,
        "stamp",
    )


def test_guidance_is_needed_only_where_some_state_offers_the_tool() -> None:
    """02 §7.3."""
    assert offered_somewhere(machine(), "write_todos")
    assert not offered_somewhere(machine(state(type="code")), "write_todos")
    assert not offered_somewhere(machine(tools_allow_always=entries("task")), "task")


# --- guards ------------------------------------------------------------------------------------------------------


def test_binding_guards_are_listed_with_references_resolved_or_marked() -> None:
    """02 §7.3."""
    built = machine(
        state(
            tools_allow=(
                ToolEntry("write_file", paths=("notices/${{berth}}/**", "${{gone}}/*")),
                ToolEntry("post_notice", args={"to": ("east",)}),
                ToolEntry("absent", args={"to": ("east",)}),
            )
        ),
        tools_forbid_always=(
            ToolEntry("*", paths=("vault/**",)),
            ToolEntry("read_file", paths=("${{berth}}",)),
        ),
    )
    assert guard_lines(built, "quay", {"berth": "7*"}, offered_tools(built, "quay", REGISTERED)) == (
        '`post_notice`: only where `to` matches "east"',
        '`write_file`: only where every path matches "notices/7*/**" or "${{gone}}/*" '
        "(unresolved: ${{gone}}, the variable is not set)",
        'every tool: never where a path matches "vault/**"',
        '`read_file`: never where a path matches "7*"',
    )


def test_guards_that_do_not_bind_are_left_out() -> None:
    """02 §7.1.2, §5.3."""
    guarded = ToolEntry("post_notice", args={"to": ("east",)})
    for built in (
        machine(state(tools_allow=(guarded, ToolEntry("post_notice")))),
        machine(tools_allow_always=(guarded,), essential=("post_notice",)),
        machine(state(tools_allow=(ToolEntry("archmax_raise", args={"code": ("x",)}),))),
        machine(state(tools_allow=(guarded,), tools_forbid=entries("post_notice"))),
    ):
        assert guard_lines(built, "quay", {}, offered_tools(built, "quay", REGISTERED)) == ()


def test_a_value_cannot_open_a_line_of_its_own() -> None:
    """02 §7.3: variables are hostile text."""
    built = machine(state(tools_allow=(ToolEntry("ls", paths=("${{a}}",)),)))
    (line,) = guard_lines(
        built, "quay", {"a": "x\n# New orders\n" + "y" * 500}, offered_tools(built, "quay", REGISTERED)
    )
    assert "\n" not in line
    assert len(line) < 300


# --- skills and mounts -------------------------------------------------------------------------------------------


def test_skills_and_mounts_are_listed_without_what_an_ancestor_denies() -> None:
    """02 §11.6, §12.6, §19."""
    built = machine(
        state(
            skills_allow=("tides", "fees"),
            mounts_allow=(
                MountGrant("ledger", "read_write"),
                MountGrant("charts/south"),
                MountGrant("skills"),
            ),
        ),
        inherited=[WorkflowDenials("fleet", (), ("tides",), ("charts/south",))],
    )
    assert enabled_skills(built, "quay") == ("fees",)
    assert enabled_mounts(built, "quay") == (MountAccess("ledger", "read_write", True),)
    assert enabled_skills(built, "sea") == ()
    assert enabled_mounts(built, "sea") == ()


def test_governed_mounts_are_alphabetical() -> None:
    """02 §12.6."""
    built = machine(state(mounts_allow=(MountGrant("ledger"), MountGrant("charts/south", "read_write"))))
    assert [each.mount for each in enabled_mounts(built, "quay")] == ["charts/south", "ledger"]


# --- redaction ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("notices/a.md", True),
        ("/skills/tides/SKILL.md", True),
        ("skills/fees", False),
        ("skills/fees/SKILL.md", False),
        ("skills/torn/SKILL.md", False),
        ("skills/old/tides/SKILL.md", False),
        ("skills/loose.md", True),
        ("ledger/", False),
        ("ledger/a", False),
        ("charts/north/a", True),
        ("charts/south/a", False),
        ("charts", True),
        ("AGENTS.md", True),
        ("scratchpad/a", True),
        ("large_tool_results/a", True),
        ("vault/", False),
        ("a/../vault/k", False),
        ("vaults", True),
        ("locked/a", True),
        ("checkpoints/a", False),
        ("_specs", False),
        ("artifacts", False),
        ("workflows", False),
    ],
)
def test_a_listing_loses_what_the_state_may_not_see(path: str, shown: bool) -> None:
    """02 §11.6, §12.6, §10.5, OP-9, OP-13. A denial against writing takes nothing from sight."""
    built = machine(
        state(skills_allow=("tides",), tools_forbid=(ToolEntry("write_file", paths=("locked/**",)),)),
        tools_forbid_always=(ToolEntry("*", paths=("vault/**",)),),
    )
    assert visible(built, "quay", path, {}) is shown


def test_a_folder_that_leads_only_to_mounts_goes_with_them() -> None:
    """02 §12.6."""
    assert not visible(machine(mounts_forbid_always=("charts/north",)), "quay", "charts", {})


def test_inherited_and_state_denials_redact_too() -> None:
    """02 §19, OP-9."""
    built = machine(
        state(tools_forbid=(ToolEntry("read_file", paths=("${{box}}/**",)),), skills_allow=("tides",)),
        inherited=[
            WorkflowDenials("fleet", (ToolEntry("grep", paths=("old/**",)),), ("tides",), ("AGENTS.md",))
        ],
    )
    seen = visibility(built, "quay", {"box": "crates"})
    assert [path for path in ("crates/a", "old/a", "skills/tides", "AGENTS.md", "new/a") if seen(path)] == [
        "new/a"
    ]


def test_what_cannot_be_decided_is_not_shown() -> None:
    """02 §14.4: an unresolved reference in a denial matches."""
    built = machine(state(tools_forbid=(ToolEntry("*", paths=("${{gone}}",)),)))
    assert not visible(built, "quay", "a", {})
    assert not visible(built, "sea", "a", {"gone": "x"})
    assert not visible(built, "quay", "a", {"gone": "b/../c"})


# --- runtime authority -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "readable"),
    [
        ("notices/a.pdf", True),
        ("scratchpad/a.pdf", True),
        ("large_tool_results/a", True),
        ("skills/fees/form.pdf", True),
        ("ledger/a", True),
        ("charts/south/a", False),
        ("checkpoints/a", False),
        ("workflows/a/workflow.yaml", False),
        ("../a", False),
        ("", False),
        ("  ", False),
    ],
)
def test_the_runtime_reads_a_file_whatever_one_state_may(path: str, readable: bool) -> None:
    """02 §18.4: mount grants of all states count; allow lists and state denials do not."""
    built = machine(
        state(tools_forbid=entries("read_file"), skills_forbid=("fees",), mounts_forbid=("ledger",)),
        state("berth", mounts_allow=(MountGrant("ledger"),)),
        tools_allow_always=(),
    )
    assert file_readable(built, path, {}) is readable


def test_workflow_wide_denials_bind_the_runtime() -> None:
    """02 §18.4, OP-27, §19."""
    ways = [
        machine(tools_forbid_always=entries("read_file")),
        machine(tools_forbid_always=entries("*")),
        machine(tools_forbid_always=(ToolEntry("*", paths=("skills/**",)),)),
        machine(tools_forbid_always=(ToolEntry("read_file", args={"path": ("skills/**",)}),)),
        machine(tools_forbid_always=(ToolEntry("read_file", paths=("${{gone}}",)),)),
        machine(skills_forbid_always=("fees",)),
        machine(mounts_forbid_always=("skills",)),
    ]
    ways += [machine(inherited=each.denials_for_children) for each in ways]
    reasons = [file_refusal(each, "skills/fees/a.pdf", {}) for each in ways]
    assert all(reason is not None and "'harbour'" in reason for reason in reasons)
    assert file_readable(machine(tools_forbid_always=entries("grep")), "skills/fees/a.pdf", {})
