"""`archmax validate` (07 §8): diagnostics on stderr, the verdict on stdout."""

from __future__ import annotations

import json
from typing import TextIO

from archmax.cli.invocation import Invocation
from archmax.cli.render.style import ATTENTION, DONE, FAILED, one_line, style_for
from archmax.settings import read_settings
from archmax.validation import Validation, validate_workflow
from worker.host import HostContext, load_host
from worker.settings import FleetSettings


async def run(invocation: Invocation) -> int:
    slug = invocation.slug()
    host = await load_host(read_settings(FleetSettings).host, HostContext(invocation.root, slug, "validate"))
    workspace = host.get("workspace") or {}
    result = await validate_workflow(
        slug,
        invocation.root,
        skills=host.get("skills"),
        mounts=host.get("mounts", workspace.get("mounts")),
        tools=host.get("tools") or (),
    )
    write_diagnostics(result, invocation.err)
    if invocation.flag("json"):
        invocation.out.write(json.dumps(result.to_json(), indent=2, ensure_ascii=False) + "\n")
    else:
        verdict = "valid" if result.valid else "invalid"
        invocation.out.write(f"{verdict} — {result.errors} error(s), {result.warnings} warning(s)\n")
    return 0 if result.valid else 1


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
