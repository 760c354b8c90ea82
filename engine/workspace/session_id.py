"""Session ids: which a host may use, and how a child's is made from its parent's (05 §2, 04 §5.1)."""

from __future__ import annotations

import re
import unicodedata
import uuid
from typing import Final

from engine.errors import SessionStoreIdError
from engine.governance.zones import (
    AUTHORING_ROOT,
    INTERNAL_AREAS,
    OFFLOAD_AREAS,
    SCRATCHPAD,
    MountPrefixes,
)

MAX_SESSION_ID_CHARS: Final = 200
_CHILD: Final = re.compile(r"~[0-9]+\Z")
_SEPARATORS: Final = re.compile(r"[/\\]")
_RESERVED: Final = frozenset({SCRATCHPAD, AUTHORING_ROOT, *OFFLOAD_AREAS, *INTERNAL_AREAS})


def normal_session_id(session_id: str) -> str:
    """The id as it is kept: leading slashes are no part of it."""
    return session_id.lstrip("/")


def session_id_rejection(session_id: str, mounts: MountPrefixes | None = None) -> str | None:
    """Why no session can have this id, or None."""
    at = normal_session_id(session_id)
    if not at:
        return "it is empty"
    segments = _SEPARATORS.split(at)
    if ".." in segments:
        return "it holds a '..' segment"
    first = segments[0]
    if first in _RESERVED:
        return f"{first!r} is a reserved name"
    if mounts is not None and any(name.partition("/")[0] == first for name in mounts.names):
        return f"{first!r} is the name of a mount"
    if "\\" in at:
        return "it holds a backslash"
    if len(at) > MAX_SESSION_ID_CHARS:
        return f"it is longer than {MAX_SESSION_ID_CHARS} characters"
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in at):
        return "it holds a control character"
    return None


def new_session_id_rejection(session_id: str, mounts: MountPrefixes | None = None) -> str | None:
    """As above, for an id a host gives a new top-level session: it may not read as a child's (05 OP-1)."""
    if problem := session_id_rejection(session_id, mounts):
        return problem
    if parent_session_id(normal_session_id(session_id)) is not None:
        return "it ends like a child session's id, '~<number>'"
    return None


def require_session_id(session_id: str, mounts: MountPrefixes | None = None, *, new: bool = False) -> str:
    """The id as it is kept. Raises: `SessionStoreIdError`."""
    reject = new_session_id_rejection if new else session_id_rejection
    if problem := reject(session_id, mounts):
        raise SessionStoreIdError(session_id, problem)
    return normal_session_id(session_id)


def mint_session_id() -> str:
    return f"session-{uuid.uuid4()}"


def child_session_id(parent: str, number: int) -> str:
    """The id of a session's dispatch `number`, counted from 1 across its turns."""
    return f"{parent}~{number}"


def parent_session_id(session_id: str) -> str | None:
    """The id without its last `~<digits>`; None when it has none, or nothing stands before it."""
    found = _CHILD.search(session_id)
    return session_id[: found.start()] or None if found else None


def is_child_session_of(session_id: str, ancestor: str) -> bool:
    """Whether `ancestor` started it, at any depth."""
    at = parent_session_id(session_id)
    while at is not None:
        if at == ancestor:
            return True
        at = parent_session_id(at)
    return False
