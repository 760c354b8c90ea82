"""The decision table of the contract, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from engine.governance.kernel import ToolCall, decide
from engine.governance.machine import Machine, SkillBundle, compile_machine
from engine.governance.names import DEFAULT_TOOLS
from engine.governance.surface import offered_tools
from engine.governance.zones import MountPrefixes
from engine.spec.model import MountGrant, Spec, State, ToolEntry, Transition

QUAY = State(
    slug="quay",
    mounts_allow=(MountGrant("ledger", "read_write"),),
    tools_allow=(ToolEntry("write_file", paths=("notices/${{berth}}/**",)),),
    tools_forbid=(ToolEntry("grep"),),
    transitions=(Transition("gauge"),),
)
GAUGE = State(slug="gauge", type="code", script="scripts/gauge.js", transitions=(Transition("quay"),))
SPEC = Spec(
    slug="harbour",
    states={"quay": QUAY, "gauge": GAUGE},
    skills_allow_always=("tides",),
    skills_declared=True,
    tools_forbid_always=(ToolEntry("*", paths=("vault/**",)),),
    mounts_declared=True,
)
MACHINE: Machine = compile_machine(
    SPEC,
    mounts=MountPrefixes(
        dirs=("skills", "ledger"),
        files=("AGENTS.md",),
        writable=frozenset({"ledger"}),
        governed=frozenset({"ledger"}),
    ),
    skills=(SkillBundle("tides", "skills/tides"), SkillBundle("fees", "skills/fees")),
)
BERTH = {"berth": "7*"}

ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("read_file", {"file_path": "skills/tides/SKILL.md"}, "tool.allowed"),
    ("read_file", {"file_path": "skills/fees/SKILL.md"}, "skill.not-allowed"),
    ("write_file", {"file_path": "skills/fees/x"}, "zone.read-only"),
    ("write_file", {"file_path": "notices/7*/a.md"}, "tool.allowed"),
    ("write_file", {"file_path": "notices/70/a.md"}, "tool.not-allowed"),
    ("write_file", {"file_path": "scratchpad/a.md"}, "tool.scratchpad"),
    ("write_file", {"file_path": "scratchpad/../checkpoints/c"}, "zone.runtime-internal"),
    ("write_file", {"path": "AGENTS.md"}, "zone.read-only"),
    ("copy_file", {"source": "vault/k", "destination": "scratchpad/k"}, "tool.forbidden"),
    ("copy_file", {"source": "skills/tides/t.md", "destination": "scratchpad/t.md"}, "tool.allowed"),
    ("move_file", {"source": "skills/tides/t.md", "destination": "scratchpad/t.md"}, "zone.read-only"),
    ("copy_file", {"source": "scratchpad/a", "destination": "ledger/a"}, "tool.allowed"),
    ("remove_file", {"file_path": "large_tool_results/r"}, "zone.runtime-managed"),
    ("read_file", {"file_path": "large_tool_results/r"}, "tool.offload-read"),
    ("grep", {"pattern": "x", "path": "notices"}, "tool.forbidden-here"),
    ("archmax_run", {"file_path": "scratchpad/x.js"}, "script.skill-only"),
    ("archmax_run", {"file_path": "skills/fees/scripts/x.js"}, "skill.not-allowed"),
    ("task", {}, "tool.ungrantable"),
    ("post_notice", {}, "tool.not-allowed"),
    ("read_file", {"file_path": 3}, "tool.path-argument"),
    ("read_file", {"file_path": "workflows/a/workflow.yaml"}, "tool.allowed"),
]
_ALLOWING = {"tool.allowed", "tool.scratchpad", "tool.offload-read"}


@pytest.mark.parametrize(("tool", "args", "rule"), ROWS)
def test_each_row_of_the_decision_table_holds(tool: str, args: dict[str, Any], rule: str) -> None:
    """02 §23."""
    verdict = decide(MACHINE, ToolCall("quay", tool, args), variables=BERTH)
    assert (verdict.rule_id, verdict.decision) == (rule, "allow" if rule in _ALLOWING else "block")
    assert not verdict.terminal


def test_an_unset_berth_blocks_terminally() -> None:
    """02 §23."""
    verdict = decide(MACHINE, ToolCall("quay", "write_file", {"file_path": "notices/x/a.md"}), variables={})
    assert (verdict.rule_id, verdict.terminal) == ("tool.unresolved-variable", True)
    assert "${{berth}}" in verdict.reason
    assert "unset" in verdict.reason


def test_code_that_names_the_workflows_is_told_so() -> None:
    """02 §23, §13."""
    call = ToolCall("quay", "read_file", {"file_path": "workflows/a/workflow.yaml"}, origin="script")
    assert decide(MACHINE, call, variables=BERTH).rule_id == "zone.governance-plane"


@pytest.mark.parametrize("tool", ["read_file", "write_file", "remove_file"])
def test_a_code_state_without_mounts_does_not_reach_the_ledger(tool: str) -> None:
    """02 §23."""
    call = ToolCall("gauge", tool, {"file_path": "ledger/a"}, origin="code")
    assert decide(MACHINE, call, variables=BERTH).rule_id == "mount.not-allowed"


def test_a_tool_the_state_forbids_is_not_offered() -> None:
    """02 §23."""
    offered = offered_tools(MACHINE, "quay", DEFAULT_TOOLS)
    assert offered == tuple(tool for tool in DEFAULT_TOOLS if tool != "grep")
