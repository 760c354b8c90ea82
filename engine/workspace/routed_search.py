"""Searches over the whole tree: the session and every searchable mount, or one unsearchable mount alone (05 §9.3).

A search addressed at or inside an unsearchable mount goes to its backend and the answer comes back in its own words.
Any other search never touches such a mount. What a mount of its own hides below another's folder stays hidden.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from core.jsontext import well_formed
from core.paths import is_within
from engine.governance.zones import INTERNAL_AREAS, in_authoring_plane
from engine.workspace.backend import (
    ErrorCode,
    Failure,
    FileEntry,
    GlobResult,
    GrepMatch,
    GrepResult,
    accepts_max_count,
    ask,
    explain,
    failure,
)
from engine.workspace.mounts import Mount, MountTable
from engine.workspace.places import (
    Content,
    Place,
    Visible,
    internal,
    off_loop,
    outer_entry,
    place_of,
    session_entry,
)
from engine.workspace.search import (
    DEFAULT_MAX_COUNT,
    MAX_GLOB_FILES,
    GrepRun,
    glob_problem,
    needle_problem,
    path_matcher,
    residual_globs,
)
from engine.workspace.session_files import FileRef, SessionFiles

#: a search returns no more than this, however much is asked for
_MOST_MATCHES: Final = 10_000
#: contents of a session fetched at once
_AT_ONCE: Final = 8


class RoutedSearch:
    """`read` gives a whole file at a place; used for mounts that are one file."""

    def __init__(
        self, files: SessionFiles, mounts: MountTable, read: Callable[[Place], Awaitable[Content | Failure]]
    ) -> None:
        self._files, self._mounts, self._read = files, mounts, read

    async def glob(self, pattern: str, path: str, visible: Visible) -> GlobResult:
        place = self._start(path)
        if isinstance(place, Failure):
            return place.answer()
        pattern = well_formed(pattern)
        if _verbatim(place):
            return await self._glob_verbatim(place, pattern, visible)
        if problem := glob_problem(pattern):
            return {"error": problem, "code": "failed"}
        matches = path_matcher(pattern)
        found: dict[str, FileEntry] = {}
        truncated = False
        problems: list[str] = []
        if place.mount is None:
            for file, ref in self._session_files(place):
                if matches(_relative(file, place.path)) and visible(file):
                    found["/" + file] = session_entry(file, ref)
        for mount in self._sources(place):
            if mount.is_file:
                if (
                    matches(_relative(mount.name, place.path))
                    and visible(mount.name)
                    and await self._exists(mount)
                ):
                    found["/" + mount.name] = {"path": "/" + mount.name, "is_dir": False}
                continue
            start = place.inner if mount is place.mount else "/"
            for rest in _rests(pattern, mount, place):
                answer, code = await ask(mount.backend.glob, rest, start)
                truncated = truncated or bool(answer.get("truncated"))
                if code and not _absent(code, mount, place):
                    problems.append(explain(code, "/" + mount.name))
                for entry in self._seen(mount, answer.get("files"), visible):
                    if not entry.get("is_dir") and matches(_relative(entry["path"][1:], place.path)):
                        found[entry["path"]] = entry
        names = sorted(found)
        result: GlobResult = {
            "files": [found[name] for name in names[:MAX_GLOB_FILES]],
            "truncated": truncated or len(names) > MAX_GLOB_FILES,
        }
        if problems:
            result["error"] = "; ".join(dict.fromkeys(problems))
        return result

    async def grep(
        self, needle: str, path: str, glob: str | None, max_count: int | None, visible: Visible
    ) -> GrepResult:
        place = self._start(path)
        if isinstance(place, Failure):
            return place.answer()
        needle, glob = well_formed(needle), well_formed(glob) if glob else None
        count = min(max(max_count or DEFAULT_MAX_COUNT, 1), _MOST_MATCHES)
        if _verbatim(place):
            return await self._grep_verbatim(place, needle, glob, count, visible)
        if problem := needle_problem(needle) or (glob_problem(glob) if glob else None):
            return {"error": problem, "code": "failed"}
        matches = path_matcher(glob) if glob else None
        run = GrepRun(needle, count)
        if place.mount is None:
            await self._grep_session(place, run, matches, visible)
        problems: list[str] = []
        for mount in self._sources(place):
            if mount.is_file:
                if (matches is None or matches(_relative(mount.name, place.path))) and visible(mount.name):
                    await self._grep_file_mount(mount, run)
                continue
            for rest in _rests(glob, mount, place) if glob else [None]:
                answer, code = await _ask_grep(
                    mount, needle, place.inner if mount is place.mount else "/", rest, run
                )
                run.truncated = run.truncated or bool(answer.get("truncated"))
                if code and not _absent(code, mount, place):
                    problems.append(explain(code, "/" + mount.name))
                for match in self._seen_matches(mount, answer.get("matches"), visible):
                    if matches is None or matches(_relative(match["path"][1:], place.path)):
                        _add(run, match)
        result = run.result()
        if problems:
            result["error"] = "; ".join(dict.fromkeys(problems))
        return result

    # --- where a search goes -----------------------------------------------------------------------------------

    def _start(self, path: str) -> Place | Failure:
        place = place_of(path, self._mounts)
        if isinstance(place, Failure):
            return place
        return internal(place) or place

    def _sources(self, place: Place) -> Iterator[Mount]:
        """The mounts a search looks into: the one it starts in, and those below."""
        if place.mount is not None:
            yield place.mount
        yield from (mount for mount in self._mounts.below(place.path) if mount.searchable or mount.is_file)

    def _session_files(self, place: Place) -> Iterator[tuple[str, FileRef]]:
        for file, ref in self._files.tree().walk(place.path):
            first = file.partition("/")[0]
            if first not in INTERNAL_AREAS and not in_authoring_plane(file) and self._mounts.of(file) is None:
                yield file, ref

    def _seen(self, mount: Mount, items: object, visible: Visible) -> Iterator[FileEntry]:
        """A backend's entries under their workspace paths: inside the mount, not under a deeper one, not hidden."""
        for item in items if isinstance(items, list) else ():
            entry = outer_entry(mount, item)
            if (
                entry is not None
                and self._mounts.of(entry["path"][1:]) is mount
                and visible(entry["path"][1:])
            ):
                yield entry

    def _seen_matches(self, mount: Mount, items: object, visible: Visible) -> Iterator[GrepMatch]:
        for item in items if isinstance(items, list) else ():
            entry = outer_entry(mount, item)
            if (
                entry is None
                or self._mounts.of(entry["path"][1:]) is not mount
                or not visible(entry["path"][1:])
            ):
                continue
            yield {"path": entry["path"], "line": int(item["line"]), "text": str(item["text"])}

    async def _exists(self, mount: Mount) -> bool:
        return isinstance(await self._read(Place(mount.name, _zone(mount, self._mounts), mount)), Content)

    # --- one source --------------------------------------------------------------------------------------------

    async def _grep_session(
        self, place: Place, run: GrepRun, matches: Callable[[str], bool] | None, visible: Visible
    ) -> None:
        wanted = (
            file
            for file, ref in self._session_files(place)
            if (matches is None or matches(_relative(file, place.path)))
            and visible(file)
            and run.admits(file, ref.size)
        )
        while batch := list(islice(wanted, _AT_ONCE)):
            contents = await asyncio.gather(*(self._files.read(file) for file in batch))
            for file, data in zip(batch, contents, strict=True):
                if data is not None:
                    await off_loop(len(data), lambda file=file, data=data: run.search("/" + file, data))
            if run.done:
                return

    async def _grep_file_mount(self, mount: Mount, run: GrepRun) -> None:
        content = await self._read(Place(mount.name, _zone(mount, self._mounts), mount))
        if isinstance(content, Content) and run.admits(mount.name, len(content.data)):
            data = content.data
            await off_loop(len(data), lambda: run.search("/" + mount.name, data))

    async def _glob_verbatim(self, place: Place, pattern: str, visible: Visible) -> GlobResult:
        assert place.mount is not None
        answer, _ = await ask(place.mount.backend.glob, pattern, place.inner)
        if error := answer.get("error"):
            return {"error": str(error), "code": "failed"}
        if "files" not in answer:
            return failure("failed", place.shown).answer()
        files = list(self._seen(place.mount, answer["files"], visible))
        return {
            "files": files[:MAX_GLOB_FILES],
            "truncated": bool(answer.get("truncated")) or len(files) > MAX_GLOB_FILES,
        }

    async def _grep_verbatim(
        self, place: Place, needle: str, glob: str | None, count: int, visible: Visible
    ) -> GrepResult:
        assert place.mount is not None
        answer, _ = await _ask_grep(place.mount, needle, place.inner, glob, GrepRun(needle, count))
        if error := answer.get("error"):
            return {"error": str(error), "code": "failed"}
        if "matches" not in answer:
            return failure("failed", place.shown).answer()
        found = list(self._seen_matches(place.mount, answer["matches"], visible))
        return {"matches": found[:count], "truncated": bool(answer.get("truncated")) or len(found) > count}


