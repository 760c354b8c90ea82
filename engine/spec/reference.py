"""The reference of diagnostics: what `archmax explain <id>` says, and the page generated from it.

`python -m engine.spec.reference` prints `docs/diagnostics.md`; a test keeps the page and this table together, and
another holds that every identifier has a case where it fires and one where it does not.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Final

from engine.spec.catalog.entry import Entry
from engine.spec.catalog.load import LOAD
from engine.spec.catalog.removed import REMOVED
from engine.spec.catalog.validate import VALIDATE
from engine.spec.catalog.warnings import WARNINGS

SECTIONS: Final[Mapping[str, tuple[Entry, ...]]] = {
    "Load errors": LOAD,
    "Removed keys": REMOVED,
    "Validate errors": VALIDATE,
    "Warnings": WARNINGS,
}
_INTRO: Final = """# Diagnostics

What `archmax validate` may say, by identifier. `archmax explain <identifier>` prints one entry. A load error stops the
workflow from being used at all; a validate error does not, and makes the command fail; a warning fails nothing.

This page is generated: `python -m engine.spec.reference > docs/diagnostics.md`.
"""


@cache
def diagnostics_by_id() -> Mapping[str, Entry]:
    """Every identifier there is, in the order of the page."""
    return {entry.id: entry for entries in SECTIONS.values() for entry in entries}


def explain(id_: str) -> Entry | None:
    """The entry of one identifier."""
    return diagnostics_by_id().get(id_)


def diagnostics_markdown() -> str:
    """The whole page."""
    parts = [_INTRO]
    for heading, entries in SECTIONS.items():
        parts.append(f"\n## {heading}\n")
        parts.extend(_section(entry) for entry in entries)
    return "".join(parts)


def _section(entry: Entry) -> str:
    also = f" Reported as `{entry.reported_as}`." if entry.reported_as else ""
    return (
        f"\n### `{entry.id}`\n\n"
        f"**{entry.title}** ({entry.severity}, at {entry.field}). {entry.meaning}{also}\n\n"
        f"```yaml\n{entry.example}\n```\n\n"
        f"{entry.cure}\n"
    )


if __name__ == "__main__":
    sys.stdout.write(diagnostics_markdown())
