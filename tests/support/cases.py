"""Small workspaces with cases, for tests that run them through `archmax.testing`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: one agent state that answers, one person who decides, one state that waits, and one code state that fails
DESK = """
instructions: Be brief.
runtime: { version: "3" }
states:
  desk:
    triggers: { manual: , other: }
    instructions: Answer.
    transitions:
      - { to: review, description: A person must look. }
      - { to: check, description: It must be checked. }
  review:
    type: human
    instructions: Decide.
    transitions:
      - { to: done, type: approve, description: Fine. }
  check:
    type: code
    script: scripts/check.js
    on_error: done
    transitions: [{ to: done }]
  done:
    instructions: Say goodbye.
"""
CHECK_JS = """
export default async function ({ tools }) {
  const text = await tools.read_file({ file_path: "scratchpad/in.txt" });
  await tools.archmax_advance({ to: "done", reason: text });
}
"""


def head(title: str = "A case") -> str:
    return f"title: {title}\ndescription: What it shows.\n"


def write_cases(
    root: Path,
    cases: Mapping[str, str],
    scripts: Mapping[str, str] | None = None,
    *,
    workflow: str = DESK,
    slug: str = "desk",
    files: Mapping[str, str] | None = None,
) -> Path:
    """A workspace with one workflow, its cases by id and their model scripts. `files` are workspace-relative."""
    tests = root / "workflows" / slug / "tests"
    written: dict[Path, str] = {
        root / "workflows" / slug / "workflow.yaml": workflow,
        root / "workflows" / slug / "scripts" / "check.js": CHECK_JS,
        **{tests / f"{name}.test.yaml": text for name, text in cases.items()},
        **{tests / f"{name}.model.yaml": text for name, text in (scripts or {}).items()},
        **{root / path: text for path, text in (files or {}).items()},
    }
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
