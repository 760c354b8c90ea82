"""Mount a Deep Agents backend: its methods and answer objects, spoken to by shape, without depending on the package.

Its protocol has `als`, `aread`, `awrite`, `aedit`, `aglob`, `agrep`, `aupload_files`, `adownload_files` and, in newer
releases, `adelete`; answers are objects with an `error` attribute, file contents `{content, encoding}` with `utf-8` or
`base64`. A method a backend does not have raises `NotImplementedError`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.workspace.backend import (
    AnyBackend,
    BackendError,
    DeleteResult,
    DownloadAnswer,
    EditResult,
    FileEntry,
    GlobResult,
    GrepResult,
    LsResult,
    RawResult,
    ReadResult,
    UploadAnswer,
    WriteResult,
    accepts_max_count,
)
from engine.workspace.binary import is_binary_path, is_text

_METHODS: Final = ("als", "aread", "awrite", "aedit", "aglob", "agrep")
#: lines asked for when the whole file is wanted and only a paged read exists
_WHOLE: Final = 10_000_000


def is_deepagents_backend(value: AnyBackend) -> bool:
    return all(callable(getattr(value, name, None)) for name in _METHODS)


class DeepAgentsBackend:
    """`inner` as a backend of this project. `delete` removes one file only, where the inner one would take a tree."""

    def __init__(self, inner: AnyBackend) -> None:
        self.inner = inner
        self.upload_files = self._upload_files if _implements(inner, "upload_files") else None
        self.download_files = self._download_files if _implements(inner, "download_files") else None
        self.delete = self._delete if _implements(inner, "delete") and self.download_files else None

    async def ls(self, path: str) -> LsResult:
        answer = await self.inner.als(path)
        return {"error": answer.error} if answer.error else {"files": _entries(answer.entries)}

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> ReadResult:
        answer = await self.inner.aread(path, offset, _WHOLE if limit is None else limit)
        if answer.error or answer.file_data is None:
            return {"error": answer.error or "failed"}
        if answer.file_data.get("encoding") == "base64":
            return {"error": "failed"}
        return {"content": answer.file_data["content"]}

    async def read_raw(self, path: str) -> RawResult:
        if self.download_files is not None:  # a read may page, number or mend; a download does not
            found = (await self.download_files([path]))[0]
            data = found.get("content")
            if found.get("error") or data is None:
                return {"error": found.get("error") or "file_not_found"}
            return {"data": {"content": data.decode("utf-8") if is_text(data) else data}}
        answer = await self.inner.aread(path, 0, _WHOLE)
        if answer.error or answer.file_data is None:
            return {"error": answer.error or "failed"}
        content = answer.file_data["content"]
        if answer.file_data.get("encoding") != "base64":
            return {"data": {"content": content}}
        return {"data": {"content": base64.b64decode(content)}}

    async def write(self, path: str, content: str) -> WriteResult:
        if is_binary_path(path) and self.upload_files is not None:
            try:
                data = base64.b64decode(content, validate=True)
            except binascii.Error:
                return {"error": "failed"}
            answer = (await self.upload_files([(path, data)]))[0]
            return {"error": answer["error"]} if answer.get("error") else {"path": path}
        answer = await self.inner.awrite(path, content)
        return {"error": answer.error} if answer.error else {"path": answer.path or path}

    async def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> EditResult:
        answer = await self.inner.aedit(path, old, new, replace_all)
        if answer.error:
            return {"error": answer.error}
        return {"path": answer.path or path, "occurrences": answer.occurrences or 0}

    async def glob(self, pattern: str, path: str = "/") -> GlobResult:
        answer = await self.inner.aglob(pattern, path)
        if answer.error and not answer.matches:
            return {"error": answer.error}
        return {"files": _entries(answer.matches), "truncated": bool(getattr(answer, "truncated", False))}

    async def grep(
        self, pattern: str, path: str = "/", glob: str | None = None, max_count: int | None = None
    ) -> GrepResult:
        cap = {"max_count": max_count} if accepts_max_count(self.inner.agrep) else {}
        answer = await self.inner.agrep(pattern, path, glob, **cap)
        if answer.error and not answer.matches:
            return {"error": answer.error}
        return {
            "matches": [
                # some split at "\n" alone
                {"path": match["path"], "line": match["line"], "text": match["text"].removesuffix("\r")}
                for match in answer.matches or ()
            ],
            "truncated": bool(getattr(answer, "truncated", False)),
        }

    async def _upload_files(self, files: Sequence[tuple[str, bytes]]) -> list[UploadAnswer]:
        answers = await self.inner.aupload_files(list(files))
        return [{"path": answer.path, "error": answer.error} for answer in answers]

    async def _download_files(self, paths: Sequence[str]) -> list[DownloadAnswer]:
        answers = await self.inner.adownload_files(list(paths))
        return [{"path": answer.path, "content": answer.content, "error": answer.error} for answer in answers]

    async def _delete(self, path: str) -> DeleteResult:
        found = (await self._download_files([path]))[0]
        if found.get("error") or found.get("content") is None:
            return {"error": found.get("error") or "file_not_found"}
        answer = await self.inner.adelete(path)
        return {"error": answer.error} if answer.error else {"path": path}


def _implements(inner: AnyBackend, method: str) -> bool:
    """Whether a class of the backend, and not the protocol's own base, says how."""
    for kind in type(inner).__mro__:
        if method in vars(kind) or f"a{method}" in vars(kind):
            return kind.__name__ not in ("BackendProtocol", "SandboxBackendProtocol")
    return False


def _entries(found: Sequence[Mapping[str, Any]] | None) -> list[FileEntry]:
    entries: list[FileEntry] = []
    for item in found or ():
        path = str(item["path"])
        entry: FileEntry = {
            "path": path.rstrip("/") or "/",
            "is_dir": bool(item.get("is_dir", path.endswith("/"))),
        }
        if isinstance(size := item.get("size"), int):
            entry["size"] = size
        if modified := item.get("modified_at"):
            entry["modified_at"] = str(modified)
        entries.append(entry)
    return entries


def as_backend(value: AnyBackend) -> AnyBackend:
    """What a host put into a mount table, as a backend of ours.

    Raises: `BackendError` (`unsupported`) for a value with neither protocol's methods.
    """
    if is_deepagents_backend(value):
        return DeepAgentsBackend(value)
    if all(
        callable(getattr(value, name, None)) for name in ("ls", "read", "read_raw", "write", "glob", "grep")
    ):
        return value
    raise BackendError("unsupported")
