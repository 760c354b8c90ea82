"""Names of tools, declarations of paths, and zones."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import ReservedToolNameError, ToolPathsError
from engine.governance.names import (
    DEFAULT_TOOLS,
    NotATool,
    delegation_target,
    refuse_reserved_names,
    resolve_name,
)
from engine.governance.tool_paths import (
    BUILTIN_PATHS,
    PathAccess,
    declare_tool_paths,
    undeclared_path_arguments,
)
from engine.governance.zones import MountPrefixes, Zone, classify
from tests.support.governance import MOUNTS

# --- names -------------------------------------------------------------------------------------------------------

REGISTERED = ("ls", "crm__find", "erp__find", "erp__post", "__odd")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ls", "ls"),
        ("post", "erp__post"),
        ("erp__post", "erp__post"),
        ("find", NotATool("find", ("crm__find", "erp__find"))),
        ("os", NotATool("os")),
        ("odd", NotATool("odd")),
        ("", NotATool("")),
    ],
)
def test_a_called_name_is_exact_or_the_only_namespaced_one(name: str, found: Any) -> None:
    """02 §2, stage 1."""
    assert resolve_name(name, REGISTERED) == found


def test_an_unknown_name_says_so_and_lists_candidates() -> None:
    """02 §2, stage 1."""
    found = resolve_name("find", REGISTERED)
    assert isinstance(found, NotATool)
    assert "is not a tool" in found.message
    assert "crm__find, erp__find" in found.message
    assert NotATool("x").message == "'x' is not a tool."


def test_reserved_names_are_refused_all_at_once() -> None:
    """02 §4.5, OP-14."""
    refuse_reserved_names(["post_notice", "advance", "archmax"])
    with pytest.raises(ReservedToolNameError) as caught:
        refuse_reserved_names(["archmax_x", "post", "move_file", "read_file", "task", "eval", "task"])
    assert caught.value.names == ("archmax_x", "move_file", "read_file", "task", "eval")


def test_a_delegation_tool_names_its_target_verbatim() -> None:
    """02 §4.4."""
    assert delegation_target("archmax_workflow_check-card_2") == "check-card_2"
    assert delegation_target("archmax_workflow_") is None
    assert delegation_target("workflow_x") is None


# --- declarations ------------------------------------------------------------------------------------------------


def test_the_accesses_of_the_built_in_tools() -> None:
    """02 §9.1, §9.2."""
    shown = {
        tool: [(each.name, each.access.value) for each in declared]
        for tool, declared in BUILTIN_PATHS.items()
    }
    assert shown == {
        "read_file": [("file_path", "read")],
        "write_file": [("file_path", "write")],
        "edit_file": [("file_path", "write")],
        "ls": [("path", "list")],
        "glob": [("path", "search")],
        "grep": [("path", "search")],
        "copy_file": [("source", "read"), ("destination", "write")],
        "move_file": [("source", "remove"), ("destination", "write")],
        "remove_file": [("file_path", "remove")],
        "archmax_run": [("file_path", "execute")],
    }


def test_the_hosts_declaration_wins_over_the_descriptor() -> None:
    """02 §9.4."""
    table = declare_tool_paths(
        {"stamp": {"a": "read"}, "file": {"b": "list"}}, {"stamp": {"c": "write", "d": "read"}}
    )
    assert [each.name for each in table["stamp"]] == ["c", "d"]
    assert table["file"][0].access is PathAccess.LIST
    assert table["ls"] == BUILTIN_PATHS["ls"]


@pytest.mark.parametrize(
    ("tool", "declared"),
    [
        ("ls", {"path": "list"}),
        ("archmax_x", {"a": "read"}),
        ("task", {"a": "read"}),
        ("x", {}),
        ("x", {"a": "append"}),
    ],
)
def test_an_unusable_declaration_fails_assembly(tool: str, declared: dict[str, str]) -> None:
    """02 §9.4."""
    with pytest.raises(ToolPathsError) as described:
        declare_tool_paths({tool: declared}, {})
    with pytest.raises(ToolPathsError) as overridden:
        declare_tool_paths({}, {tool: declared})
    assert described.value.tool == overridden.value.tool == tool


def test_arguments_that_look_like_paths_without_a_declaration_are_found() -> None:
    """02 OP-23."""
    properties = ("path", "sourceFile", "destination", "title", "file_path")
    assert undeclared_path_arguments("x", properties, BUILTIN_PATHS) == (
        "path",
        "sourceFile",
        "destination",
        "file_path",
    )
    assert undeclared_path_arguments("ls", properties, BUILTIN_PATHS) == ()


# --- zones -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "zone"),
    [
        ("../x", Zone.ESCAPES),
        ("scratchpad/../../x", Zone.ESCAPES),
        ("", Zone.ROOT),
        ("/", Zone.ROOT),
        (" ", Zone.ROOT),
        ("a/..", Zone.ROOT),
        ("skills", Zone.AUTHORED),
        ("//skills/./x", Zone.AUTHORED),
        ("AGENTS.md", Zone.AUTHORED),
        ("AGENTS.md/x", Zone.RUN),
        ("charts/south/a", Zone.AUTHORED),
        ("charts/north/a", Zone.RUN),
        ("charts", Zone.RUN),
        ("ledger/a", Zone.RUN),
        ("checkpoints", Zone.RUN_INTERNAL),
        ("artifacts/x", Zone.RUN_INTERNAL),
        ("_specs/x", Zone.RUN_INTERNAL),
        ("large_tool_results/x", Zone.RUN_OFFLOAD),
        ("conversation_history", Zone.RUN_OFFLOAD),
        ("scratchpad", Zone.RUN_OPEN),
        ("scratchpads", Zone.RUN),
        ("workflows/x", Zone.RUN),
    ],
)
def test_a_path_has_one_zone(path: str, zone: Zone) -> None:
    """02 §10.2."""
    assert classify(path, MOUNTS) is zone


def test_without_mounts_nothing_is_authored() -> None:
    """02 §1.4."""
    assert classify("skills/x", MountPrefixes()) is Zone.RUN


def test_the_longest_mount_holds_a_path() -> None:
    """02 §10.2."""
    mounts = MountPrefixes(dirs=("a", "a/b/c"), files=("a/b/d",))
    found = [mounts.mount_of(path) for path in ("a", "a/b", "a/b/c", "a/b/c/e", "a/b/d", "a/b/d/e", "ab", "")]
    assert found == ["a", "a", "a/b/c", "a/b/c", "a/b/d", "a", None, None]


def test_the_twelve_default_tools() -> None:
    """02 §4.1."""
    assert len(DEFAULT_TOOLS) == len(set(DEFAULT_TOOLS)) == 12
