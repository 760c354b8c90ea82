"""`archmax validate` (07 §8): diagnostics on stderr, the verdict on stdout."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TextIO

from archmax.cli.invocation import Invocation
from archmax.cli.render.style import ATTENTION, DONE, FAILED, one_line, style_for
from archmax.validation import Validation, validate_workflow


async def run(invocation: Invocation) -> int:
    slug = invocation.slug()
    result = await validate_workflow(slug, invocation.root, **await _host_keywords(invocation, slug))
    write_diagnostics(result, invocation.err)
    if invocation.flag("json"):
        invocation.out.write(json.dumps(result.to_json(), indent=2, ensure_ascii=False) + "\n")
    else:
        verdict = "valid" if result.valid else "invalid"
        invocation.out.write(f"{verdict} — {result.errors} error(s), {result.warnings} warning(s)\n")
    return 0 if result.valid else 1


async def _host_keywords(invocation: Invocation, slug: str) -> dict[str, Any]:
    """What `ARCHMAX_HOST` brings: of all it may return, its mounts, skills and tools (ruling 18).

    Read by itself, and the host's room imported only for it: checking a file should not take seconds to start.
    """
    target = os.environ.get("ARCHMAX_HOST")
    if not target:
        return {}
    from worker.host import HostContext, load_host

    host = await load_host(target, HostContext(invocation.root, slug, "validate"))
    workspace = host.get("workspace")
    if host.get("mounts") is None and isinstance(workspace, Mapping):
        host["mounts"] = workspace.get("mounts")
    return {key: host[key] for key in ("mounts", "skills", "tools") if host.get(key) is not None}


def write_diagnostics(result: Validation, stream: TextIO) -> None:
    """One line per diagnostic, or one that says there is none."""
    style = style_for(stream)
    if not result.diagnostics:
        stream.write(f"{style.good(DONE)} no issues found\n")
    for diagnostic in result.diagnostics:
        mark = f"{style.warn(ATTENTION)} warn  "
        if diagnostic.severity == "error":
            mark = f"{style.bad(FAILED)} error "
        place = diagnostic.file or diagnostic.field
        where = f" [{one_line(place)}]" if place else ""
        stream.write(f"  {mark} {one_line(diagnostic.message)}{where}\n")
