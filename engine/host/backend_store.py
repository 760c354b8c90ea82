"""The object store over a host's file backend: one file per object, below a prefix (05 §5).

A backend has no conditional writes, so the conditions are kept here, by one lock: the store serves one process. Listing
walks folders. A backend that cannot delete keeps what it was given; nothing of the protocol depends on it.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from core.paths import canonical
from engine.workspace.backend import AnyBackend, ErrorCode, ask, ask_many, classify, lacks
from engine.workspace.binary import is_binary_path, is_text
from engine.workspace.deepagents_adapter import as_backend
from storage.keys import check_key, check_prefix, content_etag
from storage.objects import ListedObject, StoredObject, StoreUnavailable

_ABSENT = ("file_not_found", "is_directory", "not_a_directory")


class BackendObjectStore:
    """`prefix` is a folder of the backend. `modified_ms` is when this process first saw the content."""

    def __init__(self, backend: AnyBackend, prefix: str) -> None:
        at = canonical(prefix)
        if at.escaping:
            raise ValueError(f"prefix {prefix!r} climbs above the backend's root")
        self._backend = as_backend(backend)
        self._root = at.text
        self._writing = asyncio.Lock()

    def _path(self, key: str) -> str:
        return f"/{self._root}/{key}" if self._root else f"/{key}"

    async def get(self, key: str) -> StoredObject | None:
        body = await self._read(check_key(key))
        return None if body is None else StoredObject(body, content_etag(body), _now_ms())

    async def _read(self, key: str) -> bytes | None:
        path = self._path(key)
        if not lacks(self._backend, "download_files"):
            answers, problem = await ask_many(self._backend.download_files, [path])
            if problem is None:
                found = answers[0]
                if found.get("error") is None and found.get("content") is not None:
                    return bytes(found["content"])
                problem = _code(found.get("error"))
        else:
            answer, problem = await ask(self._backend.read_raw, path)
            if problem is None:
                content = answer["data"]["content"]
                return content.encode("utf-8") if isinstance(content, str) else bytes(content)
        if problem in _ABSENT:
            return None
        raise StoreUnavailable("get", key, problem.replace("_", " "))

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        check_key(key)
        if if_absent and if_match is not None:
            raise ValueError("a write takes one condition: if_absent or if_match")
        async with self._writing:
            if if_absent or if_match is not None:
                current = await self._read(key)
                if if_absent and current is not None:
                    return None
                if if_match is not None and (current is None or content_etag(current) != if_match):
                    return None
            await self._write(key, body)
        return content_etag(body)

    async def _write(self, key: str, body: bytes) -> None:
        path = self._path(key)
        if not lacks(self._backend, "upload_files"):
            answers, problem = await ask_many(self._backend.upload_files, [(path, body)])
            problem = problem or (_code(answers[0]["error"]) if answers[0].get("error") else None)
        elif is_binary_path(path):
            _, problem = await ask(self._backend.write, path, base64.b64encode(body).decode("ascii"))
        elif is_text(body):
            text = body.decode("utf-8")
            _, problem = await ask(self._backend.write, path, text)
            if problem == "already_exists":  # a create-only backend replaces through `edit` (05 OP-5)
                problem = await self._replace(path, key, text)
        else:
            problem = "unsupported"
        if problem is not None:
            raise StoreUnavailable("put", key, problem.replace("_", " "))

    async def _replace(self, path: str, key: str, text: str) -> ErrorCode | None:
        current = await self._read(key)
        if current is None:
            return "failed"
        if current == text.encode("utf-8"):
            return None
        _, problem = await ask(self._backend.edit, path, current.decode("utf-8"), text)
        return problem

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        check_prefix(prefix)
        last = check_prefix(after or "")
        found = [item async for item in self._walk(prefix.rpartition("/")[0], prefix)]
        for item in sorted(found, key=lambda listed: listed.key):
            if item.key > last:
                yield item

    async def _walk(self, folder: str, prefix: str) -> AsyncIterator[ListedObject]:
        waiting = [folder]
        while waiting:
            at = waiting.pop()
            for name, entry in await self._entries(at):
                key = f"{at}/{name}" if at else name
                if entry.get("is_dir"):
                    if key.startswith(prefix) or prefix.startswith(f"{key}/"):
                        waiting.append(key)
                elif key.startswith(prefix):
                    yield ListedObject(key, int(entry.get("size") or 0), _now_ms())

    async def _entries(self, folder: str) -> Sequence[tuple[str, Any]]:
        answer, problem = await ask(self._backend.ls, self._path(folder).rstrip("/") or "/")
        if problem in _ABSENT:
            return []
        if problem is not None:
            raise StoreUnavailable("list", folder, problem.replace("_", " "))
        names = ((canonical(str(entry["path"])).text, entry) for entry in answer.get("files") or ())
        return [(path.rpartition("/")[2], entry) for path, entry in names if path]

    async def delete(self, keys: Iterable[str]) -> None:
        wanted = [check_key(key) for key in keys]
        if lacks(self._backend, "delete"):
            return
        for key in wanted:
            answer, problem = await ask(self._backend.delete, self._path(key))
            if problem is not None and problem not in _ABSENT:
                raise StoreUnavailable("delete", key, str(answer.get("error") or problem))

    async def close(self) -> None:
        """The backend is the host's."""


def _code(error: object) -> ErrorCode:
    return classify(str(error or "file_not_found"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
