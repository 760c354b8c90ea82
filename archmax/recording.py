"""What a stored session can be turned into: the script of its models, and a case that plays it again (06, 09).

Read from the session's records, which hold every answer of its models in the order they came, graders' included. A case
made so is a draft: its moves are asserted, its host tools' answers stand as mocks, and its author adds what matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from core.jsontext import Json, JsonObject, loads, text
from engine.cases.document import (
    CASE_DESCRIPTION_MAX_LENGTH,
    CASE_TITLE_MAX_LENGTH,
    CaseDocument,
    Decide,
    Deliver,
    Mock,
    Parked,
    Raised,
    ReachedState,
    Send,
    Step,
    Succeeded,
)
from engine.governance.names import delegation_target, is_builtin
from engine.session.state import SessionState

#: what opens a session that was started without words: a case has no other way to begin
OPENING: Final = "Begin."
_REGEX_SHAPED: Final = re.compile(r"/.*/[a-z]*", re.DOTALL)
_REGEX_SIGNS: Final = re.compile(r"([.*+?^${}()|\[\]\\/])")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One session's records, oldest first, and the workflow it is of."""

    session: str
    workflow: str
    records: Sequence[JsonObject]

    def changes(self) -> Iterable[JsonObject]:
        return (change for record in self.records for change in record["changes"])

    def turns(self) -> list[list[JsonObject]]:
        """The changes by turn."""
        found: list[list[JsonObject]] = []
        for change in self.changes():
            if change["t"] in ("open", "resume", "refuse") or not found:
                found.append([])
            found[-1].append(change)
        return found


# -- the model script --------------------------------------------------------------------------------------------------


def script_of(
    root: Recorded, children: Sequence[Recorded] = (), *, turns: int | None = None
) -> list[JsonObject]:
    """The answers of the models, as items of a model script. `turns`: of the root's last ones only."""
    workflows = {root.workflow, *(child.workflow for child in children)}
    answers = _answers(root, turns)
    for child in children:
        answers += _answers(child, None)
    if len(workflows) > 1:
        return answers
    return [{key: value for key, value in answer.items() if key != "when_workflow"} for answer in answers]


def _answers(recorded: Recorded, last: int | None) -> list[JsonObject]:
    found: list[JsonObject] = []
    position = ""
    decided: set[str] = set()
    states: dict[str, str] = {}
    turns = recorded.turns()
    for index, changes in enumerate(turns):
        wanted = last is None or index >= len(turns) - last
        for change in changes:
            match change["t"]:
                case "open":
                    position = str(change["position"])
                case "position":
                    position = str(change["state"])
                case "frame":
                    states[change["id"]] = str(change["state"])
                case "frame-decision":
                    decided.add(change["frame"])
                case "message" if wanted and change["m"]["role"] == "assistant":
                    found.append(_answer(change["m"], "agent", recorded.workflow, position))
                # what a grader says after its decision is answered by the scripted model itself (09 §2)
                case "frame-message" if (
                    wanted and change["m"]["role"] == "assistant" and change["frame"] not in decided
                ):
                    state = states.get(change["frame"], position)
                    found.append(_answer(change["m"], "grader", recorded.workflow, state))
    return found


def _answer(message: JsonObject, role: Literal["agent", "grader"], workflow: str, state: str) -> JsonObject:
    answer: JsonObject = {} if role == "agent" else {"role": role}
    answer |= {"when_workflow": workflow, "when_state": state}
    if message.get("text"):
        answer["text"] = message["text"]
    if message.get("calls"):
        answer["tool_calls"] = [_call(call) for call in message["calls"]]
    return answer


def _call(call: JsonObject) -> JsonObject:
    if "raw" in call:
        return {"name": call["name"], "raw_args": call["raw"]}
    return {"name": call["name"], **({"args": call["args"]} if call.get("args") else {})}


def script_text(answers: Sequence[JsonObject], origin: str) -> str:
    """The script's YAML: one answer an item, its values as JSON, which YAML 1.2 reads as it stands."""
    lines = [f"# What the model says. Recorded from {origin}."]
    for answer in answers:
        mark = "- "
        for key, value in answer.items():
            if key == "tool_calls":
                lines.append(f"{mark}tool_calls:")
                lines += [f"    - {text(call)}" for call in value]
            else:
                lines.append(f"{mark}{key}: {text(value)}")
            mark = "  "
    return "\n".join(lines) + ("\n" if answers else "\n[]\n")


# -- the case ----------------------------------------------------------------------------------------------------------


