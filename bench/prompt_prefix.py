"""What every call of a session sends before it says anything: characters of tool schemas plus static prompt.

    .venv/bin/python -m bench.prompt_prefix [workspace]

Default workspace: the reference workspace, `examples/order-desk`. The target is 12,000 characters for a workflow's busiest state.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.host.wiring import wire
from engine.models.factory import ModelFactory
from engine.spec.loader import list_workflows
from engine.spec.tree import DirectoryTree
from engine.turn.assembly import Assembly, assemble
from sandbox import Sandbox

TARGET: Final = 12_000


@dataclass(frozen=True)
class Prefix:
    """Characters of one workflow: its static prompt and the tool schemas of its busiest state, as compact JSON."""

    workflow: str
    state: str
    static: int
    tools: int

    @property
    def total(self) -> int:
        return self.static + self.tools


def prefix_of(assembly: Assembly) -> Prefix:
    sizes = {
        slug: len(json.dumps(assembly.offered(slug), ensure_ascii=False, separators=(",", ":")))
        for slug, state in assembly.spec.states.items()
        if state.type != "code"
    }
    busiest = max(sizes, key=lambda slug: sizes[slug])
    return Prefix(assembly.spec.slug, busiest, len(assembly.static_prompt), sizes[busiest])


def prefixes(root: Path) -> list[Prefix]:
    """The prefix of every workflow of a workspace."""
    wiring = wire(root, models=ModelFactory(), sandbox=Sandbox())
    return [prefix_of(assemble(wiring, slug)) for slug in list_workflows(DirectoryTree(root))]


def main(root: Path) -> None:
    for prefix in prefixes(root):
        print(
            f"{prefix.workflow}: static prompt {prefix.static} + tools of {prefix.state!r} {prefix.tools}"
            f" = {prefix.total} characters (target {TARGET})"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "examples/order-desk"))
