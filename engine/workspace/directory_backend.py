"""A folder of the host's file system as a backend.

No link below the folder is ever followed: every component is opened relative to its parent without following, so a
path is its own real path and a link swapped in between two looks reaches nothing. A name must be spelled as it is
stored, on file systems that do not care about case or Unicode form too (02 OP-10, OP-11). I/O runs in threads and
reads are bounded.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import secrets
import stat
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from core.jsontext import well_formed
from core.paths import canonical
from engine.workspace.backend import (
    MAX_FILE_BYTES,
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
    MAX_WALKED_ENTRIES,
    GrepRun,
    glob_problem,
    needle_problem,
    path_matcher,
)
from engine.workspace.textedit import replace_text

_TEMPORARY: Final = ".archmax-write-"
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: without O_NONBLOCK opening a pipe somebody left there would wait for its writer
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DirectoryBackend:
    """`root` may be absent (then it is empty; the first write creates it) and may itself be a link."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()

    async def ls(self, path: str) -> LsResult:
        return await asyncio.to_thread(self._ls, path)

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> ReadResult:
        return await asyncio.to_thread(self._read, path, offset, limit)

    async def read_raw(self, path: str) -> RawResult:
        return await asyncio.to_thread(self._read_raw, path)

    async def write(self, path: str, content: str) -> WriteResult:
        return await asyncio.to_thread(self._write, path, content)

    async def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> EditResult:
        return await asyncio.to_thread(self._edit, path, old, new, replace_all)

    async def glob(self, pattern: str, path: str = "/") -> GlobResult:
        return await asyncio.to_thread(self._glob, pattern, path)

    async def grep(
        self, pattern: str, path: str = "/", glob: str | None = None, max_count: int | None = None
    ) -> GrepResult:
        return await asyncio.to_thread(self._grep, pattern, path, glob, max_count)

    async def upload_files(self, files: Sequence[tuple[str, bytes]]) -> list[UploadAnswer]:
        return await asyncio.to_thread(lambda: [self._upload(path, data) for path, data in files])

    async def download_files(self, paths: Sequence[str]) -> list[DownloadAnswer]:
        return await asyncio.to_thread(lambda: [self._download(path) for path in paths])

    async def delete(self, path: str) -> DeleteResult:
        return await asyncio.to_thread(self._delete, path)

    # --- the same, in a thread ---------------------------------------------------------------------------------

    def _ls(self, path: str) -> LsResult:
        try:
            at = _segments(path)
            with self._folder(at) as folder:
                return {"files": [_entry(at, item) for item in _listed(folder)]}
        except (OSError, BackendError, ValueError) as error:
            return {"error": classify(error)}

    def _read(self, path: str, offset: int, limit: int | None) -> ReadResult:
        try:
            content, more = page_of(self._bytes(path).decode("utf-8"), offset, limit)
        except UnicodeDecodeError:
            return {"error": "failed"}
        except (OSError, BackendError, ValueError) as error:
            return {"error": classify(error)}
        return {"content": content, "mime_type": mime_type(path), "more": more}

    def _read_raw(self, path: str) -> RawResult:
        try:
            data = self._bytes(path)
        except (OSError, BackendError, ValueError) as error:
            return {"error": classify(error)}
        content = data.decode("utf-8") if is_text(data) else data
        return {"data": {"content": content, "mime_type": mime_type(path)}}

    def _write(self, path: str, content: str) -> WriteResult:
        try:
            if is_binary_path(path):
                data = base64.b64decode(content, validate=True)
            else:
                data = well_formed(content).encode("utf-8")
            self._put(path, data)
        except binascii.Error:
            return {"error": "failed"}
        except (OSError, BackendError, ValueError) as error:
            return {"error": classify(error)}
        return {"path": path}

    def _edit(self, path: str, old: str, new: str, replace_all: bool) -> EditResult:
        try:
            edited = replace_text(self._bytes(path).decode("utf-8"), old, new, replace_all=replace_all)
            if isinstance(edited, str):
                return {"error": edited}
            self._put(path, edited.content.encode("utf-8"))
        except UnicodeDecodeError:
            return {"error": "failed"}
        except (OSError, BackendError, ValueError) as error:
            return {"error": classify(error)}
        return {"path": path, "occurrences": edited.occurrences}

    def _glob(self, pattern: str, path: str) -> GlobResult:
        if problem := glob_problem(pattern):
            return {"error": problem}
        matches = path_matcher(pattern)
        found: list[FileEntry] = []
        try:
            walk = _Walk(self, path)
            for relative, entry in walk:
                if not matches(relative):
                    continue
                if len(found) >= MAX_GLOB_FILES:
                    return {"files": found, "truncated": True}
                found.append(entry)
        except (OSError, BackendError, ValueError) as error:
            return {"error": classify(error)}
        return {"files": found, "truncated": walk.truncated}

    def _grep(self, pattern: str, path: str, glob: str | None, max_count: int | None) -> GrepResult:
        if problem := needle_problem(pattern) or (glob_problem(glob) if glob else None):
            return {"error": problem}
        matches = path_matcher(glob) if glob else None
        run = GrepRun(pattern, max_count or DEFAULT_MAX_COUNT)
        try:
            walk = _Walk(self, path)
            for relative, entry in walk:
                if matches is not None and not matches(relative):
                    continue
                if run.admits(entry["path"], entry.get("size", 0)):
                    with suppress(OSError, BackendError):  # gone or closed to us since it was listed
                        run.search(entry["path"], self._bytes(entry["path"]))
                if run.done:
                    break
        except (OSError, BackendError, ValueError) as error:
            return {"error": classify(error)}
        run.truncated = run.truncated or walk.truncated
        return run.result()

    def _upload(self, path: str, data: bytes) -> UploadAnswer:
        try:
            self._put(path, data)
        except (OSError, BackendError, ValueError) as error:
            return {"path": path, "error": classify(error)}
        return {"path": path, "error": None}

    def _download(self, path: str) -> DownloadAnswer:
        try:
            return {"path": path, "content": self._bytes(path), "error": None}
        except (OSError, BackendError, ValueError) as error:
            return {"path": path, "content": None, "error": classify(error)}

    def _delete(self, path: str) -> DeleteResult:
        try:
            *above, name = _file_segments(path)
            with self._folder(above) as folder:
                _require_file(_look(folder, name))
                os.unlink(name, dir_fd=folder)
        except (OSError, BackendError, ValueError) as error:
            return {"error": classify(error)}
        return {"path": path}

    # --- descriptors -------------------------------------------------------------------------------------------

    @contextmanager
    def _folder(self, segments: Sequence[str], *, create: bool = False) -> Generator[int]:
        """The folder's descriptor, reached component by component. Raises: `BackendError`, `OSError`."""
        if create:
            self.root.mkdir(parents=True, exist_ok=True)
        # Only the root itself may be a link: it is the host's own configuration.
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in segments:
                found = _look(folder, name)
                if found is None:
                    if not create:
                        raise BackendError("file_not_found")
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                elif stat.S_ISLNK(found.st_mode):
                    raise BackendError("is_link")
                elif not stat.S_ISDIR(found.st_mode):
                    raise BackendError("not_a_directory" if create else "file_not_found")
                inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _bytes(self, path: str) -> bytes:
        *above, name = _file_segments(path)
        with self._folder(above) as folder:
            _require_file(_look(folder, name))
            descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise BackendError("failed")
            if found.st_size > MAX_FILE_BYTES:
                raise BackendError("too_large")
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise BackendError("too_large")
        return data

    def _put(self, path: str, data: bytes) -> None:
        """Replace in one step: a reader sees the old content or the new, never a part."""
        *above, name = _file_segments(path)
        with self._folder(above, create=True) as folder:
            found = _look(folder, name)
            if found is not None:
                _require_file(found)
            temporary = _TEMPORARY + secrets.token_hex(8)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    if found is not None:
                        os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise


class _Walk:
    """Every regular file below a folder (or the one file named), sorted, links left out; stops at a bound."""

    def __init__(self, backend: DirectoryBackend, path: str) -> None:
        self._backend, self._at = backend, _segments(path)
        self.truncated = False

    def __iter__(self) -> Iterator[tuple[str, FileEntry]]:
        at = self._at
        if at:
            with self._backend._folder(at[:-1]) as folder:
                found = _look(folder, at[-1])
            if found is not None and stat.S_ISREG(found.st_mode):
                yield at[-1], _entry(at[:-1], (at[-1], found))
                return
        walked = 0
        waiting: list[list[str]] = [[]]
        while waiting:
            below = waiting.pop()
            try:
                with self._backend._folder([*at, *below]) as folder:
                    listed = _listed(folder)
            except (OSError, BackendError):
                if not below:
                    raise
                continue  # removed, or closed to us, since its parent was listed
            folders: list[list[str]] = []
            for name, found in listed:
                walked += 1
                if walked > MAX_WALKED_ENTRIES:
                    self.truncated = True
                    return
                if stat.S_ISDIR(found.st_mode):
                    folders.append([*below, name])
                elif stat.S_ISREG(found.st_mode):
                    yield "/".join([*below, name]), _entry([*at, *below], (name, found))
            waiting.extend(reversed(folders))


