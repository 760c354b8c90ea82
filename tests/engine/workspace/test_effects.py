"""Calls that reach outside the session (design, "Commit")."""

from __future__ import annotations

import pytest

from engine.governance.zones import MountPrefixes
from engine.workspace.effects import reaches_outside

MOUNTS = MountPrefixes(dirs=("skills", "ledger"), writable=frozenset({"ledger"}))


@pytest.mark.parametrize(
    ("tool", "arguments", "outside"),
    [
        ("write_file", {"file_path": "scratchpad/a"}, False),
        ("write_file", {"file_path": "./ledger//a"}, True),
        ("write_file", {"path": "ledger/a"}, True),
        ("edit_file", {"file_path": "ledger/a"}, True),
        ("remove_file", {"file_path": "ledger/a"}, True),
        ("copy_file", {"source": "ledger/a", "destination": "b"}, False),
        ("copy_file", {"source": "a", "destination": "ledger/b"}, True),
        ("move_file", {"source": "ledger/a", "destination": "b"}, True),
        ("read_file", {"file_path": "ledger/a"}, False),
        ("grep", {"path": "ledger"}, False),
        ("write_file", {"file_path": "skills/a"}, False),
        ("write_file", {"file_path": 3}, False),
        ("write_todos", {"todos": []}, False),
    ],
)
def test_only_changes_under_a_writable_mount_do(
    tool: str, arguments: dict[str, object], outside: bool
) -> None:
    assert reaches_outside(tool, arguments, MOUNTS) is outside
