"""The session's state: the fold of every change its turns committed (03 §5).

`SessionState.apply` is the only way a state changes, so whoever holds the log holds the state: a worker that takes a
turn over, the API that shows it, the simulator. A change is a JSON object with `t`; unknown ones are refused, because
a reader that skips what it does not know would go on from a wrong state.

Three scopes live side by side: the session (variables, trail, files), the *open turn* (from an opening to its
completion, parks included: `turn_trigger`, park counts) and the turn (one accepted input: `turn`, `reply_from`).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from engine.session.frames import Frame

Status: TypeAlias = Literal[
    "running", "awaiting_decision", "awaiting_input", "completed", "failed", "rejected"
]
Disposition: TypeAlias = Literal["turn", "decide", "reply", "deliver"]
#: `closing`: a handoff message is owed; `suspend`: nothing is owed; `suspended`: this turn's outcome is the park
Phase: TypeAlias = Literal["closing", "suspend", "suspended"]

#: which commit a record is: turn, fencing token, number within the turn
Commit: TypeAlias = tuple[int, int, int]

RECORD_VERSION = 1


class UnknownChange(ArchmaxError):
    """A record written by a newer version: hand the turn back, guess nothing."""

    code: ClassVar[str] = "unknown-change"

    def __init__(self, change: str) -> None:
        super().__init__(change)
        self.change = change

    def __str__(self) -> str:
        return f"the session's log holds {self.change!r}, which this version does not know"


@dataclass(slots=True)
class Batch:
    """The last assistant message's calls: where it stands, and which calls have their result."""

    at: int
    order: dict[str, int]
    calls: dict[str, JsonObject]
    done: list[int] = field(default_factory=list)
    #: calls a `tool-called` event has told of
    announced: set[str] = field(default_factory=set)

    def insert_position(self, call_id: str) -> int:
        """Results stand right after their message in the order of the calls, whatever order they came in."""
        return self.at + 1 + bisect.bisect_left(self.done, self.order[call_id])


@dataclass(slots=True)
class Variable:
    """`locked`: only the host may set it again."""

    value: Any
    locked: bool

    def to_json(self) -> JsonObject:
        return {"value": self.value, "locked": self.locked}


