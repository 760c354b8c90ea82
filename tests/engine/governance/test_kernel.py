"""The rules, one by one, and what stands before what."""

from __future__ import annotations

from typing import Any

import pytest

from engine.governance.kernel import Move, ToolCall, Verdict, decide_move
from engine.governance.machine import WorkflowDenials
from engine.governance.names import CONTROL_TOOLS, DEFAULT_TOOLS
from engine.spec.model import MountGrant, StateType, ToolEntry
from tests.support.governance import answering, entries, machine, rule, state, verdict

READ = {"file_path": "notices/a.md"}


def test_every_rule_id_has_a_call_that_draws_it() -> None:
    """02 §21.1."""
    built = machine(
        state(
            skills_allow=("tides",),
            skills_forbid=("fees",),
            mounts_allow=(MountGrant("ledger", "read"),),
            mounts_forbid=("charts/north",),
            tools_forbid=entries("grep"),
            tools_allow=entries("edit_file", ToolEntry("write_file", paths=("${{nowhere}}/**",))),
            requires=("berth",),
        ),
        tools_forbid_always=entries("glob"),
    )
    drawn = {
        rule(built, "read_file", {"file_path": 1}),
        rule(built, "read_file", {"file_path": "workflows"}, origin="code"),
        rule(built, "archmax_run", {"file_path": "notices/x.js"}),
        rule(built, "ls", reply_only=True),
        rule(built, "eval"),
        rule(built, "task"),
        rule(built, "read_file", {"file_path": "../x"}),
        rule(built, "write_file", {"file_path": "AGENTS.md"}),
        rule(built, "read_file", {"file_path": "_specs/x"}),
        rule(built, "write_file", {"file_path": "conversation_history/x"}),
        rule(built, "read_file", {"file_path": "skills/torn/SKILL.md"}),
        rule(built, "read_file", {"file_path": "skills/fees/SKILL.md"}),
        rule(built, "read_file", {"file_path": "charts/south/x"}),
        rule(built, "read_file", {"file_path": "charts/north/x"}),
        rule(built, "edit_file", {"file_path": "ledger/x"}),
        rule(built, "glob"),
        rule(built, "grep"),
        rule(built, "read_file", {"file_path": "scratchpad/x"}),
        rule(built, "read_file", {"file_path": "large_tool_results/x"}),
        rule(built, "ls"),
        rule(built, "write_file", READ),
        rule(built, "post_notice"),
        decide_move(built, Move("quay", "berth"), variables={}).rule_id,
        decide_move(built, Move("quay", "sea"), variables={"berth": 1}).rule_id,
        decide_move(built, Move("quay", "berth"), variables={"berth": 1}).rule_id,
    }
    assert drawn == {
        "tool.path-argument",
        "zone.governance-plane",
        "script.skill-only",
        "tool.reply-only",
        "tool.eval",
        "tool.ungrantable",
        "zone.escapes",
        "zone.read-only",
        "zone.runtime-internal",
        "zone.runtime-managed",
        "skill.not-allowed",
        "skill.forbidden",
        "mount.not-allowed",
        "mount.forbidden",
        "mount.read-only",
        "tool.forbidden",
        "tool.forbidden-here",
        "tool.scratchpad",
        "tool.offload-read",
        "tool.allowed",
        "tool.unresolved-variable",
        "tool.not-allowed",
        "transition.requires",
        "transition.no-edge",
        "allow",
    }


# --- safety ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, {"a": 1}, [1], ["a", None], True, 1.5])
def test_a_path_argument_is_text_or_a_list_of_texts(value: Any) -> None:
    """02 §9.3."""
    assert rule(machine(), "ls", {"path": value}) == "tool.path-argument"
    assert rule(machine(), "read_file", {"path": value, "file_path": "a"}) == "tool.path-argument"


@pytest.mark.parametrize("value", [None, [], "", "   "])
def test_no_path_is_no_fault(value: Any) -> None:
    """02 §9.3, OP-21."""
    assert rule(machine(), "ls", {"path": value}) == "tool.allowed"


