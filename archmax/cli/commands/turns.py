"""`archmax turns`: a turn of the fleet, each session's newest, or what the fleet gave up."""

from __future__ import annotations

from archmax.cli.invocation import Invocation
from archmax.cli.parser import UsageError
from archmax.cli.remote import TurnWatch, finish, follow, open_client, print_json, reported
from archmax.cli.render.flow import instant
from archmax.cli.render.style import one_line, style_for
from archmax.client import Client
from core.jsontext import JsonObject

#: exits of turns that failed for the fleet's reasons, not for their workflow's
GIVEN_UP = ("worker-lost", "turn-deadline")
#: sessions of one listing
_LISTED = 50


def run(invocation: Invocation) -> int:
    turn_id = invocation.arguments.get("turn")
    for flag in ("follow", "cancel"):
        if invocation.flag(flag) and turn_id is None:
            raise UsageError(f"option '--{flag}' needs the id of a turn", invocation.line.command)
    with open_client(invocation) as client:
        if turn_id is None:
            return _dead(invocation, client) if invocation.flag("dead") else _newest(invocation, client)
        if invocation.flag("cancel"):
            client.cancel(turn_id)
        if invocation.flag("follow"):
            watch = TurnWatch(invocation.err, style_for(invocation.err), verbose=invocation.flag("verbose"))
            return finish(invocation, client, follow(client, turn_id, watch), watch)
        turn = client.turn(turn_id)
    if invocation.flag("json"):
        print_json(invocation, turn)
    else:
        invocation.out.write(turn_detail(turn) + "\n")
    return 0


def turn_detail(turn: JsonObject) -> str:
    """One turn in full."""
    lines = [
        f"turn       {one_line(turn['turnId'])}",
        f"session    {one_line(turn['sessionId'])}",
        f"workflow   {one_line(str(turn['workflow']))}",
        f"status     {turn['status']}",
    ]
    if turn.get("acceptedAt") is not None:
        lines.append(f"accepted   {instant(turn['acceptedAt'])}")
    if turn.get("settledAt") is not None:
        lines.append(f"settled    {instant(turn['settledAt'])}")
    if turn.get("outcome") is not None:
        outcome = reported(turn)
        lines.append(f"outcome    {one_line(str(outcome.get('kind')))}")
        if outcome.get("state"):
            lines.append(f"state      {one_line(str(outcome['state']))}")
        problem = outcome.get("problem") or {}
        end = outcome.get("exit") or {}
        why = problem.get("message") or problem.get("detail") or outcome.get("rejected") or end.get("reason")
        if why:
            code = f"{one_line(str(end['code']))}: " if end.get("code") else ""
            lines.append(f"reason     {code}{one_line(str(why))}")
        if outcome.get("reply"):
            lines.append(f"reply      {one_line(str(outcome['reply']))}")
    return "\n".join(lines)


def _newest(invocation: Invocation, client: Client) -> int:
    return _list(invocation, list(client.sessions(limit=_LISTED)), "No sessions found.")


def _dead(invocation: Invocation, client: Client) -> int:
    """Failed sessions are few; those of the fleet's own failing are told apart here."""
    failed = [
        line for line in client.sessions(status="failed") if (line.get("exit") or {}).get("code") in GIVEN_UP
    ]
    webhooks = client.dead_webhooks()
    if invocation.flag("json"):
        print_json(invocation, {"turns": failed, "webhooks": webhooks})
        return 0
    _list(invocation, failed, "No turn was given up.")
    for webhook in webhooks:
        session, turn = one_line(str(webhook.get("session", ""))), webhook.get("turn", "")
        invocation.out.write(f"  webhook  {session}.{turn}  {one_line(str(webhook.get('url', '')))}\n")
    return 0


def _list(invocation: Invocation, lines: list[JsonObject], none: str) -> int:
    if invocation.flag("json"):
        print_json(invocation, lines)
        return 0
    for line in lines:
        parts = [f"{line['sessionId']}.{line.get('turn', 1)}", line["workflow"], line["status"]]
        parts += [f"state={line['state']}"] if line.get("state") else []
        code = (line.get("exit") or {}).get("code")
        parts += [f"exit={code}"] if code else []
        invocation.out.write("  " + "  ".join(one_line(str(part)) for part in parts) + "\n")
    if not lines:
        invocation.out.write(none + "\n")
    return 0
