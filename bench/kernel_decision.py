"""How long one decision takes: µs of processor per call, median and 99th percentile, over workflows of growing size;
and how long a workflow of many states and many workflow-wide entries takes to compile.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from bench.figures import Figures
from engine.governance.kernel import ToolCall, decide
from engine.governance.machine import Machine, SkillBundle, compile_machine
from engine.governance.zones import MountPrefixes
from engine.spec.model import MountGrant, Spec, State, ToolEntry, Transition

_ROUNDS: Final = 400
_CALLS: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("read_file", {"file_path": "notices/west/a.md"}),
    ("write_file", {"file_path": "notices/north/a.md"}),
    ("write_file", {"file_path": "scratchpad/a.md"}),
    ("copy_file", {"source": "scratchpad/a", "destination": "ledger/2024/a"}),
    ("read_file", {"file_path": "skills/tides/SKILL.md"}),
    ("post_notice", {"berth": "north", "body": "text"}),
    ("archmax_advance", {"to": "s1", "reason": "done"}),
    ("grep", {"pattern": "x", "path": "notices"}),
    ("remove_file", {"file_path": "checkpoints/c"}),
)


def build(states: int) -> Machine:
    """A workflow with guards, references, denials, a mount and skills in every state."""
    spec = Spec(
        slug="harbour",
        states={
            f"s{index}": State(
                slug=f"s{index}",
                tools_allow=(
                    ToolEntry("write_file", paths=("notices/${{berth}}/**", f"logs/{index}/*.md")),
                    ToolEntry("post_notice", args={"berth": ("${{berth}}", "{east,west}")}),
                ),
                tools_forbid=(ToolEntry("grep"),),
                mounts_allow=(MountGrant("ledger", "read_write"),),
                transitions=(Transition(f"s{(index + 1) % states}"),),
            )
            for index in range(states)
        },
        tools_forbid_always=(ToolEntry("*", paths=("vault/**", "**/*.pem")),),
        skills_allow_always=("tides",),
    )
    return compile_machine(
        spec,
        mounts=MountPrefixes(
            ("skills", "ledger"), ("AGENTS.md",), frozenset({"ledger"}), frozenset({"ledger"})
        ),
        skills=[SkillBundle(slug, f"skills/{slug}") for slug in ("tides", "fees", "berths")],
    )


def wide(size: int) -> Spec:
    """`size` states, each with an entry of its own, below `size` entries, skills and denials of the workflow."""
    return Spec(
        slug="wide",
        states={
            f"s{index}": State(f"s{index}", tools_allow=(ToolEntry(f"own_{index}"),)) for index in range(size)
        },
        tools_allow_always=tuple(ToolEntry(f"tool_{index}") for index in range(size)),
        tools_forbid_always=tuple(ToolEntry(f"never_{index}") for index in range(size)),
        skills_allow_always=tuple(f"skill-{index}" for index in range(size)),
    )


def measure(machine: Machine) -> list[float]:
    """Microseconds of each decision."""
    variables = {"berth": "north", "trigger": "manual"}
    slugs = tuple(machine.states)
    took: list[float] = []
    for turn in range(_ROUNDS):
        state = slugs[turn * 7 % len(slugs)]
        for tool, args in _CALLS:
            call = ToolCall(state, tool, args)
            start = time.thread_time_ns()
            decide(machine, call, variables=variables)
            took.append((time.thread_time_ns() - start) / 1_000)
    return took


async def kernel(figures: Figures, quick: bool) -> None:
    for states in (10, 100, 1_000):
        start = time.thread_time()
        machine = build(states)
        compiled_ms = (time.thread_time() - start) * 1_000
        figures.add("kernel", "decision, by states", "CPU", "µs", measure(machine), at=states)
        figures.add("kernel", "compiling, by states", "CPU", "ms", [compiled_ms], at=states)
    size = 1_000 if quick else 6_000
    start = time.thread_time()
    compile_machine(wide(size))
    spent = time.thread_time() - start
    figures.add("kernel", f"compiling {size} states × {size} workflow-wide entries", "CPU", "s", [spent])
