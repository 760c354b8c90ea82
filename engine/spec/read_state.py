"""Reading the states of a workflow document: keys, transitions, budgets, triggers (01 §6-§10)."""

from __future__ import annotations

from typing import Final, Literal

from core.jsontext import Json, JsonObject
from engine.spec.model import Budget, EdgeType, SignatureEntry, State, StateType, Transition, Trigger
from engine.spec.paths import dotted_path_problem, is_blank
from engine.spec.read_lists import (
    read_grants,
    read_mount_denials,
    read_signature,
    read_skills,
    read_tools,
    read_variables,
)
from engine.spec.report import Removed, Report, is_integral, kind_phrase
from engine.spec.yaml12 import Path

STATE_TYPES: Final[tuple[StateType, ...]] = ("agent", "human", "grader", "code")
EDGE_TYPES: Final[tuple[EdgeType, ...]] = ("approve", "reject", "refine", "none")
STATE_KEYS: Final = (
    "type",
    "title",
    "summary",
    "instructions",
    "script",
    "triggers",
    "requires",
    "locks",
    "tools",
    "skills",
    "mounts",
    "model",
    "budget",
    "on_error",
    "transitions",
    "evidence",
    "approvers",
    "metadata",
)
TRIGGER_KEYS: Final = ("session", "message", "connection", "description", "requires", "returns")
BUDGET_KEYS: Final = ("maxTurns", "timeoutMs", "maxParks")
TRANSITION_KEYS: Final = ("to", "description", "type")

_WORKFLOW_STATE = (
    "removed.type-workflow",
    "use an agent state that allows the tool archmax_workflow_<slug>",
)
_PARAMS = (
    "removed.params",
    "give the values as arguments of the call, one call per entry; its result is the tool's, secured by requires",
)
_PARALLEL = ("removed.parallel", "put the states in sequence")
_REMOVED_KEYS: Final[Removed] = {
    "before": (
        "removed.state-before",
        "put a code state ahead of it, which advances to the work or to a declining state",
    ),
    "after": (
        "removed.state-after",
        "a script becomes a code state behind this one with an edge onward and one back; "
        "a rubric becomes a grader state behind it, its criteria the instructions",
    ),
    "trigger": ("removed.state-trigger", "declare it in the triggers mapping"),
    "workflow": _WORKFLOW_STATE,
    "params": _PARAMS,
    "for_each": _PARAMS,
    "result": _PARAMS,
    "parallel": _PARALLEL,
    "join": _PARALLEL,
}
_REMOVED_TYPES: Final[Removed] = {
    "wait": ("removed.type-wait", "call archmax_wait in the state that needs the answer"),
    "trigger": ("removed.type-trigger", "declare triggers on the state it routed to"),
    "workflow": _WORKFLOW_STATE,
}
_REMOVED_EDGE_KEYS: Final[Removed] = {
    "on": ("removed.transition-on", "nothing replaces it: a resumed state picks its own edge")
}
MODEL_RULE: Final = "only a model id is declared here; endpoint and sampling are host configuration"


def read_states(report: Report, document: JsonObject) -> dict[str, State]:
    """All states in order; a malformed part is reported and stands at its default."""
    value = document.get("states")
    if not isinstance(value, dict) or not value:
        report.error("schema.states", ("states",), "Machine spec is missing or has empty 'states'")
        return {}
    return {slug: _read_state(report, slug, state) for slug, state in value.items()}


