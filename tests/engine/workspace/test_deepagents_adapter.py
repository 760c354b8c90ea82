"""A Deep Agents backend as a mount: checked against objects of its protocol's shapes (05 §9.1)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pytest

from engine.workspace.deepagents_adapter import DeepAgentsBackend, as_backend, is_deepagents_backend
from engine.workspace.memory_backend import MemoryBackend
from tests.support.workspaces import run, workspace


@dataclass
class Answer:
    error: str | None = None
    path: str | None = None
    occurrences: int | None = None
    entries: list[dict[str, Any]] | None = None
    matches: list[dict[str, Any]] | None = None
    truncated: bool = False
    file_data: dict[str, Any] | None = None
    content: bytes | None = None


class BackendProtocol:
    """The base every such backend inherits: optional methods raise."""

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[Answer]:
        raise NotImplementedError

    async def adownload_files(self, paths: list[str]) -> list[Answer]:
        raise NotImplementedError

    async def adelete(self, file_path: str) -> Answer:
        raise NotImplementedError


class Plain(BackendProtocol):
    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    async def als(self, path: str) -> Answer:
        prefix = path.rstrip("/") + "/"
        names = {file[len(prefix) :].partition("/")[:2] for file in self.files if file.startswith(prefix)}
        return Answer(
            entries=[{"path": prefix + name + slash, "is_dir": bool(slash)} for name, slash in sorted(names)]
        )

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> Answer:
        data = self.files.get(file_path)
        if data is None:
            return Answer(error=f"File '/srv/host{file_path}' not found")
        try:
            return Answer(file_data={"content": data.decode(), "encoding": "utf-8"})
        except UnicodeDecodeError:
            return Answer(file_data={"content": base64.b64encode(data).decode(), "encoding": "base64"})

    async def awrite(self, file_path: str, content: str) -> Answer:
        self.files[file_path] = content.encode()
        return Answer(path=file_path)

    async def aedit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> Answer:
        self.files[file_path] = self.files[file_path].replace(old_string.encode(), new_string.encode())
        return Answer(path=file_path, occurrences=1)

    async def aglob(self, pattern: str, path: str | None = None) -> Answer:
        return Answer(matches=[{"path": file} for file in self.files])

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> Answer:
        found = [
            {"path": file, "line": 1, "text": data.decode()}
            for file, data in self.files.items()
            if pattern.encode() in data
        ]
        return Answer(matches=found[:max_count], truncated=max_count is not None and len(found) > max_count)


class Full(Plain):
    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[Answer]:
        self.files.update(files)
        return [Answer(path=path) for path, _ in files]

    async def adownload_files(self, paths: list[str]) -> list[Answer]:
        return [
            Answer(
                path=path,
                content=self.files.get(path),
                error=None if path in self.files else "file_not_found",
            )
            for path in paths
        ]

    async def adelete(self, file_path: str) -> Answer:
        """Takes the whole tree, as the protocol says."""
        gone = [file for file in self.files if file == file_path or file.startswith(file_path + "/")]
        for file in gone:
            del self.files[file]
        return Answer(path=file_path) if gone else Answer(error="not found")


def test_it_is_known_by_its_shape() -> None:
    assert is_deepagents_backend(Plain({}))
    assert not is_deepagents_backend(MemoryBackend())
    assert isinstance(as_backend(Plain({})), DeepAgentsBackend)


def test_optional_methods_it_only_inherits_are_lacking() -> None:
    assert DeepAgentsBackend(Plain({})).delete is None
    assert DeepAgentsBackend(Plain({})).upload_files is None
    assert DeepAgentsBackend(Full({})).delete is not None


@pytest.mark.parametrize("kind", [Plain, Full])
async def test_every_file_tool_works_on_it(kind: type[Plain]) -> None:
    backend = kind({"/a/x.md": b"one\r\ntwo\r\n", "/b.md": b"two\r", "/p.png": b"\x89\xff"})
    space = await workspace({"/m/": {"backend": backend, "read_only": False}})
    assert await run(space, "ls", path="m") == "/m/a/\n/m/b.md\n/m/p.png"
    assert await run(space, "read_file", file_path="m/a/x.md") == "     1\tone\n     2\ttwo"
    assert "binary file (image/png" in await run(space, "read_file", file_path="m/p.png")
    await run(space, "edit_file", file_path="m/a/x.md", old_string="one\ntwo", new_string="1\n2")
    assert backend.files["/a/x.md"] == b"1\r\n2\r\n"
    assert await run(space, "write_file", file_path="m/n", content="k") == "Updated file /m/n"
    assert await run(space, "grep", pattern="k", path="m") == "/m/n"
    content = await run(space, "grep", pattern="two", path="m", output_mode="content")
    assert content == "/m/b.md:\n  1: two"
    assert await run(space, "glob", pattern="x.md") == "/m/a/x.md"
    assert (
        await run(space, "copy_file", source="m/p.png", destination="q.png")
        == "Copied '/m/p.png' to '/q.png' (2 B)."
    )
    assert await run(space, "read_file", file_path="m/none") == "Error: '/m/none' not found."


async def test_deleting_takes_one_file_and_never_a_tree() -> None:
    backend = Full({"/a/x": b"1", "/a/y": b"2"})
    space = await workspace({"/m/": {"backend": backend, "read_only": False}})
    assert (await run(space, "remove_file", file_path="m/a")).startswith("Error: ")
    assert len(backend.files) == 2
    assert await run(space, "remove_file", file_path="m/a/x") == "Removed '/m/a/x'."
    assert list(backend.files) == ["/a/y"]


async def test_a_binary_typed_path_is_uploaded_as_bytes() -> None:
    backend = Full({})
    space = await workspace({"/m/": {"backend": backend, "read_only": False}}, {"p.png": b"\x89\xff"})
    assert (await run(space, "copy_file", source="p.png", destination="m/p.png")).startswith("Copied")
    assert backend.files["/p.png"] == b"\x89\xff"
