"""`archmax submit`: enqueue a turn through the fleet's API, and with `--wait` follow it to its end."""

from __future__ import annotations

from archmax.cli.invocation import Invocation
from archmax.cli.remote import TurnWatch, finish, follow, open_client, print_json
from archmax.cli.render.style import ACTION, DONE, one_line, style_for


def run(invocation: Invocation) -> int:
    options = invocation.options
    style = style_for(invocation.err)
    with open_client(invocation) as client:
        turn = client.start(
            invocation.arguments["workflow"],
            message=invocation.arguments.get("message"),
            trigger=options.get("trigger"),
            variables=invocation.json.get("variables"),
            session_id=options.get("session"),
            idempotency_key=options.get("idempotency-key"),
        )
        repeated = " (the key was used before: it is that turn)" if turn["repeated"] else ""
        invocation.err.write(f"{style.good(DONE)} queued as turn {one_line(turn['turnId'])}{repeated}\n")
        if invocation.flag("wait"):
            watch = TurnWatch(invocation.err, style, verbose=invocation.flag("verbose"))
            return finish(invocation, client, follow(client, turn["turnId"], watch), watch)
    if invocation.flag("json"):
        print_json(invocation, turn)
        return 0
    invocation.out.write(f"{turn['turnId']}\n")
    invocation.err.write(f"  {style.accent(ACTION)} archmax turns {one_line(turn['turnId'])} --follow\n")
    return 0