def case_of(root: Recorded, children: Sequence[Recorded] = ()) -> CaseDocument:
    """A case that sends what the session was sent and asserts where it went."""
    state = SessionState(root.session, root.workflow)
    steps: list[Step] = []
    seeds: JsonObject = {}
    trigger: str | None = None
    for changes in root.turns():
        before = len(state.trail)
        for change in changes:
            state.apply(change)
        if changes[0]["t"] == "refuse":
            continue
        if changes[0]["t"] == "open" and trigger is None:
            trigger, seeds = str(changes[0]["trigger"]), _seeded(changes)
        steps.append(_action(changes))
        steps += _moves(state.trail[before:])
        steps += _ended(state)
    path = " → ".join(dict.fromkeys(str(step["to"]) for step in state.trail))
    return CaseDocument(
        title=_cut(str(state.values.get("title") or f"Session {root.session}"), CASE_TITLE_MAX_LENGTH),
        description=_cut(f"Recorded from session {root.session}: {path}", CASE_DESCRIPTION_MAX_LENGTH),
        trigger=trigger if trigger not in (None, "manual") else None,
        variables=seeds,
        mocks=_mocks([root, *children]),
        steps=tuple(steps),
    )


def _cut(words: str, limit: int) -> str:
    line = " ".join(words.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _seeded(changes: Sequence[JsonObject]) -> JsonObject:
    """What the host set, without the built-in `trigger`."""
    return {
        name: value
        for change in changes
        if change["t"] == "vars" and change.get("host")
        for name, value in change["set"].items()
        if name != "trigger"
    }


def _action(changes: Sequence[JsonObject]) -> Send | Decide | Deliver:
    events = [change["e"] for change in changes if change["t"] == "ev"]
    for event in events:
        if event["type"] == "decided":
            comments = [
                c["step"].get("reason") for c in changes if c["t"] == "trail" and c["step"]["kind"] == "human"
            ]
            return Decide(str(event["to"]), comments[0] if comments else None)
        if event["type"] == "delivered":
            return Deliver(str(event["trigger"]), _seeded(changes))
    said = next(
        (
            c["m"]["text"]
            for c in changes
            if c["t"] == "message" and c["m"]["role"] == "user" and not c["m"].get("note")
        ),
        None,
    )
    return Send(said or OPENING)


def _moves(trail: Sequence[JsonObject]) -> list[Step]:
    reached = dict.fromkeys(str(s["to"]) for s in trail if s["kind"] not in ("trigger", "sub-workflow"))
    return [ReachedState(to) for to in reached]


def _ended(state: SessionState) -> list[Step]:
    pending = state.pending_decision or state.pending_input
    if pending is not None:
        return [Parked("decision" if state.pending_decision else "input", str(pending["state"]))]
    if state.status == "completed":
        return [Succeeded()]
    if state.raised is not None and state.deliberate:
        return [Raised(str(state.raised["code"]))]
    return []


def _mocks(sessions: Sequence[Recorded]) -> tuple[Mock, ...]:
    """The host tools that were called, each different call once, with what it answered."""
    found: dict[str, Mock] = {}
    for recorded in sessions:
        written: dict[str, Json] = {}
        for change in recorded.changes():
            if change["t"] in ("message", "frame-message"):
                written |= {call["id"]: call.get("args") for call in change["m"].get("calls") or ()}
            elif change["t"] == "called" and "args" in change:
                written[change["id"]] = change["args"]
            elif change["t"] == "result" and change["ok"]:
                tool = str(change["tool"])
                if is_builtin(tool) or delegation_target(tool) is not None:
                    continue
                when = _condition(written.get(change["id"]))
                found.setdefault(
                    f"{tool} {text(when)}", Mock(tool, when or None, _result(str(change["text"])))
                )
    return tuple(found.values())


def _condition(args: Json) -> JsonObject:
    """The arguments a mock waits for: none that hold a reference, which a mock meets filled in."""
    given = args if isinstance(args, dict) else {}
    return {key: _literal(value) for key, value in given.items() if "${{" not in text(value)}


def _literal(value: Json) -> Json:
    """A text that would be read as a regular expression is spelled as one that matches it."""
    if isinstance(value, dict):
        return {key: _literal(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_literal(inner) for inner in value]
    if isinstance(value, str) and _REGEX_SHAPED.fullmatch(value):
        return "/^" + _REGEX_SIGNS.sub(r"\\\1", value) + "$/"
    return value


def _result(answer: str) -> Json:
    """A JSON answer as its value, when the mock would give exactly the same text."""
    try:
        value: Json = loads(answer)
    except ValueError:
        return answer
    return value if not isinstance(value, str) and value is not None and text(value) == answer else answer