def _read_state(report: Report, slug: str, value: Json) -> State:
    path: Path = ("states", slug)
    if value is None:
        return State(slug)
    keys = report.mapping(value, path, STATE_KEYS, removed=_REMOVED_KEYS)
    kind = _read_type(report, keys, path)
    script = _read_script(report, keys, path, kind)
    tools = _lists(report, keys, "tools", path)
    skills = _lists(report, keys, "skills", path)
    mounts = _lists(report, keys, "mounts", path)
    texts = {
        key: report.string(keys[key], (*path, key), filled=filled)
        for key, filled in (("title", True), ("summary", False), ("instructions", False), ("on_error", True))
        if key in keys
    }
    allow, forbid = "allow", "forbid"
    return State(
        slug,
        kind or "agent",
        title=texts.get("title"),
        summary=texts.get("summary"),
        instructions=texts.get("instructions"),
        script=script,
        triggers=_read_triggers(report, keys["triggers"], path) if "triggers" in keys else {},
        requires=read_variables(report, keys["requires"], (*path, "requires")) if "requires" in keys else (),
        locks=read_variables(report, keys["locks"], (*path, "locks")) if "locks" in keys else (),
        tools_allow=read_tools(report, tools[allow], (*path, "tools", allow)) if allow in tools else (),
        tools_forbid=read_tools(report, tools[forbid], (*path, "tools", forbid)) if forbid in tools else (),
        skills_allow=read_skills(report, skills[allow], (*path, "skills", allow)) if allow in skills else (),
        skills_forbid=(
            read_skills(report, skills[forbid], (*path, "skills", forbid)) if forbid in skills else ()
        ),
        mounts_allow=read_grants(report, mounts[allow], (*path, "mounts", allow)) if allow in mounts else (),
        mounts_forbid=(
            read_mount_denials(report, mounts[forbid], (*path, "mounts", forbid)) if forbid in mounts else ()
        ),
        model=read_model(report, keys["model"], (*path, "model")) if "model" in keys else None,
        budget=_read_budget(report, keys["budget"], (*path, "budget")) if "budget" in keys else Budget(),
        on_error=texts.get("on_error"),
        transitions=_read_transitions(report, keys["transitions"], path) if "transitions" in keys else (),
        evidence=report.strings(keys["evidence"], (*path, "evidence")) if "evidence" in keys else (),
        approvers=report.strings(keys["approvers"], (*path, "approvers")) if "approvers" in keys else (),
        metadata=read_metadata(report, keys["metadata"], (*path, "metadata")) if "metadata" in keys else None,
    )


def _lists(report: Report, keys: JsonObject, name: str, path: Path) -> JsonObject:
    return report.mapping(keys[name], (*path, name), ("allow", "forbid")) if name in keys else {}


def read_model(report: Report, value: Json, path: Path) -> str | None:
    """A model id."""
    if is_blank(value):
        report.error("schema.model", path, f"must be a model id, not {kind_phrase(value)}: {MODEL_RULE}")
        return None
    return str(value)


def read_metadata(report: Report, value: Json, path: Path) -> JsonObject | None:
    if not isinstance(value, dict):
        report.wrong_type(path, "a mapping", value)
        return None
    return value


def _read_type(report: Report, keys: JsonObject, path: Path) -> StateType | None:
    """The state's type; None when the document names no known one."""
    if "type" not in keys:
        return "agent"
    value = keys["type"]
    known = next((kind for kind in STATE_TYPES if kind == value), None)
    if known is None:
        removed = _REMOVED_TYPES.get(value) if isinstance(value, str) else None
        id_, hint = removed or ("schema.state-type", "")
        text = f"must be one of {', '.join(STATE_TYPES)}, not {kind_phrase(value)}"
        report.error(id_, (*path, "type"), f"{text}; {hint}" if hint else text)
    return known


def _read_script(report: Report, keys: JsonObject, path: Path, kind: StateType | None) -> str | None:
    at: Path = (*path, "script")
    if "script" not in keys:
        if kind == "code":
            report.error("schema.script-missing", at, "a code state needs a script: scripts/<file>.js")
        return None
    if kind not in ("code", None):
        report.error(
            "schema.script-misplaced", at, f"only code states take a script; this is a state of type {kind}"
        )
        return None
    script = report.string(keys["script"], at)
    if script is not None and not _script_path_ok(script):
        report.error(
            "schema.script-path",
            at,
            f"must be a file inside scripts/ ending in .js or .mjs, without '..', not {kind_phrase(script)}; "
            "scripts the agent runs live in skill bundles",
        )
        return None
    return script


def _script_path_ok(script: str) -> bool:
    return (
        script.startswith("scripts/")
        and not script.startswith("scripts//")
        and script.endswith((".js", ".mjs"))
        and ".." not in script.split("/")
        and "\0" not in script
    )


def _read_budget(report: Report, value: Json, path: Path) -> Budget:
    keys = report.mapping(value, path, BUDGET_KEYS)
    read: dict[str, int] = {}
    for key, limit in keys.items():
        if is_integral(limit) and limit >= 1:
            read[key] = int(limit)
        else:
            report.error(
                "schema.budget", (*path, key), f"must be a positive number, not {kind_phrase(limit)}"
            )
    return Budget(read.get("maxTurns"), read.get("timeoutMs"), read.get("maxParks"))


