"""Compiling a workflow: what is workflow-wide is worked out once, not per state."""

from __future__ import annotations

from engine.governance.machine import SkillBundle, compile_machine
from engine.governance.surface import enabled_skills, offered_tools
from engine.governance.zones import MountPrefixes
from engine.spec.model import MountGrant, Spec, State, ToolEntry
from tests.support.governance import entries, machine, state

SIZE = 400


class _CountedName(str):
    """A tool's name that counts how often a set or mapping looks at it."""

    looks = 0

    def __hash__(self) -> int:
        _CountedName.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


def wide(size: int) -> Spec:
    """`size` states with an entry each, below `size` workflow-wide entries of every kind."""
    names = [_CountedName(f"tool_{index}") for index in range(size)]
    return Spec(
        "wide",
        states={
            f"s{index}": State(
                f"s{index}",
                tools_allow=entries(f"own_{index}"),
                skills_forbid=("skill-0",),
                mounts_allow=(MountGrant("ledger"),),
            )
            for index in range(size)
        },
        tools_allow_always=entries(*names),
        tools_forbid_always=entries(*names[: size // 2]),
        skills_allow_always=tuple(names),
        skills_forbid_always=tuple(names),
        mounts_allow_always=tuple(MountGrant(name) for name in names),
        mounts_forbid_always=tuple(names),
    )


def test_compiling_looks_at_each_workflow_wide_entry_a_fixed_number_of_times() -> None:
    """02 §7.1: many states below many workflow-wide entries take their sum, not their product."""
    work: list[int] = []
    for size in (SIZE, 2 * SIZE):
        spec = wide(size)
        names = spec.skills_allow_always
        table = MountPrefixes(names, governed=frozenset(names))
        bundles = [SkillBundle(name, f"skills/{name}") for name in names]
        _CountedName.looks = 0
        compile_machine(spec, mounts=table, skills=bundles)
        work.append(_CountedName.looks)
    assert SIZE <= work[0] < 60 * SIZE
    assert work[1] < 2.2 * work[0]


def test_states_of_a_type_share_their_tier() -> None:
    """02 §4.2, §7.1."""
    built = compile_machine(wide(3))
    tiers = {id(surface.tier) for surface in built.states.values()}
    assert len(tiers) == 1
    assert offered_tools(built, "s1", ["own_1", "own_2", "tool_0", "tool_2"]) == ("own_1", "tool_2")


def test_a_states_denial_of_a_skill_leaves_the_other_states_theirs() -> None:
    """02 §8.4, §11.1."""
    built = machine(
        state("quay", skills_forbid=("tides",)), state("pier"), skills_allow_always=("tides", "fees")
    )
    assert enabled_skills(built, "quay") == ("fees",)
    assert enabled_skills(built, "pier") == ("tides", "fees")


def test_a_tool_is_had_by_list_host_or_type() -> None:
    """02 §7.1."""
    surface = machine(
        state(tools_allow=(ToolEntry("own"), ToolEntry("archmax_get_history"))), essential=("stamp",)
    ).states["quay"]
    had = ["own", "stamp", "ls", "archmax_advance"]
    assert all(surface.has_tool(tool) for tool in had)
    assert not any(surface.has_tool(tool) for tool in ["archmax_get_history", "other"])
