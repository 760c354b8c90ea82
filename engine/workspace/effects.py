"""Which file tool calls change something outside the session: those are committed as they settle (design, "Commit")."""

from __future__ import annotations

from collections.abc import Mapping

from core.jsontext import Json
from core.paths import canonical
from engine.governance.tool_paths import BUILTIN_PATHS
from engine.governance.zones import MountPrefixes


def reaches_outside(tool: str, arguments: Mapping[str, Json], mounts: MountPrefixes) -> bool:
    """Whether the call writes or removes under a writable mount; session files ride along with their step."""
    for argument in BUILTIN_PATHS.get(tool, ()):
        if not argument.access.mutates:
            continue
        for name in argument.spellings:
            path = arguments.get(name)
            if isinstance(path, str) and mounts.mount_of(canonical(path).text) in mounts.writable:
                return True
    return False
