"""`archmax run` (07 §6): one message to a workflow, its reply on stdout."""

from __future__ import annotations

from archmax.cli.invocation import Invocation
from archmax.cli.local_agent import TurnView, local_agent


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
        return view.finish(agent, outcome)
