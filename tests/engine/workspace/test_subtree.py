"""A folder of a backend as a backend of its own (05 §9.2)."""

from __future__ import annotations

import pytest

from engine.workspace.backend import lacks
from engine.workspace.memory_backend import MemoryBackend
from engine.workspace.subtree import mount_subtree
from tests.support.workspaces import SyncBackend, run, workspace


async def test_paths_lose_and_regain_the_folder() -> None:
    inner = MemoryBackend({"skills/a/s.md": "k", "skills2/x": "k", "secret": "k"})
    tree = mount_subtree(inner, "/skills/")
    assert [item["path"] for item in (await tree.ls("/")).get("files", [])] == ["/a"]
    assert (await tree.read("/a/s.md")).get("content") == "k"
    assert [item["path"] for item in (await tree.glob("**/*")).get("files", [])] == ["/a/s.md"]
    assert [match["path"] for match in (await tree.grep("k")).get("matches", [])] == ["/a/s.md"]
    assert await tree.write("/n", "x") == {"path": "/n"}
    assert inner.files["skills/n"] == b"x"


async def test_nothing_above_the_folder_is_reached() -> None:
    inner = MemoryBackend({"secret": "s"})
    space = await workspace({"/m/": {"backend": mount_subtree(inner, "skills"), "read_only": False}})
    with pytest.raises(ValueError, match="leaves"):
        await mount_subtree(inner, "skills").read("/../secret")
    with pytest.raises(ValueError, match="leaves"):
        mount_subtree(inner, "../x")
    assert await run(space, "read_file", file_path="m/../secret") == "Error: '/secret' not found."


async def test_it_lacks_what_the_inner_backend_lacks_and_has_what_it_has() -> None:
    assert all(
        lacks(mount_subtree(SyncBackend(), "a"), name)
        for name in ("upload_files", "download_files", "delete")
    )
    inner = MemoryBackend({"a/x": "1"})
    space = await workspace(
        {"/m/": {"backend": mount_subtree(inner, "a"), "read_only": False}}, {"b": b"\xff"}
    )
    assert await run(space, "move_file", source="m/x", destination="m/y") == "Moved '/m/x' to '/m/y' (1 B)."
    assert (await run(space, "copy_file", source="b", destination="m/b")).startswith("Copied")
    assert dict(inner.files) == {"a/y": b"1", "a/b": b"\xff"}


async def test_a_synchronous_inner_backend_is_served_too() -> None:
    space = await workspace({"/m/": mount_subtree(SyncBackend({"a/x": "needle"}), "a")})
    assert await run(space, "read_file", file_path="m/x") == "     1\tneedle"
    assert await run(space, "grep", pattern="needle") == "/m/x"
