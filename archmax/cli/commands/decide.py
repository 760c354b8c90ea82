"""`archmax decide`: take a transition of a parked human state (07 §9)."""

from __future__ import annotations

from archmax.cli.invocation import Invocation
from archmax.cli.local_agent import TurnView, local_agent


async def run(invocation: Invocation) -> int:
    view = TurnView(invocation)
    async with local_agent(invocation, invocation.slug(), view) as agent:
        outcome = await agent.decide(
            invocation.arguments["session"], invocation.options["to"], invocation.options.get("comment")
        )
        return await view.finish(agent, outcome)
