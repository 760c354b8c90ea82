"""One session's story for a reader: its path through the graph, its trail, its transcript, its decisions.

What a session is stands in its folded state; when things were said, and by whom decided, stands in its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from markupsafe import Markup

from api.ui.pages import pretty
from core.jsontext import JsonObject
from engine.graph import Marks, graph_of, svg
from engine.session.state import SessionState
from engine.spec.model import Spec

START: Final = "__start__"
#: characters of one text that a page shows
MAX_TEXT: Final = 20_000
#: messages of one page
MAX_MESSAGES: Final = 100


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision: where it was taken, which way, by whom, with which words."""

    state: str
    to: str
    by: str | None
    comment: str | None
    at: int


@dataclass(slots=True)
class Recorded:
    """What only the records tell."""

    times: dict[str, int] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    decisions: list[Decided] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call and its answer. `status`: `ok`, `error`, `refused` by a rule, or `open`."""

    name: str
    args: str
    status: str
    answer: str


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the transcript. `role`: `person`, `agent` or `runtime`."""

    role: str
    text: str
    at: int | None
    turn: int | None
    note: str | None = None
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcript:
    """One page of it, `first` to `last` of `total`, counted from 1."""

    items: tuple[Said, ...]
    first: int
    last: int
    total: int

    @property
    def earlier(self) -> int | None:
        """Where the page before begins, from 0."""
        return None if self.first <= 1 else max(self.first - 1 - MAX_MESSAGES, 0)

    @property
    def later(self) -> int | None:
        return None if self.last >= self.total else self.last


def recorded(records: Iterable[JsonObject]) -> Recorded:
    """One pass over a session's records."""
    found = Recorded()
    turn = 0
    for record in records:
        at = int(record.get("at") or 0)
        comment: str | None = None
        for change in record.get("changes", ()):
            kind = change.get("t")
            if kind in ("open", "resume", "refuse"):
                turn = change.get("turn", turn)
            elif kind == "message":
                found.times[change["m"]["id"]] = at
                found.turns[change["m"]["id"]] = turn
            elif kind == "result":
                found.times[change["id"]] = at
            elif kind == "trail" and change["step"].get("kind") == "human":
                comment = change["step"].get("reason")
            elif kind == "ev" and change["e"].get("type") == "decided":
                event = change["e"]
                found.decisions.append(
                    Decided(str(event.get("state")), str(event.get("to")), event.get("by"), comment, at)
                )
                comment = None
    return found


def path_of(state: SessionState) -> Marks:
    """The moves a session made, read off its trail (03 §8). Deliveries and sub-workflows move nothing."""
    moves: set[tuple[str, str, str]] = set()
    states: set[str] = set()
    at: str | None = None
    for step in state.trail:
        to, kind = step["to"], step["kind"]
        if kind == "trigger" and to != at:
            moves.add((START, to, str(step.get("reason"))))
            states.add(START)
        elif kind in ("agent", "human", "grader", "code") and at is not None:
            moves.add((at, to, ""))
        elif kind == "on_error" and at is not None:
            moves.add((at, to, "on_error"))
        if kind != "sub-workflow":
            at = to
            states.add(to)
    return Marks(frozenset(moves), frozenset(states), state.position)


def drawing(spec: Spec, state: SessionState) -> Markup:
    """The state graph with the session's path. The drawing escapes its texts; it is markup of our own."""
    return Markup(svg(graph_of(spec), marks=path_of(state)))  # noqa: S704 - escaped by `engine.graph.svg`


def trail_of(state: SessionState, decisions: Sequence[Decided]) -> list[JsonObject]:
    """The trail's steps; a person's with `by`."""
    told = iter(decisions)
    steps: list[JsonObject] = []
    for step in state.trail:
        shown = dict(step)
        if step["kind"] == "human":
            decided = next(told, None)
            shown["by"] = decided.by if decided is not None else None
        steps.append(shown)
    return steps


def transcript(state: SessionState, known: Recorded, start: int | None) -> Transcript:
    """The messages from `start` on, or the newest. A call is shown with the message that made it."""
    answers = {message["id"]: message for message in state.messages if message["role"] == "tool"}
    spoken = [message for message in state.messages if message["role"] != "tool"]
    total = len(spoken)
    begin = max(total - MAX_MESSAGES, 0) if start is None else min(max(start, 0), total)
    shown = spoken[begin : begin + MAX_MESSAGES]
    items = tuple(_said(message, answers, known) for message in shown)
    return Transcript(items, begin + 1 if items else 0, begin + len(items), total)


def _said(message: Mapping[str, Any], answers: Mapping[str, JsonObject], known: Recorded) -> Said:
    role = {"user": "person", "assistant": "agent"}.get(message["role"], "runtime")
    note = message.get("kind") or message.get("note")
    return Said(
        "runtime" if note else role,
        cut(str(message["text"])),
        known.times.get(message["id"]),
        known.turns.get(message["id"]),
        note,
        tuple(_call(call, answers.get(call["id"])) for call in message.get("calls", ())),
    )


def _call(call: Mapping[str, Any], answer: JsonObject | None) -> Call:
    args = call["raw"] if "raw" in call else pretty(call.get("args"))
    if answer is None:
        return Call(call["name"], cut(str(args)), "open", "")
    status = "refused" if answer.get("blocked") else str(answer.get("status"))
    return Call(call["name"], cut(str(args)), status, cut(str(answer["text"])))


def last_words(state: SessionState) -> str:
    """What the agent said last: for a park, its handoff message."""
    for message in reversed(state.messages):
        if message["role"] == "assistant" and message["text"].strip():
            return cut(str(message["text"]))
    return ""


def cut(text: str, limit: int = MAX_TEXT) -> str:
    """The first characters of a text, and how many are missing."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n… {len(text) - limit:,} more characters"
