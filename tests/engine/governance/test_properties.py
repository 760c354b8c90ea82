"""What holds for every document and every call: denials stay, grants only widen, spelling changes nothing."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.paths import canonical
from engine.governance.kernel import Verdict
from engine.governance.machine import Machine, WorkflowDenials
from engine.governance.names import CONTROL_TOOLS, DEFAULT_TOOLS
from engine.governance.redaction import visible
from engine.governance.surface import offered_tools
from engine.spec.model import MountGrant, State, ToolEntry
from tests.support.governance import answering, machine, state, verdict

EXAMPLES = int(os.environ.get("ARCHMAX_PROPERTY_EXAMPLES", "60"))
HOST_TOOLS = ("post_notice", "stamp")
NAMES = st.sampled_from(
    [*DEFAULT_TOOLS, *CONTROL_TOOLS, *HOST_TOOLS, "task", "eval", "archmax_workflow_pilot"]
)
SEGMENTS = st.sampled_from(
    [
        "a",
        "b",
        "notices",
        "vault",
        "skills",
        "tides",
        "fees",
        "ledger",
        "scratchpad",
        "checkpoints",
        "charts",
        "north",
    ]
)
PATHS = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)
GLOBS = st.one_of(
    PATHS, PATHS.map(lambda path: path + "/**"), st.sampled_from(["**", "*", "a/*", "${{x}}/**", "{a,b}"])
)
GUARDS = st.lists(GLOBS, max_size=2).map(tuple)
ENTRIES = st.one_of(
    NAMES.map(ToolEntry),
    st.builds(ToolEntry, NAMES, paths=GUARDS),
    st.builds(ToolEntry, NAMES, args=st.fixed_dictionaries({"file_path": GUARDS})),
)
FORBIDS = st.lists(st.one_of(ENTRIES, st.builds(ToolEntry, st.just("*"), paths=GUARDS)), max_size=3).map(
    tuple
)
ALLOWS = st.lists(ENTRIES, max_size=4).map(tuple)
SLUGS = st.lists(st.sampled_from(["tides", "fees"]), max_size=2).map(tuple)
MOUNT_NAMES = st.lists(st.sampled_from(["ledger", "charts/north", "skills"]), max_size=2).map(tuple)
GRANTS = st.lists(
    st.builds(
        MountGrant, st.sampled_from(["ledger", "charts/south"]), st.sampled_from([None, "read", "read_write"])
    ),
    max_size=2,
).map(tuple)
STATES = st.builds(
    state,
    type=st.sampled_from(["agent", "human", "grader", "code"]),
    to=st.sampled_from([("berth",), ()]),
    tools_allow=ALLOWS,
    tools_forbid=FORBIDS,
    skills_allow=SLUGS,
    skills_forbid=SLUGS,
    mounts_allow=GRANTS,
    mounts_forbid=MOUNT_NAMES,
)
ROOTS = st.fixed_dictionaries(
    {
        "tools_allow_always": st.one_of(st.none(), ALLOWS),
        "tools_forbid_always": FORBIDS,
        "skills_allow_always": SLUGS,
        "skills_forbid_always": SLUGS,
        "mounts_forbid_always": MOUNT_NAMES,
    }
)
ARGS = st.dictionaries(
    st.sampled_from(["file_path", "path", "source", "destination", "sheets", "seal", "pattern"]),
    PATHS,
    max_size=3,
)
ORIGINS = st.sampled_from(["agent", "script", "grader", "code"])
NOTHING: dict[str, Any] = {}
VARIABLES = st.sampled_from([NOTHING, {"x": "a"}, {"x": "notices/b"}, {"x": ["a"]}])
ESSENTIAL = st.lists(st.sampled_from(HOST_TOOLS), max_size=1)
GENEROUS = Verdict("allow", "host.ok")

property_test = settings(max_examples=EXAMPLES, deadline=None)


def ask(built: Machine, tool: str, args: Any, origin: str, variables: Any, **more: Any) -> Verdict:
    return verdict(built, tool, args, origin=origin, variables=variables, **more)


def everything(at: State) -> State:
    """`at` with every tool, skill and mount granted in its own lists."""
    return state(
        type=at.type,
        tools_allow=tuple(ToolEntry(tool) for tool in (*DEFAULT_TOOLS, *CONTROL_TOOLS, *HOST_TOOLS)),
        tools_forbid=at.tools_forbid,
        skills_allow=("tides", "fees"),
        skills_forbid=at.skills_forbid,
        mounts_allow=(MountGrant("ledger", "read_write"), MountGrant("charts/south", "read_write")),
        mounts_forbid=at.mounts_forbid,
    )


@given(STATES, ROOTS, NAMES, ARGS, ORIGINS, VARIABLES)
@property_test
def test_no_grant_and_no_host_rule_undoes_a_denial(
    at: State, root: dict[str, Any], tool: str, args: dict[str, Any], origin: str, variables: Any
) -> None:
    """02, the whole model in one line; §3 consequence 1."""
    refused = ask(machine(at, **root), tool, args, origin, variables)
    if refused.rule_id not in ("tool.forbidden", "tool.forbidden-here", "skill.forbidden", "mount.forbidden"):
        return
    generous = machine(everything(at), essential=HOST_TOOLS, **root | {"tools_allow_always": None})
    again = ask(generous, tool, args, origin, variables, rules=[answering(GENEROUS)])
    assert again.decision == "block"


@given(STATES, ROOTS, FORBIDS, SLUGS, MOUNT_NAMES, NAMES, ARGS, ORIGINS, VARIABLES)
@property_test
def test_a_child_never_may_what_an_ancestor_forbids(
    at: State,
    root: dict[str, Any],
    tools: tuple[ToolEntry, ...],
    skills: tuple[str, ...],
    mounts: tuple[str, ...],
    tool: str,
    args: dict[str, Any],
    origin: str,
    variables: Any,
) -> None:
    """02 §19.3: what the denials alone block in a generous workflow, the child blocks too."""
    parent = machine(
        everything(at), tools_forbid_always=tools, skills_forbid_always=skills, mounts_forbid_always=mounts
    )
    if ask(parent, tool, args, origin, variables).decision == "allow":
        return
    child = machine(
        everything(at),
        inherited=[WorkflowDenials("fleet", tools, skills, mounts)],
        essential=HOST_TOOLS,
        **root,
    )
    if ask(machine(everything(at)), tool, args, origin, variables).decision == "allow":
        assert ask(child, tool, args, origin, variables).decision == "block"


@given(STATES, ROOTS, ESSENTIAL, NAMES, ARGS, ORIGINS, VARIABLES)
@property_test
def test_what_is_not_offered_is_not_allowed(
    at: State,
    root: dict[str, Any],
    essential: list[str],
    tool: str,
    args: dict[str, Any],
    origin: str,
    variables: Any,
) -> None:
    """02 §7.3: `archmax_advance` in an ending state is the one control allowed and not offered (§4.2)."""
    built = machine(at, essential=essential, **root)
    allowed = ask(built, tool, args, origin, variables).decision == "allow"
    if allowed and not (tool == "archmax_advance" and at.terminal):
        assert offered_tools(built, "quay", [tool]) == (tool,)


@given(STATES, ROOTS, ENTRIES, NAMES, ARGS, ORIGINS, VARIABLES)
@property_test
def test_a_further_denial_never_allows_more(
    at: State,
    root: dict[str, Any],
    entry: ToolEntry,
    tool: str,
    args: dict[str, Any],
    origin: str,
    variables: Any,
) -> None:
    """02 §8."""
    more = root | {"tools_forbid_always": (*root["tools_forbid_always"], entry)}
    if ask(machine(at, **root), tool, args, origin, variables).decision == "block":
        assert ask(machine(at, **more), tool, args, origin, variables).decision == "block"


@given(STATES, ROOTS, ALLOWS, NAMES, ARGS, ORIGINS, VARIABLES)
@property_test
def test_a_shorter_workflow_grant_never_allows_more(
    at: State,
    root: dict[str, Any],
    grants: tuple[ToolEntry, ...],
    tool: str,
    args: dict[str, Any],
    origin: str,
    variables: Any,
) -> None:
    """02 §7.1: a state's own list narrows as well as it grants, so the claim is about the additive tier."""
    fuller, shorter = root | {"tools_allow_always": grants}, root | {"tools_allow_always": grants[:-1]}
    if ask(machine(at, **fuller), tool, args, origin, variables).decision == "block":
        assert ask(machine(at, **shorter), tool, args, origin, variables).decision == "block"


