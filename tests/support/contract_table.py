"""Which test shows which section of the contract: read off the citations in the tests' docstrings.

`python -m tests.support.contract_table` writes `docs/contract.md`; a test keeps it true.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.support.command import REPOSITORY

PAGE = REPOSITORY / "docs" / "contract.md"
#: chapters and how many sections each has
CHAPTERS = {
    "01": ("The workflow document", 22),
    "02": ("Governance", 23),
    "03": ("The runtime", 22),
    "04": ("Sub-workflows", 14),
    "05": ("Storage and host", 17),
    "06": ("Cases", 14),
    "07": ("The command", 12),
    "09": ("The scripted model", 2),
}
_CITED = re.compile(r"\b(0[1-9])((?:,? ?(?:and )?§+ ?[0-9]+(?:\.[0-9]+)*(?:[–-][0-9.]+)?)+)")
_SECTION = re.compile(r"§+ ?([0-9]+)")
_MORE = re.compile(r"§([0-9]+)[0-9.]*[–-]([0-9]+)(?![0-9.])")


def sections_of(text: str) -> set[tuple[str, int]]:
    """The (chapter, section) pairs a docstring cites: `03 §9.1, §14`."""
    found: set[tuple[str, int]] = set()
    for chapter, cited in _CITED.findall(text):
        found |= {(chapter, int(section)) for section in _SECTION.findall(cited)}
        for first, last in _MORE.findall(cited):
            if "." not in cited and int(last) - int(first) < 23:
                found |= {(chapter, number) for number in range(int(first), int(last) + 1)}
    return found


def cited() -> dict[tuple[str, int], list[str]]:
    """Section → the tests that cite it, by file. A module's docstring speaks for the file."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        name = path.relative_to(REPOSITORY).as_posix()
        tree = ast.parse(path.read_text("utf-8"))
        nodes = [
            tree,
            *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)),
        ]
        for node in nodes:
            for section in sections_of(ast.get_docstring(node) or ""):
                found[section].add(name)
    return {section: sorted(names) for section, names in found.items()}


def page() -> str:
    """The whole page."""
    found = cited()
    lines = [
        "# The contract and its tests",
        "",
        "Which test files show which section, read off the sections their docstrings cite. Written by",
        "`python -m tests.support.contract_table`; do not edit.",
        "",
    ]
    for chapter, (title, count) in CHAPTERS.items():
        lines += [f"## {chapter} {title}", "", "| section | tests |", "| --- | --- |"]
        for section in range(1, count + 1):
            names = found.get((chapter, section), [])
            lines.append(f"| §{section} | {', '.join(f'`{_short(name)}`' for name in names) or '—'} |")
        lines.append("")
    return "\n".join(lines)


def _short(name: str) -> str:
    return Path(name).relative_to("tests").as_posix()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
