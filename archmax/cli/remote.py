"""A turn of a fleet as the command shows it: followed over HTTP, drawn and reported like one of its own (07 §6, §11)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TextIO
from urllib.parse import quote

from typing_extensions import override

from archmax.cli.invocation import Invocation
from archmax.cli.render.flow import StateFlow
from archmax.cli.render.outcomes import Disposition, report
from archmax.cli.render.parks import DecisionContext, Hints, decision_context
from archmax.cli.render.style import Style, one_line, style_for
from archmax.cli.render.usage import UsageMeter, usage_line
from archmax.client import Client
from archmax.settings import CommandSettings, read_settings
from core.jsontext import JsonObject, text


def open_client(invocation: Invocation) -> Client:
    """The fleet that `--url` or `ARCHMAX_URL` names, with the key of `ARCHMAX_KEY`."""
    settings = read_settings(CommandSettings)
    key = settings.key.get_secret_value() if settings.key is not None else None
    return Client(invocation.options.get("url", settings.url), key)


@dataclass(frozen=True, slots=True)
class RemoteHints(Hints):
    """What to type next, for a session whose fleet is reached over HTTP. `keyed`: its API asks for a key."""

    url: str = ""
    keyed: bool = False

    def _post(self, what: str, body: JsonObject) -> str:
        # the literal name, for the shell to fill in: a key never stands in a printed line
        key = '-H "Authorization: Bearer $ARCHMAX_KEY" ' if self.keyed else ""
        session = quote(self.session_id, safe="")
        data = f"-H 'Content-Type: application/json' -d {shlex.quote(text(body))}"
        return f"curl {key}{data} {self.url}/v1/sessions/{session}/{what}"

    @override
    def decide(self, targets: Iterable[str]) -> list[str]:
        return [self._post("decisions", {"to": one_line(to)}) for to in targets]

    @override
    def reply(self) -> str:
        return self._post("replies", {"message": "<message>"})

    @override
    def deliver(self) -> str:
        return self._post("deliveries", {"trigger": "<id>"})


class TurnWatch:
    """Draws a turn's events, and learns from them what a report needs: what the input became, and what was spent."""

    def __init__(self, stream: TextIO, style: Style, *, verbose: bool = False) -> None:
        self._flow = StateFlow(stream, style=style, verbose=verbose)
        self._meter = UsageMeter()
        self.disposition: Disposition = "turn"
        self.outcome: JsonObject | None = None

    def __call__(self, event: JsonObject) -> None:
        if event.get("live"):
            return  # it comes again once it is recorded
        match event.get("type"):
            case "turn-settled":
                self.outcome = event["outcome"]
                return
            case "decided":
                self.disposition = "decide"
            case "delivered":
                self.disposition = "deliver"
            case "park-message" if event.get("direction") == "inbound":
                self.disposition = "reply"
        self._meter(event)
        self._flow(event)

    @property
    def usage_line(self) -> str | None:
        return usage_line(self._meter.total)


def follow(client: Client, turn_id: str, watch: Callable[[JsonObject], None]) -> JsonObject:
    """Tell the turn's events until it is over. Returns the turn."""
    for event in client.events(turn_id):
        watch(event)
    return client.wait(turn_id)


def finish(invocation: Invocation, client: Client, turn: JsonObject, watch: TurnWatch) -> int:
    """Report a turn that is over; the exit code of 07 §6."""
    if invocation.flag("json"):
        print_json(invocation, turn)
        return 0 if turn["outcome"].get("kind") in ("completed", "parked") else 1
    style = style_for(invocation.err)
    code = report(
        reported(turn),
        RemoteHints(turn["sessionId"], url=client.url, keyed=client.keyed),
        disposition=watch.disposition,
        context=pending_context(turn["outcome"]),
        style=style,
    ).write(invocation.out, invocation.err)
    if watch.usage_line is not None:
        invocation.err.write(watch.usage_line + "\n")
    return code


def reported(turn: JsonObject) -> JsonObject:
    """The outcome, with the problem of a turn that never ran."""
    outcome: JsonObject = turn["outcome"]
    if turn["status"] == "settled":
        return outcome
    problem = turn.get("problem") or {"detail": f"the turn was {turn['status']}"}
    return {**outcome, "kind": turn["status"], "problem": problem}


def pending_context(outcome: JsonObject) -> DecisionContext | None:
    pending = outcome.get("pending")
    if not pending or outcome.get("parkedChannel") != "decision":
        return None
    child = outcome.get("delegation")
    return decision_context(pending, None, workflow=child.get("workflow") if child else None)


def print_json(invocation: Invocation, value: object) -> None:
    invocation.out.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
