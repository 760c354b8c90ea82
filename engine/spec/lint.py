"""Lint: what a usable document gets wrong or leaves unsaid, judged from the document alone (01 §19.3, §19.5).

Nothing here blocks loading. Checks that need the rest of the workspace are `engine.spec.validate`'s.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from core.paths import canonical
from engine.governance.names import GET_HISTORY, REMOVED
from engine.governance.references import reference_names
from engine.governance.zones import AUTHORING_ROOT, INTERNAL_AREAS
from engine.spec.diagnostics import shown
from engine.spec.document_rules import guards_of, tool_entries
from engine.spec.model import Spec, State
from engine.spec.paths import is_blank, slug_ok
from engine.spec.read_state import TRIGGER_KEYS
from engine.spec.report import Report
from engine.spec.schedule import SCHEDULE_KEY, schedule_problem
from engine.spec.yaml12 import Path

#: keys of triggers this project gives a meaning as a host (ruling 10)
HOST_TRIGGER_KEYS: Final = (SCHEDULE_KEY,)
_READ_KEYS: Final = (*TRIGGER_KEYS, *HOST_TRIGGER_KEYS)
_AUTHORING_MENTION = re.compile(rf"(?<![\w/.-]){AUTHORING_ROOT}/")


def lint_document(report: Report, spec: Spec) -> None:
    """Report everything worth an author's attention, in document order."""
    if spec.instructions is None:
        report.add(
            "warning",
            "instructions.absent",
            ("instructions",),
            "no root instructions: the agent gets no standing guidance",
        )
    if spec.disabled:
        report.add(
            "warning", "workflow.disabled", ("disabled",), "the workflow is disabled: it starts no new turn"
        )
    _lint_guards(report, spec)
    inputs = {
        entry.name
        for state in spec.states.values()
        for trigger in state.triggers.values()
        for entry in trigger.requires
    }
    for slug, state in spec.states.items():
        _lint_slug(report, slug)
        _lint_type(report, spec, slug, state)
        _lint_triggers(report, slug, state)
        _lint_edges(report, slug, state)
        _lint_names(report, spec, slug, state, inputs)
    _lint_error_routes(report, spec)


def _lint_guards(report: Report, spec: Spec) -> None:
    guaranteed = {name for state in spec.states.values() for name in state.requires}
    guaranteed |= {
        entry.name
        for state in spec.states.values()
        for trigger in state.triggers.values()
        for entry in trigger.requires
    }
    guaranteed = (guaranteed - {"title"}) | {"trigger"}
    supplied = sorted(guaranteed)
    told: set[tuple[Path, str]] = set()
    for listed in tool_entries(spec):
        entry = listed.entry
        verb = "grants" if listed.allows else "denies"
        if entry.args == {}:
            report.add(
                "warning", "guard.empty", listed.path, "args names no argument: the entry guards nothing"
            )
        empty = [name for name, globs in (entry.args or {}).items() if not globs]
        if empty or entry.paths == ():
            what = f"args.{shown(empty[0])}" if empty else "paths"
            report.add(
                "warning", "guard.empty", listed.path, f"{what} is an empty list: the entry {verb} nothing"
            )
        for name in dict.fromkeys(name for pattern in guards_of(entry) for name in reference_names(pattern)):
            if name in guaranteed or (listed.list_path, name) in told:
                continue
            told.add((listed.list_path, name))
            everywhere = "; this entry binds in every state" if listed.state is None else ""
            report.add(
                "warning",
                "guard.unguaranteed",
                listed.list_path,
                f"a guard of '{shown(entry.tool)}' refers to '{shown(name)}', which no state and no trigger requires, "
                f"so it may be unset when the guard is asked{everywhere}{report.perhaps(name, supplied)}",
                at=listed.path,
            )


def _lint_slug(report: Report, slug: str) -> None:
    if not slug:
        report.add(
            "error", "state-slug.empty", ("states",), "a state has an empty slug", at=("states", ""), key=True
        )
    elif not slug_ok(slug):
        report.add(
            "error",
            "state-slug.shape",
            ("states", slug),
            f"a state's slug is words of a-z 0-9 joined by '-'{_such_as(slug)}",
            key=True,
        )