@dataclass(slots=True)
class SessionState:
    session_id: str
    workflow: str
    # session
    messages: list[JsonObject] = field(default_factory=list)
    position: str | None = None
    entry_state: str | None = None
    trigger: str | None = None
    status: Status | None = None
    spec_hash: str | None = None
    rejected: str | None = None
    #: the committed rejection routes when the agent stops; `own` marks causes no delegation success recovers
    raised: JsonObject | None = None
    variables: dict[str, Variable] = field(default_factory=dict)
    trail: list[JsonObject] = field(default_factory=list)
    usage: JsonObject = field(default_factory=dict)
    todos: list[JsonObject] = field(default_factory=list)
    files: dict[str, JsonObject] = field(default_factory=dict)
    pending_decision: JsonObject | None = None
    pending_input: JsonObject | None = None
    pending_delegations: list[JsonObject] = field(default_factory=list)
    failed_delegations: list[JsonObject] = field(default_factory=list)
    decision_count: int = 0
    dispatch_count: int = 0
    #: a child's link to its caller: `{parent, chain, dispatchId, depth}`
    origin: JsonObject | None = None
    labels: JsonObject = field(default_factory=dict)
    #: fields a host's middleware keeps, and the turn it last began
    middleware: JsonObject = field(default_factory=dict)
    middleware_turn: int = 0
    script_used: set[int] = field(default_factory=set)
    # open turn
    turn_trigger: str | None = None
    park_phase: Phase | None = None
    reply_only: bool = False
    park_counts: dict[str, int] = field(default_factory=dict)
    state_turns: int = 0
    #: entries into states: tells one visit from the next
    visits: int = 0
    malformed: int = 0
    #: consecutive empty or cut answers in this visit
    unfinished: int = 0
    #: model steps of the open turn: what recovery accounting orders by
    model_steps: int = 0
    # turn
    turn: int = 0
    disposition: Disposition | None = None
    refused: JsonObject | None = None
    #: what went wrong in a reply-only call; the park stands all the same (03 OP-13)
    problem: JsonObject | None = None
    reply_from: int = 0
    trail_from: int = 0
    steps: int = 0
    frames: dict[str, Frame] = field(default_factory=dict)
    #: the highest number given to a script's call in this session
    script_calls: int = 0
    started_calls: set[str] = field(default_factory=set)
    suspended: JsonObject | None = None
    exit: JsonObject | None = None
    #: the exit is one the session's own mover raised, whatever its code
    deliberate: bool = False
    #: rejected for a typed return of a wrong kind: a caller tells it apart (04 §4.2)
    invalid_return: bool = False
    batch: Batch | None = None
    # log
    #: ids of all calls of the transcript: a new one must be another
    call_ids: set[str] = field(default_factory=set)
    #: last commit folded, so that a record met twice changes nothing
    last_commit: Commit = (0, 0, 0)
    #: epoch milliseconds
    created_at: int | None = None
    updated_at: int | None = None
    #: the first `rendered_upto` messages as a provider is sent them, for whoever renders; no part of what is folded
    rendered: list[Any] = field(default_factory=list, compare=False, repr=False)
    rendered_upto: int = field(default=0, compare=False, repr=False)

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def unanswered(self) -> list[JsonObject]:
        """Calls of the last assistant message that have no result yet, in order."""
        if self.batch is None:
            return []
        done = set(self.batch.done)
        return [call for call_id, call in self.batch.calls.items() if self.batch.order[call_id] not in done]

    @property
    def finished(self) -> bool:
        return self.status in ("completed", "failed", "rejected")

    @property
    def settled(self) -> bool:
        """Whether this turn has come to its outcome."""
        return self.refused is not None or self.finished or self.park_phase == "suspended"

    @property
    def values(self) -> dict[str, Any]:
        return {name: variable.value for name, variable in self.variables.items()}

    def call(self, call_id: str) -> JsonObject | None:
        return self.batch.calls.get(call_id) if self.batch is not None else None

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, change: Mapping[str, Any]) -> None:
        """Fold one change. Raises: `UnknownChange`."""
        handler = _HANDLERS.get(change["t"])
        if handler is None:
            raise UnknownChange(change["t"])
        handler(self, change)

    def apply_record(self, record: Mapping[str, Any], commit: Commit | None = None) -> bool:
        """Fold a record. Returns: False when it had been folded already. Raises: `UnknownChange`."""
        if int(record.get("v", RECORD_VERSION)) > RECORD_VERSION:
            raise UnknownChange(f"record version {record['v']}")
        if commit is not None:
            if commit <= self.last_commit:
                return False
            self.last_commit = commit
        at = record.get("at")
        if isinstance(at, int):
            self.touched(at)
        for change in record.get("changes", ()):
            self.apply(change)
        return True

    def touched(self, at: int) -> None:
        """A record of the time `at` is part of the state."""
        self.created_at = self.created_at or at
        self.updated_at = at

    def forget_rendering(self) -> None:
        """What was rendered may have been changed by whoever it was given to."""
        self.rendered, self.rendered_upto = [], 0

    def append(self, message: JsonObject) -> None:
        """Add a message; a result goes to its call's place, and a second result of one call nowhere."""
        if message["role"] == "tool":
            batch = self.batch
            if batch is None or message["id"] not in batch.order:
                return
            order = batch.order[message["id"]]
            index = bisect.bisect_left(batch.done, order)
            if index < len(batch.done) and batch.done[index] == order:
                return  # answered already
            self.messages.insert(batch.insert_position(message["id"]), message)
            bisect.insort(batch.done, order)
            return
        self.messages.append(message)
        if message["role"] == "assistant":
            calls = message.get("calls") or ()
            self.call_ids.update(call["id"] for call in calls)
            self.batch = (
                Batch(
                    at=len(self.messages) - 1,
                    order={call["id"]: index for index, call in enumerate(calls)},
                    calls={call["id"]: call for call in calls},
                )
                if calls
                else None
            )
        else:
            self.batch = None