def _read_transitions(report: Report, value: Json, path: Path) -> tuple[Transition, ...]:
    path = (*path, "transitions")
    found = (
        _read_transition(report, item, (*path, index))
        for index, item in enumerate(report.items(value, path, "a list of transitions"))
    )
    return tuple(edge for edge in found if edge is not None)


def _read_transition(report: Report, value: Json, path: Path) -> Transition | None:
    if not isinstance(value, dict):
        report.wrong_type(path, "a mapping { to, description?, type? }", value)
        return None
    keys = report.mapping(value, path, TRANSITION_KEYS, removed=_REMOVED_EDGE_KEYS)
    kind: EdgeType | None = "none"
    if "type" in keys:
        kind = next((known for known in EDGE_TYPES if known == keys["type"]), None)
        if kind is None:
            report.error(
                "schema.transition-type",
                (*path, "type"),
                f"must be one of {', '.join(EDGE_TYPES)}, not {kind_phrase(keys['type'])}",
            )
    description = keys.get("description")
    if "description" in keys and not isinstance(description, str):
        report.error(
            "schema.description-type",
            (*path, "description"),
            f"must be a string, not {kind_phrase(description)}",
        )
        description = None
    if "to" not in keys:
        report.error("schema.type", (*path, "to"), "a transition names its target: to must be a state's slug")
        return None
    to = report.string(keys["to"], (*path, "to"), filled=True)
    return None if to is None else Transition(to, description, kind or "none")


def _read_triggers(report: Report, value: Json, path: Path) -> dict[str, Trigger]:
    path = (*path, "triggers")
    form = "triggers map an id to a declaration mapping or nothing (manual:)"
    if not isinstance(value, dict):
        report.error("schema.triggers", path, f"{form}; this is {kind_phrase(value)}")
        return {}
    found: dict[str, Trigger] = {}
    for trigger_id, declaration in value.items():
        at: Path = (*path, trigger_id)
        if not trigger_id.strip():
            report.error("schema.blank", path, "a trigger id must be a non-empty string", at=at, key=True)
        elif declaration is None:
            found[trigger_id] = Trigger(trigger_id)
        elif isinstance(declaration, dict):
            found[trigger_id] = _read_trigger(report, trigger_id, declaration, at)
        else:
            what = kind_phrase(declaration)
            report.error("schema.triggers", path, f"{form}; {trigger_id!r} is {what}", at=at)
    return found


def _read_trigger(report: Report, trigger_id: str, declaration: JsonObject, path: Path) -> Trigger:
    for key, why in (("entry", "the state it stands on is the entry"), ("name", "the key is the id")):
        if key in declaration:
            report.error(
                "schema.trigger-refused-key",
                (*path, key),
                f"trigger {trigger_id!r} takes no {key}: {why}",
                key=True,
            )
    return Trigger(
        trigger_id,
        session=_read_path(report, declaration, "session", path),
        message=False
        if declaration.get("message") is False
        else _read_path(report, declaration, "message", path),
        connection=_read_words(
            report, declaration, "connection", path, "names a connection of the host and is not blank"
        ),
        description=_read_words(
            report,
            declaration,
            "description",
            path,
            "says, for a caller, what calling this does; it is not blank",
        ),
        requires=_read_side(report, declaration, "requires", path),
        returns=_read_side(report, declaration, "returns", path),
        host={key: item for key, item in declaration.items() if key not in (*TRIGGER_KEYS, "entry", "name")},
    )


def _read_path(report: Report, declaration: JsonObject, key: str, path: Path) -> str | None:
    if key not in declaration:
        return None
    problem = dotted_path_problem(declaration[key])
    if problem is None:
        return str(declaration[key]).strip()
    choice = " (or false, for firings without words)" if key == "message" else ""
    report.error(
        "schema.trigger-path",
        (*path, key),
        f"{key} is a dotted path over the firing's variables{choice}; {problem}",
    )
    return None


def _read_words(report: Report, declaration: JsonObject, key: str, path: Path, rule: str) -> str | None:
    if key not in declaration:
        return None
    if is_blank(declaration[key]):
        report.error(
            f"schema.trigger-{key}", (*path, key), f"{key} {rule}; this is {kind_phrase(declaration[key])}"
        )
        return None
    return str(declaration[key])


def _read_side(
    report: Report, declaration: JsonObject, key: Literal["requires", "returns"], path: Path
) -> tuple[SignatureEntry, ...]:
    return read_signature(report, declaration[key], (*path, key), key) if key in declaration else ()