@pytest.mark.parametrize("args", [3, "text", [1], object()])
def test_arguments_that_are_no_object_are_refused(args: Any) -> None:
    """02 §3: verdicts are total."""
    assert rule(machine(), "write_todos", args) == "tool.path-argument"


@pytest.mark.parametrize("origin", ["script", "code"])
@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("read_file", {"path": "/workflows/"}),
        ("glob", {"pattern": "workflows/**"}),
        ("post_notice", {"file_path": "./workflows/x"}),
        ("post_notice", {"path": "a/../workflows"}),
        ("stamp", {"sheets": ["ok", "workflows/x"]}),
    ],
)
def test_code_is_told_that_the_workflows_are_out_of_reach(
    origin: str, tool: str, args: dict[str, Any]
) -> None:
    """02 §13.2."""
    assert rule(machine(), tool, args, origin=origin) == "zone.governance-plane"


@pytest.mark.parametrize("origin", ["agent", "grader"])
def test_models_get_no_message_about_the_workflows(origin: str) -> None:
    """02 §13.2."""
    assert rule(machine(), "read_file", {"file_path": "workflows/x"}, origin=origin) == "tool.allowed"
    assert rule(machine(), "read_file", {"file_path": "workflows_old/x"}, origin="script") == "tool.allowed"


def test_safety_rules_precede_each_other_in_the_tables_order() -> None:
    """02 §3."""
    built = machine(state(skills_forbid=("fees",), mounts_forbid=("skills",)))
    assert rule(built, "read_file", {"file_path": 3}, reply_only=True) == "tool.path-argument"
    assert rule(built, "archmax_run", {"file_path": "a"}, reply_only=True) == "script.skill-only"
    assert rule(built, "eval", reply_only=True) == "tool.reply-only"
    assert rule(built, "write_file", {"file_path": "skills/fees/x"}) == "zone.read-only"
    assert rule(built, "read_file", {"file_path": "skills/fees/x"}) == "skill.forbidden"
    assert rule(built, "read_file", {"file_path": "skills/x"}) == "mount.forbidden"


def test_one_bad_path_blocks_the_call_and_is_named_with_its_argument() -> None:
    """02 §3, consequences 6 and 7."""
    args = {"source": "notices/a", "destination": "checkpoints/x"}
    found = verdict(machine(), "copy_file", args)
    assert found.rule_id == "zone.runtime-internal"
    assert "'copy_file' on 'checkpoints/x' (destination)" in found.reason
    listed = verdict(
        machine(), "stamp", {"sheets": ["a", "artifacts/1", "artifacts/2"], "seal": "checkpoints/z"}
    )
    assert "'stamp' on 'artifacts/1' (sheets)" in listed.reason


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"file_path": "a", "path": "checkpoints/x"}, "zone.runtime-internal"),
        ({"path": "checkpoints/x"}, "zone.runtime-internal"),
        ({"file_path": None, "path": "checkpoints/x"}, "zone.runtime-internal"),
        ({"file_path": "checkpoints/x", "path": "a"}, "zone.runtime-internal"),
    ],
)
def test_both_spellings_of_a_path_argument_are_governed(args: dict[str, Any], expected: str) -> None:
    """02 §9.2, OP-20."""
    assert rule(machine(), "read_file", args) == expected


def test_file_operations_have_no_other_spelling() -> None:
    """02 §9.2."""
    assert rule(machine(), "remove_file", {"path": "checkpoints/x"}) == "tool.allowed"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"pattern": "checkpoints/*"}, "zone.runtime-internal"),
        ({"pattern": "fees/*", "path": "skills"}, "skill.not-allowed"),
        ({"pattern": "../checkpoints/*", "path": "notices"}, "zone.runtime-internal"),
        ({"pattern": "/checkpoints/x", "path": "notices"}, "zone.runtime-internal"),
        ({"pattern": "*", "path": "notices"}, "tool.allowed"),
        ({"pattern": 3}, "tool.allowed"),
    ],
)
def test_the_folder_a_file_pattern_is_bound_to_is_a_search_path(args: dict[str, Any], expected: str) -> None:
    """02 OP-9."""
    assert rule(machine(), "glob", args) == expected


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"pattern": "notices/**/*.md"}, "tool.allowed"),
        ({"pattern": "*.md", "path": "notices"}, "tool.allowed"),
        ({"pattern": "../b/*.md", "path": "notices"}, "tool.not-allowed"),
        ({"pattern": "notices/*/../../b/*"}, "tool.not-allowed"),
        ({"pattern": "*.md"}, "tool.not-allowed"),
        ({"pattern": "b/*", "path": ""}, "tool.not-allowed"),
    ],
)
def test_a_guarded_search_is_bound_by_where_its_pattern_starts(args: dict[str, Any], expected: str) -> None:
    """02 §5.2, OP-9."""
    built = machine(state(tools_allow=(ToolEntry("glob", paths=("notices/**",)),)))
    assert rule(built, "glob", args) == expected


