"""The zones layer of the static prompt (03 §17.3)."""

from __future__ import annotations

from engine.governance.zones import MountPrefixes
from engine.workspace.zones_prompt import workspace_zones

MOUNTS = MountPrefixes(
    dirs=("skills", ".platform", "ledger", "archive", "secret"),
    files=("AGENTS.md",),
    writable=frozenset({"ledger"}),
    governed=frozenset({"secret"}),
    unsearchable=frozenset({"archive"}),
)


def test_ungoverned_mounts_are_named_read_only_first_then_by_name() -> None:
    mounts = [line for line in workspace_zones(MOUNTS).splitlines() if line.startswith("- `")][2:]
    assert mounts == [
        "- `AGENTS.md`: read-only",
        "- `archive/`: read-only, browse only: not searched from above",
        "- `skills/`: read-only",
        "- `ledger/`: read/write",
    ]


def test_governed_and_dot_mounts_are_not_named_and_one_line_points_to_the_state() -> None:
    text = workspace_zones(MOUNTS)
    assert "secret" not in text and ".platform" not in text
    assert text.count("see the current state") == 1
    assert "see the current state" not in workspace_zones(MountPrefixes(dirs=("skills",)))


def test_the_sessions_own_areas_are_always_there() -> None:
    text = workspace_zones(MountPrefixes())
    assert "`scratchpad/`: your working area, always writable" in text
    assert "`large_tool_results/` and `conversation_history/`" in text
    assert text.endswith("any other path: as the current state allows")
