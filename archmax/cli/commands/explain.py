"""`archmax explain [id]`: what a diagnostic means and how to mend it; without an id, the list of all."""

from __future__ import annotations

import difflib
import textwrap

from archmax.cli.invocation import Invocation
from archmax.cli.render.style import brief
from engine.spec.reference import SECTIONS, diagnostics_by_id, explain

_WIDTH = 100


async def run(invocation: Invocation) -> int:
    name = invocation.arguments.get("id")
    if name is None:
        invocation.out.write(_listing())
        return 0
    entry = explain(name)
    if entry is None:
        near = difflib.get_close_matches(name, diagnostics_by_id(), n=3)
        hint = f"; near: {', '.join(near)}" if near else "; archmax explain lists them"
        invocation.err.write(f"Error: no diagnostic is called {brief(name, 80)!r}{hint}\n")
        return 1
    also = f" Reported as {entry.reported_as}." if entry.reported_as else ""
    parts = [
        f"{entry.id}: {entry.title}",
        f"  {entry.severity}, at {entry.field}",
        "",
        textwrap.fill(entry.meaning + also, _WIDTH),
        "",
        textwrap.indent(entry.example, "    "),
        "",
        textwrap.fill(entry.cure, _WIDTH),
    ]
    invocation.out.write("\n".join(parts) + "\n")
    return 0


def _listing() -> str:
    width = max(map(len, diagnostics_by_id()))
    lines: list[str] = []
    for heading, entries in SECTIONS.items():
        lines += ["", f"{heading}:", *(f"  {entry.id.ljust(width)}  {entry.title}" for entry in entries)]
    return "\n".join(lines[1:]) + "\n"
