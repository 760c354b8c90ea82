"""A claims desk for tests of the command: a person decides, a receipt is waited for, and all that can go wrong does."""

from __future__ import annotations

from pathlib import Path

CLAIM = """
title: Claims
instructions: Be brief.
states:
  draft:
    triggers: { manual: , order: { requires: [{ name: order_id, type: string }] }, mail: { session: mail.thread } }
    instructions: Draft the claim.
    transitions: [{ to: review, description: It is drafted. }, { to: waiting, description: Something is missing. }]
  review:
    type: human
    title: Review the claim
    instructions: Approve or return it.
    evidence: [scratchpad/claim.txt]
    approvers: [claims@desk.example]
    transitions:
      - { to: paid, type: approve, description: Pay it. }
      - { to: draft, type: refine, description: Once more. }
  waiting:
    instructions: Wait for the receipt.
    tools: { allow: [archmax_wait] }
    transitions: [{ to: paid, description: It came. }]
  paid:
    instructions: Say that it is paid.
"""
MODEL = """
- { when_contains: "give up", tool_calls: [{ name: archmax_raise, args: { code: no-claim, reason: There is no claim. } }], repeat: true }
- { when_contains: "break down", error: "the provider is away", error_status: 400, repeat: true }
- { when_state: draft, when_contains: "no receipt", tool_calls: [{ name: archmax_advance, args: { to: waiting, reason: no receipt } }], repeat: true }
- { when_state: draft, tool_calls: [{ name: archmax_advance, args: { to: review, reason: drafted } }], text: "I drafted it.", repeat: true }
- { when_state: review, when_contains: "Which account", text: "The usual one.", repeat: true }
- { when_state: review, text: "Please wait for the review.", repeat: true }
- { when_state: waiting, when_contains: "[event]", tool_calls: [{ name: archmax_advance, args: { to: paid, reason: it came } }], repeat: true }
- { when_state: waiting, after_tool: archmax_wait, text: "I wait.", repeat: true }
- { when_state: waiting, tool_calls: [{ name: archmax_wait, args: { reason: the receipt, until: "2031-05-10T09:00:00Z" } }], repeat: true }
- { when_state: paid, text: "It is paid.", repeat: true }
"""
#: what chooses the desk's model, relative to its root
SCRIPTED = {"ARCHMAX_MODEL": "scripted:model.yaml"}


def write_claims(root: Path) -> Path:
    directory = root / "workflows" / "claims"
    directory.mkdir(parents=True)
    (directory / "workflow.yaml").write_text(CLAIM, "utf-8")
    (root / "model.yaml").write_text(MODEL, "utf-8")
    return root
