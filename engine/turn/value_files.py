"""The readable-file check of `file`-typed values: the one read on runtime authority (02 §18.4, 05 §11.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from core.paths import canonical
from engine.governance.authority import file_readable
from engine.spec.model import SignatureEntry

if TYPE_CHECKING:
    from engine.turn.context import TurnContext


async def file_issues(
    ctx: TurnContext, entries: Iterable[SignatureEntry], values: Mapping[str, Any]
) -> list[str]:
    """Why the `file` values among `values` name no file the session may read; one sentence each."""
    problems: list[str] = []
    for entry in entries:
        value = values.get(entry.name)
        if entry.type != "file" or not isinstance(value, str):
            continue
        path = canonical(value).text
        if not file_readable(ctx.assembly.machine, path, values) or not await is_file(ctx, path):
            problems.append(f"variable '{entry.name}' (file): '{value}' is no file this session can read")
    return problems


async def is_file(ctx: TurnContext, path: str) -> bool:
    """Whether an existing file, not a folder, stands there."""
    if ctx.assembly.mounts.mount_of(path) is None:
        return path in ctx.workspace.files.entries()
    answer = (await ctx.workspace.download_files([path]))[0]
    return answer.get("error") is None
