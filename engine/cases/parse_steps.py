"""One reader per step of a case (06 §3, §6). Each takes the step's value and its place, and notes what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar, cast

from core.jsontext import Json
from engine.cases.document import (
    TRAIL_KINDS,
    BlockedTool,
    CalledTool,
    Channel,
    Decide,
    Deliver,
    Grade,
    NotCalledTool,
    NoTraversal,
    Parked,
    Raised,
    RanWorkflow,
    ReachedState,
    Reply,
    ReturnStatus,
    Send,
    Step,
    Succeeded,
    TrailCount,
    TriggerArrival,
    UsedNoTools,
    Variables,
)
from engine.cases.issues import Issues, Path
from engine.spec.diagnostics import shown

_STRING = "must be a non-empty string"
CHANNELS: Final = ("decision", "input")
STATUSES: Final = ("ok", "error")
S = TypeVar("S", bound=Step)
T = TypeVar("T", CalledTool, NotCalledTool, BlockedTool)


def _fields(
    known: tuple[str, ...], empty: S, read: Callable[[Mapping[str, Json], Path, Issues], S]
) -> Callable[[Json, Path, Issues], S]:
    """A reader of a step that must be a mapping of known keys; `empty` stands in when it is none."""

    def check(value: Json, path: Path, issues: Issues) -> S:
        if not isinstance(value, dict):
            issues.add(path, f"must be a mapping of {', '.join(known)}")
            return empty
        issues.known_keys(value, path, known)
        return read(value, path, issues)

    return check


def _send(value: Json, path: Path, issues: Issues) -> Send:
    return Send(issues.text(value, path, _STRING) or "")


def _decide(fields: Mapping[str, Json], path: Path, issues: Issues) -> Decide:
    to = issues.text(fields.get("to"), (*path, "to"), _STRING)
    return Decide(to or "", issues.optional_text(fields, "comment", path, empty=True))


def _deliver(fields: Mapping[str, Json], path: Path, issues: Issues) -> Deliver:
    trigger = issues.text(fields.get("trigger"), (*path, "trigger"), _STRING)
    return Deliver(trigger or "", issues.variables(fields, (*path, "variables")))


def _literal_true(step: S) -> Callable[[Json, Path, Issues], S]:
    def read(value: Json, path: Path, issues: Issues) -> S:
        if value is not True:
            issues.add(path, "takes nothing but true")
        return step

    return read


def _parked(value: Json, path: Path, issues: Issues) -> Parked:
    if value is True:
        return Parked()
    if value in CHANNELS:
        return Parked(cast(Channel, value))
    if not isinstance(value, dict):
        issues.add(path, "parked takes true, decision, input, or { channel?, state? }")
        return Parked()
    issues.known_keys(value, path, ("channel", "state"))
    channel = value.get("channel")
    if "channel" in value and channel not in CHANNELS:
        issues.add((*path, "channel"), "the channel of parked is decision or input")
        channel = None
    return Parked(cast(Channel | None, channel), issues.optional_text(value, "state", path))


def _raised(value: Json, path: Path, issues: Issues) -> Raised:
    if value is True:
        return Raised()
    if isinstance(value, str) and value:
        return Raised(code=value)
    if not isinstance(value, dict):
        issues.add(path, "raised takes true, a code (a non-empty string), or { code?, reason? }")
        return Raised()
    issues.known_keys(value, path, ("code", "reason"))
    reason = issues.optional_text(value, "reason", path, empty=True)
    if reason is not None:
        issues.token(reason, (*path, "reason"))
    return Raised(issues.optional_text(value, "code", path), reason)


def _reached_state(value: Json, path: Path, issues: Issues) -> ReachedState:
    return ReachedState(issues.text(value, path, _STRING) or "")


def _trail(fields: Mapping[str, Json], path: Path, issues: Issues) -> TrailCount:
    if not any(key in fields for key in ("to", "kind", "reason")):
        issues.add(path, "give at least one of to, kind, reason to match")
    kind = fields.get("kind")
    if "kind" in fields and kind not in TRAIL_KINDS:
        issues.add((*path, "kind"), f"unknown kind {shown(kind)!r} (kinds: {', '.join(TRAIL_KINDS)})")
        kind = None
    return TrailCount(
        count=issues.count(fields, path),
        to=issues.optional_text(fields, "to", path),
        kind=cast(str | None, kind),
        reason=issues.optional_text(fields, "reason", path, empty=True),
    )


def _trigger_arrival(value: Json, path: Path, issues: Issues) -> TriggerArrival:
    return TriggerArrival(issues.text(value, path, _STRING) or "")


def _reply(fields: Mapping[str, Json], path: Path, issues: Issues) -> Reply:
    before = len(issues.found)
    reply = Reply(*(_tokens(fields, key, path, issues) for key in ("includes", "excludes")))
    if len(issues.found) == before and not (reply.includes or reply.excludes):
        issues.add(path, "give at least one token in includes or excludes")
    return reply


def _tokens(fields: Mapping[str, Json], key: str, path: Path, issues: Issues) -> tuple[str, ...]:
    if key not in fields:
        return ()
    given = fields[key]
    listed = isinstance(given, list)
    tokens: list[str] = []
    for at, token in enumerate(given if listed else [given]):
        place: Path = (*path, key, at) if listed else (*path, key)
        if isinstance(token, str):
            issues.token(token, place)
            tokens.append(token)
        else:
            issues.add(place, "must be a string")
    return tuple(tokens)


def _tool(step: type[T]) -> Callable[[Json, Path, Issues], T]:
    def read(fields: Mapping[str, Json], path: Path, issues: Issues) -> T:
        name = issues.text(fields.get("name"), (*path, "name"), _STRING)
        return step(name or "", issues.tool_input(fields, "input", path))

    return _fields(("name", "input"), step(""), read)


def _ran_workflow(fields: Mapping[str, Json], path: Path, issues: Issues) -> RanWorkflow:
    workflow = issues.text(fields.get("workflow"), (*path, "workflow"), _STRING)
    status = fields.get("status", "ok")
    if status not in STATUSES:
        issues.add((*path, "status"), "status is ok or error")
        status = "ok"
    count = issues.count(fields, path) if "count" in fields else None
    return RanWorkflow(workflow or "", cast(ReturnStatus, status), count)


def _variables(fields: Mapping[str, Json], path: Path, issues: Issues) -> Variables:
    expect = fields.get("expect")
    if not isinstance(expect, dict):
        issues.add((*path, "expect"), "expect must be a mapping of variable names to values")
        return Variables({})
    paths: dict[str, str] = {}
    for name, text in _named(fields, "path", expect, path, issues).items():
        if isinstance(text, str):
            paths[name] = text
        else:
            issues.add((*path, "path", name), "a path is a string")
    locked: dict[str, bool] = {}
    for name, flag in _named(fields, "locked", expect, path, issues).items():
        if isinstance(flag, bool):
            locked[name] = flag
        else:
            issues.add((*path, "locked", name), "locked is true or false")
    return Variables(expect, paths, locked)


def _named(
    fields: Mapping[str, Json], key: str, expect: Mapping[str, Json], path: Path, issues: Issues
) -> Mapping[str, Json]:
    given = fields.get(key, {})
    if not isinstance(given, dict):
        issues.add((*path, key), "must be a mapping of names that occur in expect")
        return {}
    for name in given:
        if name not in expect:
            issues.add((*path, key, name), "does not occur in expect")
    return given


def _grade(fields: Mapping[str, Json], path: Path, issues: Issues) -> Grade:
    criterion = issues.text(fields.get("closedQA"), (*path, "closedQA"), _STRING)
    bar = fields.get("atLeast")
    if not isinstance(bar, int | float) or isinstance(bar, bool) or not 0 <= bar <= 1:
        issues.add((*path, "atLeast"), "atLeast must be a number from 0 to 1")
        bar = 0
    return Grade(criterion or "", bar)


STEP_READERS: Final[Mapping[str, Callable[[Json, Path, Issues], Step]]] = {
    Send.key: _send,
    Decide.key: _fields(("to", "comment"), Decide(""), _decide),
    Deliver.key: _fields(("trigger", "variables"), Deliver(""), _deliver),
    Succeeded.key: _literal_true(Succeeded()),
    Parked.key: _parked,
    Raised.key: _raised,
    ReachedState.key: _reached_state,
    TrailCount.key: _fields(("to", "kind", "reason", "count"), TrailCount(0), _trail),
    NoTraversal.key: _literal_true(NoTraversal()),
    TriggerArrival.key: _trigger_arrival,
    Reply.key: _fields(("includes", "excludes"), Reply(), _reply),
    CalledTool.key: _tool(CalledTool),
    NotCalledTool.key: _tool(NotCalledTool),
    BlockedTool.key: _tool(BlockedTool),
    RanWorkflow.key: _fields(("workflow", "status", "count"), RanWorkflow(""), _ran_workflow),
    UsedNoTools.key: _literal_true(UsedNoTools()),
    Variables.key: _fields(("expect", "path", "locked"), Variables({}), _variables),
    Grade.key: _fields(("closedQA", "atLeast"), Grade("", 0), _grade),
}
