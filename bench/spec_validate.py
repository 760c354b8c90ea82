"""How long a large workflow takes to load and validate: 1,000 states and 5,000 tool entries, under one second."""

from __future__ import annotations

import time

from bench.figures import Figures
from engine.governance.zones import MountPrefixes
from engine.spec.loader import load_workflow
from engine.spec.tree import MemoryTree
from engine.spec.validate import validate_workflow

STATES = 1_000
ENTRIES_PER_STATE = 5


def document() -> str:
    """A workflow of `STATES` states in a row, each with `ENTRIES_PER_STATE` guarded entries."""
    lines = ["instructions: Work.", "states:"]
    for number in range(STATES):
        trigger = " triggers: { manual: }," if number == 0 else ""
        entries = ", ".join(
            f'{{ tool: write_file, paths: ["out/{number}/{index}/**"] }}'
            for index in range(ENTRIES_PER_STATE)
        )
        onward = f"[{{ to: s{number + 1}, description: Done. }}]" if number + 1 < STATES else "[]"
        lines.append(
            f"  s{number}: {{{trigger} instructions: Step {number}., tools: {{ allow: [{entries}] }}, transitions: {onward} }}"
        )
    return "\n".join(lines)


async def spec(figures: Figures, quick: bool) -> None:
    tree = MemoryTree({"workflows/big/workflow.yaml": document()})
    for name, work in (
        ("load", lambda: load_workflow(tree, "big").usable),
        ("validate", lambda: validate_workflow(tree, "big", mounts=MountPrefixes(("skills",))).valid),
    ):
        spent: list[float] = []
        for _ in range(2 if quick else 5):
            begun = time.process_time()
            if not work():
                raise RuntimeError(f"{name}: the workflow should be valid")
            spent.append(time.process_time() - begun)
        variant = f"{STATES} states, {STATES * ENTRIES_PER_STATE} entries"
        figures.add("spec", variant, f"{name}, CPU", "s", spent)