def test_only_scripts_of_enabled_bundles_run() -> None:
    """02 §11.7."""
    built = machine(state(skills_allow=("tides",)))
    assert rule(built, "archmax_run", {"file_path": "skills/tides/scripts/a.js"}) == "tool.allowed"
    assert rule(built, "archmax_run", {"file_path": "skills/fees/scripts/a.js"}) == "skill.not-allowed"
    assert rule(built, "archmax_run", {"file_path": "skills/torn/a.js"}) == "script.skill-only"
    assert rule(built, "archmax_run", {"file_path": "scratchpad/a.js"}) == "script.skill-only"
    assert rule(built, "archmax_eval", {"code": "1"}) == "tool.allowed"


def test_a_skill_refusal_names_slug_state_and_what_is_enabled() -> None:
    """02 §11.3."""
    built = machine(state(skills_allow=("tides",), skills_forbid=("fees",)))
    reason = verdict(built, "read_file", {"file_path": "skills/fees/a"}).reason
    assert "'fees'" in reason
    assert "'quay'" in reason
    assert "states.quay.skills.forbid" in reason
    assert "enabled here: tides" in reason


@pytest.mark.parametrize(
    ("here", "always", "forbid", "forbid_always", "expected"),
    [
        ((), (), (), (), ()),
        ((), ("tides",), (), (), ("tides",)),
        (("fees",), ("tides",), (), (), ("fees", "tides")),
        (("fees",), ("fees", "tides"), ("tides",), (), ("fees",)),
        (("fees",), ("tides",), (), ("fees",), ("tides",)),
        (("unknown", "tides"), (), (), (), ("tides",)),
    ],
)
def test_enabled_skills_are_the_union_minus_the_denials(
    here: tuple[str, ...],
    always: tuple[str, ...],
    forbid: tuple[str, ...],
    forbid_always: tuple[str, ...],
    expected: tuple[str, ...],
) -> None:
    """02 §11.1."""
    built = machine(
        state(skills_allow=here, skills_forbid=forbid),
        skills_allow_always=always,
        skills_forbid_always=forbid_always,
    )
    assert built.states["quay"].skills == expected


@pytest.mark.parametrize(
    ("root", "here", "write"),
    [
        (MountGrant("ledger", "read_write"), None, "tool.allowed"),
        (MountGrant("ledger", "read_write"), MountGrant("ledger", "read"), "mount.read-only"),
        (MountGrant("ledger", "read"), MountGrant("ledger", "read_write"), "mount.read-only"),
        (MountGrant("ledger", "read_write"), MountGrant("ledger"), "tool.allowed"),
        (MountGrant("ledger"), MountGrant("ledger", "read_write"), "tool.allowed"),
        (MountGrant("ledger"), None, "mount.read-only"),
        (None, None, "mount.not-allowed"),
    ],
)
def test_the_access_of_a_governed_mount(root: MountGrant | None, here: MountGrant | None, write: str) -> None:
    """02 §12.3, OP-1."""
    built = machine(state(mounts_allow=(here,) if here else ()), mounts_allow_always=(root,) if root else ())
    found = verdict(built, "write_file", {"file_path": "ledger/a"})
    assert found.rule_id == write
    read = "mount.not-allowed" if write == "mount.not-allowed" else "tool.allowed"
    assert rule(built, "read_file", {"file_path": "ledger/a"}) == read
    if write == "mount.read-only":
        assert "access: read_write" in found.reason


