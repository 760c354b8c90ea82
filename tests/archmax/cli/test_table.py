"""The table and what stands behind it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import archmax.cli.commands
from archmax.cli.table import COMMANDS


def test_every_command_of_the_table_has_a_body_and_no_body_lacks_a_command():
    """`help` alone is answered at the door, so that it loads next to nothing."""
    names = {command.name for command in COMMANDS}
    for name in sorted(names - {"help"}):
        assert callable(import_module(f"archmax.cli.commands.{name}").run), name
    folder = Path(archmax.cli.commands.__path__[0])
    bodies = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert bodies == names - {"help"}