def _such_as(slug: str) -> str:
    words = [word for word in re.split(r"[^a-z0-9]+", slug.lower()) if word]
    return f", such as {shown('-'.join(words))}" if words else ""


def _lint_type(report: Report, spec: Spec, slug: str, state: State) -> None:
    path: Path = ("states", slug)
    match state.type:
        case "human":
            _lint_human(report, path, state)
        case "grader":
            _lint_grader(report, spec, path, state)
        case "code":
            for key in ("instructions", "model", "budget", "evidence", "approvers"):
                if _declares(spec, slug, key):
                    report.add(
                        "error", "code.key", (*path, key), f"a code state takes no {key}: nothing reads it"
                    )
        case "agent":
            if len(state.transitions) > 1 and is_blank(state.instructions):
                report.add(
                    "warning",
                    "state.routing-instructions",
                    (*path, "instructions"),
                    "a state with several ways out needs instructions to choose by",
                    at=path,
                )
    if state.automated and state.on_error is None:
        report.add(
            "warning",
            "automated.no-on-error",
            (*path, "on_error"),
            f"a {state.type} state that fails ends the session: say with on_error where to go instead",
            at=path,
        )
    refused = REMOVED[state.type]
    for index, entry in enumerate(state.tools_allow):
        if state.automated and entry.tool in refused:
            id_, why = "automated.tool", f"a {state.type} state never gets '{entry.tool}'"
        elif not state.automated and entry.tool == GET_HISTORY:
            id_, why = (
                "history.tool",
                f"'{GET_HISTORY}' belongs to grader and code states; this grants nothing",
            )
        else:
            continue
        report.add("error", id_, (*path, "tools", "allow"), why, at=(*path, "tools", "allow", index))


def _lint_human(report: Report, path: Path, state: State) -> None:
    if is_blank(state.instructions):
        report.add(
            "error",
            "human.instructions",
            (*path, "instructions"),
            "a human state needs instructions: they are what the person reads",
            at=path,
        )
    edges: Path = (*path, "transitions")
    if not state.transitions:
        report.add("error", "human.transitions", edges, "a human state needs a transition to choose", at=path)
    kinds = Counter(edge.type for edge in state.transitions if edge.type != "none")
    for kind, count in kinds.items():
        if count > 1:
            report.add(
                "error", "human.duplicate-type", edges, f"{count} transitions are of type {kind}: one may be"
            )
    for index, edge in enumerate(state.transitions):
        if edge.to == state.slug:
            report.add(
                "error", "human.self-edge", (*edges, index, "to"), "a human state cannot lead to itself"
            )
    for index, evidence in enumerate(state.evidence):
        problem = _evidence_problem(evidence)
        if problem is not None:
            report.add("error", "evidence.path", (*path, "evidence", index), problem)
    if state.requires:
        report.add(
            "warning",
            "human.requires",
            (*path, "requires"),
            "requires is never checked on a human state: a decision leaves it",
        )


def _evidence_problem(evidence: str) -> str | None:
    place = canonical(evidence)
    named = f"evidence '{shown(evidence)}'"
    if place.escaping:
        return f"{named} leaves the workspace"
    if not place.text.strip():
        return f"{named} names no file"
    if place.segments[0] == AUTHORING_ROOT:
        return f"{named} lies in the authoring plane, which no session shows"
    if place.segments[0] in INTERNAL_AREAS:
        return f"{named} lies in the runtime's own {place.segments[0]}/"
    return None


def _lint_grader(report: Report, spec: Spec, path: Path, state: State) -> None:
    if is_blank(state.instructions):
        report.add(
            "error",
            "grader.instructions",
            (*path, "instructions"),
            "a grader needs instructions: they are its criteria",
            at=path,
        )
    if not state.transitions:
        report.add(
            "error",
            "grader.transitions",
            (*path, "transitions"),
            "a grader needs a transition to decide on",
            at=path,
        )
    for key in ("evidence", "approvers"):
        if _declares(spec, state.slug, key):
            report.add("error", "grader.key", (*path, key), f"a grader takes no {key}: nothing reads it")
    if state.budget.max_parks is not None:
        report.add(
            "error", "grader.key", (*path, "budget", "maxParks"), "a grader never parks: it takes no maxParks"
        )


