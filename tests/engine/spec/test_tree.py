"""Reading authored files without leaving the root."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from engine.errors import WorkflowLoadError
from engine.spec.loader import list_workflows, load_workflow
from engine.spec.tree import DirectoryTree, MemoryTree
from engine.turn.library import WorkflowLibrary


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "workflows/shop/tests").mkdir(parents=True)
    (folder / "workflows/shop/workflow.yaml").write_text("states: 1")
    (folder / "workflows/shop/tests/a.test.yaml").write_text("x")
    (tmp_path / "secret").write_text("s")
    return folder


def test_a_directory_reads_files_in_any_spelling(root: Path):
    """05 §9.4."""
    tree = DirectoryTree(root)
    assert tree.read("/workflows//shop/./tests/../workflow.yaml") == b"states: 1"
    assert tree.read("workflows/shop") is None
    assert tree.read("workflows/shop/gone") is None
    assert tree.read("workflows/shop/workflow.yaml/x") is None
    assert tree.files("workflows/shop") == [
        "workflows/shop/tests/a.test.yaml",
        "workflows/shop/workflow.yaml",
    ]
    assert tree.files("gone") == []
    assert tree.files("workflows/shop/workflow.yaml") == []


@pytest.mark.parametrize("path", ["../secret", "workflows/../../secret", "a\0b", "x" * 5000])
def test_a_path_outside_the_root_names_nothing(root: Path, path: str):
    """02 §10.1."""
    assert DirectoryTree(root).read(path) is None
    assert DirectoryTree(root).files(path) == []


def test_links_that_leave_the_root_are_refused(root: Path):
    """02 OP-11."""
    (root / "workflows/shop/out").symlink_to(root.parent / "secret")
    (root / "workflows/shop/up").symlink_to(root.parent)
    tree = DirectoryTree(root)
    assert tree.read("workflows/shop/out") is None
    assert tree.read("workflows/shop/up/secret") is None
    assert len(tree.files("workflows")) == 2


def test_links_inside_the_root_are_followed_once(root: Path):
    """02 OP-11."""
    (root / "workflows/copy").symlink_to(root / "workflows/shop")
    (root / "workflows/shop/loop").symlink_to(root / "workflows")
    (root / "workflows/self").symlink_to(root / "workflows/self")
    tree = DirectoryTree(root)
    assert tree.read("workflows/copy/workflow.yaml") == b"states: 1"
    assert tree.read("workflows/self") is None
    assert sorted({Path(path).name for path in tree.files("workflows")}) == ["a.test.yaml", "workflow.yaml"]


def test_what_is_no_regular_file_is_not_opened(root: Path):
    """A named pipe would hold the reader up for ever."""
    os.mkfifo(root / "workflows/shop/pipe")
    tree = DirectoryTree(root)
    assert tree.read("workflows/shop/pipe") is None
    assert "workflows/shop/pipe" not in tree.files("workflows")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("workflow.yaml", "a link that leads back to itself"),
        ("gone.yaml", "a link to nothing"),
        ("../../../secret", "a link that leads out of the workspace"),
        ("tests", "a directory"),
        (stat.S_IFDIR, "a directory"),
        (stat.S_IFIFO, "a named pipe"),
        (stat.S_IFSOCK, "a socket"),
    ],
)
def test_a_document_that_is_no_file_is_told_from_a_missing_one(root: Path, target: str | int, words: str):
    """01 §19.2: what stands there, and what to do; a pipe holds nobody up."""
    at = root / "workflows/shop/workflow.yaml"
    at.unlink()
    if isinstance(target, str):
        at.symlink_to(target)
    elif target == stat.S_IFDIR:
        at.mkdir()
    else:
        os.mknod(at, target | 0o600)
    tree = DirectoryTree(root)
    (issue,) = load_workflow(tree, "shop").issues
    assert (issue.id, issue.file) == ("missing", "workflows/shop/workflow.yaml")
    assert issue.message == (
        f"workflows/shop/workflow.yaml: it is {words}, not a file: put the document in its place"
    )
    assert list_workflows(tree) == []


def test_nothing_is_in_the_way_of_a_file_or_where_nothing_is(root: Path):
    tree = DirectoryTree(root)
    (root / "workflows/out").symlink_to(root.parent)
    for path in (
        "workflows/shop/workflow.yaml",
        "workflows/shop/gone",
        "../secret",
        "a\0b",
        "workflows/out/x",
    ):
        assert tree.obstacle(path) is None


def test_a_file_beyond_the_cap_is_an_error_that_loading_reports(root: Path):
    """01 OP-14."""
    tree = DirectoryTree(root, max_bytes=4)
    with pytest.raises(OSError, match="larger than 4 bytes"):
        tree.read("workflows/shop/workflow.yaml")
    (issue,) = load_workflow(tree, "shop").issues
    assert issue.id == "not-a-mapping"
    assert "larger than 4 bytes" in issue.message
    with pytest.raises(WorkflowLoadError, match="larger than 4 bytes"):
        WorkflowLibrary(tree).require("shop")


def test_a_missing_root_is_an_empty_tree(tmp_path: Path):
    """07 §1."""
    tree = DirectoryTree(tmp_path / "gone")
    assert tree.read("a") is None
    assert tree.files("") == []


def test_memory_answers_like_a_directory():
    """One protocol, two trees."""
    tree = MemoryTree({"/a/b": "x", "a/c/d": b"y", "ab": ""})
    assert tree.read("a//b") == b"x"
    assert tree.read("../a/b") is None
    assert tree.files("a/") == ["a/b", "a/c/d"]
    assert tree.files("") == ["a/b", "a/c/d", "ab"]
