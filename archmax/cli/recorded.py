"""Stored sessions as the command reads them for recording, and files it writes without writing over any."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from archmax.cli.invocation import Invocation
from archmax.recording import Recorded
from archmax.settings import read_settings
from core.errors import ArchmaxError
from engine.host.session_folder import SessionFolder
from engine.workspace.session_id import is_child_session_of
from storage.sessionlog import SessionLog
from worker.settings import FleetSettings


class SessionUnread(ArchmaxError):
    """There is no such session, or nothing of it has been recorded yet."""

    code: ClassVar[str] = "session-unknown"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    @override
    def __str__(self) -> str:
        return f"no session {self.session!r} here; archmax sessions lists them"


class FileInTheWay(ArchmaxError):
    """A file that would be written over."""

    code: ClassVar[str] = "file-exists"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    @override
    def __str__(self) -> str:
        return f"{self.path} exists already; nothing was written"


@asynccontextmanager
async def recorded_sessions(
    invocation: Invocation, session_id: str
) -> AsyncGenerator[tuple[Recorded, list[Recorded]]]:
    """A session and all its children, in the order of their ids. Raises: `SessionUnread`."""
    store = read_settings(FleetSettings).model_copy(update={"root": invocation.root}).open_store()
    try:
        folder = SessionFolder(store)
        root = await _read(folder, session_id)
        if root is None:
            raise SessionUnread(session_id)
        children: list[Recorded] = []
        async for other in folder.session_ids():
            if is_child_session_of(other, session_id):
                child = await _read(folder, other)
                children += [child] if child is not None else []
        yield root, children
    finally:
        await store.close()


async def _read(folder: SessionFolder, session_id: str) -> Recorded | None:
    log = SessionLog(folder.files, session_id)
    head = await log.head()
    if head is None or head.deleted:
        return None
    ended = await log.over(head)
    records = [*await log.history(head), *(ended.records if ended is not None else ())]
    return Recorded(session_id, head.workflow, records) if records else None


def write_new(files: Mapping[Path, str]) -> None:
    """Write all files, or none. Raises: `FileInTheWay`."""
    for path in files:
        if path.exists():
            raise FileInTheWay(str(path))
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