def _open(s: SessionState, c: Mapping[str, Any]) -> None:
    _begin_turn(s, c)
    s.trigger = s.turn_trigger = c["trigger"]
    s.position = c["position"]
    s.entry_state = s.entry_state or c.get("entry") or c["position"]
    s.spec_hash = c.get("specHash")
    if c.get("origin"):
        s.origin = c["origin"]
    if c.get("labels"):
        s.labels = c["labels"]
    s.status = "running"
    s.rejected = s.raised = s.exit = None
    s.failed_delegations, s.pending_delegations = [], []
    s.park_counts, s.state_turns, s.malformed, s.unfinished, s.model_steps = {}, 0, 0, 0, 0
    s.invalid_return = s.deliberate = False
    _clear_park(s)


def _begin_turn(s: SessionState, c: Mapping[str, Any]) -> None:
    s.turn = c["turn"]
    s.disposition = c.get("disposition", "turn")
    s.refused = s.problem = None
    s.reply_from, s.trail_from = len(s.messages), len(s.trail)
    s.steps = 0
    s.frames, s.started_calls, s.suspended = {}, set(), None


def _resume(s: SessionState, c: Mapping[str, Any]) -> None:
    _begin_turn(s, c)
    s.reply_only = c.get("disposition") == "reply"
    if s.reply_only:
        s.park_phase = "closing"


def _refuse(s: SessionState, c: Mapping[str, Any]) -> None:
    _begin_turn(s, c)
    s.refused = c["problem"]
    if c.get("rejected"):  # a start refused at the boundary is a rejection of the session (03 §3.2)
        s.status, s.rejected, s.raised, s.exit = "rejected", c["rejected"], None, None
        s.position = c.get("position")
        s.entry_state = s.entry_state or c.get("entry")
        s.spec_hash = c.get("specHash")
        s.trigger = s.turn_trigger = c.get("trigger")
        if c.get("origin"):
            s.origin = c["origin"]


def _vars(s: SessionState, c: Mapping[str, Any]) -> None:
    locked, host = bool(c.get("lock")), bool(c.get("host"))
    for name, value in c["set"].items():
        held = s.variables.get(name)
        if held is not None and held.locked and not host:
            continue
        s.variables[name] = Variable(value, locked and name != "title")


def _position(s: SessionState, c: Mapping[str, Any]) -> None:
    s.position = c["state"]
    s.visits += 1
    s.state_turns = s.malformed = s.unfinished = 0


def _park(s: SessionState, c: Mapping[str, Any]) -> None:
    record = c["record"]
    if c["channel"] == "decision":
        s.pending_decision, s.pending_input, s.status = record, None, "awaiting_decision"
        s.decision_count = max(s.decision_count, int(record.get("seq", 0)))
    else:
        s.pending_input, s.pending_decision, s.status = record, None, "awaiting_input"
    s.park_phase = c["phase"]


def _phase(s: SessionState, c: Mapping[str, Any]) -> None:
    s.park_phase = c["phase"]
    s.problem = c.get("problem")
    if s.park_phase in ("suspend", "suspended"):
        s.reply_only = False


def _unpark(s: SessionState, _c: Mapping[str, Any]) -> None:
    _clear_park(s)
    s.status = "running"


def _clear_park(s: SessionState) -> None:
    s.pending_decision = s.pending_input = s.park_phase = None
    s.reply_only = False


def _unreject(s: SessionState, _c: Mapping[str, Any]) -> None:
    s.rejected = None
    s.failed_delegations = []


def _raise(s: SessionState, c: Mapping[str, Any]) -> None:
    s.raised = {"code": c["code"], "reason": c["reason"], "state": c["state"]}
    s.exit = {"success": False, "code": c["code"], "reason": c["reason"]}
    s.status, s.deliberate, s.suspended = "failed", True, None


def _fail(s: SessionState, c: Mapping[str, Any]) -> None:
    s.raised = {"code": c["code"], "reason": c["reason"], "state": s.position}
    s.exit = {"success": False, "code": c["code"], "reason": c["reason"]}
    s.status, s.suspended, s.deliberate = "failed", None, False
    _clear_park(s)


