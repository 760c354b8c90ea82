"""`archmax case`: write a case and its model script from a stored session; it passes as written and writes nothing over."""

from __future__ import annotations

import re
from pathlib import Path

from archmax.cli.invocation import Invocation
from archmax.cli.parser import UsageError
from archmax.cli.recorded import recorded_sessions, write_new
from archmax.cli.render.style import ACTION, DONE, one_line, style_for
from archmax.recording import case_of, script_of, script_text
from engine.cases.discovery import cases_folder
from engine.cases.serialize import serialize_case_document

_CASE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")


async def run(invocation: Invocation) -> int:
    session_id = invocation.arguments["session"]
    case_id = (
        invocation.arguments.get("case") or re.sub(r"[^A-Za-z0-9._-]+", "-", session_id).strip("-.") or "case"
    )
    if not _CASE_ID.fullmatch(case_id):
        raise UsageError(f"argument 'case': {case_id!r} is no path below tests/", invocation.line.command)
    async with recorded_sessions(invocation, session_id) as (root, children):
        origin = f"session {one_line(session_id)}"
        case = serialize_case_document(case_of(root, children))
        script = script_text(script_of(root, children), origin)
    out = invocation.options.get("out")
    directory = Path(out) if out is not None else invocation.root / cases_folder(root.workflow)
    files = {directory / f"{case_id}.test.yaml": case, directory / f"{case_id}.model.yaml": script}
    write_new(files)
    for path in files:
        invocation.out.write(f"{path.relative_to(invocation.root) if out is None else path}\n")
    style = style_for(invocation.err)
    invocation.err.write(f"{style.good(DONE)} written; it asserts the moves, add what matters\n")
    if out is None:
        options = " ".join(invocation.hint_options(workflow=False))
        line = f"archmax test {root.workflow} {case_id} {options}".rstrip()
        invocation.err.write(f"  {style.accent(ACTION)} {line}\n")
    return 0
