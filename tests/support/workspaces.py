"""Workspaces and backends for tests: real ones, and hosts' backends with the habits real hosts have."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from engine.workspace.memory_backend import MemoryBackend
from engine.workspace.mounts import build_mounts
from engine.workspace.router import Workspace
from engine.workspace.session_files import FoldedSessionFiles
from engine.workspace.tools import FILE_TOOLS, ToolContext


class MemoryBlobs:
    """Blobs of this process."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    async def put(self, body: bytes) -> str:
        name = hashlib.sha256(body).hexdigest()
        self.bodies[name] = body
        return name

    async def get(self, name: str) -> bytes | None:
        return self.bodies.get(name)


def memory_session_files() -> FoldedSessionFiles:
    """Session files held by this process alone."""
    blobs = MemoryBlobs()
    return FoldedSessionFiles({}, put_blob=blobs.put, get_blob=blobs.get, record=lambda _change: None)


async def workspace(
    mounts: Mapping[str, object] | None = None, files: Mapping[str, str | bytes] | None = None
) -> Workspace:
    """A workspace over memory, holding `files`."""
    session = memory_session_files()
    for path, content in (files or {}).items():
        await session.write(path, content.encode() if isinstance(content, str) else content)
    return Workspace(session, build_mounts(mounts or {}))


async def run(context: Workspace | ToolContext, tool: str, **arguments: Any) -> str:
    """Call a file tool; the text of its answer."""
    if isinstance(context, Workspace):
        context = ToolContext(context)
    return (await FILE_TOOLS[tool].call(arguments, context)).text


class SyncBackend:
    """A host's synchronous backend with the required methods alone; its errors name host paths."""

    def __init__(self, files: Mapping[str, str | bytes] | None = None) -> None:
        self.files: dict[str, str | bytes] = {
            f"/{path.lstrip('/')}": body for path, body in (files or {}).items()
        }
        self.asked: list[str] = []

    def ls(self, path: str) -> dict[str, Any]:
        self.asked.append(f"ls {path}")
        prefix = path.rstrip("/") + "/"
        names = {
            file[len(prefix) :].split("/")[0]: "/" in file[len(prefix) :]
            for file in self.files
            if file.startswith(prefix)
        }
        return {"files": [{"path": prefix + name, "is_dir": deeper} for name, deeper in names.items()]}

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> dict[str, Any]:
        return self.read_raw(path)

    def read_raw(self, path: str) -> dict[str, Any]:
        self.asked.append(f"read_raw {path}")
        if path not in self.files:
            return {"error": f"ENOENT: no such file or directory, open '/srv/host/secret{path}'"}
        return {"data": {"content": self.files[path]}}

    def write(self, path: str, content: str) -> dict[str, Any]:
        self.asked.append(f"write {path}")
        self.files[path] = content
        return {"path": path}

    def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> dict[str, Any]:
        self.asked.append(f"edit {path}")
        self.files[path] = str(self.files[path]).replace(old, new)
        return {"path": path, "occurrences": 1}

    def glob(self, pattern: str, path: str = "/") -> dict[str, Any]:
        self.asked.append(f"glob {pattern} {path}")
        return {"files": [{"path": file} for file in self.files if file.startswith(path)]}

    def grep(self, pattern: str, path: str = "/", glob: str | None = None) -> dict[str, Any]:
        """Takes no cap and returns everything."""
        self.asked.append(f"grep {pattern} {path}")
        return {
            "matches": [
                {"path": file, "line": number, "text": line}
                for file, body in self.files.items()
                if file.startswith(path) and isinstance(body, str)
                for number, line in enumerate(body.split("\n"), 1)
                if pattern in line
            ]
        }


class FailingBackend(MemoryBackend):
    """Every listing, search and read raises with the host's words in it."""

    async def _fail(self) -> Any:
        raise RuntimeError("cannot reach /srv/host/secret: connection reset by 10.0.0.7")

    async def ls(self, path: str) -> Any:
        return await self._fail()

    async def read_raw(self, path: str) -> Any:
        return await self._fail()

    async def download_files(self, paths: Any) -> Any:
        return await self._fail()

    async def glob(self, pattern: str, path: str = "/") -> Any:
        return {"error": "/srv/host/secret is offline"}

    async def grep(
        self, pattern: str, path: str = "/", glob: str | None = None, max_count: int | None = None
    ) -> Any:
        return {"error": "/srv/host/secret is offline"}
