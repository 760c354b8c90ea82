"""What an assertion sees: one action's outcome, and everything the session did so far (06 §5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from core.jsontext import Json, JsonObject
from engine.cases.document import Channel
from engine.session.outcome import Outcome

CallStatus: TypeAlias = Literal["completed", "failed", "rejected", "pending"]


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the session's agent."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call the agent wrote, its arguments as written; None when they were no JSON object (`raw` has the text)."""

    name: str
    args: JsonObject | None
    status: CallStatus
    output: str = ""
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """A runtime note."""

    kind: str
    text: str


Entry: TypeAlias = Said | Called | Noted


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """`raised`: the action ended through `archmax_raise`. `code` and `reason` belong to a failure or a rejection."""

    kind: Literal["completed", "parked", "failed", "rejected"]
    channel: Channel | None = None
    state: str | None = None
    raised: bool = False
    code: str | None = None
    reason: str | None = None

    def describe(self) -> str:
        """The outcome in words, for a miss."""
        match self.kind:
            case "completed":
                return "completed"
            case "parked":
                return f"parked for {self.channel} in {self.state!r}"
            case "failed" if self.raised:
                return f"failed: raised {self.code!r} ({self.reason})"
            case "failed":
                return f"failed: {self.code} ({self.reason})"
            case "rejected":
                return f"rejected ({self.reason})"


@dataclass(frozen=True, slots=True)
class CaseView:
    """`entries`, `trail` and `variables` are the whole session's; `outcome` and `reply` this action's."""

    outcome: ActionOutcome
    reply: str = ""
    entries: tuple[Entry, ...] = ()
    trail: tuple[JsonObject, ...] = ()
    #: name → `{value, locked}`
    variables: Mapping[str, JsonObject] = field(default_factory=dict)

    @property
    def messages(self) -> list[str]:
        return [entry.text for entry in self.entries if isinstance(entry, Said)]

    @property
    def calls(self) -> list[Called]:
        return [entry for entry in self.entries if isinstance(entry, Called)]


def view_of(outcome: Outcome) -> CaseView:
    """The view after a settled action. An outcome of kind `refused` is an error the action raises, and has none."""
    return CaseView(
        outcome=_action_outcome(outcome),
        reply=outcome.reply,
        entries=entries_of(outcome.transcript),
        trail=tuple(outcome.audit_trail),
        variables=outcome.variables,
    )


def _action_outcome(outcome: Outcome) -> ActionOutcome:
    if outcome.kind == "parked":
        channel: Channel = "decision" if outcome.parked_channel == "decision" else "input"
        return ActionOutcome("parked", channel, outcome.state)
    if outcome.kind == "completed":
        return ActionOutcome("completed", state=outcome.state)
    if outcome.kind == "failed":
        ended = outcome.exit or {}
        code = str(ended.get("code", ""))
        return ActionOutcome(
            "failed",
            state=outcome.state,
            raised=outcome.raised,
            code=code,
            reason=str(ended.get("reason", "")),
        )
    if outcome.kind == "rejected":
        return ActionOutcome("rejected", state=outcome.state, reason=outcome.rejected)
    raise ValueError(f"a turn that was refused has no view: {outcome.problem}")


def entries_of(transcript: Sequence[JsonObject]) -> tuple[Entry, ...]:
    """The transcript as the agent's words, its calls with their results, and the runtime's notes, in order."""
    results = {message["id"]: message for message in transcript if message["role"] == "tool"}
    entries: list[Entry] = []
    for message in transcript:
        if message["role"] == "note":
            entries.append(Noted(message["kind"], message["text"]))
        elif message["role"] == "user" and message.get("note"):
            entries.append(Noted(message["note"], message["text"]))
        elif message["role"] == "assistant" and not message.get("seeded"):
            if message["text"].strip():
                entries.append(Said(message["text"]))
            entries.extend(_called(call, results.get(call["id"])) for call in message.get("calls", ()))
    return tuple(entries)


def _called(call: Mapping[str, Json], result: Mapping[str, Json] | None) -> Called:
    args = call.get("args")
    status: CallStatus = "pending"
    if result is not None:
        failed: CallStatus = "rejected" if result.get("blocked") else "failed"
        status = failed if result["status"] == "error" else "completed"
    return Called(
        name=str(call["name"]),
        args=args if isinstance(args, dict) else None,
        status=status,
        output=str(result["text"]) if result is not None else "",
        raw=call.get("raw"),
    )
