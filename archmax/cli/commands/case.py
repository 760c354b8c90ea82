"""`archmax case`: write a case and its model script from a stored session; it passes as written and writes nothing over."""

from __future__ import annotations

import re
from pathlib import Path

from archmax.cli.invocation import Invocation
from archmax.cli.parser import UsageError
from archmax.cli.recorded import recorded_sessions, write_new
from archmax.cli.render.style import ACTION, DONE, one_line, style_for
from archmax.recording import case_of, script_of, script_text
from engine.cases.discovery import cases_folder, script_path
from engine.cases.document import is_case_file
from engine.cases.serialize import serialize_case_document

_CASE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")


async def run(invocation: Invocation) -> int:
    session_id = invocation.arguments["session"]
    placed = _place(invocation)
    async with recorded_sessions(invocation, session_id) as (root, children):
        origin = f"session {one_line(session_id)}"
        case = serialize_case_document(case_of(root, children))
        script = script_text(script_of(root, children), origin)
    inside = placed is None
    if placed is None:
        placed = invocation.root / cases_folder(root.workflow) / f"{_case_id(invocation)}.test.yaml"
    files = {placed: case, placed.with_name(script_path(placed.name)): script}
    write_new(files)
    for path in files:
        invocation.out.write(f"{path.relative_to(invocation.root) if inside else path}\n")
    style = style_for(invocation.err)
    invocation.err.write(f"{style.good(DONE)} written; it asserts the moves, add what matters\n")
    if inside:
        options = " ".join(invocation.hint_options(workflow=False))
        line = f"archmax test {root.workflow} {_case_id(invocation)} {options}".rstrip()
        invocation.err.write(f"  {style.accent(ACTION)} {line}\n")
    return 0


def _place(invocation: Invocation) -> Path | None:
    """The file `--out` names, or that of the case in the directory it names; None: below the workflow's `tests/`."""
    given = invocation.options.get("out")
    if given is None:
        return None
    if not is_case_file(given):
        return Path(given) / f"{_case_id(invocation)}.test.yaml"
    if "case" in invocation.arguments:
        raise UsageError(
            f"option '--out': {given!r} names the case already; leave 'case' out", invocation.line.command
        )
    return Path(given)


def _case_id(invocation: Invocation) -> str:
    """What was given, or the session's id with nothing in it that a file's name should not hold."""
    session_id = invocation.arguments["session"]
    named = (
        invocation.arguments.get("case") or re.sub(r"[^A-Za-z0-9._-]+", "-", session_id).strip("-.") or "case"
    )
    if not _CASE_ID.fullmatch(named):
        raise UsageError(f"argument 'case': {named!r} is no path below tests/", invocation.line.command)
    return named
