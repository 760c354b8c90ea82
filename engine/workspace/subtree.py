"""A folder of a backend served as a backend of its own: `mount_subtree(backend, "skills")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.paths import canonical, is_within
from engine.workspace.backend import (
    AnyBackend,
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
    call,
    lacks,
)


def mount_subtree(backend: AnyBackend, folder: str) -> SubtreeBackend:
    """`folder` of `backend` as a backend whose root it is; nothing above it can be reached.

    Raises: `ValueError` when `folder` climbs above the backend's root.
    """
    return SubtreeBackend(backend, folder)


class SubtreeBackend:
    """Optional methods the inner backend lacks are None here, so it lacks them as well."""

    def __init__(self, inner: AnyBackend, folder: str) -> None:
        at = canonical(folder)
        if at.escaping:
            raise ValueError(f"subtree {folder!r} leaves the backend")
        self.inner, self.folder = inner, at.text
        self.upload_files = None if lacks(inner, "upload_files") else self._upload_files
        self.download_files = None if lacks(inner, "download_files") else self._download_files
        self.delete = None if lacks(inner, "delete") else self._delete

    async def ls(self, path: str) -> LsResult:
        return self._listing(await self._ask("ls", self._inside(path)))

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> ReadResult:
        return await self._ask("read", self._inside(path), offset, limit)

    async def read_raw(self, path: str) -> RawResult:
        return await self._ask("read_raw", self._inside(path))

    async def write(self, path: str, content: str) -> WriteResult:
        return self._named(await self._ask("write", self._inside(path), content), path)

    async def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> EditResult:
        return self._named(await self._ask("edit", self._inside(path), old, new, replace_all), path)

    async def glob(self, pattern: str, path: str = "/") -> GlobResult:
        return self._listing(await self._ask("glob", pattern, self._inside(path)))

    async def grep(
        self, pattern: str, path: str = "/", glob: str | None = None, max_count: int | None = None
    ) -> GrepResult:
        cap = {"max_count": max_count} if accepts_max_count(self.inner.grep) else {}
        answer = await self._ask("grep", pattern, self._inside(path), glob, **cap)
        kept: Any = [
            {**match, "path": at}
            for match in answer.get("matches", ())
            if (at := self._outside(match["path"]))
        ]
        return {**answer, "matches": kept}

    async def _upload_files(self, files: Sequence[tuple[str, bytes]]) -> list[UploadAnswer]:
        answers = await call(self.inner.upload_files, [(self._inside(path), data) for path, data in files])
        return _renamed(answers, [path for path, _ in files])

    async def _download_files(self, paths: Sequence[str]) -> list[DownloadAnswer]:
        return _renamed(await call(self.inner.download_files, [self._inside(path) for path in paths]), paths)

    async def _delete(self, path: str) -> DeleteResult:
        return self._named(await self._ask("delete", self._inside(path)), path)

    async def _ask(self, method: str, *args: object, **kwargs: object) -> Any:
        return await call(getattr(self.inner, method), *args, **kwargs)

    def _inside(self, path: str) -> str:
        at = canonical(path)
        if at.escaping:
            raise ValueError("invalid path: it leaves the subtree")
        return "/" + "/".join(part for part in (self.folder, at.text) if part)

    def _outside(self, path: str) -> str | None:
        at = canonical(path).text
        if not is_within(at, self.folder):
            return None
        return "/" + at[len(self.folder) :].lstrip("/")

    def _listing(self, answer: Mapping[str, Any]) -> Any:
        files: list[FileEntry] = [
            {**entry, "path": at} for entry in answer.get("files", ()) if (at := self._outside(entry["path"]))
        ]
        return {**answer, "files": files}

    def _named(self, answer: Mapping[str, Any], path: str) -> Any:
        return answer if answer.get("error") else {**answer, "path": path}


def _renamed(answers: Any, paths: Sequence[str]) -> Any:
    return [{**answer, "path": path} for answer, path in zip(answers, paths, strict=True)]
