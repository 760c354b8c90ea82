"""The control tools: moving, parking, failing, and the session's variables (03 §9).

Each function services one call that the kernel has already allowed, in the order of checks the contract gives, and
says what to answer. An answer that refuses changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.jsontext import JsonObject, text
from core.paths import canonical
from engine.governance.names import ADVANCE, GET_HISTORY, GET_VARIABLES, RAISE, RESET, SET_VARIABLES, WAIT
from engine.governance.references import MISSING, lookup
from engine.session.state import SessionState
from engine.spec.model import Spec, State
from engine.spec.paths import title_problem, variable_name_ok
from engine.spec.signatures import signature_value_issues
from engine.turn.context import TurnContext
from engine.turn.moves import land, raise_session, set_variables, tell_parked, trail_step
from engine.turn.recorder import now_ms
from engine.turn.tools import model_schema, object_schema
from engine.turn.until import ACCEPTED, resume_at
from engine.turn.value_files import file_issues

#: only one of these lands per message
MOVES = frozenset({ADVANCE, RESET, WAIT})
MAX_EVIDENCE = 20
MAX_CODE = 64

_TEXT = {"type": "string"}
SCHEMAS: dict[str, tuple[str, JsonObject]] = {
    ADVANCE: (
        "Move to a next state once this state's work is done. One move per message.",
        object_schema(
            {
                "to": {**_TEXT, "description": "target state's slug"},
                "reason": {**_TEXT, "description": "why, for whoever works there"},
                "evidence": {
                    "type": "array",
                    "items": _TEXT,
                    "description": "files for the person who decides; only into a human state",
                },
            },
            ("to", "reason"),
        ),
    ),
    RESET: (
        "Go back to the state the session began in. Files and variables stay.",
        object_schema({"reason": _TEXT}, ("reason",)),
    ),
    WAIT: (
        "Park here until an outside event or answer arrives. Not for asking a person to decide.",
        object_schema(
            {"reason": _TEXT, "until": {**_TEXT, "description": "optional: '30m', '2d' or an ISO date-time"}},
            ("reason",),
        ),
    ),
    RAISE: (
        "Fail the session for good; alone in its message, after a retry or two, never as a reply.",
        object_schema({"code": {**_TEXT, "maxLength": MAX_CODE}, "reason": _TEXT}, ("code", "reason")),
    ),
    GET_VARIABLES: (
        "Read variables: all, one by name, or a part of it by dotted path.",
        object_schema({"name": _TEXT, "path": _TEXT}),
    ),
    SET_VARIABLES: (
        "Set variables, all or none. lock: true makes them final.",
        object_schema({"variables": {"type": "object"}, "lock": {"type": "boolean"}}, ("variables",)),
    ),
    GET_HISTORY: (
        "The session's messages and trail as they stood when this state was entered.",
        object_schema({}),
    ),
}
TITLE_HINT = " Name the session first: variable `title`, one line."


def control_schema(name: str, *, top_level: bool) -> JsonObject:
    """The model-facing schema of a control tool. A child is not asked to name itself."""
    description, schema = SCHEMAS[name]
    if name == SET_VARIABLES and top_level:
        description += TITLE_HINT
    return model_schema(name, description, schema)


@dataclass(frozen=True)
class Answer:
    """What a serviced control says. `refused`: the answer reads normally and its event is an error (03 §6)."""

    text: str
    ok: bool = True
    refused: bool = False
    #: the position changed, the session parked or ended: nothing else may move it in this message
    landed: bool = False


def _error(problem: str) -> Answer:
    return Answer(f"Error: {problem}", ok=False)


def _text_argument(args: Mapping[str, Any], name: str) -> str | None:
    value = args.get(name)
    return value if isinstance(value, str) and value.strip() else None


# -- advance ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Advance:
    """A move that passed every check."""

    to: str
    reason: str
    evidence: tuple[str, ...]


def _rejected(reason: str) -> Answer:
    return Answer(f"archmax_advance rejected: {reason}", refused=True)


WAITING_CHILD = (
    "a sub-workflow called in this state has stopped and waits to be resolved; move once it has answered"
)


def refused_move(tool: str, reason: str) -> Answer:
    return _rejected(reason) if tool == ADVANCE else _error(reason)


def advance_arguments(args: Mapping[str, Any]) -> Answer | tuple[str, str, list[str]]:
    to, reason = _text_argument(args, "to"), _text_argument(args, "reason")
    if to is None:
        return _error("archmax_advance needs `to`, the slug of a next state")
    if reason is None:
        return _error("archmax_advance needs a non-empty `reason`")
    evidence = args.get("evidence")
    if evidence is None:
        evidence = []
    if not isinstance(evidence, list) or not all(isinstance(path, str) for path in evidence):
        return _error("`evidence` is a list of workspace paths")
    return to, reason, evidence


async def check_advance(
    ctx: TurnContext, state: State, args: Mapping[str, Any], *, landed_in: str | None = None
) -> Answer | Advance:
    """Arguments, an earlier move, evidence, `requires`, edge: the first fault refuses (03 §9.1)."""
    arguments = advance_arguments(args)
    if isinstance(arguments, Answer):
        return arguments
    to, reason, evidence = arguments
    if landed_in is not None:
        return _rejected(f"a move in this message already landed in '{landed_in}'; one move per message")
    attached: tuple[str, ...] = ()
    if evidence:
        checked = await _check_evidence(ctx, to, evidence)
        if isinstance(checked, str):
            return _rejected(checked)
        attached = checked
    missing = [name for name in state.requires if name not in ctx.state.variables]
    if missing:
        return _rejected(
            f"state '{state.slug}' requires {_names(missing)}, not set yet; set with archmax_set_variables first"
        )
    if state.edge(to) is None:
        valid = list(dict.fromkeys(edge.to for edge in state.transitions))
        offered = (
            f"valid targets: {', '.join(valid)}"
            if valid
            else "this state is terminal: finish, it ends by itself"
        )
        return _rejected(f"'{state.slug}' has no transition to '{to}'; {offered}")
    return Advance(to, reason, attached)


def _names(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


async def _check_evidence(ctx: TurnContext, to: str, evidence: list[str]) -> str | tuple[str, ...]:
    target = ctx.assembly.spec.states.get(to)
    if target is None or target.type != "human":
        return f"evidence is shown to a person; '{to}' is not a human state: advance without evidence"
    if len(evidence) > MAX_EVIDENCE:
        return f"at most {MAX_EVIDENCE} evidence paths, {len(evidence)} given"
    kept: dict[str, None] = {}
    for written in evidence:
        path = canonical(written)
        problem = ctx.evidence_problem(written)
        if problem is not None:
            return f"evidence path '{written}' {problem}"
        kept.setdefault(path.text, None)
    return tuple(kept)


def land_advance(ctx: TurnContext, advance: Advance, *, kind: str, call_id: str | None) -> None:
    """The first half of a move: trail and `advance` event. `enter` follows once the call is answered."""
    rec, s = ctx.rec, ctx.state
    land(rec)
    trail_step(rec, advance.to, kind, advance.reason)
    rec.event("advance", **{"from": s.position}, to=advance.to, reason=advance.reason, callId=call_id)


def advanced_text(advance: Advance) -> str:
    return f"Moved to '{advance.to}'. Its tools may be used now."


# -- reset and wait ----------------------------------------------------------------------------------------------------


def reset(ctx: TurnContext, args: Mapping[str, Any], landed_in: str | None, call_id: str) -> Answer:
    """Back to the entry state (03 §9.2). `enter` follows once the call is answered."""
    reason = _text_argument(args, "reason")
    if reason is None:
        return _error("archmax_reset needs a non-empty `reason`")
    if landed_in is not None:
        return _error(f"a move in this message already landed in '{landed_in}'; one move per message")
    spec, s = ctx.assembly.spec, ctx.state
    to = s.entry_state if s.entry_state in spec.states else spec.entry_state(s.turn_trigger or "manual")
    if to is None:
        return _error("this workflow has no state to go back to")
    rec = ctx.rec
    land(rec)
    trail_step(rec, to, "reset", reason)
    rec.event("advance", **{"from": s.position}, to=to, reason=reason, callId=call_id)
    ctx.next_position = to
    return Answer(f"Back in '{to}'.", landed=True)


def wait(
    ctx: TurnContext, state: State, args: Mapping[str, Any], landed_in: str | None, call_id: str
) -> Answer:
    """Park until something outside arrives (03 §9.3)."""
    reason = _text_argument(args, "reason")
    if reason is None:
        return _error("archmax_wait needs a non-empty `reason`")
    until = args.get("until")
    due: str | None = None
    if until is not None and until != "":
        due = resume_at(until, ctx.clock()) if isinstance(until, str) else None
        if due is None:
            return _error(
                f"`until` {until!r} is not understood; accepted: {ACCEPTED}. The session did not park"
            )
    if landed_in is not None:
        return _error(f"a move in this message already landed in '{landed_in}'; one move per message")
    rec, s = ctx.rec, ctx.state
    limit = state.budget.max_parks
    if limit is not None and s.park_counts.get(state.slug, 0) >= limit:
        problem = f"state '{state.slug}' has already waited {limit} times in this turn (budget.maxParks)"
        rec.add("reject", value=problem)
        return _error(f"{problem}; stop here")
    land(rec)
    rec.add("count", park=state.slug)
    record: JsonObject = {"state": state.slug}
    if state.title is not None:
        record["title"] = state.title
    record["reason"] = reason
    record["parkedAt"] = now_ms()
    if due is not None:
        record["resumeAt"] = due
    rec.add("park", channel="input", record=record, phase="suspend" if spoke_since_told(s) else "closing")
    ctx.after_answer = lambda: tell_parked(rec, callId=call_id)
    return Answer(
        f"Parked in '{state.slug}'. Stop here: the session goes on when the answer arrives.", landed=True
    )


def spoke_since_told(s: SessionState) -> bool:
    """Whether the agent has written text since a person or the runtime last told it something (03 §10.5)."""
    for message in reversed(s.messages):
        if message["role"] in ("user", "note"):
            return False
        if message["role"] == "assistant" and message["text"].strip():
            return True
    return False


# -- raise -------------------------------------------------------------------------------------------------------------


def raise_arguments(args: Mapping[str, Any]) -> Answer | tuple[str, str]:
    code, reason = args.get("code"), _text_argument(args, "reason")
    if not isinstance(code, str) or not code.strip():
        return _error("archmax_raise needs a non-empty `code`")
    code = code.strip()
    if "\n" in code or "\r" in code:
        return _error("`code` is a single line")
    if len(code) > MAX_CODE:
        return _error(f"`code` has at most {MAX_CODE} characters, this one {len(code)}")
    if reason is None:
        return _error("archmax_raise needs a non-empty `reason`")
    return code, reason.strip()


def raise_alone(ctx: TurnContext, args: Mapping[str, Any], *, alone: bool, call_id: str) -> Answer:
    if not alone:
        return _error(
            "archmax_raise must be the only call of its message; make it again alone if it still applies"
        )
    arguments = raise_arguments(args)
    if isinstance(arguments, Answer):
        return arguments
    code, reason = arguments
    raise_session(ctx.rec, code, reason, call_id)
    return Answer(f"The session failed with '{code}'.", landed=True)


# -- variables ---------------------------------------------------------------------------------------------------------


def get_variables(s: SessionState, args: Mapping[str, Any]) -> Answer:
    """All, one, or a part of one; a path that misses is an error, never the whole value (03 §9.5)."""
    name, path = _text_argument(args, "name"), _text_argument(args, "path")
    if name is None:
        if path is not None:
            return _error("`path` needs a `name`")
        return Answer(text({key: variable.to_json() for key, variable in s.variables.items()}))
    variable = s.variables.get(name)
    if variable is None:
        return _error(f"variable '{name}' is not set; set: {', '.join(s.variables) or 'none'}")
    if path is None:
        return Answer(text(variable.to_json()))
    value = lookup(variable.value, path.split("."))
    if value is MISSING:
        return _error(f"path '{path}' does not resolve in variable '{name}'")
    return Answer(text({"value": value}))


async def write_variables(
    ctx: TurnContext, state: State, args: Mapping[str, Any], call_id: str | None
) -> Answer:
    """All or none (03 §9.6, 02 §16.4)."""
    values, lock = args.get("variables"), args.get("lock", False)
    if not isinstance(values, dict):
        return _nothing("`variables` is an object of names and values")
    if lock is None:
        lock = False
    if not isinstance(lock, bool):
        return _nothing("`lock` is true or false")
    if not values:
        return _nothing("no variables given")
    spec, s = ctx.assembly.spec, ctx.state
    owners = spec_owners(spec)
    for name, value in values.items():
        problem = _write_problem(s, state, owners, name, value, lock)
        if problem is not None:
            return _nothing(problem)
    trigger = spec.trigger(s.turn_trigger or "")
    if trigger is not None:
        typed = [entry for entry in trigger.returns if entry.type is not None and entry.name in values]
        issues = [issue.message for issue in signature_value_issues(typed, values)]
        issues = issues or await file_issues(ctx, typed, values)
        if issues:
            return _nothing(f"trigger '{trigger.id}' returns: {'; '.join(issues)}")
    stored = {name: value.strip() if name == "title" else value for name, value in values.items()}
    set_variables(ctx.rec, stored, lock=lock, call_id=call_id)
    return Answer(f"Set {', '.join(stored)}{' (locked)' if lock else ''}.")


def spec_owners(spec: Spec) -> dict[str, str]:
    return {name: slug for slug, state in spec.states.items() for name in state.locks}


def _nothing(problem: str) -> Answer:
    return _error(f"{problem}. Nothing was written")


def _write_problem(
    s: SessionState, state: State, owners: Mapping[str, str], name: str, value: Any, lock: bool
) -> str | None:
    if not variable_name_ok(name):
        hint = "; no part of a variable can be written: write the whole value" if "." in name else ""
        return f"'{name}' is not a variable name (a lower-case letter, then letters, digits, _){hint}"
    held = s.variables.get(name)
    if held is not None and held.locked:
        return f"variable '{name}' is locked; its value is {text(held.value)}"
    owner = owners.get(name)
    if owner is not None and owner != state.slug:
        return f"variable '{name}' is owned by state '{owner}': only that state writes it"
    if owner is not None and lock:
        return f"variable '{name}' is owned by this state; an owned variable is not locked"
    if name == "title":
        if lock:
            return "a title is never locked"
        return title_problem(value)
    return None
