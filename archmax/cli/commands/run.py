"""`archmax run` (07 §6): one message to a workflow, its reply on stdout."""

from __future__ import annotations

from pathlib import Path

from archmax.cli.invocation import Invocation
from archmax.cli.local_agent import TurnView, local_agent
from archmax.cli.recorded import recorded_sessions, write_new
from archmax.cli.render.style import DONE, style_for
from archmax.recording import script_of, script_text
from core.jsontext import JsonObject
from engine.errors import InvalidSessionPathError, UnknownSessionTriggerError, UnknownTriggerError
from engine.spec.paths import parse_dotted_path, resolve_path


async def run(invocation: Invocation) -> int:
    view = TurnView(invocation)
    async with local_agent(invocation, invocation.slug(), view) as agent:
        trigger, path = invocation.options.get("trigger"), invocation.options.get("session-path")
        if path is not None and "session" not in invocation.options:
            _require_resolved(path, invocation.json.get("variables") or {})
        try:
            outcome = await agent.send(
                invocation.options.get("session"),
                message=invocation.arguments["prompt"],
                trigger=trigger,
                variables=invocation.json.get("variables"),
                session_path=path,
            )
        except UnknownSessionTriggerError:  # it lists the declared ones (07 §6)
            raise UnknownTriggerError(str(trigger), agent.assembly.spec.trigger_ids) from None
        code = await view.finish(agent, outcome)
    if "record" in invocation.options:
        await _record(invocation, outcome.session_id)
    return code


def _require_resolved(path: str, variables: JsonObject) -> None:
    """A path the caller names must lead to an id (07 §6); a trigger's own that misses starts a new session (05 §2.1)."""
    if parse_dotted_path(path) is not None and not _is_id(resolve_path(path, variables)):
        raise InvalidSessionPathError(path, "it leads to no session id in --variables")


def _is_id(found: object) -> bool:
    return (isinstance(found, str) and bool(found.strip())) or (
        isinstance(found, int | float) and not isinstance(found, bool)
    )


async def _record(invocation: Invocation, session_id: str) -> None:
    """Write the script of the turn that was just run, its children's answers included."""
    async with recorded_sessions(invocation, session_id) as (root, children):
        script = script_text(script_of(root, children, turns=1), f"session {session_id}")
    path = Path(invocation.options["record"])
    write_new({path: script})
    style = style_for(invocation.err)
    invocation.err.write(f"{style.good(DONE)} recorded {path}\n")