@given(STATES, ROOTS, st.integers(0, 3), NAMES, ARGS, ORIGINS, VARIABLES)
@property_test
def test_an_own_entry_taken_away_from_others_of_its_tool_never_allows_more(
    at: State, root: dict[str, Any], index: int, tool: str, args: dict[str, Any], origin: str, variables: Any
) -> None:
    """02 §5.3: alternatives of one tool."""
    entries = at.tools_allow
    if index >= len(entries) or sum(each.tool == entries[index].tool for each in entries) < 2:
        return
    fewer = state(
        type=at.type,
        tools_allow=entries[:index] + entries[index + 1 :],
        tools_forbid=at.tools_forbid,
        skills_allow=at.skills_allow,
        skills_forbid=at.skills_forbid,
        mounts_allow=at.mounts_allow,
        mounts_forbid=at.mounts_forbid,
    )
    if ask(machine(at, **root), tool, args, origin, variables).decision == "block":
        assert ask(machine(fewer, **root), tool, args, origin, variables).decision == "block"


def respelled(path: str, draw: int) -> str:
    """Another spelling of the same path."""
    return ("/{}", "./{}", "//{}", "x/../{}", "{}/", "{}/./", "{}/y/..")[draw % 7].format(path)


@given(STATES, ROOTS, NAMES, ARGS, ORIGINS, VARIABLES, st.integers(0, 6))
@property_test
def test_no_spelling_of_a_path_changes_a_verdict(
    at: State,
    root: dict[str, Any],
    tool: str,
    args: dict[str, Any],
    origin: str,
    variables: Any,
    draw: int,
) -> None:
    """02 §10.1, §5.1.5, §9.2. File patterns are no paths and stay."""
    built = machine(at, **root)
    other = {name: text if name == "pattern" else respelled(text, draw) for name, text in args.items()}
    before, after = ask(built, tool, args, origin, variables), ask(built, tool, other, origin, variables)
    assert (after.decision, after.rule_id, after.terminal) == (
        before.decision,
        before.rule_id,
        before.terminal,
    )


