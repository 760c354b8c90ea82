"""`archmax graph`: draw a workflow's state machine on stdout."""

from __future__ import annotations

from archmax.cli.invocation import Invocation
from engine.graph import dot, graph_of, mermaid, svg
from engine.spec.loader import usable_workflow
from engine.spec.tree import DirectoryTree

_FORMATS = {"mermaid": mermaid, "dot": dot, "svg": svg}


async def run(invocation: Invocation) -> int:
    graph = graph_of(usable_workflow(DirectoryTree(invocation.root), invocation.slug()))
    invocation.out.write(_FORMATS[invocation.options.get("format", "mermaid")](graph))
    return 0
