"""`archmax new <slug>`: a small valid workflow with one case and the case's model script.

It writes nothing over: an existing workflow of that name is refused. The case runs without a network.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from archmax.cli.invocation import Invocation
from archmax.cli.parser import UsageError
from archmax.cli.render.style import ACTION, DONE, one_line, style_for
from core.errors import ArchmaxError
from engine.spec.paths import slug_ok

_WORKFLOW = """\
title: {title}
instructions: |-
  You look after the requests of a small office. Be brief and friendly.
states:
  intake:
    triggers:
      manual:
        description: Handle one request.
    instructions: |-
      Find out what the person needs. When you know it, record it in the variable `request` and move on.
    requires: [request]
    transitions:
      - to: answered
        description: You know what the person needs.
  answered:
    instructions: Confirm in one sentence what will be done.
"""
_CASE = """\
title: A clear request is confirmed
description: One message that says all is enough to reach the confirmation.
steps:
  - send: Please order two boxes of paper.
  - reachedState: answered
  - succeeded: true
  - variables: { expect: { request: two boxes of paper } }
  - reply: { includes: paper }
"""
_MODEL = """\
- when_state: intake
  tool_calls:
    - name: archmax_set_variables
      args: { variables: { request: two boxes of paper } }
- when_state: intake
  after_tool: archmax_set_variables
  tool_calls:
    - name: archmax_advance
      args: { to: answered, reason: The person wants paper. }
- when_state: answered
  text: I will order two boxes of paper.
"""


class WorkflowExists(ArchmaxError):
    """There is something of that name already."""

    code: ClassVar[str] = "workflow-exists"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    @override
    def __str__(self) -> str:
        return f"{self.path} exists already; nothing was written"


def scaffold(root: Path, slug: str, title: str) -> list[Path]:
    """Write the files. Returns: their paths below `root`. Raises: `WorkflowExists`."""
    directory = root / "workflows" / slug
    directory.parent.mkdir(exist_ok=True)
    try:
        directory.mkdir()
    except FileExistsError:
        raise WorkflowExists(f"workflows/{slug}") from None
    (directory / "tests").mkdir()
    files = {
        "workflow.yaml": _WORKFLOW.format(title=json.dumps(title, ensure_ascii=False)),
        "tests/request.test.yaml": _CASE,
        "tests/request.model.yaml": _MODEL,
    }
    for name, text in files.items():
        (directory / name).write_text(text, "utf-8")
    return [Path("workflows", slug, name) for name in files]


async def run(invocation: Invocation) -> int:
    slug = invocation.arguments["slug"]
    if not slug_ok(slug):
        raise UsageError(f"{slug!r} is no slug: words of a-z 0-9 joined by '-'", invocation.line.command)
    title = one_line(invocation.options.get("title", slug.replace("-", " ").capitalize()))
    for path in scaffold(invocation.root, slug, title):
        invocation.out.write(f"{path}\n")
    style = style_for(invocation.err)
    invocation.err.write(f"{style.good(DONE)} written; next:\n")
    options = " ".join(invocation.hint_options(workflow=False))
    for command in ("validate", "test"):
        line = f"archmax {command} {slug} {options}".rstrip()
        invocation.err.write(f"  {style.accent(ACTION)} {line}\n")
    return 0
