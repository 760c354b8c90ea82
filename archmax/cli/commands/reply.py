"""`archmax reply`: a message to a session that awaits a decision; the decision stays pending (07 §9)."""

from __future__ import annotations

from archmax.cli.invocation import Invocation
from archmax.cli.local_agent import TurnView, local_agent


async def run(invocation: Invocation) -> int:
    view = TurnView(invocation)
    async with local_agent(invocation, invocation.slug(), view) as agent:
        outcome = await agent.reply(invocation.arguments["session"], invocation.arguments["message"])
        return await view.finish(agent, outcome)