def test_a_grant_does_not_lift_the_hosts_posture() -> None:
    """02 §12.3."""
    built = machine(state(mounts_allow=(MountGrant("charts/south", "read_write"),)))
    assert rule(built, "write_file", {"file_path": "charts/south/a"}) == "zone.read-only"
    assert rule(built, "read_file", {"file_path": "charts/south/a"}) == "tool.allowed"


def test_an_ungoverned_mount_is_everywhere_until_denied() -> None:
    """02 §12.2."""
    assert rule(machine(), "write_file", {"file_path": "charts/north/a"}) == "tool.allowed"
    assert rule(machine(), "read_file", {"file_path": "AGENTS.md"}) == "tool.allowed"
    assert rule(machine(), "write_file", {"file_path": "AGENTS.md.bak"}) == "tool.allowed"
    denied = machine(
        state(mounts_allow=(MountGrant("ledger"),)), mounts_forbid_always=("charts/north", "ledger")
    )
    assert rule(denied, "read_file", {"file_path": "charts/north/a"}) == "mount.forbidden"
    found = verdict(denied, "read_file", {"file_path": "ledger/a"})
    assert (found.rule_id, "mounts.forbid_always" in found.reason) == ("mount.forbidden", True)


def test_a_missing_mount_does_not_read_like_a_missing_file() -> None:
    """02 §12.4."""
    reason = verdict(machine(), "read_file", {"file_path": "ledger/a"}).reason
    assert "does not have mount 'ledger'" in reason
    assert "not found" not in reason


# --- denials -----------------------------------------------------------------------------------------------------


def test_a_denial_beats_every_grant_and_control() -> None:
    """02 §8, §3 consequences 1 and 5."""
    built = machine(
        state(tools_allow=entries("post_notice"), tools_forbid=entries("post_notice", "archmax_advance")),
        essential=("post_notice",),
        tools_forbid_always=entries("write_file", "archmax_raise"),
    )
    assert rule(built, "post_notice") == "tool.forbidden-here"
    assert rule(built, "archmax_advance") == "tool.forbidden-here"
    assert rule(built, "archmax_raise") == "tool.forbidden"
    assert rule(built, "write_file", {"file_path": "scratchpad/a"}) == "tool.forbidden"


def test_a_state_denial_binds_that_state_alone() -> None:
    """02 §8.4."""
    built = machine(state(tools_forbid=entries("ls")), state("berth"))
    assert rule(built, "ls") == "tool.forbidden-here"
    assert rule(built, "ls", at="berth") == "tool.allowed"


@pytest.mark.parametrize(
    ("entry", "args", "denied"),
    [
        (ToolEntry("*", paths=("vault/**",)), {"file_path": "vault"}, True),
        (ToolEntry("*", paths=("vault/**",)), {"path": "a/../vault/k"}, True),
        (ToolEntry("*", paths=("vault/**",)), {"file_path": "vaults"}, False),
        (ToolEntry("read_file", paths=("${{gone}}",)), {"file_path": "a"}, True),
        (ToolEntry("read_file", paths=("a/${{up}}/b",)), {"file_path": "c"}, True),
        (ToolEntry("read_file", paths=()), {"file_path": "a"}, False),
        (ToolEntry("read_file", args={"file_path": ("vault/**",)}), {"path": "vault/k"}, True),
        (
            ToolEntry("read_file", args={"file_path": ("vault/**",)}),
            {"file_path": "a", "path": "vault/k"},
            True,
        ),
        (ToolEntry("read_file", args={"limit": ("5",)}), {"file_path": "a", "limit": 5.0}, True),
        (ToolEntry("read_file", args={"limit": ("5",)}), {"file_path": "a"}, False),
        (
            ToolEntry("read_file", args={"limit": ("5",), "file_path": ("b",)}),
            {"file_path": "a", "limit": 5},
            False,
        ),
        (ToolEntry("read_file", args={"x": ("${{gone}}",)}), {"file_path": "a"}, True),
        (ToolEntry("read_file", args={"x": ("z",)}), {"file_path": "a", "x": {"k": 1}}, True),
        (ToolEntry("read_file", args={"x": ("z",)}), {"file_path": "a", "x": ["y", "z"]}, True),
        (ToolEntry("read_file", args={"x": ("z",)}), {"file_path": "a", "x": ["y"]}, False),
        (ToolEntry("read_file", args={"x.0.k": ("z",)}), {"file_path": "a", "x": [{"k": "z"}]}, True),
        (ToolEntry("read_file", args={"on": ("true",)}), {"file_path": "a", "on": True}, True),
        (
            ToolEntry("read_file", args={"u": ("https://x.test/*",)}),
            {"file_path": "a", "u": "https://x.test/a"},
            True,
        ),
    ],
)
def test_what_a_guarded_denial_matches(entry: ToolEntry, args: dict[str, Any], denied: bool) -> None:
    """02 §5, §8.2, OP-5, OP-6."""
    built = machine(tools_forbid_always=(entry,))
    found = verdict(built, "read_file", args, variables={"up": ".."})
    assert found.rule_id == ("tool.forbidden" if denied else "tool.allowed")
    assert not found.terminal


