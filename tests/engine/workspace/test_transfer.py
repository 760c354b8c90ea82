"""copy_file, move_file and remove_file (05 §10.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.workspace.directory_backend import DirectoryBackend
from engine.workspace.memory_backend import MemoryBackend
from tests.support.workspaces import SyncBackend, run, workspace

BYTES = {
    "text.txt": "grüße\r\n".encode(),
    "latin.txt": b"caf\xe9\x00",
    "pic.png": b"\x89PNG\xff",
    "empty": b"",
}


def mount(backend: object, read_only: bool = False) -> dict[str, object]:
    return {"/m/": {"backend": backend, "read_only": read_only}}


@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("route", ["session", "in", "out", "within"])
async def test_every_kind_of_content_is_copied_byte_for_byte_on_every_route(
    name: str, route: str, tmp_path: Path
) -> None:
    backend = DirectoryBackend(tmp_path)
    space = await workspace(mount(backend), {f"a/{name}": BYTES[name]})
    (tmp_path / name).write_bytes(BYTES[name])
    source = f"/m/{name}" if route in ("out", "within") else f"/a/{name}"
    target = f"/m/new/{name}" if route in ("in", "within") else f"/scratchpad/new/{name}"
    size = f"{len(BYTES[name])} B"
    assert (
        await run(space, "copy_file", source=source, destination=target)
        == f"Copied '{source}' to '{target}' ({size})."
    )
    assert (await space.download_files([target]))[0].get("content") == BYTES[name]
    assert (await space.download_files([source]))[0].get("content") == BYTES[name]


async def test_paths_in_the_answer_are_canonical() -> None:
    space = await workspace(files={"a": "x"})
    assert (
        await run(space, "copy_file", source="./a", destination="b//../c/./d")
        == "Copied '/a' to '/c/d' (1 B)."
    )
    assert await run(space, "move_file", source="a", destination="e") == "Moved '/a' to '/e' (1 B)."
    assert await run(space, "remove_file", file_path="//e") == "Removed '/e'."


async def test_an_existing_destination_is_replaced_only_when_told() -> None:
    for tool in ("copy_file", "move_file"):
        space = await workspace(mount(MemoryBackend({"b": "old"})), {"a": "new", "b": "old"})
        for destination in ("b", "m/b"):
            answer = await run(space, tool, source="a", destination=destination)
            assert answer.startswith("Error: ") and "already exists" in answer
            assert (await space.read(destination)).get("content") == "old"
        answer = await run(space, tool, source="a", destination="m/b", overwrite=True)
        assert not answer.startswith("Error")
        assert (await space.read("m/b")).get("content") == "new"


@pytest.mark.parametrize(
    ("source", "destination", "said"),
    [
        ("a", "./x/../a", "same file"),
        ("none", "b", "'/none' not found"),
        ("m/none", "b", "'/m/none' not found"),
        ("dir", "b", "'/dir' is a directory"),
        ("m", "b", "'/m' is a directory"),
        ("m/link", "b", "links are not followed"),
        ("a", "dir", "'/dir' is a directory"),
        ("a", "m/sub", "'/m/sub' is a directory"),
        ("a", "m/link", "links are not followed"),
        ("a", "a/b", "a part of it is a file"),
        ("a", "scratchpad/", "'/scratchpad' is a directory"),
        ("a", "large_tool_results/x", "managed by the runtime"),
        ("a", "checkpoints/x", "belongs to the runtime"),
        ("a", "AGENTS.md", "read-only"),
        ("../a", "b", "leaves the workspace"),
        ("a", "../b", "leaves the workspace"),
        ("a\0", "b", "not a usable path"),
    ],
)
@pytest.mark.parametrize("tool", ["copy_file", "move_file"])
async def test_what_is_refused_is_answered_in_one_line_and_leaves_everything_as_it_was(
    tool: str, source: str, destination: str, said: str, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "x").write_text("x")
    (tmp_path / "secret").write_text("s")
    (root / "link").symlink_to("../secret")
    space = await workspace(
        {**mount(DirectoryBackend(root)), "/AGENTS.md": MemoryBackend({"AGENTS.md": "p"})},
        {"a": "1", "dir/f": "2"},
    )
    answer = await run(space, tool, source=source, destination=destination, overwrite=True)
    assert answer.startswith("Error: ") and said in answer and "\n" not in answer
    assert set(space.files.entries()) == {"a", "dir/f"}
    assert (tmp_path / "secret").read_text() == "s"


async def test_moving_from_a_read_only_mount_writes_nothing() -> None:
    space = await workspace(mount(MemoryBackend({"a": "x"}), read_only=True))
    answer = await run(space, "move_file", source="m/a", destination="scratchpad/a")
    assert answer == "Error: '/m/a' is read-only: write under 'scratchpad/'."
    assert dict(space.files.entries()) == {}


async def test_moving_out_of_a_store_that_removes_nothing_writes_nothing() -> None:
    space = await workspace(mount(SyncBackend({"a": "x"})))
    answer = await run(space, "move_file", source="m/a", destination="scratchpad/a")
    assert answer.startswith("Error: ") and "cannot do that" in answer
    assert dict(space.files.entries()) == {}
    assert "cannot do that" in await run(space, "remove_file", file_path="m/a")


async def test_a_removal_that_fails_reports_that_both_exist() -> None:
    class Sticky(MemoryBackend):
        async def delete(self, path: str) -> Any:
            return {"error": "EPERM: operation not permitted, unlink '/srv/host/a'"}

    space = await workspace(mount(Sticky({"a": "x"})))
    answer = await run(space, "move_file", source="m/a", destination="scratchpad/a")
    assert answer.startswith("Error: ") and "both exist" in answer and "/srv" not in answer
    assert (
        (await space.read("scratchpad/a")).get("content") == (await space.read("m/a")).get("content") == "x"
    )


class Mending(MemoryBackend):
    """Turns CRLF into LF on a text write, as some stores do; uploads are exact."""

    async def write(self, path: str, content: str) -> Any:
        return await super().write(path, content.replace("\r\n", "\n"))


async def test_a_store_that_kept_something_else_is_given_the_bytes() -> None:
    backend = Mending()
    space = await workspace(mount(backend), {"a": "x\r\n"})
    assert await run(space, "copy_file", source="a", destination="m/a") == "Copied '/a' to '/m/a' (3 B)."
    assert backend.files["a"] == b"x\r\n"


async def test_a_copy_that_cannot_be_kept_is_refused_and_what_it_created_removed() -> None:
    class Stubborn(Mending):
        async def upload_files(self, files: Any) -> Any:
            return [{"path": path, "error": "permission_denied"} for path, _ in files]

    backend = Stubborn()
    space = await workspace(mount(backend), {"a": "x\r\n", "b": b"\xff"})
    for source in ("a", "b"):
        for tool in ("copy_file", "move_file"):
            answer = await run(space, tool, source=source, destination=f"m/{source}")
            assert answer.startswith("Error: ")
    assert dict(backend.files) == {}
    assert set(space.files.entries()) == {"a", "b"}


async def test_bytes_that_are_no_text_need_a_store_with_upload() -> None:
    backend = SyncBackend()
    space = await workspace(mount(backend), {"b": b"\xff"})
    assert "cannot do that" in await run(space, "copy_file", source="b", destination="m/b")
    assert backend.files == {}


async def test_content_a_store_serves_only_mended_is_not_copied() -> None:
    space = await workspace(mount(SyncBackend({"a": "x\ufffdy"})))
    assert "no exact bytes" in await run(space, "copy_file", source="m/a", destination="b")


@pytest.mark.parametrize(
    "path", ["dir", "none", "m/none", "m", "AGENTS.md", "large_tool_results/r", "../x", ""]
)
async def test_only_one_own_file_is_removed(path: str) -> None:
    space = await workspace(
        {**mount(MemoryBackend({"x": ""})), "/AGENTS.md": MemoryBackend({"AGENTS.md": "p"})},
        {"dir/f": "", "large_tool_results/r": ""},
    )
    assert (await run(space, "remove_file", file_path=path)).startswith("Error: ")
    assert set(space.files.entries()) == {"dir/f", "large_tool_results/r"}
