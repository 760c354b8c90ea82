"""Pages of the manual as tests run them: files they show are written, commands they show are run, in order.

A fenced block whose info string is a language and a path is a file of the workspace; one that is `sh` alone is run; any
other block is for reading.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import REPOSITORY, command_environment

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    argument: str
    text: str


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    for match in _FENCE.finditer(page.read_text("utf-8")):
        language, _, argument = match[1].strip().partition(" ")
        found.append(Block(language, argument.strip(), match[2]))
    return found


def run_page(page: Path, folder: Path, env: Mapping[str, str] | None = None) -> str:
    """Everything a page shows, in one shell and one folder. Returns what its commands printed, both streams."""
    script = ["set -euo pipefail", "set -v"]
    for block in blocks(page):
        if block.language in ("yaml", "js", "python") and block.argument:
            path = folder / block.argument
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
        elif block.language == "sh" and not block.argument:
            script.append(block.text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=command_environment({"PATH": path, **(env or {})}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def broken_links(page: Path) -> list[str]:
    """Relative links of a page that lead nowhere."""
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
    return [link for link in links if "://" not in link and not (page.parent / link).exists()]


PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))