def test_a_denial_of_every_path_holds_the_root_and_leaves_tools_without_paths() -> None:
    """02 OP-4."""
    built = machine(tools_forbid_always=(ToolEntry("*", paths=("**",)),))
    assert rule(built, "ls", {"path": "/"}) == "tool.forbidden"
    assert rule(built, "ls") == "tool.forbidden"
    assert rule(built, "archmax_advance", {"to": "berth"}) == "tool.allowed"
    assert rule(built, "post_notice", {"file_path": "a"}) == "tool.forbidden"


def test_a_move_is_denied_by_either_end_and_granted_by_both() -> None:
    """02 §5.2."""
    drafts = ToolEntry("move_file", paths=("drafts/**",))
    granting, denying = machine(state(tools_allow=(drafts,))), machine(state(tools_forbid=(drafts,)))
    both = {"source": "drafts/a", "destination": "drafts/b"}
    one = {"source": "drafts/a", "destination": "b"}
    assert rule(granting, "move_file", both) == "tool.allowed"
    assert rule(granting, "move_file", one) == "tool.not-allowed"
    assert rule(granting, "move_file", {"source": "drafts/a"}) == "tool.not-allowed"
    assert rule(granting, "move_file", {"source": "drafts/a", "destination": []}) == "tool.not-allowed"
    assert rule(denying, "move_file", one) == "tool.forbidden-here"
    assert rule(denying, "move_file", {"source": "a", "destination": "b"}) == "tool.allowed"


def test_a_denial_is_named_with_key_guard_and_workflow() -> None:
    """02 §8.3, §19.2."""
    guarded = ToolEntry("read_file", paths=("notices/**",))
    own = verdict(machine(tools_forbid_always=(guarded,)), "read_file", READ).reason
    assert "tools.forbid_always" in own
    assert '"notices/**"' in own
    here = verdict(machine(state(tools_forbid=(guarded,))), "read_file", READ).reason
    assert "states.quay.tools.forbid" in here
    inherited = verdict(machine(inherited=[WorkflowDenials("fleet", (guarded,))]), "read_file", READ).reason
    assert "'fleet'" in inherited


def test_inherited_denials_bind_the_child_with_its_own_variables() -> None:
    """02 §19, OP-17."""
    ancestors = [
        WorkflowDenials("fleet", (ToolEntry("read_file", paths=("${{box}}/**",)),)),
        WorkflowDenials("port", (), ("tides",), ("charts/north",)),
    ]
    built = machine(state(skills_allow=("tides",)), inherited=ancestors)
    assert rule(built, "read_file", {"file_path": "b/x"}, variables={"box": "a"}) == "tool.allowed"
    assert rule(built, "read_file", {"file_path": "a/x"}, variables={"box": "a"}) == "tool.forbidden"
    assert rule(built, "read_file", {"file_path": "a/x"}) == "tool.forbidden"
    found = verdict(built, "ls", {"path": "skills/tides"})
    assert (found.rule_id, "'port'" in found.reason) == ("skill.forbidden", True)
    assert rule(built, "ls", {"path": "charts/north"}) == "mount.forbidden"


