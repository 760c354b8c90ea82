"""The mount table (05 §9.2, 02 §12.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import AuthoringBackendExposedError, MountCollisionError
from engine.workspace.directory_backend import DirectoryBackend
from engine.workspace.memory_backend import MemoryBackend
from engine.workspace.mounts import MountTableError, build_mounts, default_mounts
from engine.workspace.subtree import mount_subtree


def test_keys_are_normalised_and_a_trailing_slash_makes_a_folder() -> None:
    backend = MemoryBackend()
    table = build_mounts({"//a///b/": backend, "c": backend, "./d/": backend})
    assert table.prefixes.dirs == ("a/b", "d")
    assert table.prefixes.files == ("c",)


def test_a_bare_backend_is_read_only_ungoverned_and_searchable() -> None:
    prefixes = build_mounts({"/a/": MemoryBackend()}).prefixes
    assert (prefixes.writable, prefixes.governed, prefixes.unsearchable) == (
        frozenset(),
        frozenset(),
        frozenset(),
    )


def test_options_reach_the_prefixes_the_kernel_reads() -> None:
    backend = MemoryBackend()
    prefixes = build_mounts(
        {
            "/a/": {"backend": backend, "read_only": False, "governed": True, "searchable": False},
            "/f": {"backend": backend, "searchable": False},
        }
    ).prefixes
    assert (prefixes.writable, prefixes.governed) == (frozenset({"a"}), frozenset({"a"}))
    assert prefixes.unsearchable == frozenset({"a"})  # ignored on a file mount


@pytest.mark.parametrize(
    ("key", "holds"),
    [
        ("scratchpad/", "scratchpad"),
        ("/scratchpad/x/", "scratchpad"),
        ("large_tool_results", "moved out"),
        ("conversation_history/", "moved out"),
        ("checkpoints/", "bookkeeping"),
        ("artifacts/", "bookkeeping"),
        ("_specs/", "bookkeeping"),
        ("/workflows/", "authoring plane"),
        ("/", "workspace root"),
        ("", "workspace root"),
    ],
)
def test_a_key_that_begins_with_a_reserved_name_collides_and_says_with_what(key: str, holds: str) -> None:
    with pytest.raises(MountCollisionError, match=holds):
        build_mounts({key: MemoryBackend()})


@pytest.mark.parametrize(
    "table",
    [
        {"../x/": MemoryBackend()},
        {"a/../b/": MemoryBackend()},
        {"a\nb/": MemoryBackend()},
        {"a/": MemoryBackend(), "/a": MemoryBackend()},
        {"a": MemoryBackend(), "a/b/": MemoryBackend()},
        {"a/": {"backend": MemoryBackend(), "readonly": True}},
        {"a/": {"read_only": True}},
        {"a/": {"backend": MemoryBackend(), "governed": "yes"}},
        {"a/": object()},
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_by_key(table: dict[str, object]) -> None:
    with pytest.raises(MountTableError):
        build_mounts(table)


def test_a_writable_mount_may_not_be_served_by_the_authoring_backend() -> None:
    authoring = MemoryBackend()
    for served in (
        authoring,
        mount_subtree(authoring, "ledger"),
        mount_subtree(mount_subtree(authoring, "a"), "b"),
    ):
        with pytest.raises(AuthoringBackendExposedError):
            build_mounts({"/ledger/": {"backend": served, "read_only": False}}, authoring)
        build_mounts({"/ledger/": served}, authoring)  # read-only is fine


@pytest.mark.parametrize(
    ("folder", "exposed"),
    [
        (".", True),
        ("workflows", True),
        ("workflows/x", True),
        ("..", True),
        ("ledger", False),
        ("workflows2", False),
    ],
)
def test_a_writable_folder_may_not_reach_the_workflows(tmp_path: Path, folder: str, exposed: bool) -> None:
    root = tmp_path / "root"
    table = {"/m/": {"backend": DirectoryBackend(root / folder), "read_only": False}}
    if exposed:
        with pytest.raises(AuthoringBackendExposedError):
            build_mounts(table, DirectoryBackend(root))
    else:
        build_mounts(table, DirectoryBackend(root))


async def test_the_default_table_serves_skills_platform_and_persona(tmp_path: Path) -> None:
    table = build_mounts(default_mounts(tmp_path), DirectoryBackend(tmp_path))
    assert table.prefixes.dirs == ("skills", ".platform")
    assert table.prefixes.files == ("AGENTS.md",)
    assert table.prefixes.writable == frozenset()


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("skills", "skills"),
        ("skills/a/b", "skills"),
        ("skills2/a", None),
        ("skills/private/x", "skills/private"),
        ("AGENTS.md", "AGENTS.md"),
        ("AGENTS.md.bak", None),
        ("AGENTS.md/x", None),
    ],
)
def test_the_longest_folder_or_the_exact_file_serves_a_path(path: str, mount: str | None) -> None:
    backend = MemoryBackend()
    table = build_mounts({"/skills/": backend, "/skills/private/": backend, "/AGENTS.md": backend})
    found = table.of(path)
    assert (found and found.name) == mount
