"""Authored files behind a backend, read once at assembly: specs and scripts, and what prompts and skills are made of.

The engine reads authored files through a plain synchronous tree. A host's backend may be asynchronous or somewhere else
entirely, so what is needed of it is fetched here, before anything is assembled (05 §9.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

from core.paths import canonical, is_within
from engine.governance.zones import AUTHORING_ROOT
from engine.spec.skills import MANIFEST
from engine.spec.tree import MAX_FILES, AuthoringTree, MemoryTree
from engine.turn.platform_prompt import OVERRIDE_PATH
from engine.workspace.backend import AnyBackend, ErrorCode, ask
from engine.workspace.deepagents_adapter import as_backend
from engine.workspace.mounts import Mount, MountTable

PERSONA_PATH: Final = "AGENTS.md"
#: files of one folder fetched at once
_TOGETHER: Final = 16


async def authoring_tree(given: AuthoringTree | AnyBackend) -> AuthoringTree:
    """A tree as it is; of a backend, everything below `workflows/` as it stands now.

    Raises: `OSError` when a file or folder there cannot be read; `BackendError` for what is neither.
    """
    if callable(getattr(given, "files", None)) and not hasattr(given, "ls") and not hasattr(given, "als"):
        return cast(AuthoringTree, given)
    backend = as_backend(given)
    paths = await _walk(backend, AUTHORING_ROOT)
    return MemoryTree(await _fetch(backend, {path: path for path in paths}))


async def mounted_content(table: MountTable, sources: Sequence[str]) -> AuthoringTree:
    """What an assembly reads of the mounts: persona, platform prompt, and the manifests of skill bundles.

    Raises: `OSError` when a mount cannot be read.
    """
    found: dict[str, bytes] = {}
    for path in (PERSONA_PATH, OVERRIDE_PATH):
        mount = table.of(path)
        if mount is not None:
            found.update(await _fetch(mount.backend, {path: _inside(mount, path)}))
    for source in sources:
        folder = canonical(source)
        if not folder.escaping:
            found.update(await _manifests(table, folder.text))
    return MemoryTree(found)


async def _manifests(table: MountTable, source: str) -> dict[str, bytes]:
    """`SKILL.md` of the source itself and of each folder directly in it."""
    folders = {source, *(mount.name for mount in table.below(source) if not mount.is_file)}
    mount = table.of(source)
    if mount is not None and not mount.is_file:
        entries = await _entries(mount.backend, _inside(mount, source))
        folders |= {f"{source}/{name}" if source else name for name, is_folder in entries if is_folder}
    found: dict[str, bytes] = {}
    for folder in sorted(folders):
        path = f"{folder}/{MANIFEST}" if folder else MANIFEST
        holder = table.of(path)
        if holder is not None:
            found.update(await _fetch(holder.backend, {path: _inside(holder, path)}))
    return found


def _inside(mount: Mount, path: str) -> str:
    """The path as the mount's backend has it, without leading slash."""
    return path if mount.is_file else path.removeprefix(mount.name).lstrip("/")


async def _walk(backend: AnyBackend, folder: str) -> list[str]:
    """Every file below a folder of a backend; a missing folder holds none."""
    found: list[str] = []
    waiting = [folder]
    while waiting:
        at = waiting.pop()
        for name, is_folder in await _entries(backend, at):
            (waiting if is_folder else found).append(f"{at}/{name}")
        if len(found) + len(waiting) > MAX_FILES:
            raise OSError(f"more than {MAX_FILES} files below {folder}/")
    return found


async def _entries(backend: AnyBackend, folder: str) -> list[tuple[str, bool]]:
    answer, problem = await ask(backend.ls, f"/{folder}")
    if problem in ("file_not_found", "not_a_directory"):
        return []
    if problem is not None:
        raise _unreadable(folder or "/", problem)
    at = canonical(folder).text
    entries: list[tuple[str, bool]] = []
    for entry in cast(Sequence[Any], answer.get("files") or ()):
        path = canonical(str(entry["path"])).text
        if path != at and is_within(path, at):
            name, _, deeper = path.removeprefix(at).lstrip("/").partition("/")
            entries.append((name, bool(entry.get("is_dir")) or bool(deeper)))
    return sorted(set(entries))


async def _fetch(backend: AnyBackend, wanted: dict[str, str]) -> dict[str, bytes]:
    """Contents by path, given the backend's own paths; what is not there is left out."""
    room = asyncio.Semaphore(_TOGETHER)

    async def one(path: str, inside: str) -> tuple[str, bytes | None]:
        async with room:
            answer, problem = await ask(backend.read_raw, f"/{inside}")
        if problem in ("file_not_found", "is_directory", "not_a_directory"):
            return path, None
        if problem is not None:
            raise _unreadable(path, problem)
        content = answer["data"]["content"]
        return path, content.encode("utf-8") if isinstance(content, str) else bytes(content)

    read = await asyncio.gather(*(one(path, inside) for path, inside in wanted.items()))
    return {path: body for path, body in read if body is not None}


def _unreadable(path: str, problem: ErrorCode) -> OSError:
    return OSError(f"{path} cannot be read from its backend: {problem.replace('_', ' ')}")
