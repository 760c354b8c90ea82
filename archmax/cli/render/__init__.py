"""Drawing what happens in a session on any text stream (07 §7, §11): public, for hosts that want the command's looks.

Events, outcomes, results and summaries are taken in their JSON forms, so that a stream read over HTTP draws the same.
"""

from __future__ import annotations

from archmax.cli.render.cases import TestView, case_verdict_line, counts_line
from archmax.cli.render.flow import StateFlow, event_line
from archmax.cli.render.outcomes import Report, report
from archmax.cli.render.parks import DecisionContext, Hints, decision_context, park_lines
from archmax.cli.render.sessions import session_detail, sessions_listing
from archmax.cli.render.style import PLAIN, Style, style_for
from archmax.cli.render.usage import UsageMeter, usage_line

__all__ = [
    "PLAIN",
    "DecisionContext",
    "Hints",
    "Report",
    "StateFlow",
    "Style",
    "TestView",
    "UsageMeter",
    "case_verdict_line",
    "counts_line",
    "decision_context",
    "event_line",
    "park_lines",
    "report",
    "session_detail",
    "sessions_listing",
    "style_for",
    "usage_line",
]
