"""`archmax completion <shell>`: print the shell's completion script."""

from __future__ import annotations

from archmax.cli.completion import SCRIPTS
from archmax.cli.invocation import Invocation


async def run(invocation: Invocation) -> int:
    invocation.out.write(SCRIPTS[invocation.arguments["shell"]]())
    return 0