@given(
    STATES,
    ROOTS,
    PATHS,
    ORIGINS,
    VARIABLES,
    st.sampled_from(["read_file", "write_file", "edit_file", "ls", "grep"]),
)
@property_test
def test_either_name_of_a_path_argument_draws_the_same_verdict(
    at: State, root: dict[str, Any], path: str, origin: str, variables: Any, tool: str
) -> None:
    """02 §9.2."""
    built = machine(at, **root)
    assert ask(built, tool, {"file_path": path}, origin, variables) == ask(
        built, tool, {"path": path}, origin, variables
    )


@given(st.text(alphabet="./ab\\\0é", max_size=20))
@property_test
def test_canonical_form_is_a_fixed_point(path: str) -> None:
    """02 §10.1."""
    once = canonical(path)
    assert canonical(once.text) == once


JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.just(object()),
        st.binary(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=9), st.integers()), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(STATES, ROOTS, JUNK, JUNK, JUNK, JUNK)
@property_test
def test_verdicts_are_total(
    at: State, root: dict[str, Any], tool: Any, args: Any, value: Any, origin: Any
) -> None:
    """02 §1.1: no input raises, and what has no shape is not allowed."""
    built = machine(at, **root)
    odd = verdict(built, tool, args, origin=origin, variables={"x": value}, at=value)
    assert odd.decision == "block"
    named = {"file_path": value, "path": args, "source": value, "pattern": value}
    for name in ("read_file", "copy_file", "glob", "post_notice", "archmax_workflow_pilot"):
        assert verdict(built, name, named, variables={"x": value}).decision in ("allow", "block")


@given(STATES, ROOTS, PATHS, VARIABLES)
@property_test
def test_what_is_shown_in_a_listing_is_not_out_of_bounds(
    at: State, root: dict[str, Any], path: str, variables: Any
) -> None:
    """02 §11.6, §12.6: no line shown lies where a skill, mount or zone rule would refuse reading."""
    built = machine(at, **root)
    if visible(built, "quay", path, variables):
        found = ask(built, "read_file", {"file_path": path}, "agent", variables)
        assert not found.rule_id.startswith(("skill.", "mount.", "zone."))