def _declares(spec: Spec, slug: str, key: str) -> bool:
    """Whether the document writes the key at all, empty or not."""
    states = spec.document.get("states")
    state = states.get(slug) if isinstance(states, dict) else None
    return isinstance(state, dict) and key in state


def _lint_triggers(report: Report, slug: str, state: State) -> None:
    for trigger_id, trigger in state.triggers.items():
        path: Path = ("states", slug, "triggers", trigger_id)
        if any(char.isspace() for char in trigger_id):
            report.add(
                "warning",
                "trigger.whitespace",
                path,
                "the id holds white space: it is hard to name by hand",
                key=True,
            )
        for key, value in trigger.host.items():
            if key not in HOST_TRIGGER_KEYS:
                report.add(
                    "warning",
                    "trigger.unknown-key",
                    path,
                    f"key '{shown(key)}' is kept for a host and read by nothing here; "
                    f"read are {', '.join(_READ_KEYS)}{report.perhaps(key, _READ_KEYS)}",
                    at=(*path, key),
                    key=True,
                )
                continue
            problem = schedule_problem(value)
            if problem is not None:
                report.add("error", "trigger.schedule", (*path, key), problem)


def _lint_edges(report: Report, slug: str, state: State) -> None:
    seen: set[str] = set()
    for index, edge in enumerate(state.transitions):
        if edge.to in seen:
            human = state.type == "human"
            report.add(
                "error" if human else "warning",
                "transition.duplicate-target",
                ("states", slug, "transitions", index, "to"),
                f"a second transition to '{shown(edge.to)}': "
                + ("a decision names only the target" if human else "the first one is always taken"),
            )
        seen.add(edge.to)


def _lint_names(report: Report, spec: Spec, slug: str, state: State, inputs: set[str]) -> None:
    path: Path = ("states", slug)
    if state.model is not None and state.model == spec.settings.model:
        report.add(
            "warning",
            "state.model-redundant",
            (*path, "model"),
            "the same model is already set in settings.model",
        )
    for name in _twice(state.requires):
        report.add("warning", "state.requires-duplicate", (*path, "requires"), f"'{name}' is listed twice")
    for name in _twice(state.locks):
        report.add("warning", "locks.duplicate", (*path, "locks"), f"'{name}' is listed twice")
    for name in dict.fromkeys(state.locks):
        if name in inputs:
            report.add(
                "warning",
                "locks.input",
                (*path, "locks"),
                f"'{name}' is an input of a trigger: a supplied value is final, so this state can never write it",
            )
    if state.instructions is not None and _AUTHORING_MENTION.search(state.instructions):
        report.add(
            "warning",
            "instructions.authoring-plane",
            (*path, "instructions"),
            f"the instructions name a path under {AUTHORING_ROOT}/, where the agent finds nothing",
        )


def _twice(names: tuple[str, ...]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1] if len(names) > 1 else []


def _lint_error_routes(report: Report, spec: Spec) -> None:
    """Warn once per loop of `on_error` routes, at its first state in document order."""
    order = {slug: index for index, slug in enumerate(spec.states)}
    settled: set[str] = set()
    for slug in spec.states:
        trail: dict[str, None] = {}
        at: str | None = slug
        while at is not None and at in spec.states and at not in settled and at not in trail:
            trail[at] = None
            at = spec.states[at].on_error
        settled.update(trail)
        if at is None or at not in trail:
            continue
        loop = list(trail)[list(trail).index(at) :]
        first = min(loop, key=order.__getitem__)
        route = " → ".join(shown(step) for step in (*loop[:8], *(["…"] if len(loop) > 8 else []), at))
        report.add(
            "warning",
            "on-error.loop",
            ("states", first, "on_error"),
            f"failures go round in a loop ({route}): only the recursion limit ends it",
        )