def test_denials_accumulate_down_the_chain() -> None:
    """02 §19."""
    root = machine(tools_forbid_always=entries("grep"), skills_forbid_always=("fees",))
    child = machine(tools_forbid_always=entries("glob"), inherited=root.denials_for_children)
    assert [each.tools for each in child.denials_for_children] == [entries("grep"), entries("glob")]
    grandchild = machine(inherited=child.denials_for_children)
    assert {rule(grandchild, tool) for tool in ("grep", "glob")} == {"tool.forbidden"}


# --- consumer rules ----------------------------------------------------------------------------------------------


def test_a_consumer_rule_stands_after_denials_and_before_grants() -> None:
    """02 §3 consequence 4, OP-18."""
    granting = Verdict("allow", "host.ok")
    refusing = Verdict("block", "host.no", "not on Sundays")
    built = machine(tools_forbid_always=entries("grep"))
    assert rule(built, "post_notice", rules=[answering(granting)]) == "host.ok"
    assert rule(built, "ls", rules=[answering(None), answering(refusing), answering(granting)]) == "host.no"
    assert rule(built, "grep", rules=[answering(granting)]) == "tool.forbidden"
    assert rule(built, "read_file", {"file_path": "checkpoints/x"}, rules=[answering(granting)]).startswith(
        "zone."
    )


def test_a_consumer_rule_sees_the_call_and_the_machine() -> None:
    """02 §20."""
    seen: list[Any] = []

    def watch(action: ToolCall, view: Any) -> None:
        seen.append((action.origin, view.machine.spec.slug, view.variables["x"]))

    verdict(machine(), "ls", origin="script", variables={"x": 1}, rules=[watch])
    assert seen == [("script", "harbour", 1)]


@pytest.mark.parametrize("answer", ["raise", True, {"decision": "allow"}])
def test_a_consumer_rule_that_fails_blocks(answer: Any) -> None:
    """02 §1: nothing is permitted by accident."""

    def failing(*_: Any) -> Any:
        if answer == "raise":
            raise RuntimeError
        return answer

    found = verdict(machine(), "ls", rules=[failing])
    assert (found.decision, found.rule_id) == ("block", "policy.failed")


# --- open areas --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "args", "expected"),
    [
        ("write_file", {"file_path": "scratchpad"}, "tool.scratchpad"),
        ("remove_file", {"file_path": "scratchpad/a"}, "tool.scratchpad"),
        ("ls", {"path": "conversation_history"}, "tool.offload-read"),
        ("copy_file", {"source": "large_tool_results/a", "destination": "scratchpad/a"}, "tool.scratchpad"),
        ("copy_file", {"source": "notices/a", "destination": "scratchpad/a"}, "tool.allowed"),
        ("grep", {"path": "scratchpad", "pattern": "x"}, "tool.allowed"),
        ("stamp", {"sheets": "scratchpad/a"}, "tool.not-allowed"),
    ],
)
def test_open_areas(tool: str, args: dict[str, Any], expected: str) -> None:
    """02 §10.4."""
    assert rule(machine(), tool, args) == expected


def test_the_scratchpad_opens_only_to_tools_granted_by_name() -> None:
    """02 §10.4, §7.1.4."""
    narrow = machine(
        tools_allow_always=(ToolEntry("write_file", paths=("notices/**",)),), essential=("stamp",)
    )
    assert rule(narrow, "write_file", {"file_path": "scratchpad/a"}) == "tool.scratchpad"
    assert rule(narrow, "edit_file", {"file_path": "scratchpad/a"}) == "tool.not-allowed"
    assert rule(narrow, "stamp", {"sheets": ["scratchpad/a"], "seal": "scratchpad/b"}) == "tool.scratchpad"


# --- controls and surface ----------------------------------------------------------------------------------------

TABLE_OF_CONTROLS = {
    "archmax_advance": "✓✓✓✓",
    "archmax_raise": "✓✓✓✓",
    "archmax_get_variables": "✓✓✓✓",
    "archmax_set_variables": "✓✓✓✓",
    "archmax_reset": "✓✓——",
    "archmax_wait": "✓✓——",
    "archmax_get_history": "——✓✓",
}


