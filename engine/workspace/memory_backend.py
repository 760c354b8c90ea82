"""A backend held in memory: for tests, demonstrations and content that lives as long as its process."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from core.jsontext import well_formed
from core.paths import canonical
from engine.workspace.backend import (
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
    classify,
)
from engine.workspace.binary import is_binary_path, is_text, mime_type
from engine.workspace.paging import page_of
from engine.workspace.search import (
    DEFAULT_MAX_COUNT,
    MAX_GLOB_FILES,
    GrepRun,
    glob_problem,
    needle_problem,
    path_matcher,
)
from engine.workspace.textedit import replace_text
from engine.workspace.tree import FileTree


class MemoryBackend:
    """Files by path; strings are UTF-8 text."""

    def __init__(self, files: Mapping[str, str | bytes] | None = None) -> None:
        self._tree: FileTree[bytes] = FileTree()
        for path, content in (files or {}).items():
            self._put(_at(path), content.encode("utf-8") if isinstance(content, str) else content)

    @property
    def files(self) -> Mapping[str, bytes]:
        """Canonical path → content."""
        return self._tree.files

    async def ls(self, path: str) -> LsResult:
        try:
            at = _at(path)
        except BackendError as error:
            return {"error": classify(error)}
        if not self._tree.is_folder(at):
            return {"error": "not_a_directory" if self._tree.get(at) is not None else "file_not_found"}
        return {"files": [self._entry(f"{at}/{name}" if at else name) for name in self._tree.names(at)]}

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> ReadResult:
        try:
            content, more = page_of(self._bytes(path).decode("utf-8"), offset, limit)
        except UnicodeDecodeError:
            return {"error": "failed"}
        except BackendError as error:
            return {"error": classify(error)}
        return {"content": content, "mime_type": mime_type(path), "more": more}

    async def read_raw(self, path: str) -> RawResult:
        try:
            data = self._bytes(path)
        except BackendError as error:
            return {"error": classify(error)}
        return {
            "data": {"content": data.decode("utf-8") if is_text(data) else data, "mime_type": mime_type(path)}
        }

    async def write(self, path: str, content: str) -> WriteResult:
        try:
            binary = is_binary_path(path)
            data = (
                base64.b64decode(content, validate=True) if binary else well_formed(content).encode("utf-8")
            )
            self._put(_at(path), data)
        except binascii.Error:
            return {"error": "failed"}
        except BackendError as error:
            return {"error": classify(error)}
        return {"path": path}

    async def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> EditResult:
        try:
            edited = replace_text(self._bytes(path).decode("utf-8"), old, new, replace_all=replace_all)
            if isinstance(edited, str):
                return {"error": edited}
            self._put(_at(path), edited.content.encode("utf-8"))
        except UnicodeDecodeError:
            return {"error": "failed"}
        except BackendError as error:
            return {"error": classify(error)}
        return {"path": path, "occurrences": edited.occurrences}

    async def glob(self, pattern: str, path: str = "/") -> GlobResult:
        if problem := glob_problem(pattern):
            return {"error": problem}
        try:
            at = _at(path)
        except BackendError as error:
            return {"error": classify(error)}
        matches = path_matcher(pattern)
        found = [self._entry(file) for file, _ in self._tree.walk(at) if matches(_relative(file, at))]
        return {"files": found[:MAX_GLOB_FILES], "truncated": len(found) > MAX_GLOB_FILES}

    async def grep(
        self, pattern: str, path: str = "/", glob: str | None = None, max_count: int | None = None
    ) -> GrepResult:
        if problem := needle_problem(pattern) or (glob_problem(glob) if glob else None):
            return {"error": problem}
        try:
            at = _at(path)
        except BackendError as error:
            return {"error": classify(error)}
        matches = path_matcher(glob) if glob else None
        run = GrepRun(pattern, max_count or DEFAULT_MAX_COUNT)
        for file, data in self._tree.walk(at):
            if (matches is None or matches(_relative(file, at))) and run.admits(file, len(data)):
                run.search("/" + file, data)
            if run.done:
                break
        return run.result()

    async def upload_files(self, files: Sequence[tuple[str, bytes]]) -> list[UploadAnswer]:
        answers: list[UploadAnswer] = []
        for path, data in files:
            try:
                self._put(_at(path), data)
                answers.append({"path": path, "error": None})
            except BackendError as error:
                answers.append({"path": path, "error": classify(error)})
        return answers

    async def download_files(self, paths: Sequence[str]) -> list[DownloadAnswer]:
        answers: list[DownloadAnswer] = []
        for path in paths:
            try:
                answers.append({"path": path, "content": self._bytes(path), "error": None})
            except BackendError as error:
                answers.append({"path": path, "content": None, "error": classify(error)})
        return answers

    async def delete(self, path: str) -> DeleteResult:
        try:
            self._bytes(path)
            self._tree.remove(_at(path))
        except BackendError as error:
            return {"error": classify(error)}
        return {"path": path}

    def _bytes(self, path: str) -> bytes:
        at = _at(path)
        data = self._tree.get(at)
        if data is None:
            raise BackendError("is_directory" if self._tree.is_folder(at) else "file_not_found")
        return data

    def _put(self, at: str, data: bytes) -> None:
        match self._tree.obstacle(at):
            case None:
                self._tree.set(at, data)
            case "is_directory":
                raise BackendError("is_directory")
            case _:
                raise BackendError("not_a_directory")

    def _entry(self, at: str) -> FileEntry:
        data = self._tree.get(at)
        if data is None:
            return {"path": "/" + at, "is_dir": True}
        return {"path": "/" + at, "is_dir": False, "size": len(data)}


def _at(path: str) -> str:
    at = canonical(path)
    if at.escaping:
        raise BackendError("invalid_path")
    return at.text


def _relative(file: str, folder: str) -> str:
    """`file` seen from the folder searched; its name when it is itself what is searched."""
    if not folder:
        return file
    return file.removeprefix(folder + "/") if file != folder else file.rpartition("/")[2]
