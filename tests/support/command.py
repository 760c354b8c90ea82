"""Starts the real command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def command_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without any `ARCHMAX_` variable, able to import the project from anywhere."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARCHMAX_")}
    environment.pop("NO_COLOR", None)
    # hundreds of starts, each of which would compile the project anew
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment | {"PYTHONPATH": str(REPOSITORY), "PYTHONUTF8": "1"} | dict(extra or {})


def archmax(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout_seconds: float = 200
) -> subprocess.CompletedProcess[str]:
    """Run `archmax <arguments>` in `cwd` and wait for its end."""
    return subprocess.run(
        [sys.executable, "-m", "archmax", *arguments],
        cwd=cwd,
        env=command_environment(env),
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def write_workflows(root: Path, *slugs: str) -> Path:
    """A workspace whose workflows are the smallest that are valid (07 §1.1)."""
    for slug in slugs:
        directory = root / "workflows" / slug
        directory.mkdir(parents=True)
        (directory / "workflow.yaml").write_text(
            "states:\n"
            "  hello:\n"
            "    triggers: { manual: }\n"
            "    instructions: Greet the person by name in one sentence.\n"
        )
    return root


def texts(arguments: Sequence[str]) -> str:
    """A test id for a command line."""
    return " ".join(arguments) or "(nothing)"