def _settle_rejected(s: SessionState, c: Mapping[str, Any]) -> None:
    s.rejected, s.status, s.exit = c["reason"], "rejected", None
    s.invalid_return = bool(c.get("invalidReturn"))


def _complete(s: SessionState, _c: Mapping[str, Any]) -> None:
    s.status, s.exit = "completed", {"success": True}


def _message(s: SessionState, c: Mapping[str, Any]) -> None:
    message = c["m"]
    s.append(message)
    s.script_used.update(c.get("used", ()))
    if message["role"] == "assistant":
        s.model_steps += 1
        if c.get("counted"):
            s.state_turns += 1


def _result(s: SessionState, c: Mapping[str, Any]) -> None:
    if c.get("origin"):
        if c.get("blocked"):  # blocked calls are never announced, and have an id all the same
            _count_script_call(s, c["id"])
        return
    message: JsonObject = {
        "role": "tool",
        "id": c["id"],
        "tool": c["tool"],
        "text": c["text"],
        "status": "ok" if c["ok"] else "error",
    }
    if c.get("blocked"):
        message["blocked"] = True
    if c.get("mark"):
        message["mark"] = c["mark"]
    s.append(message)


def _edit(s: SessionState, c: Mapping[str, Any]) -> None:
    """A middleware rewrote a message: what was there is in the log's earlier record alone."""
    for index in range(len(s.messages) - 1, -1, -1):
        message = s.messages[index]
        if message["id"] == c["id"] and message["role"] == c["role"]:
            kept = {key: value for key, value in message.items() if key != "content"}
            s.messages[index] = {**kept, "text": c["text"]}
            s.forget_rendering()
            return


def _middleware(s: SessionState, c: Mapping[str, Any]) -> None:
    for name in c.get("drop", ()):
        s.middleware.pop(name, None)
    s.middleware.update(c.get("set", {}))
    s.middleware_turn = c.get("turn", s.middleware_turn)


def _usage(s: SessionState, c: Mapping[str, Any]) -> None:
    for key, value in c["add"].items():
        total = s.usage.get(key, 0) + value
        s.usage[key] = round(total, 6) if isinstance(value, float) else total
    s.script_used.update(c.get("used", ()))


def _files(s: SessionState, c: Mapping[str, Any]) -> None:
    for path, ref in c["set"].items():
        if ref is None:
            s.files.pop(path, None)
        else:
            s.files[path] = ref


def _count(s: SessionState, c: Mapping[str, Any]) -> None:
    if c.get("park"):
        s.park_counts[c["park"]] = s.park_counts.get(c["park"], 0) + 1
    if c.get("asked"):  # a model call that left no message
        s.state_turns += 1
    for name in ("malformed", "unfinished"):
        if name in c:
            setattr(s, name, c[name])


def _pend(s: SessionState, c: Mapping[str, Any]) -> None:
    entry = c["entry"]
    if all(held["identity"] != entry["identity"] for held in s.pending_delegations):
        s.pending_delegations.append(entry)


def _repend(s: SessionState, c: Mapping[str, Any]) -> None:
    entry = c["entry"]
    s.pending_delegations = [
        entry if held["identity"] == entry["identity"] else held for held in s.pending_delegations
    ]


def _unpend(s: SessionState, c: Mapping[str, Any]) -> None:
    s.pending_delegations = [held for held in s.pending_delegations if held["identity"] != c["identity"]]


def _failed_delegation(s: SessionState, c: Mapping[str, Any]) -> None:
    if c["entry"] not in s.failed_delegations:
        s.failed_delegations.append(c["entry"])


def _recovered(s: SessionState, c: Mapping[str, Any]) -> None:
    s.failed_delegations = [held for held in s.failed_delegations if held["id"] != c["id"]]


def _frame(s: SessionState, c: Mapping[str, Any]) -> None:
    s.frames[c["id"]] = Frame(
        id=c["id"],
        kind=c["kind"],
        state=c["state"],
        source=c.get("source"),
        args=c.get("args"),
        journal=dict(c.get("journal") or {}),
        seen=(len(s.messages), len(s.trail)),
    )


