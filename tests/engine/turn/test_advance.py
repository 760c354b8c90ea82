"""`archmax_advance`: its checks in order, its events in order, one move per message (03 §9.1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.engine import Bench

SPEC = """
    title: Loans
    states:
      intake:
        triggers: { manual: }
        instructions: Take it in.
        requires: [card_no]
        tools: { allow: [touch] }
        transitions:
          - { to: work, description: go on }
          - { to: review, description: ask }
      work:
        instructions: Work.
      review:
        type: human
        instructions: Look.
        evidence: [scratchpad/declared.md]
        transitions:
          - { to: work, description: fine, type: approve }
"""
SET = "{ name: archmax_set_variables, args: { variables: { card_no: c1 } } }"


def advance(to: str, reason: str = "ready", extra: str = "") -> str:
    return f"{{ name: archmax_advance, args: {{ to: {to}, reason: {reason}{extra} }} }}"


async def test_a_move_tells_its_events_in_the_contracts_order(bench: Callable[..., Bench]) -> None:
    """03 §9.1: tool-called, advance, tool-result, state-leave, state-enter."""
    b = bench(SPEC, f"[{{ tool_calls: [{SET}] }}, {{ tool_calls: [{advance('work')}] }}, {{ text: done }}]")
    outcome = await b.send()
    kinds = b.kinds("tool-called", "advance", "tool-result", "state-leave", "state-enter", "parked")
    assert outcome.kind == "completed"
    assert kinds[:2] == ["advance", "state-enter"]
    assert kinds[4:] == ["tool-called", "advance", "tool-result", "state-leave", "state-enter", "state-leave"]
