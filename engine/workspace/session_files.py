"""A session's own files, part of its folded state: paths mapped to content, never files written in place.

A write makes a change `{"t": "files", "set": {path: ref | null}}` that becomes durable with the step it belongs to; big
content is put as a blob named by its digest first, so neither a crash nor a stale writer can tear or revert a file
(05 §1, design "Files"). A copy costs its path. Paths are canonical text without leading slash.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol

from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import Json, JsonObject
from engine.workspace.tree import FileTree

#: content up to this many bytes stands in the record itself
INLINE_BYTES: Final = 8 * 1024


class SessionFileError(ArchmaxError):
    """A session file cannot be put there. `problem`: `is_directory`, `not_a_directory` or `file_not_found`."""

    code: ClassVar[str] = "session-file"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    @override
    def __str__(self) -> str:
        return f"'/{self.path}': {self.problem}"


class BlobMissingError(ArchmaxError):
    """The content a path refers to is gone from the store: damage, not an absent file."""

    code: ClassVar[str] = "blob-missing"

    def __init__(self, path: str, blob: str) -> None:
        super().__init__(path, blob)
        self.path, self.blob = path, blob

    @override
    def __str__(self) -> str:
        return f"the content of '/{self.path}' is missing from the store"


@dataclass(frozen=True, slots=True)
class FileRef:
    """Where one file's content is: exactly one of `text`, `data`, `blob`. `size` in bytes, `modified` epoch ms."""

    size: int
    modified: int
    text: str | None = None
    data: bytes | None = None
    blob: str | None = None

    def to_json(self) -> JsonObject:
        """`{size, modified, text | data | blob}`; `data` is base64."""
        body: JsonObject = {"size": self.size, "modified": self.modified}
        if self.text is not None:
            body["text"] = self.text
        elif self.data is not None:
            body["data"] = base64.b64encode(self.data).decode("ascii")
        else:
            body["blob"] = self.blob
        return body

    @classmethod
    def from_json(cls, body: Json) -> FileRef:
        """Raises: `ValueError` when `body` is no reference."""
        if not isinstance(body, Mapping):
            raise ValueError("a file reference is an object")
        size, modified = body.get("size"), body.get("modified")
        text, data, blob = body.get("text"), body.get("data"), body.get("blob")
        if not isinstance(size, int) or not isinstance(modified, int):
            raise ValueError("a file reference needs size and modified")
        if isinstance(text, str):
            return cls(size, modified, text=text)
        if isinstance(data, str):
            return cls(size, modified, data=base64.b64decode(data, validate=True))
        if isinstance(blob, str):
            return cls(size, modified, blob=blob)
        raise ValueError("a file reference needs text, data or blob")


class SessionFiles(Protocol):
    """What the workspace needs of a session. Read-modify-write of one path is serialised by the workspace."""

    def entries(self) -> Mapping[str, FileRef]:
        """Every file, canonical path → reference."""
        ...

    def tree(self) -> FileTree[FileRef]:
        """The same files with their folders, for listing."""
        ...

    async def read(self, path: str) -> bytes | None:
        """The whole content, None when there is no such file. Raises: `BlobMissingError`."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Create or replace. Raises: `SessionFileError` where a folder is, or below a file."""
        ...

    async def remove(self, path: str) -> bool:
        """False when there was no such file."""
        ...

    async def copy(self, source: str, destination: str) -> None:
        """Create or replace `destination` with the same content. Raises: `SessionFileError`."""
        ...


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class FoldedSessionFiles:
    """The files of an open turn: the fold's entries and, at once visible, what this turn wrote.

    `record` receives each change in the order it took effect; the turn commits them with their step. Contents read
    are not kept: the caller decides how long they live.
    """

    def __init__(
        self,
        entries: Mapping[str, FileRef],
        *,
        put_blob: Callable[[bytes], Awaitable[str]],
        get_blob: Callable[[str], Awaitable[bytes | None]],
        record: Callable[[JsonObject], None],
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._tree = FileTree(entries)
        self._put_blob, self._get_blob = put_blob, get_blob
        self._record, self._clock = record, clock

    @classmethod
    def from_json(
        cls,
        files: Mapping[str, Json],
        *,
        put_blob: Callable[[bytes], Awaitable[str]],
        get_blob: Callable[[str], Awaitable[bytes | None]],
        record: Callable[[JsonObject], None],
        clock: Callable[[], int] = now_ms,
    ) -> FoldedSessionFiles:
        """Over the fold's own form, path → JSON reference. A malformed reference reads as absent."""
        entries: dict[str, FileRef] = {}
        for path, body in files.items():
            try:
                entries[path] = FileRef.from_json(body)
            except ValueError:
                continue
        return cls(entries, put_blob=put_blob, get_blob=get_blob, record=record, clock=clock)

    def entries(self) -> Mapping[str, FileRef]:
        return self._tree.files

    def tree(self) -> FileTree[FileRef]:
        return self._tree

    async def read(self, path: str) -> bytes | None:
        ref = self._tree.get(path)
        if ref is None:
            return None
        if ref.text is not None:
            return ref.text.encode("utf-8")
        if ref.data is not None:
            return ref.data
        name = ref.blob or ""
        body = await self._get_blob(name)
        if body is None:
            raise BlobMissingError(path, name)
        return body

    async def write(self, path: str, data: bytes) -> None:
        self._refuse_obstacle(path)
        ref = await self._reference(data)
        self._refuse_obstacle(path)  # another tool of the step may have written meanwhile
        self._set(path, ref)

    async def remove(self, path: str) -> bool:
        removed = self._tree.remove(path)
        if removed:
            self._record({"t": "files", "set": {path: None}})
        return removed

    async def copy(self, source: str, destination: str) -> None:
        ref = self._tree.get(source)
        if ref is None:
            raise SessionFileError(source, "file_not_found")
        self._refuse_obstacle(destination)
        self._set(destination, replace(ref, modified=self._clock()))

    async def _reference(self, data: bytes) -> FileRef:
        size, now = len(data), self._clock()
        if size > INLINE_BYTES:
            return FileRef(size, now, blob=await self._put_blob(data))
        try:
            return FileRef(size, now, text=data.decode("utf-8"))
        except UnicodeDecodeError:
            return FileRef(size, now, data=data)

    def _refuse_obstacle(self, path: str) -> None:
        if problem := self._tree.obstacle(path):
            raise SessionFileError(path, problem)

    def _set(self, path: str, ref: FileRef) -> None:
        self._tree.set(path, ref)
        self._record({"t": "files", "set": {path: ref.to_json()}})
