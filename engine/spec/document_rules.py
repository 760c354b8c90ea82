"""Document rules: what a well-shaped document must also hold across its parts to be used at all (01 §19.2, `doc.*`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.governance.globs import glob_problem
from engine.governance.references import reference_problem
from engine.spec.diagnostics import shown
from engine.spec.model import Spec, State, ToolEntry, Transition
from engine.spec.paths import is_blank
from engine.spec.report import Report
from engine.spec.yaml12 import Path

#: the id a workflow is called by: the command line, an invocation naming no trigger, a delegation (01 §8.1)
MANUAL: Final = "manual"
_FORMER_DELEGATION_TRIGGER: Final = "sub-workflow"
_NEVER_OWNED: Final = ("trigger", "title")
_SAY_WHEN: Final = "say in description when this edge is taken"


class ListedEntry(NamedTuple):
    """A tool entry and where it stands. `state` is None for the root's lists."""

    entry: ToolEntry
    path: Path
    state: State | None
    allows: bool

    @property
    def list_path(self) -> Path:
        return self.path[:-1]


def tool_entries(spec: Spec) -> Iterator[ListedEntry]:
    """Every entry of all four kinds of tools list, root first."""
    for index, entry in enumerate(spec.tools_allow_always or ()):
        yield ListedEntry(entry, ("tools", "allow_always", index), None, True)
    for index, entry in enumerate(spec.tools_forbid_always):
        yield ListedEntry(entry, ("tools", "forbid_always", index), None, False)
    for slug, state in spec.states.items():
        for index, entry in enumerate(state.tools_allow):
            yield ListedEntry(entry, ("states", slug, "tools", "allow", index), state, True)
        for index, entry in enumerate(state.tools_forbid):
            yield ListedEntry(entry, ("states", slug, "tools", "forbid", index), state, False)


def guards_of(entry: ToolEntry) -> Iterator[str]:
    """Every pattern an entry holds."""
    for globs in (entry.args or {}).values():
        yield from globs
    yield from entry.paths or ()


def check_document(report: Report, spec: Spec) -> None:
    """Apply all rules; every breach is reported."""
    for slug, state in spec.states.items():
        _check_edges(report, spec, slug, state)
    _check_tool_entries(report, spec)
    _check_triggers(report, spec)
    _check_locks(report, spec)
    _check_concurrency(report, spec)


def _check_edges(report: Report, spec: Spec, slug: str, state: State) -> None:
    path: Path = ("states", slug)
    for index, edge in enumerate(state.transitions):
        at: Path = (*path, "transitions", index)
        target = spec.states.get(edge.to)
        if target is None:
            report.error("doc.undefined-target", (*at, "to"), _undefined(report, spec, edge.to))
        problem = _undescribed(state, edge, target)
        if problem is not None:
            report.error("doc.undescribed-edge", (*at, "description"), problem)
    if state.on_error is not None and state.on_error not in spec.states:
        report.error("doc.undefined-on-error", (*path, "on_error"), _undefined(report, spec, state.on_error))


def _undefined(report: Report, spec: Spec, slug: str) -> str:
    return f"undefined state '{shown(slug)}'; {report.meant(slug, spec.states, 'states')}"


def _undescribed(state: State, edge: Transition, target: State | None) -> str | None:
    """Which row of 01 §7.4 refuses an edge without description."""
    if not is_blank(edge.description):
        return None
    to = shown(edge.to)
    if state.type == "human":
        return f"the edge to '{to}' is a person's choice and its description the label: describe it"
    if state.type == "code" or target is None:
        return None
    if target.type == "grader":
        return f"'{to}' is a grader, whose instructions the work it judges must not see: {_SAY_WHEN}"
    if target.type == "code":
        return f"'{to}' is a code state, which has no instructions to show instead: {_SAY_WHEN}"
    if is_blank(target.instructions):
        return f"'{to}' has no instructions to show instead: {_SAY_WHEN}"
    return None


def _check_tool_entries(report: Report, spec: Spec) -> None:
    for listed_entry in tool_entries(spec):
        entry, path = listed_entry.entry, listed_entry.path
        if listed_entry.allows and entry.tool == "*":
            report.error("doc.wildcard-grant", path, "'*' belongs in forbid lists: a grant names its tools")
        for pattern in guards_of(entry):
            problem = reference_problem(pattern)
            if problem is not None:
                report.error(
                    "doc.guard-reference", path, f"{problem}; forms: ${{{{name}}}}, ${{{{name.path}}}}"
                )
                continue
            problem = glob_problem(pattern)
            if problem is not None:
                report.error("doc.guard-glob", path, problem)


def _check_triggers(report: Report, spec: Spec) -> None:
    owners: dict[str, str] = {}
    for slug, state in spec.states.items():
        for trigger_id in state.triggers:
            at: Path = ("states", slug, "triggers", trigger_id)
            if trigger_id == _FORMER_DELEGATION_TRIGGER:
                report.error(
                    "doc.sub-workflow-trigger",
                    at,
                    f"this id is no longer special: declare {MANUAL!r} instead",
                    key=True,
                )
            owner = owners.setdefault(trigger_id, slug)
            if owner != slug:
                report.error(
                    "doc.duplicate-trigger",
                    ("states",),
                    f"trigger '{shown(trigger_id)}' is declared by '{shown(owner)}' and by '{shown(slug)}': "
                    "an id belongs to one state",
                    at=at,
                    key=True,
                )
    if not owners:
        report.error(
            "doc.no-start-state",
            ("states",),
            "Workflow has no start state: declare a trigger on the state it enters, such as triggers: { manual: }",
        )


def _check_locks(report: Report, spec: Spec) -> None:
    owners: dict[str, str] = {}
    for slug, state in spec.states.items():
        path: Path = ("states", slug, "locks")
        if state.locks and state.type == "human":
            report.error("doc.lock-human", path, "a human state runs no turn, so it can own no variable")
        for index, name in enumerate(state.locks):
            if name in _NEVER_OWNED:
                report.error("doc.lock-reserved", (*path, index), f"'{name}' cannot be owned by a state")
            owner = owners.setdefault(name, slug)
            if owner != slug:
                report.error(
                    "doc.lock-owner",
                    (*path, index),
                    f"'{name}' is owned by '{shown(owner)}' and by '{shown(slug)}': a variable has one owner",
                )


def _check_concurrency(report: Report, spec: Spec) -> None:
    tests = spec.document.get("tests")
    wanted = tests.get("maxConcurrency", 1) if isinstance(tests, dict) else 1
    if wanted > 1:
        report.error(
            "doc.max-concurrency",
            ("tests", "maxConcurrency"),
            f"must be 1, not {wanted}: cases run one at a time",
        )
