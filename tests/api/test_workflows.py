"""What the API tells of a workflow's states."""

from __future__ import annotations

from api.routes.workflows import workflow_body
from tests.support.spec import load

SPEC = """
states:
  draft:
    triggers: { manual: {} }
    instructions: The model's own.
    transitions: [{ to: review, description: ready }]
  review:
    type: human
    instructions: Compare the refund with the order.
    approvers: [office@shop.example]
    transitions: [{ to: paid, type: approve, description: pay }, { to: blind, type: refine, description: ask }]
  blind:
    type: human
    transitions: [{ to: paid, type: approve, description: pay }]
  paid: {}
"""


def test_a_human_states_instructions_and_approvers_are_told_and_no_other_states() -> None:
    """07 §6."""
    spec = load(SPEC).spec
    assert spec is not None
    states = {state["slug"]: state for state in workflow_body(spec)["states"]}
    assert states["review"]["instructions"] == "Compare the refund with the order."
    assert states["review"]["approvers"] == ["office@shop.example"]
    for slug in ("draft", "blind", "paid"):
        assert not states[slug].keys() & {"instructions", "approvers"}, slug
