"""What validates as permitted is not blocked at run time: the probes against the kernel itself (02 §22)."""

from __future__ import annotations

import json
import os

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.governance.kernel import ToolCall, decide
from engine.governance.machine import SkillBundle, compile_machine
from engine.spec.loader import load_workflow
from engine.spec.skills import discover_skills
from engine.spec.tree import MemoryTree
from tests.support.spec import BUNDLES, MOUNTS, SPEC, validate

PATHS = st.sampled_from(
    ["vault/k", "notices/a.md", "skills/fees/SKILL.md", "skills/tides/x.js", "skills/x", "ledger/a", "archive/a", "AGENTS.md",
     "scratchpad/a", "checkpoints/c", "large_tool_results/r", "workflows/shop/workflow.yaml", "./vault//k"]
)  # fmt: skip
DENIED = st.sampled_from(["vault/**", "**/*.md", "**", "ledger/a", "skills/fees", "scratchpad/**", "k"])
TOOLS = st.sampled_from(
    ["read_file", "write_file", "ls", "grep", "copy_file", "move_file", "remove_file", "archmax_run"]
)
NAMES = st.lists(st.sampled_from(["fees", "tides"]), max_size=2, unique=True)
GOVERNED = st.lists(st.sampled_from(["ledger", {"mount": "ledger", "access": "read_write"}]), max_size=1)
DENIALS = st.lists(
    st.one_of(
        TOOLS,
        st.fixed_dictionaries(
            {"tool": st.one_of(TOOLS, st.just("*")), "paths": st.lists(DENIED, min_size=1, max_size=1)}
        ),
    ),
    max_size=2,
)
#: rules 16 to 19: what a list grants is not what the probes ask
GRANTING = {"tool.not-allowed", "tool.unresolved-variable"}


@settings(max_examples=int(os.environ.get("ARCHMAX_PROPERTY_EXAMPLES", "60")), deadline=None)
@given(
    tool=TOOLS,
    path=PATHS,
    kind=st.sampled_from(["agent", "code"]),
    forbid=DENIALS,
    forbid_always=DENIALS,
    skills=st.tuples(NAMES, NAMES, NAMES, NAMES),
    mounts=st.tuples(GOVERNED, GOVERNED, st.lists(st.just("ledger"), max_size=1)),
)
def test_a_concrete_path_is_blocked_exactly_where_validate_says_so(
    tool: str,
    path: str,
    kind: str,
    forbid: list[object],
    forbid_always: list[object],
    skills: tuple[list[str], list[str], list[str], list[str]],
    mounts: tuple[list[object], list[object], list[str]],
):
    """02 §22."""
    document = {
        "tools": {"forbid_always": forbid_always},
        "skills": {"allow_always": skills[0], "forbid_always": skills[1]},
        "mounts": {"allow_always": mounts[0], "forbid_always": mounts[2]},
        "states": {
            "a": {
                "triggers": {"manual": None},
                "tools": {"allow": [{"tool": tool, "paths": [path]}], "forbid": forbid},
                "skills": {"allow": skills[2], "forbid": skills[3]},
                "mounts": {"allow": mounts[1]},
                **({"type": "code", "script": "scripts/a.js"} if kind == "code" else {}),
            }
        },
    }
    files = {SPEC: json.dumps(document), **BUNDLES}
    tree = MemoryTree(files)
    spec = load_workflow(tree, "shop").spec
    assert spec is not None
    registry = discover_skills(tree)
    machine = compile_machine(
        spec, mounts=MOUNTS, skills=[SkillBundle(skill.slug, skill.prefix) for skill in registry.skills]
    )
    names = [argument.name for argument in machine.tool_paths[tool]]
    origin = "code" if kind == "code" else "agent"
    verdict = decide(machine, ToolCall("a", tool, dict.fromkeys(names, path), origin), variables={})
    blocked = not verdict.allowed and verdict.rule_id not in GRANTING
    found = [
        item.id
        for item in validate(files).diagnostics
        if item.field == "states.a.tools.allow"
        and item.id.partition(".")[2] not in ("scratchpad-guard", "allow-and-forbid")
    ]
    assert bool(found) == (
        blocked or path.startswith("workflows/") or (kind, tool) == ("code", "archmax_run")
    ), (
        verdict,
        found,
    )
