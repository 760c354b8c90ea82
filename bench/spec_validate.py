"""How long a large workflow takes to load and validate: 1,000 states and 5,000 tool entries, under one second.

Run: python -m bench.spec_validate
"""

from __future__ import annotations

import time

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


def main() -> None:
    tree = MemoryTree({"workflows/big/workflow.yaml": document()})
    for name, work in (
        ("load", lambda: load_workflow(tree, "big").usable),
        ("validate", lambda: validate_workflow(tree, "big", mounts=MountPrefixes(("skills",))).valid),
    ):
        best = float("inf")
        for _ in range(5):
            begun = time.process_time()
            if not work():
                raise SystemExit(f"{name}: the workflow should be valid")
            best = min(best, time.process_time() - begun)
        print(f"{name}: {best:.3f} s of processor for {STATES} states, {STATES * ENTRIES_PER_STATE} entries")


if __name__ == "__main__":
    main()