def _segments(path: str) -> list[str]:
    at = canonical(path)
    if at.escaping or "\0" in path:
        raise BackendError("invalid_path")
    return list(at.segments)


def _file_segments(path: str) -> list[str]:
    segments = _segments(path)
    if not segments:
        raise BackendError("is_directory")
    if segments[-1].startswith(_TEMPORARY):
        raise BackendError("permission_denied")
    return segments


def _look(folder: int, name: str) -> os.stat_result | None:
    """What lies under exactly this name. Raises: `BackendError` when it is stored under another spelling."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if _may_be_another_spelling(folder, name, found) and name not in _names(folder):
        raise BackendError("file_not_found")
    return found


def _may_be_another_spelling(folder: int, name: str, found: os.stat_result) -> bool:
    """Whether the file system answers to other spellings too; then only its listing says which one is stored."""
    if not name.isascii():
        return True
    other = name.swapcase()
    if other == name:
        return False
    try:
        return os.path.samestat(os.stat(other, dir_fd=folder, follow_symlinks=False), found)
    except OSError:
        return False


def _names(folder: int) -> set[str]:
    with os.scandir(folder) as items:
        return {item.name for item in items}


def _require_file(found: os.stat_result | None) -> None:
    if found is None:
        raise BackendError("file_not_found")
    if stat.S_ISLNK(found.st_mode):
        raise BackendError("is_link")
    if stat.S_ISDIR(found.st_mode):
        raise BackendError("is_directory")
    if not stat.S_ISREG(found.st_mode):
        raise BackendError("failed")


def _listed(folder: int) -> list[tuple[str, os.stat_result]]:
    """Folders and regular files, sorted by name; links and half-written files are not there."""
    found: list[tuple[str, os.stat_result]] = []
    with os.scandir(folder) as items:
        for item in items:
            if item.name.startswith(_TEMPORARY) or not _speakable(item.name):
                continue
            try:
                status = item.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode):
                found.append((item.name, status))
    found.sort(key=lambda item: item[0])
    return found


def _speakable(name: str) -> bool:
    """Names that are no UTF-8 cannot be written in a call, so they are not offered."""
    return not any(unicodedata.category(char) == "Cs" for char in name) if not name.isascii() else True


def _entry(folder: Sequence[str], item: tuple[str, os.stat_result]) -> FileEntry:
    name, status = item
    is_dir = stat.S_ISDIR(status.st_mode)
    entry: FileEntry = {
        "path": "/" + "/".join([*folder, name]),
        "is_dir": is_dir,
        "modified_at": datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="milliseconds"),
    }
    if not is_dir:
        entry["size"] = status.st_size
    return entry
