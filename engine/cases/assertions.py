"""Every assertion but `grade`, evaluated over a view (06 §6). Pure, except that regexes run in a child process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, assert_never

from core.jsontext import Json, JsonObject
from core.jsontext import text as json_text
from core.jsvalues import deep_equal
from engine.cases.document import (
    Assertion,
    BlockedTool,
    CalledTool,
    Grade,
    NotCalledTool,
    NoTraversal,
    Parked,
    Raised,
    RanWorkflow,
    ReachedState,
    Reply,
    Succeeded,
    ToolAssertion,
    TrailCount,
    TriggerArrival,
    UsedNoTools,
    Variables,
)
from engine.cases.matching import UNRESOLVED, partial_match, text_matches, value_at
from engine.cases.regex import RegexEngine, RegexStopped, regex_engine
from engine.cases.verdict import Record
from engine.cases.view import Called, CaseView

_SHOWN_CHARS: Final = 300
#: trail steps that enter no state
_NOT_REACHED: Final = ("trigger", "sub-workflow")


def evaluate(
    assertion: Assertion, view: CaseView, step: int, *, engine: RegexEngine | None = None
) -> list[Record]:
    """The assertion's records. A regex that takes too long fails its record.

    Raises: `TypeError` for a grade, which asks a model: see `engine.cases.judge`.
    """
    judge = _Judge(view, step, engine or regex_engine())
    match assertion:
        case Succeeded():
            missed = None if view.outcome.kind == "completed" else f"the action {view.outcome.describe()}"
            return [judge.record(assertion.key, missed)]
        case Parked():
            return [judge.record(assertion.key, judge.parked(assertion))]
        case Raised():
            return [judge.guarded(assertion.key, lambda: judge.raised(assertion))]
        case ReachedState(state):
            return [judge.record(assertion.key, judge.reached(state))]
        case TrailCount():
            return [judge.record(assertion.key, judge.trail(assertion))]
        case NoTraversal():
            return [judge.record(assertion.key, judge.no_traversal())]
        case TriggerArrival(trigger):
            return [judge.record(assertion.key, judge.arrival(trigger))]
        case Reply():
            return judge.reply(assertion)
        case CalledTool() | NotCalledTool() | BlockedTool():
            return [judge.guarded(assertion.key, lambda: judge.tool(assertion))]
        case RanWorkflow():
            return [judge.record(assertion.key, judge.ran_workflow(assertion))]
        case UsedNoTools():
            names = ", ".join(dict.fromkeys(call.name for call in view.calls))
            return [judge.record(assertion.key, f"the agent called {names}" if names else None)]
        case Variables():
            return judge.variables(assertion)
        case Grade():
            raise TypeError("a grade is evaluated by a judge")
        case _:
            assert_never(assertion)


def shown(value: Json) -> str:
    """A value in a record's detail: compact JSON, cut when long."""
    text = json_text(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"


class _Judge:
    """Each method gives what was missed, in words, or None."""

    def __init__(self, view: CaseView, step: int, engine: RegexEngine) -> None:
        self._view = view
        self._step = step
        self._engine = engine

    def record(self, kind: str, missed: str | None) -> Record:
        return Record(kind, "passed" if missed is None else "failed", self._step, detail=missed)

    def guarded(self, kind: str, judged: Callable[[], str | None]) -> Record:
        try:
            return self.record(kind, judged())
        except RegexStopped as stopped:
            return self.record(kind, str(stopped))

    def parked(self, wanted: Parked) -> str | None:
        outcome = self._view.outcome
        if outcome.kind != "parked":
            return f"the action {outcome.describe()}"
        wrong = []
        if wanted.channel not in (None, outcome.channel):
            wrong.append(f"channel {wanted.channel}")
        if wanted.state not in (None, outcome.state):
            wrong.append(f"state {wanted.state!r}")
        return f"expected {' and '.join(wrong)}; the action {outcome.describe()}" if wrong else None

    def raised(self, wanted: Raised) -> str | None:
        outcome = self._view.outcome
        if not outcome.raised:
            return f"nothing was raised; the action {outcome.describe()}"
        if wanted.code not in (None, outcome.code):
            return f"expected code {wanted.code!r}; {outcome.code!r} was raised"
        reason = outcome.reason or ""
        if wanted.reason is not None and not text_matches(
            wanted.reason, reason, whole=True, engine=self._engine
        ):
            return f"expected reason {wanted.reason!r}; {outcome.code!r} was raised with {shown(reason)}"
        return None

    def reached(self, state: str) -> str | None:
        entered = [step["to"] for step in self._view.trail if step["kind"] not in _NOT_REACHED]
        return None if state in entered else f"{state!r} was not reached ({_walked(entered)})"

    def trail(self, wanted: TrailCount) -> str | None:
        given = {
            key: value
            for key, value in (("to", wanted.to), ("kind", wanted.kind), ("reason", wanted.reason))
            if value is not None
        }
        found = sum(all(step.get(key) == value for key, value in given.items()) for step in self._view.trail)
        if found == wanted.count:
            return None
        return f"expected {wanted.count} steps with {shown(given)}, found {found}"

    def no_traversal(self) -> str | None:
        moved = [f"{step['to']} ({step['kind']})" for step in self._view.trail if step["kind"] != "trigger"]
        return f"the session moved: {', '.join(moved)}" if moved else None

    def arrival(self, trigger: str) -> str | None:
        arrived = [str(step.get("reason")) for step in self._view.trail if step["kind"] == "trigger"]
        return (
            None
            if trigger in arrived
            else f"{trigger!r} did not arrive (arrived: {', '.join(arrived) or 'none'})"
        )

    def reply(self, wanted: Reply) -> list[Record]:
        said = "\n".join(self._view.messages)
        sides = (("reply.includes", wanted.includes, True), ("reply.excludes", wanted.excludes, False))
        return [
            self.guarded(kind, lambda token=token, hit=hit: self._token(token, said, wanted=hit))
            for kind, tokens, hit in sides
            for token in tokens
        ]

    def _token(self, token: str, said: str, *, wanted: bool) -> str | None:
        if text_matches(token, said, whole=False, engine=self._engine) is wanted:
            return None
        return f"{shown(token)} is {'not in' if wanted else 'in'} the agent's messages"

    def tool(self, wanted: ToolAssertion) -> str | None:
        named = [call for call in self._view.calls if call.name == wanted.name]
        matching = [call for call in named if wanted.input is None or self._matches(wanted.input, call)]
        given = "" if wanted.input is None else f" with {shown(wanted.input)}"
        match wanted:
            case NotCalledTool():
                return f"{wanted.name} was called{given}" if matching else None
            case CalledTool():
                return None if matching else f"{wanted.name} was not called{given}{_calls_seen(named)}"
            case BlockedTool():
                if any(call.status == "rejected" for call in matching):
                    return None
                return f"no call of {wanted.name}{given} was blocked{_calls_seen(named)}"

    def _matches(self, wanted: JsonObject, call: Called) -> bool:
        return call.args is not None and partial_match(wanted, call.args, engine=self._engine)

    def ran_workflow(self, wanted: RanWorkflow) -> str | None:
        runs = [
            step.get("status") or "ok"
            for step in self._view.trail
            if step["kind"] == "sub-workflow" and step.get("workflow") == wanted.workflow
        ]
        found = runs.count(wanted.status)
        if found == wanted.count if wanted.count is not None else found:
            return None
        expected = "at least 1" if wanted.count is None else str(wanted.count)
        return (
            f"expected {expected} run(s) of {wanted.workflow!r} with status {wanted.status}, found {found}"
            f" ({len(runs)} in all)"
        )

    def variables(self, wanted: Variables) -> list[Record]:
        records: list[Record] = []
        for name, expected in wanted.expect.items():
            held = self._view.variables.get(name)
            records.append(
                self.record(Variables.key, _value_missed(name, expected, held, wanted.path.get(name)))
            )
            if held is not None and name in wanted.locked:
                locked = bool(held.get("locked"))
                missed = f"{name} is {'locked' if locked else 'not locked'}"
                records.append(self.record(Variables.key, None if locked is wanted.locked[name] else missed))
        return records


def _value_missed(name: str, expected: Json, held: Mapping[str, Json] | None, path: str | None) -> str | None:
    if held is None:
        return f"{name} is not set"
    value = held["value"]
    if path is not None:
        value = value_at(value, path)
        if value is UNRESOLVED:
            return f"{name} has nothing at {path!r}"
    where = f"{name} at {path!r}" if path else name
    return (
        None if deep_equal(expected, value) else f"{where}: expected {shown(expected)}, found {shown(value)}"
    )


def _walked(entered: list[str]) -> str:
    return f"reached: {', '.join(dict.fromkeys(entered))}" if entered else "the session did not move"


def _calls_seen(calls: list[Called]) -> str:
    if not calls:
        return ""
    return "; its calls: " + ", ".join(
        f"{shown(call.args if call.args is not None else call.raw)} {call.status}" for call in calls[:5]
    )
