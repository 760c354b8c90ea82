"""The workspace of one session: its files and the mounts as the single tree an agent sees (05 §1, §9, §10).

Every path is canonicalised and routed here; a path that climbs out raises before anything is asked. Read-only mounts,
runtime areas and offload areas refuse by themselves, whatever a kernel allowed: this is the second lock. Answers name
virtual paths only; a backend's own words stay here, except what an unsearchable mount says about a search.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from core.jsontext import well_formed
from core.paths import canonical
from engine.governance.zones import INTERNAL_AREAS, SCRATCHPAD, Zone, in_authoring_plane
from engine.workspace.backend import (
    MAX_FILE_BYTES,
    DeleteResult,
    DownloadAnswer,
    EditResult,
    Failure,
    FileEntry,
    GlobResult,
    GrepResult,
    LsResult,
    RawResult,
    ReadResult,
    UploadAnswer,
    WriteResult,
    ask,
    ask_many,
    classify,
    failure,
    lacks,
)
from engine.workspace.binary import (
    binary_notice,
    binary_type,
    is_binary_path,
    is_text,
    is_text_type,
    mime_type,
)
from engine.workspace.mounts import Mount, MountTable
from engine.workspace.paging import page_of
from engine.workspace.places import (
    SHOWN_AREAS,
    Content,
    Place,
    Visible,
    bounded,
    everything,
    internal,
    is_a_file,
    off_loop,
    outer_entry,
    place_of,
    session_entry,
)
from engine.workspace.routed_search import RoutedSearch
from engine.workspace.session_files import SessionFileError, SessionFiles
from engine.workspace.textedit import replace_text


class Workspace:
    """Implements the backend protocol over the whole tree, plus what the file tools need.

    One object per open session; tools of one step use it concurrently.
    """

    def __init__(self, files: SessionFiles, mounts: MountTable) -> None:
        self.files, self.mounts = files, mounts
        self._search = RoutedSearch(files, mounts, self.content)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # --- paths -------------------------------------------------------------------------------------------------

    def place(self, path: str) -> Place | Failure:
        """Where a path leads. Raises: `WorkspacePathEscapeError`."""
        return place_of(path, self.mounts)

    @asynccontextmanager
    async def locked(self, *paths: str) -> AsyncGenerator[None]:
        """Hold canonical paths against the other tools of the step; in one order, so that no two wait on each other."""
        async with AsyncExitStack() as stack:
            for path in sorted(set(paths)):
                lock = self._locks.get(path)
                if lock is None:
                    lock = self._locks[path] = asyncio.Lock()
                await stack.enter_async_context(lock)
            yield

    def readable(self, path: str) -> Place | Failure:
        """The place of a file to read."""
        place = self._file_place(path)
        if isinstance(place, Place) and place.mount is None and in_authoring_plane(place.path):
            return failure("file_not_found", place.shown)
        return place

    def writable(self, path: str) -> Place | Failure:
        """The place of a file to write or remove."""
        place = self._file_place(path)
        if isinstance(place, Failure):
            return place
        if place.zone is Zone.AUTHORED:
            sentence = f"'{place.shown}' is read-only: write under 'scratchpad/'"
            return failure("permission_denied", place.shown, sentence)
        if place.zone is Zone.RUN_OFFLOAD:
            sentence = f"'{place.shown}' is managed by the runtime: write under 'scratchpad/'"
            return failure("permission_denied", place.shown, sentence)
        if place.mount is None:
            if in_authoring_plane(place.path):
                return failure("permission_denied", place.shown)
            if self.mounts.below(place.path) or place.path == SCRATCHPAD:
                return failure("is_directory", place.shown)
            if any(place.path.startswith(file + "/") for file in self.mounts.prefixes.files):
                return failure("not_a_directory", place.shown)
        return place

    def _file_place(self, path: str) -> Place | Failure:
        place = self.place(path)
        if isinstance(place, Failure):
            return place
        mount_folder = place.mount is not None and not place.mount.is_file and place.path == place.mount.name
        if place.zone is Zone.ROOT or mount_folder:
            return failure("is_directory", place.shown)
        return internal(place) or place

    # --- listing -----------------------------------------------------------------------------------------------

    async def ls(self, path: str = "/", *, visible: Visible = everything) -> LsResult:
        """What lies directly in a folder, by name. At the root: the session's areas and files, and every mount."""
        place = self.place(path)
        if isinstance(place, Failure):
            return place.answer()
        if refused := internal(place):
            return refused.answer()
        if place.mount is not None and place.mount.is_file:
            return is_a_file(place).answer()
        found: dict[str, FileEntry] = {}
        if place.mount is None:
            if problem := self._list_session(place, found):
                return problem.answer()
        else:
            answer, code = await ask(place.mount.backend.ls, place.inner)
            if code == "not_a_directory":
                return is_a_file(place).answer()
            if code == "file_not_found" and place.path == place.mount.name:
                code = None  # an absent mounted folder is an empty one
            if code:
                return failure(code, place.shown).answer()
            for item in answer.get("files") or ():
                entry = outer_entry(place.mount, item)
                if entry is not None and entry["path"].rpartition("/")[0] == place.shown:
                    found[entry["path"]] = entry
        await self._list_mounts(place, found)
        entries = [found[name] for name in sorted(found)]
        return {"files": [entry for entry in entries if visible(entry["path"].lstrip("/"))]}

    def _list_session(self, place: Place, found: dict[str, FileEntry]) -> Failure | None:
        tree = self.files.tree()
        at_root = place.zone is Zone.ROOT
        if not tree.is_folder(place.path):
            if tree.get(place.path) is not None:
                return is_a_file(place)
            if place.path not in SHOWN_AREAS and not self.mounts.below(place.path):
                return failure("file_not_found", place.shown)
        for name in tree.names(place.path):
            if at_root and (name in INTERNAL_AREAS or in_authoring_plane(name)):
                continue
            path = name if at_root else f"{place.path}/{name}"
            found["/" + path] = session_entry(path, tree.get(path))
        if at_root:
            for area in SHOWN_AREAS:
                found.setdefault("/" + area, {"path": "/" + area, "is_dir": True})
        return None

    async def _list_mounts(self, place: Place, found: dict[str, FileEntry]) -> None:
        """Mounts directly in the folder, and the folders that exist because mounts lie deeper."""
        for mount in self.mounts.below(place.path):
            name, _, deeper = mount.name[len(place.path) :].lstrip("/").partition("/")
            shown = f"{place.shown.rstrip('/')}/{name}"
            if deeper or not mount.is_file:
                found[shown] = {"path": shown, "is_dir": True}
                continue
            found.pop(shown, None)  # the mount's file hides one of the same name
            if (entry := await self.mounted_entry(mount, mount.name)) is not None:
                found[shown] = entry

    async def mounted_entry(self, mount: Mount, path: str) -> FileEntry | None:
        """A mounted file or folder as its parent lists it; None when it is not there."""
        inner = mount.inner(path)
        answer, code = await ask(mount.backend.ls, inner.rpartition("/")[0] or "/")
        if code:
            return None
        for item in answer.get("files") or ():
            entry = outer_entry(mount, item)
            if entry is not None and entry["path"] == "/" + path:
                return entry
        return None

    async def entry(self, place: Place) -> FileEntry | None:
        """What stands at a place: a file, a folder, or nothing."""
        if place.mount is not None:
            return await self.mounted_entry(place.mount, place.path)
        tree = self.files.tree()
        if (ref := tree.get(place.path)) is not None:
            return session_entry(place.path, ref)
        if tree.is_folder(place.path) or self.mounts.below(place.path) or place.path in SHOWN_AREAS:
            return {"path": place.shown, "is_dir": True}
        return None

    # --- reading -----------------------------------------------------------------------------------------------

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> ReadResult:
        """Text by lines. Binary content is refused with a notice, never returned (03 §22.1)."""
        place = self.readable(path)
        if isinstance(place, Failure):
            return place.answer()
        named = mime_type(place.path)
        if not is_text_type(named):
            entry = await self.entry(place)
            if entry is None or entry.get("is_dir"):
                return failure("is_directory" if entry else "file_not_found", place.shown).answer()
            return {"error": binary_notice(place.shown, named, entry.get("size")), "code": "unsupported"}
        content = await self._typed_content(place)
        if isinstance(content, Failure):
            return content.answer()
        data = content.data
        binary = await off_loop(len(data), lambda: binary_type(place.path, content.reported, data))
        if binary is not None:
            return {"error": binary_notice(place.shown, binary, len(data)), "code": "unsupported"}
        page, more = await off_loop(len(data), lambda: page_of(data.decode("utf-8"), offset, limit))
        return {"content": page, "mime_type": content.reported or named, "more": more}

    async def read_raw(self, path: str) -> RawResult:
        """The whole file: text where it is text, else bytes."""
        place = self.readable(path)
        content = await self._typed_content(place) if not isinstance(place, Failure) else place
        if isinstance(content, Failure):
            return content.answer()
        data = content.data
        text = await off_loop(len(data), lambda: data.decode("utf-8") if is_text(data) else None)
        mime = content.reported or mime_type(canonical(path).text)
        return {"data": {"content": data if text is None else text, "mime_type": mime}}

    async def content(self, place: Place) -> Content | Failure:
        """A whole file as it is stored, as far as its store can give that."""
        if place.mount is None:
            data = await self.files.read(place.path)
            if data is not None:
                return Content(data, None, True)
            folder = await self.entry(place) is not None
            return failure("is_directory" if folder else "file_not_found", place.shown)
        if not lacks(place.mount.backend, "download_files"):
            answers, code = await ask_many(place.mount.backend.download_files, [place.inner])
            if code is None:
                answer = answers[0]
                data = answer.get("content")
                if not answer.get("error") and isinstance(data, bytes | bytearray):
                    return bounded(place, Content(bytes(data), None, True))
                code = classify(str(answer.get("error") or "file_not_found"))
            if code != "unsupported":
                return failure(code, place.shown)
        return await self._raw_content(place)

    async def _typed_content(self, place: Place) -> Content | Failure:
        """A whole file with the type its store reports for it."""
        return await self.content(place) if place.mount is None else await self._raw_content(place)

    async def _raw_content(self, place: Place) -> Content | Failure:
        assert place.mount is not None
        answer, code = await ask(place.mount.backend.read_raw, place.inner)
        if code:
            return failure(code, place.shown)
        body = answer.get("data") or {}
        content, reported = body.get("content"), body.get("mime_type")
        reported = reported if isinstance(reported, str) and reported else None
        if isinstance(content, bytes | bytearray):
            return bounded(place, Content(bytes(content), reported, True))
        if isinstance(content, str):
            data = well_formed(content).encode("utf-8")
            return bounded(place, Content(data, reported, "\ufffd" not in content))
        return failure("failed", place.shown)

    async def download_files(self, paths: Sequence[str]) -> list[DownloadAnswer]:
        """Exact bytes per file; `permission_denied` where a backend serves only text it had to mend."""
        return [await self._download(path) for path in paths]

    async def _download(self, path: str) -> DownloadAnswer:
        place = self.readable(path)
        content = await self.content(place) if not isinstance(place, Failure) else place
        if isinstance(content, Failure):
            return {"path": path, "content": None, "error": content.code}
        if not content.exact:
            return {"path": path, "content": None, "error": "permission_denied"}
        return {"path": path, "content": content.data, "error": None}

    # --- writing -----------------------------------------------------------------------------------------------

    async def write(self, path: str, content: str) -> WriteResult:
        """Create or replace. A binary-typed path carries base64 (05 §9.1)."""
        place = self.writable(path)
        if isinstance(place, Failure):
            return place.answer()
        if is_binary_path(place.path):
            try:
                data = base64.b64decode(content, validate=True)
            except (binascii.Error, ValueError):
                sentence = (
                    f"'{place.shown}' is a binary type: its content is given as base64, and this is none"
                )
                return failure("failed", place.shown, sentence).answer()
        else:
            data = well_formed(content).encode("utf-8")
        async with self.locked(place.path):
            problem = await self.store(place, data)
        return problem.answer() if problem else {"path": place.shown}

    async def store(self, place: Place, data: bytes) -> Failure | None:
        """Put bytes at a place that was found writable; the caller holds its lock."""
        if len(data) > MAX_FILE_BYTES:
            return failure("too_large", place.shown)
        if place.mount is None:
            try:
                await self.files.write(place.path, data)
            except SessionFileError as error:
                return failure(classify(error.problem), place.shown)
            return None
        backend = place.mount.backend
        if is_binary_path(place.path):
            return await self._write_text(place, base64.b64encode(data).decode("ascii"))
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            if lacks(backend, "upload_files"):
                return failure("unsupported", place.shown)
            # The empty write claims a new path, so that the store makes its folders and its own checks.
            claimed = await self._write_text(place, "") if await self.entry(place) is None else None
            return claimed or await self.upload(place, data)
        return await self._write_text(place, text)

    async def _write_text(self, place: Place, content: str) -> Failure | None:
        assert place.mount is not None
        backend = place.mount.backend
        _, code = await ask(backend.write, place.inner, content)
        if code == "already_exists":  # a create-only store: replace what is there (05 OP-5)
            answer, code = await ask(backend.read_raw, place.inner)
            old = (answer.get("data") or {}).get("content")
            if code is None and old == content:
                return None
            if code is None and isinstance(old, str) and old and not is_binary_path(place.path):
                _, code = await ask(backend.edit, place.inner, old, content)
            else:
                code = code or "already_exists"
        return failure(code, place.shown) if code else None

    async def upload(self, place: Place, data: bytes) -> Failure | None:
        """Bytes through a mount's `upload_files`."""
        assert place.mount is not None
        if lacks(place.mount.backend, "upload_files"):
            return failure("unsupported", place.shown)
        answers, code = await ask_many(place.mount.backend.upload_files, [(place.inner, data)])
        if code is None and (error := answers[0].get("error")):
            code = classify(str(error))
        return failure(code, place.shown) if code else None

    async def upload_files(self, files: Sequence[tuple[str, bytes]]) -> list[UploadAnswer]:
        """Per file; a mount without upload refuses its own `permission_denied`."""
        return [{"path": path, "error": await self._upload(path, data)} for path, data in files]

    async def _upload(self, path: str, data: bytes) -> str | None:
        place = self.writable(path)
        if isinstance(place, Failure):
            return place.code
        if place.mount is not None and lacks(place.mount.backend, "upload_files"):
            return "permission_denied"
        async with self.locked(place.path):
            problem = await (self.store(place, data) if place.mount is None else self.upload(place, data))
        return problem.code if problem else None

    async def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> EditResult:
        """Replace exact text, keeping line endings; one edit of a path at a time."""
        place = self.writable(path)
        if isinstance(place, Failure):
            return place.answer()
        old, new = well_formed(old), well_formed(new)
        async with self.locked(place.path):
            content = await self.content(place)
            if isinstance(content, Failure):
                return content.answer()
            data = content.data
            if binary := binary_type(place.path, content.reported, data):
                return {"error": binary_notice(place.shown, binary, len(data)), "code": "unsupported"}
            edited = await off_loop(
                len(data), lambda: replace_text(data.decode("utf-8"), old, new, replace_all=replace_all)
            )
            if isinstance(edited, str):
                return {"error": edited, "code": "failed"}
            if problem := await self.store(place, edited.content.encode("utf-8")):
                return problem.answer()
        return {"path": place.shown, "occurrences": edited.occurrences}

    async def delete(self, path: str) -> DeleteResult:
        """Remove one file."""
        place = self.writable(path)
        if isinstance(place, Failure):
            return place.answer()
        async with self.locked(place.path):
            problem = await self.discard(place)
        return problem.answer() if problem else {"path": place.shown}

    async def discard(self, place: Place) -> Failure | None:
        """Remove the file at a place that was found writable; the caller holds its lock."""
        if place.mount is None:
            if await self.files.remove(place.path):
                return None
            folder = await self.entry(place) is not None
            return failure("is_directory" if folder else "file_not_found", place.shown)
        if lacks(place.mount.backend, "delete"):
            return failure("unsupported", place.shown)
        _, code = await ask(place.mount.backend.delete, place.inner)
        return failure(code, place.shown) if code else None

    # --- searching ---------------------------------------------------------------------------------------------

    async def glob(self, pattern: str, path: str = "/", *, visible: Visible = everything) -> GlobResult:
        """Files by name (05 §9.3)."""
        return await self._search.glob(pattern, path, visible)

    async def grep(
        self,
        pattern: str,
        path: str = "/",
        glob: str | None = None,
        max_count: int | None = None,
        *,
        visible: Visible = everything,
    ) -> GrepResult:
        """Lines that hold literal text (05 §9.3, ruling 23)."""
        return await self._search.grep(pattern, path, glob, max_count, visible)
