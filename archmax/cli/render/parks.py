"""Parks: what a person needs in order to decide or to answer, and the command lines that do it (07 §6).

The decision context is computed from the spec and the park record each time it is shown; nothing is written down.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from archmax.cli.render.flow import instant
from archmax.cli.render.style import ACTION, ATTENTION, PLAIN, Style, one_line, safe
from core.jsontext import JsonObject

if TYPE_CHECKING:
    from engine.spec.model import State


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """`transitions` are `(to, type, description)` in declaration order; `workflow` names the child that asks."""

    transitions: tuple[tuple[str, str, str], ...] = ()
    instructions: str | None = None
    approvers: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    workflow: str | None = None


def decision_context(
    pending: JsonObject, state: State | None, *, workflow: str | None = None
) -> DecisionContext:
    """From the park record and, for what is not recorded, the spec's state (None when the spec lost it).

    `workflow` is given when a child session holds the decision; `state` is then the child's.
    """
    return DecisionContext(
        transitions=tuple(
            (str(edge["to"]), str(edge.get("type") or "none"), str(edge.get("description") or ""))
            for edge in pending.get("transitions") or ()
        ),
        instructions=state.instructions if state else None,
        approvers=state.approvers if state else (),
        evidence=tuple(map(str, pending.get("evidence") or ())),
        workflow=workflow,
    )


def context_lines(context: DecisionContext, *, indent: str = "  ") -> list[str]:
    """One line per fact: workflow of a child, instructions, approvers, evidence, then one per transition."""
    lines: list[str] = []
    if context.workflow:
        lines.append(f"Workflow: {one_line(context.workflow)}")
    if context.instructions:
        first, *rest = safe(context.instructions).strip().split("\n")
        lines.append(f"Instructions: {first}")
        lines += [f"  {line}" for line in rest]
    if context.approvers:
        lines.append(f"Approvers: {', '.join(map(one_line, context.approvers))}")
    lines += [f"Evidence: {one_line(path)}" for path in context.evidence]
    for to, kind, description in context.transitions:
        line = one_line(to) if kind == "none" else f"[{kind}] {one_line(to)}"
        lines.append(f"{line} — {one_line(description)}" if description else line)
    return [f"{indent}{line}".rstrip() for line in lines]


@dataclass(frozen=True, slots=True)
class Hints:
    """Complete command lines for one session; `options` are `--root` and `--workflow` where they are needed."""

    session_id: str
    options: tuple[str, ...] = ()

    def _line(self, command: str, *words: str) -> str:
        start = ("archmax", command, shlex.quote(one_line(self.session_id)))
        return " ".join([*start, *words, *map(shlex.quote, self.options)])

    def decide(self, targets: Sequence[str]) -> list[str]:
        """One line per target, so that each works as printed once the bracket is filled in or left away."""
        return [
            self._line("decide", "--to", shlex.quote(one_line(to)), '[--comment "why"]') for to in targets
        ]

    def reply(self) -> str:
        return self._line("reply", '"<message>"')

    def deliver(self) -> str:
        return self._line("deliver", "--trigger", "<id>", "[--variables '{…}']")


def park_lines(
    channel: str, pending: JsonObject, hints: Hints, context: DecisionContext | None, *, style: Style = PLAIN
) -> list[str]:
    """The report of a park: what is awaited, where, the context or the reason, and what to type next."""
    icon = style.warn(ATTENTION)
    title = pending.get("title")
    state = one_line(str(pending.get("state", ""))) + (f" ({one_line(str(title))})" if title else "")
    where = [f"  session  {one_line(hints.session_id)}", f"  state    {state}"]
    if channel == "decision":
        context = context or decision_context(pending, None)
        commands = [*hints.decide([to for to, _, _ in context.transitions]), hints.reply()]
        lines = [f"{icon} awaiting human decision", *where, *context_lines(context)]
    else:
        commands = [hints.deliver()]
        lines = [f"{icon} awaiting input", *where]
        if context is not None and context.workflow:
            lines.append(f"  Workflow: {one_line(context.workflow)}")
        lines.append(f"  reason   {one_line(str(pending.get('reason', '')))}")
        if pending.get("resumeAt") is not None:
            lines.append(f"  due      {instant(pending['resumeAt'])}")
    return [*lines, *(f"  {style.accent(ACTION)} {command}" for command in commands)]