def _verbatim(place: Place) -> bool:
    return place.mount is not None and not place.mount.is_file and not place.mount.searchable


def _zone(mount: Mount, mounts: MountTable) -> Any:
    place = place_of(mount.name, mounts)
    assert isinstance(place, Place)
    return place.zone


def _rests(pattern: str, mount: Mount, place: Place) -> list[str]:
    """The glob as this mount is asked it: itself where the search starts inside, else what is left of it below."""
    if mount is place.mount:
        return [pattern]
    below = mount.name[len(place.path) :].lstrip("/")
    rests = residual_globs(pattern, below)
    return ["**"] if rests is None else rests


async def _ask_grep(
    mount: Mount, needle: str, start: str, glob: str | None, run: GrepRun
) -> tuple[Mapping[str, Any], ErrorCode | None]:
    """One mount's matches. One more than is still wanted is asked for, so that a full answer shows it was cut."""
    backend = mount.backend
    if accepts_max_count(backend.grep):
        left = max(run.max_count - len(run.matches), 0) + 1
        return await ask(backend.grep, needle, start, glob, max_count=left)
    return await ask(backend.grep, needle, start, glob)


def _add(run: GrepRun, match: GrepMatch) -> None:
    if len(run.matches) < run.max_count:
        run.matches.append(match)
    else:
        run.truncated = True


def _absent(code: ErrorCode, mount: Mount, place: Place) -> bool:
    """A mounted folder that is not there adds nothing; a folder the caller named and that is not there is an error."""
    return code == "file_not_found" and (mount is not place.mount or place.path == mount.name)


def _relative(file: str, folder: str) -> str:
    """`file` seen from the folder searched; its name when it is itself what is searched."""
    if file == folder:
        return file.rpartition("/")[2]
    return file[len(folder) :].lstrip("/") if folder and is_within(file, folder) else file
