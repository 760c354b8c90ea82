"""`archmax run` (07 §6): one message to a workflow, its reply on stdout."""

from __future__ import annotations

from pathlib import Path

from archmax.cli.invocation import Invocation
from archmax.cli.local_agent import TurnView, local_agent
from archmax.cli.recorded import recorded_sessions, write_new
from archmax.cli.render.style import DONE, style_for
from archmax.recording import script_of, script_text


async def run(invocation: Invocation) -> int:
    view = TurnView(invocation)
    async with local_agent(invocation, invocation.slug(), view) as agent:
        outcome = await agent.send(
            invocation.options.get("session"),
            message=invocation.arguments["prompt"],
            trigger=invocation.options.get("trigger"),
            variables=invocation.json.get("variables"),
            session_path=invocation.options.get("session-path"),
        )
        code = view.finish(agent, outcome)
    if "record" in invocation.options:
        await _record(invocation, outcome.session_id)
    return code


async def _record(invocation: Invocation, session_id: str) -> None:
    """Write the script of the turn that was just run, its children's answers included."""
    async with recorded_sessions(invocation, session_id) as (root, children):
        script = script_text(script_of(root, children, turns=1), f"session {session_id}")
    path = Path(invocation.options["record"])
    write_new({path: script})
    style = style_for(invocation.err)
    invocation.err.write(f"{style.good(DONE)} recorded {path}\n")