@pytest.mark.parametrize("tool", CONTROL_TOOLS)
@pytest.mark.parametrize(("column", "kind"), list(enumerate(("agent", "human", "grader", "code"))))
def test_control_tools_by_state_type(tool: str, column: int, kind: StateType) -> None:
    """02 §4.2: a dash is refused whatever a list says."""
    built = machine(
        state(type=kind, tools_allow=entries(tool)), tools_allow_always=entries(tool), essential=(tool,)
    )
    has = TABLE_OF_CONTROLS[tool][column] == "✓"
    assert rule(built, tool) == ("tool.allowed" if has else "tool.not-allowed")


@pytest.mark.parametrize(
    "tool", ["write_todos", "archmax_eval", "archmax_run", "archmax_wait", "archmax_reset"]
)
@pytest.mark.parametrize("kind", ["grader", "code"])
def test_some_tools_are_never_in_an_automated_state(tool: str, kind: StateType) -> None:
    """02 §4.3, OP-19."""
    built = machine(state(type=kind), tools_allow_always=entries(tool), essential=(tool,))
    assert rule(built, tool) == "tool.not-allowed"


def test_a_control_is_not_narrowed_by_an_entry() -> None:
    """02 §4.2."""
    built = machine(state(tools_allow=(ToolEntry("archmax_advance", args={"to": ("sea",)}),)))
    assert rule(built, "archmax_advance", {"to": "berth"}) == "tool.allowed"


@pytest.mark.parametrize("tool", DEFAULT_TOOLS)
def test_the_twelve_are_granted_only_without_a_list(tool: str) -> None:
    """02 §4.1, §7.1."""
    assert rule(machine(), tool) == "tool.allowed"
    assert rule(machine(tools_allow_always=()), tool) == "tool.not-allowed"


def test_the_own_tier_is_exclusive() -> None:
    """02 §7.1.1 and 5."""
    guarded = (ToolEntry("post_notice", args={"berth": ("east",)}),)
    lifting = machine(state(tools_allow=entries("post_notice")), tools_allow_always=guarded)
    assert rule(lifting, "post_notice", {"berth": "west"}) == "tool.allowed"
    narrowing = machine(state(tools_allow=guarded), tools_allow_always=entries("post_notice"))
    assert rule(narrowing, "post_notice", {"berth": "west"}) == "tool.not-allowed"
    assert rule(narrowing, "post_notice", {"berth": "east"}) == "tool.allowed"
    assert rule(narrowing, "post_notice") == "tool.not-allowed"


def test_workflow_and_essential_are_additive_and_own_narrows_both() -> None:
    """02 §7.1.2."""
    guarded = (ToolEntry("post_notice", args={"berth": ("${{gone}}",)}),)
    assert (
        rule(machine(tools_allow_always=guarded, essential=("post_notice",)), "post_notice") == "tool.allowed"
    )
    own = machine(state(tools_allow=guarded), essential=("post_notice",))
    assert rule(own, "post_notice") == "tool.unresolved-variable"


def test_alternatives_are_tried_and_an_unresolved_one_does_not_hide_a_match() -> None:
    """02 §5.3, §7.2, §14.4."""
    broken = ToolEntry("write_file", paths=("notices/**", "${{gone}}/**"))
    good = ToolEntry("write_file", paths=("notices/**",))
    assert rule(machine(state(tools_allow=(broken, good))), "write_file", READ) == "tool.allowed"
    found = verdict(machine(state(tools_allow=(broken,))), "write_file", READ)
    assert (found.rule_id, found.terminal) == ("tool.unresolved-variable", True)
    assert "${{gone}}" in found.reason