def _frame_calls(s: SessionState, c: Mapping[str, Any]) -> None:
    s.frames[c["frame"]].merge_calls(c["records"])


def _frame_journal(s: SessionState, c: Mapping[str, Any]) -> None:
    s.frames[c["frame"]].journal.update(c["journal"])


def _frame_answer(s: SessionState, c: Mapping[str, Any]) -> None:
    s.frames[c["frame"]].answer(int(c["seq"]), c["answer"])


def _frame_message(s: SessionState, c: Mapping[str, Any]) -> None:
    s.frames[c["frame"]].messages.append(c["m"])
    s.script_used.update(c.get("used", ()))


def _frame_decision(s: SessionState, c: Mapping[str, Any]) -> None:
    frame = s.frames[c["frame"]]
    frame.decision = frame.decision or c["decision"]


def _frame_end(s: SessionState, c: Mapping[str, Any]) -> None:
    frame = s.frames.get(c["id"])
    if frame is not None:
        frame.done, frame.lost = True, bool(c.get("lost"))


def _called(s: SessionState, c: Mapping[str, Any]) -> None:
    if c.get("origin"):
        _count_script_call(s, c["id"])
    elif s.batch is not None:
        s.batch.announced.add(c["id"])


def _count_script_call(s: SessionState, call_id: str) -> None:
    number = call_id.removeprefix("ptc:")
    if number.isdecimal():
        s.script_calls = max(s.script_calls, int(number))


def _suspend(s: SessionState, c: Mapping[str, Any]) -> None:
    s.suspended = {"calls": c["calls"]}


def _joined(s: SessionState, _c: Mapping[str, Any]) -> None:
    s.suspended = None


def _set(name: str) -> Callable[[SessionState, Mapping[str, Any]], None]:
    def handler(s: SessionState, c: Mapping[str, Any]) -> None:
        setattr(s, name, c["value"])

    return handler


def _trail(s: SessionState, c: Mapping[str, Any]) -> None:
    s.trail.append(c["step"])


def _step(s: SessionState, _c: Mapping[str, Any]) -> None:
    s.steps += 1


def _started(s: SessionState, c: Mapping[str, Any]) -> None:
    s.started_calls.add(c["key"])


def _child(s: SessionState, c: Mapping[str, Any]) -> None:
    s.dispatch_count = max(s.dispatch_count, int(c["n"]))


def _nothing(_s: SessionState, _c: Mapping[str, Any]) -> None:
    """An event, or the mark that a call began: seen by readers, part of no state."""


_HANDLERS: dict[str, Callable[[SessionState, Mapping[str, Any]], None]] = {
    "open": _open,
    "resume": _resume,
    "refuse": _refuse,
    "vars": _vars,
    "trigger": _set("trigger"),
    "position": _position,
    "trail": _trail,
    "park": _park,
    "phase": _phase,
    "unpark": _unpark,
    "reject": _set("rejected"),
    "unreject": _unreject,
    "raise": _raise,
    "fail": _fail,
    "rejected": _settle_rejected,
    "complete": _complete,
    "message": _message,
    "edit": _edit,
    "middleware": _middleware,
    "called": _called,
    "result": _result,
    "usage": _usage,
    "files": _files,
    "todos": _set("todos"),
    "count": _count,
    "child": _child,
    "pend": _pend,
    "repend": _repend,
    "unpend": _unpend,
    "failed-call": _failed_delegation,
    "recovered": _recovered,
    "frame": _frame,
    "frame-calls": _frame_calls,
    "frame-journal": _frame_journal,
    "frame-answer": _frame_answer,
    "frame-message": _frame_message,
    "frame-decision": _frame_decision,
    "frame-end": _frame_end,
    "started": _started,
    "suspend": _suspend,
    "joined": _joined,
    "step": _step,
    "ev": _nothing,
}


def fold(
    session_id: str, workflow: str, records: Iterable[tuple[Commit | None, Mapping[str, Any]]]
) -> SessionState:
    """The state after `records`, each with its commit. Raises: `UnknownChange`."""
    state = SessionState(session_id, workflow)
    for commit, record in records:
        state.apply_record(record, commit)
    return state
