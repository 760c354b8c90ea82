"""Copying, moving and removing one file, byte for byte, anywhere in the workspace (05 §10.1).

Content never enters the conversation. Between session files nothing is read at all: both paths name one content.
"""

from __future__ import annotations

import hashlib

from engine.errors import WorkspacePathEscapeError
from engine.workspace.backend import Failure, failure, lacks
from engine.workspace.binary import format_size
from engine.workspace.places import Content, Place
from engine.workspace.router import Workspace
from engine.workspace.session_files import SessionFileError


async def copy_file(workspace: Workspace, source: str, destination: str, *, overwrite: bool = False) -> str:
    """The one line the caller reads: `Copied '/a' to '/b' (12 B).` or `Error: …`."""
    return await _transfer(workspace, source, destination, overwrite=overwrite, move=False)


async def move_file(workspace: Workspace, source: str, destination: str, *, overwrite: bool = False) -> str:
    """As `copy_file`; the source goes once the destination is verified."""
    return await _transfer(workspace, source, destination, overwrite=overwrite, move=True)


async def remove_file(workspace: Workspace, path: str) -> str:
    """`Removed '/a'.` or `Error: …`."""
    try:
        answer = await workspace.delete(path)
    except WorkspacePathEscapeError as error:
        return f"Error: {error}"
    return f"Error: {answer['error']}." if "error" in answer else f"Removed '{answer.get('path', path)}'."


async def _transfer(
    workspace: Workspace, source: str, destination: str, *, overwrite: bool, move: bool
) -> str:
    try:
        origin = workspace.writable(source) if move else workspace.readable(source)
        target = workspace.writable(destination)
    except WorkspacePathEscapeError as error:
        return f"Error: {error}"
    if isinstance(origin, Failure) or isinstance(target, Failure):
        refused = origin if isinstance(origin, Failure) else target
        return f"Error: {refused.error}." if isinstance(refused, Failure) else ""
    if origin.path == target.path:
        return f"Error: source and destination are the same file, '{origin.shown}'."
    if move and origin.mount is not None and lacks(origin.mount.backend, "delete"):
        return (
            f"Error: {failure('unsupported', origin.shown).error}: it removes no files, so nothing was moved."
        )
    async with workspace.locked(origin.path, target.path):
        size = await _copy(workspace, origin, target, overwrite=overwrite)
        if isinstance(size, Failure):
            return f"Error: {size.error}."
        if not move:
            return f"Copied '{origin.shown}' to '{target.shown}' ({format_size(size)})."
        if problem := await workspace.discard(origin):
            return (
                f"Error: '{target.shown}' was written but '{origin.shown}' could not be removed "
                f"({problem.error}): both exist now."
            )
        return f"Moved '{origin.shown}' to '{target.shown}' ({format_size(size)})."


async def _copy(workspace: Workspace, origin: Place, target: Place, *, overwrite: bool) -> int | Failure:
    existing = await workspace.entry(target)
    if existing is not None and existing.get("is_dir"):
        return failure("is_directory", target.shown)
    if existing is not None and not overwrite:
        sentence = f"'{target.shown}' already exists: set overwrite to replace it"
        return failure("already_exists", target.shown, sentence)
    if origin.mount is None and target.mount is None:
        return await _copy_in_session(workspace, origin, target)
    content = await workspace.content(origin)
    if isinstance(content, Failure):
        return content
    if not content.exact:
        sentence = f"'{origin.shown}' cannot be copied: its store gives no exact bytes"
        return failure("unsupported", origin.shown, sentence)
    if problem := await workspace.store(target, content.data):
        if existing is None and target.mount is not None:
            await workspace.discard(target)  # what a first, empty write may have claimed
        return problem
    if target.mount is None or await _holds(workspace, target, content.data):
        return len(content.data)
    # The store kept something else, e.g. other line endings: give it the bytes.
    problem = await workspace.upload(target, content.data)
    if problem is None and await _holds(workspace, target, content.data):
        return len(content.data)
    if existing is None:
        await workspace.discard(target)
    sentence = f"'{target.shown}' was not written: the store behind it did not keep the content as it is"
    return failure("failed", target.shown, sentence)


async def _copy_in_session(workspace: Workspace, origin: Place, target: Place) -> int | Failure:
    ref = workspace.files.entries().get(origin.path)
    if ref is None:
        folder = await workspace.entry(origin) is not None
        return failure("is_directory" if folder else "file_not_found", origin.shown)
    try:
        await workspace.files.copy(origin.path, target.path)
    except SessionFileError as error:
        return failure("is_directory" if error.problem == "is_directory" else "not_a_directory", target.shown)
    return ref.size


async def _holds(workspace: Workspace, place: Place, data: bytes) -> bool:
    """Whether reading back gives these bytes."""
    found = await workspace.content(place)
    return isinstance(found, Content) and hashlib.sha256(found.data).digest() == hashlib.sha256(data).digest()
