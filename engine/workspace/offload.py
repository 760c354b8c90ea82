"""Tool results too large for a conversation: parked in a file the agent can page through, a preview left behind."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from core.jsontext import well_formed
from engine.workspace.session_files import SessionFiles

#: about 20,000 tokens
THRESHOLD_CHARS: Final = 80_000
_HEAD_CHARS: Final = 2_000
_TAIL_CHARS: Final = 500
_AREA: Final = "large_tool_results"
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARS: Final = 80

#: tools that bound their own answers; parking a page of a file would only make a copy of it
SELF_BOUNDED: Final = frozenset({"read_file", "ls", "glob", "grep", "write_file", "edit_file"})


def offload_path(call_id: str) -> str:
    """The canonical path of a call's parked result; one name per id, whatever characters it has."""
    name = _OTHER.sub("_", call_id)[:_MAX_NAME_CHARS]
    if name != call_id:
        name = f"{name}-{hashlib.sha256(well_formed(call_id).encode()).hexdigest()[:12]}"
    return f"{_AREA}/{name}"


async def offload(
    files: SessionFiles, tool: str, call_id: str, text: str, *, threshold_chars: int = THRESHOLD_CHARS
) -> str | None:
    """What stands in the conversation instead of `text`, which is then a file; None when it may stay.

    The runtime writes here by its own right: the area refuses every writer that comes through the workspace.
    """
    if len(text) <= threshold_chars or tool in SELF_BOUNDED:
        return None
    text = well_formed(text)
    path = offload_path(call_id)
    await files.write(path, text.encode("utf-8"))
    left_out = len(text) - _HEAD_CHARS - _TAIL_CHARS
    return (
        f"The result of {tool} is too long to show ({len(text)} characters). It is stored in '/{path}': "
        f"page through it with read_file (offset, limit) or search it with grep.\n\n"
        f"{text[:_HEAD_CHARS]}\n\n… {left_out} characters left out …\n\n{text[-_TAIL_CHARS:]}"
    )
