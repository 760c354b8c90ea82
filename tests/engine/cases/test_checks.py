from __future__ import annotations

import pytest

from engine.cases.checks import check_cases
from engine.cases.discovery import case_script, cases_folder, discover, has_config_file, script_path
from engine.cases.workspace import fixture_path, seed_problem
from engine.governance.zones import MountPrefixes
from engine.models.errors import ModelScriptError
from engine.spec.model import Spec, State, Trigger
from engine.spec.tree import MemoryTree

HEAD = "title: T\ndescription: D\n"
FOLDER = "workflows/shop/tests"
SPEC = Spec("shop", {"ask": State("ask", triggers={"order": Trigger("order")})})


def check(text: str, **files: str) -> list[tuple[str, str, str | None, str]]:
    tree = MemoryTree(
        {f"{FOLDER}/a.test.yaml": HEAD + text, **{f"{FOLDER}/{path}": body for path, body in files.items()}}
    )
    found = check_cases(tree, "shop", SPEC)
    assert {diagnostic.file for diagnostic in found} <= {f"{FOLDER}/a.test.yaml"}
    return [(one.id, one.severity, one.field, one.message) for one in found]


@pytest.mark.parametrize(
    ("text", "identity", "severity", "field", "words"),
    [
        ("extra: 1\nsteps: {}\n", "case.schema", "error", None, ["unknown key", "must be a list"]),
        ("trigger: { id: nope }\n", "case.unknown-trigger", "error", "trigger", ["'nope'", "order"]),
        ("workspace: { a: { from: ../x } }\n", "case.fixture-path", "error", "workspace", ["../x"]),
        ("workspace: { a: { from: x/../y } }\n", "case.fixture-path", "error", "workspace", ["x/../y"]),
        ("workspace: { a: { from: /x } }\n", "case.fixture-path", "error", "workspace", ["/x"]),
        ("workspace: { a: { from: ./ } }\n", "case.fixture-path", "error", "workspace", ["./"]),
        (
            "workspace: { a: { from: files//x.txt } }\n",
            "case.fixture-missing",
            "error",
            "workspace",
            [f"{FOLDER}/files/x.txt"],
        ),
        ("workspace: { skills/x: y }\n", "case.workspace-path", "error", "workspace", ["skills/x", "mount"]),
        (
            "mocks: [{ tool: ls }, { tool: archmax_advance }]\n",
            "case.mock-control-tool",
            "warning",
            "mocks.1",
            ["archmax_advance"],
        ),
    ],
)
def test_a_static_check_fires_with_its_identifier_severity_and_field(
    text: str, identity: str, severity: str, field: str | None, words: list[str]
) -> None:
    """06 §12."""
    ((found, how, where, message),) = check(text)
    assert (found, how, where) == (identity, severity, field)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    "text",
    [
        "trigger: { id: order }\n",
        "trigger: { id: manual }\n",
        "workspace: { a.json: { from: here.json } }\n",
        "workspace: { a.json: { from: gone.json, and: more } }\n",
        "steps: [{ send: a }, { deliver: { trigger: nope } }, { reachedState: nope }, { decide: { to: nope } }]\n",
        "mocks: [{ tool: no_such_tool }]\n",
    ],
)
def test_what_is_not_checked_is_not_reported(text: str) -> None:
    """06 §12."""
    assert check(text, **{"here.json": "{}"}) == []


def test_without_a_spec_triggers_are_not_judged() -> None:
    """01 §19.1: checks that need only readable parts still run."""
    tree = MemoryTree({f"{FOLDER}/a.test.yaml": HEAD + "trigger: { id: nope }\nworkspace: { ..: x }\n"})
    assert [one.id for one in check_cases(tree, "shop", None)] == ["case.workspace-path"]


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("trigger.json", False),
        ("/trigger.json", False),
        ("scratchpad/a/b.txt", False),
        ("skillset/a", False),
        ("", True),
        (".", True),
        ("../x", True),
        ("a/../../x", True),
        ("skills/x", True),
        ("./skills", True),
        ("AGENTS.md", True),
        (".platform/x", True),
        ("workflows/shop/workflow.yaml", True),
        ("workflows", True),
        ("checkpoints/x", True),
        ("artifacts/x", True),
        ("_specs/x", True),
        ("large_tool_results/x", True),
        ("conversation_history/x", True),
        ("a\0b", True),
    ],
)
def test_only_session_paths_are_seedable(path: str, refused: bool) -> None:
    """06 §7.3."""
    assert (seed_problem(path) is not None) is refused


def test_a_writable_mount_and_the_folder_above_a_mount_are_not_seedable() -> None:
    """06 §7.3: a mount or a file in one."""
    mounts = MountPrefixes(
        dirs=("data/shared",), files=("notes.md",), writable=frozenset({"data/shared", "notes.md"})
    )
    assert seed_problem("data/shared/x", mounts)
    assert seed_problem("notes.md", mounts)
    assert seed_problem("data", mounts)
    assert seed_problem("data/own.txt", mounts) is None


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("x.json", f"{FOLDER}/x.json"),
        ("./a//b.json", f"{FOLDER}/a/b.json"),
        ("a/..b", f"{FOLDER}/a/..b"),
        ("..", None),
        ("a/../b", None),
        ("/a", None),
        ("", None),
        ("./", None),
    ],
)
def test_a_fixture_lies_below_tests(source: str, path: str | None) -> None:
    """06 §7.3."""
    assert fixture_path(source, FOLDER) == path


def test_cases_are_discovered_in_code_point_order_and_everything_else_is_ignored() -> None:
    """06 §1."""
    tree = MemoryTree(
        {
            f"{FOLDER}/b.test.yaml": HEAD,
            f"{FOLDER}/B/x.test.yml": "no: case\n",
            f"{FOLDER}/a/y.test.yaml": HEAD,
            f"{FOLDER}/a.test.js": "x",
            f"{FOLDER}/notes.yaml": "x",
            f"{FOLDER}/b.model.yaml": "[]",
            "workflows/other/tests/z.test.yaml": HEAD,
        }
    )
    found = discover(tree, cases_folder("shop"))
    assert [case.id for case in found] == ["B/x", "a/y", "b"]
    assert [case.doc is None for case in found] == [True, False, False]
    assert f"{FOLDER}/B/x.test.yml: " in (found[0].parse_error or "")
    assert [case.selected("a/") for case in found] == [False, True, False]
    assert [case.selected("A") for case in found] == [False] * 3
    assert all(case.selected(None) for case in found)
    assert discover(tree, cases_folder("nothing")) == []
    assert not has_config_file(tree, "shop")
    assert has_config_file(MemoryTree({f"{FOLDER}/tests.config.js": ""}), "shop")


def test_a_cases_model_script_lies_beside_it() -> None:
    """Ruling 19."""
    tree = MemoryTree(
        {f"{FOLDER}/deep/a.model.yaml": "- text: hi\n", f"{FOLDER}/b.model.yaml": "- txt: hi\n"}
    )
    script = case_script(tree, f"{FOLDER}/deep/a.test.yml")
    assert script is not None
    assert script.answers[0].text == "hi"
    assert script_path(f"{FOLDER}/b.test.yaml") == f"{FOLDER}/b.model.yaml"
    assert case_script(tree, f"{FOLDER}/c.test.yaml") is None
    with pytest.raises(ModelScriptError, match=r"b\.model\.yaml:1: "):
        case_script(tree, f"{FOLDER}/b.test.yaml")
