"""Every event of real runs has the shape its model says, and no model is without a run that shows it (03 §20)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from pydantic import ValidationError

from archmax.docs.events import PAGE, page
from engine.host.announce import announce
from engine.session.event_types import event_models, read_event
from engine.session.events import EVENT_TYPES
from engine.turn.recorder import EventStream
from tests.support.engine import Bench, bench

__all__ = ["bench"]
Make = Callable[..., Bench]

AGENT = """
title: Desk
states:
  work:
    triggers: {manual: {}}
    instructions: Work.
    tools: {allow: [touch, archmax_workflow_child]}
    transitions:
      - {to: check, description: Ready.}
      - {to: rate, description: Rate it.}
      - {to: weigh, description: Weigh it.}
    on_error: mend
  mend: {}
  check:
    type: human
    transitions: [{to: done, type: approve, description: Good.}]
  rate:
    type: grader
    instructions: Rate it.
    transitions: [{to: done, description: Fine.}]
  weigh:
    type: code
    script: scripts/weigh.js
    transitions: [{to: done, description: Weighed.}]
  done: {}
"""
CHILD = """
states:
  look: {triggers: {manual: {}}, instructions: Look.}
"""
WEIGH = """
export default async function () {
  console.log("weighing");
  await tools.archmaxAdvance({to: "done", reason: "light"});
}
"""


def calls(*written: tuple[str, dict[str, Any]], text: str = "") -> AIMessage:
    return AIMessage(
        text,
        tool_calls=[
            {"name": name, "args": args, "id": f"{name}-{index}-{len(str(args))}", "type": "tool_call"}
            for index, (name, args) in enumerate(written)
        ],
        usage_metadata={"input_tokens": 5, "output_tokens": 1, "total_tokens": 6},
    )


def move(to: str) -> tuple[str, dict[str, Any]]:
    return "archmax_advance", {"to": to, "reason": "so"}


async def test_the_events_of_real_runs_have_their_models_shape(bench: Make) -> None:
    answers: list[Any] = [
        # a turn with tools, a child, a block, variables, a wait; then a delivery, a park, a reply, a decision
        calls(
            ("touch", {"n": 1}),
            ("touch", {"n": -1}),
            ("read_file", {"file_path": "checkpoints/head"}),
            ("archmax_workflow_child", {}),
            ("archmax_set_variables", {"variables": {"title": "A desk", "n": 1}}),
            text="on it",
        ),
        AIMessage("child says"),
        calls(("archmax_wait", {"reason": "mail", "until": "30m"})),
        calls(move("check")),
        AIMessage("please decide"),
        AIMessage("still here"),
        AIMessage("closing"),
        # a grader
        calls(move("rate")),
        calls(("touch", {}), move("done")),
        AIMessage("verdict given"),
        AIMessage("rated"),
        # a code state
        calls(move("weigh")),
        AIMessage("weighed"),
        # failures
        calls(("archmax_raise", {"code": "stuck", "reason": "no way"})),
        calls(("touch", {"n": "${{nothing}}"})),
        AIMessage("bye"),
        AIMessage(""),
        AIMessage(""),
        AIMessage(""),
    ]
    b = bench(
        {"main": AGENT, "child": CHILD},
        answers,
        files={"workflows/main/scripts/weigh.js": WEIGH},
    )
    announce(b.agent.assembly, EventStream(b.events.append), instance=True)
    await b.send("go")
    await b.deliver("mail", {"sum": 3}, "here it is")
    await b.reply("hello?")
    await b.decide("done", "fine")
    for session in ("s2", "s3", "s4"):
        await b.send("go", session)
    await b.send("go", "s5")
    await b.send("go", "s6")
    for event in b.events:
        read_event(event)
    seen = {event["type"] for event in b.events}
    unseen = set(EVENT_TYPES) - seen - {"state-error-routed"}
    assert unseen == set()


async def test_a_routed_failure_has_its_shape(bench: Make) -> None:
    b = bench(
        """
        states:
          weigh:
            triggers: {manual: {}}
            type: code
            script: scripts/weigh.js
            transitions: [{to: done, description: Weighed.}]
            on_error: mend
          mend: {}
          done: {}
        """,
        [AIMessage("mended")],
        files={"workflows/main/scripts/weigh.js": "export default () => { throw new Error('broken') }"},
    )
    await b.send("go")
    for event in b.events:
        read_event(event)
    assert b.one("state-error-routed")["to"] == "mend"
    assert b.one("code-result")["level"] == "warn"


def test_the_models_are_the_contracts_list() -> None:
    assert tuple(event_models()) == EVENT_TYPES


def test_an_unknown_field_or_type_is_refused() -> None:
    event = {"type": "state-enter", "level": "info", "ts": 1, "seq": 1, "state": "work"}
    read_event(event)
    for wrong in ({**event, "secret": 1}, {**event, "type": "state-entered"}, {**event, "state": None}):
        with pytest.raises(ValidationError):
            read_event(wrong)


def test_the_page_is_written_from_the_models() -> None:
    """`python -m archmax.docs.events` writes it anew."""
    assert PAGE.read_text("utf-8") == page()
