"""`archmax sessions`: the listing and one session in full, from summaries (07 §9, 05 §7.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archmax.cli.render.flow import instant
from archmax.cli.render.parks import DecisionContext, context_lines
from archmax.cli.render.style import one_line, safe
from core.jsontext import JsonObject, text

NO_SESSIONS = "No durable sessions found."


def _word(summary: JsonObject, key: str) -> str:
    value = summary.get(key)
    return "" if value is None else one_line(str(value))


def sessions_listing(
    summaries: Sequence[JsonObject], contexts: Mapping[str, DecisionContext] | None = None
) -> str:
    """One row per session, under it what it waits for. Variables by name only.

    `contexts` holds the decision context of each session that awaits a decision, by session id.
    """
    if not summaries:
        return NO_SESSIONS
    contexts = contexts or {}
    width = max(len(_word(summary, "sessionId")) for summary in summaries)
    lines: list[str] = []
    for summary in summaries:
        cells = [
            _word(summary, "sessionId").ljust(width),
            _word(summary, "status"),
            _word(summary, "classification"),
        ]
        if summary.get("workflowState") is not None:
            cells.append(f"state={_word(summary, 'workflowState')}")
        if summary.get("state") is not None:
            cells.append(f"awaiting={_word(summary, 'state')}")
        names = ",".join(map(one_line, summary.get("variables") or {}))
        if names:
            cells.append(f"vars={names}")
        lines.append("  " + "  ".join(cells))
        context = contexts.get(str(summary["sessionId"]))
        if context is not None:
            lines += context_lines(context, indent="    ")
        if summary.get("waitReason") is not None or summary.get("resumeAt") is not None:
            lines.append("    " + _waiting(summary))
    return "\n".join(lines)


def _waiting(summary: JsonObject) -> str:
    line = f"waiting for: {_word(summary, 'waitReason')}"
    if summary.get("resumeAt") is not None:
        line += f"  due={instant(summary['resumeAt'])}"
    return line


def session_detail(summary: JsonObject, context: DecisionContext | None = None) -> str:
    """One session in full: every variable with its value, `(locked)` when the host established it."""
    rows = [("status", f"{_word(summary, 'status')} ({_word(summary, 'classification')})")]
    if summary.get("workflowState") is not None:
        rows.append(("state", _word(summary, "workflowState")))
    if summary.get("state") is not None:
        rows.append(("awaiting", _word(summary, "state")))
    if summary.get("waitReason") is not None:
        rows.append(("reason", _word(summary, "waitReason")))
    if summary.get("resumeAt") is not None:
        rows.append(("due", instant(summary["resumeAt"])))
    end = summary.get("exit")
    if end and not end.get("success"):
        rows.append(("code", one_line(str(end.get("code", "")))))
        rows.append(("reason", one_line(str(end.get("reason", "")))))
    if summary.get("parentSessionId") is not None:
        rows.append(("parent", _word(summary, "parentSessionId")))
    if summary.get("specHash") is not None:
        rows.append(("spec hash", _word(summary, "specHash")))
    lines = [_word(summary, "sessionId"), *(f"  {name.ljust(9)}  {value}" for name, value in rows)]
    if context is not None:
        lines += context_lines(context, indent="    ")
    variables = summary.get("variables") or {}
    if not variables:
        return "\n".join([*lines, "  variables  none set"])
    lines.append("  variables")
    for name, variable in variables.items():
        mark = " (locked)" if variable.get("locked") else ""
        lines.append(f"    {one_line(name)}{mark} = {safe(text(variable.get('value')))}")
    return "\n".join(lines)