@pytest.mark.parametrize(
    ("globs", "args", "granted"),
    [
        ({"a": ("x",), "b": ("y", "z")}, {"a": "x", "b": "z"}, True),
        ({"a": ("x",), "b": ("y",)}, {"a": "x"}, False),
        ({"a": ()}, {"a": "x"}, False),
        ({}, {"a": "x"}, False),
        ({"a": ("**",)}, {"a": ""}, False),
        ({"a": ("**",)}, {"a": None}, False),
        ({"a": ("**",)}, {"a": {}}, False),
        ({"a": ("**",)}, {"a": []}, False),
        ({"a": ("x",)}, {"a": ["x", "x"]}, True),
        ({"a": ("x",)}, {"a": ["x", "y"]}, False),
        ({"a": ("**",)}, {"a": float("nan")}, False),
        ({"a.b.-1": ("2",)}, {"a": {"b": [1, 2]}}, True),
        ({"a.length": ("**",)}, {"a": [1]}, False),
        ({"a": ("x",)}, {"a": "./q/..//x"}, True),
    ],
)
def test_what_an_args_guard_grants(
    globs: dict[str, tuple[str, ...]], args: dict[str, Any], granted: bool
) -> None:
    """02 §5.1, OP-6, OP-22."""
    built = machine(state(tools_allow=(ToolEntry("post_notice", args=globs),)))
    assert rule(built, "post_notice", args) == ("tool.allowed" if granted else "tool.not-allowed")


def test_a_delegations_list_argument_is_matched_as_json_text() -> None:
    """04 OP-9."""
    tool = "archmax_workflow_pilot"
    built = machine(state(tools_allow=(ToolEntry(tool, args={"berths": (r"\[1,2\]",)}),)))
    assert rule(built, tool, {"berths": [1, 2]}) == "tool.allowed"
    assert rule(built, tool, {"berths": [1]}) == "tool.not-allowed"


def test_an_empty_list_beside_a_path_grants_nothing() -> None:
    """02 §5.2.1, OP-20."""
    built = machine(state(tools_allow=(ToolEntry("read_file", paths=("notices/**",)),)))
    assert rule(built, "read_file", {"file_path": [], "path": "notices/a"}) == "tool.not-allowed"
    assert rule(built, "read_file", {"file_path": ["notices/a", "notices/b"]}) == "tool.allowed"
    assert rule(built, "read_file", {"file_path": ["notices/a", "b"]}) == "tool.not-allowed"


def test_a_host_tool_without_declared_paths_is_tested_on_file_path() -> None:
    """02 §5.2.1."""
    built = machine(state(tools_allow=(ToolEntry("post_notice", paths=("notices/**",)),)))
    assert rule(built, "post_notice", {"file_path": "notices/a"}) == "tool.allowed"
    assert rule(built, "post_notice", {"path": "notices/a"}) == "tool.not-allowed"


def test_a_refusal_names_tool_state_surface_and_the_way_on() -> None:
    """02 §7.2."""
    going = verdict(machine(tools_allow_always=entries("ls")), "post_notice").reason
    assert "'post_notice' is not allowed in state 'quay'" in going
    assert "ls" in going
    assert going.endswith("advance when done.")
    ending = verdict(machine(state(to=())), "post_notice").reason
    assert "finish, the state ends by itself" in ending


def test_only_two_blocks_are_no_warning() -> None:
    """02 §1.3."""
    assert not verdict(machine(), "eval").warn
    assert not verdict(machine(), "task").warn
    assert verdict(machine(), "post_notice").warn
    assert not verdict(machine(), "ls").warn


def test_a_state_that_is_not_declared_permits_nothing() -> None:
    """02 §1: fail closed."""
    assert rule(machine(), "ls", at="sea") == "tool.not-allowed"


# --- moves -------------------------------------------------------------------------------------------------------


def test_requires_is_checked_before_the_edge_and_names_what_is_unset() -> None:
    """02 §17.1, OP-15; 01 §9."""
    built = machine(state(requires=("berth", "title")))
    found = decide_move(built, Move("quay", "sea"), variables={"berth": None})
    assert found.rule_id == "transition.requires"
    assert "variables are set: title;" in found.reason


def test_an_undeclared_edge_lists_the_valid_targets() -> None:
    """02 §17.1."""
    found = decide_move(machine(state(to=("berth", "sea"))), Move("quay", "dock"), variables={})
    assert "berth, sea" in found.reason
    ended = decide_move(machine(state(to=())), Move("quay", "dock"), variables={})
    assert (ended.rule_id, "terminal" in ended.reason) == ("transition.no-edge", True)


def test_a_human_state_is_left_without_its_requires() -> None:
    """01 §9."""
    built = machine(state(type="human", requires=("berth",)))
    assert decide_move(built, Move("quay", "berth"), variables={}).allowed
