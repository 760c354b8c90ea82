"""What a turn came to, as the command reports it: the words on stdout, the rest on stderr, and the exit code (07 §6, §9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TextIO, TypeAlias

from archmax.cli.render.parks import DecisionContext, Hints, park_lines
from archmax.cli.render.style import ATTENTION, DONE, FAILED, PLAIN, Style, one_line, safe
from core.jsontext import JsonObject

Disposition: TypeAlias = Literal["turn", "decide", "reply", "deliver"]


@dataclass(frozen=True, slots=True)
class Report:
    """Texts without final newlines (empty: nothing), and the exit code.

    `before` (stderr) stands above the words of `stdout`, `after` (stderr) below them.
    """

    before: str
    stdout: str
    after: str
    exit_code: int

    def write(self, out: TextIO, err: TextIO) -> int:
        """Write in order, so that both streams on one terminal read as one. Returns the exit code."""
        words = safe(self.stdout) if out.isatty() else self.stdout
        for stream, text in ((err, self.before), (out, words), (err, self.after)):
            if text:
                stream.write(text + "\n")
                stream.flush()
        return self.exit_code


def report(
    outcome: JsonObject,
    hints: Hints,
    *,
    disposition: Disposition,
    context: DecisionContext | None = None,
    style: Style = PLAIN,
) -> Report:
    """Report an outcome (its JSON form). `disposition` is what the input became, whichever command gave it.

    `context` is the decision context of a park (07 §6).
    """
    match outcome["kind"]:
        case "completed":
            return _completed(outcome, hints, disposition, style)
        case "parked":
            return _parked(outcome, hints, disposition, context, style)
        case "rejected":
            return _ended(outcome, hints, style, "rejected", [f"  reason   {_text(outcome.get('rejected'))}"])
        case "failed":
            end = outcome.get("exit") or {}
            detail = [f"  code     {_text(end.get('code'))}", f"  reason   {_text(end.get('reason'))}"]
            return _ended(outcome, hints, style, "failed", detail)
        case _:
            problem = outcome.get("problem") or {}
            said = problem.get("detail") or problem.get("message") or problem.get("code") or "refused"
            return Report("", "", f"Error: {_text(said)}", 1)


def _text(value: object) -> str:
    return "" if value is None else one_line(str(value))


def _reply(outcome: JsonObject) -> str:
    return str(outcome.get("reply") or "")


_PAST: dict[Disposition, str] = {
    "turn": "answer",
    "decide": "decided",
    "reply": "replied",
    "deliver": "delivered",
}


def _completed(outcome: JsonObject, hints: Hints, disposition: Disposition, style: Style) -> Report:
    silent = "(no textual answer)"
    if disposition != "turn":
        silent = f"Session {one_line(hints.session_id)} resumed (state={_text(outcome.get('state'))})."
    return Report(f"{style.good(DONE)} {_PAST[disposition]}", _reply(outcome) or silent, "", 0)


def _parked(
    outcome: JsonObject, hints: Hints, disposition: Disposition, context: DecisionContext | None, style: Style
) -> Report:
    pending = outcome.get("pending") or {"state": outcome.get("state")}
    channel = str(outcome.get("parkedChannel"))
    done = f"{style.good(DONE)} {_PAST[disposition]}"
    state = _text(pending.get("state"))
    session = one_line(hints.session_id)
    if disposition == "reply":
        still = f"{style.warn(ATTENTION)} session {session} is still parked at {state}, awaiting a decision"
        return Report(done, _reply(outcome) or "(the session had nothing to say)", still, 0)
    lines = park_lines(channel, pending, hints, context, style=style)
    if disposition == "turn":
        spoken = f"{style.good(DONE)} message" if _reply(outcome) else ""
        return Report(spoken, _reply(outcome), "\n".join(lines), 0)
    return Report(done, f"Session {session} parked again (state={state}).", "\n".join(lines), 0)


def _ended(outcome: JsonObject, hints: Hints, style: Style, word: str, detail: list[str]) -> Report:
    lines = [
        f"{style.bad(FAILED)} {word}",
        f"  session  {one_line(hints.session_id)}",
        f"  state    {_text(outcome.get('state'))}",
        *detail,
    ]
    return Report("", _reply(outcome), "\n".join(lines), 1)
