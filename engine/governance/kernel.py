"""The decision: one pure function from a call to a verdict (contract 02 §3).

The pipeline is a list of small rules; the first that has an answer gives the verdict. Safety comes first, then every
denial, then what the host says, then what is granted. No input raises: what cannot be understood is blocked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.governance import reasons, safety
from engine.governance.calls import Decision, Origin, ToolCall, Verdict, allow, block
from engine.governance.machine import Machine
from engine.governance.names import DEAD_EVAL, EVAL, TASK
from engine.governance.references import Unresolved, Variables
from engine.governance.subject import Subject, subject_of
from engine.governance.tool_paths import PathAccess
from engine.governance.zones import Zone

__all__ = [
    "ConsumerRule",
    "Decision",
    "Move",
    "Origin",
    "RuleView",
    "ToolCall",
    "Verdict",
    "decide",
    "decide_move",
]


@dataclass(frozen=True, slots=True)
class Move:
    """A transition a mover asks for."""

    from_: str
    to: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RuleView:
    """What a consumer rule sees beside the action."""

    machine: Machine
    variables: Variables


#: a host's rule: a verdict, or None to abstain
ConsumerRule: TypeAlias = Callable[[ToolCall, RuleView], "Verdict | None"]
Rule: TypeAlias = Callable[[Subject], "Verdict | None"]


def decide(
    machine: Machine,
    action: ToolCall,
    *,
    variables: Variables,
    consumer_rules: Sequence[ConsumerRule] = (),
) -> Verdict:
    """The verdict on one tool call, its arguments already substituted."""
    subject = subject_of(machine, action, variables)
    if isinstance(subject, Verdict):
        return subject
    for rule in _DENYING_PLAIN if subject.plain else _DENYING:
        verdict = rule(subject)
        if verdict is not None:
            return verdict
    for consumer in consumer_rules:
        verdict = _consult(consumer, action, RuleView(machine, variables))
        if verdict is not None:
            return verdict
    for rule in _GRANTING:
        verdict = rule(subject)
        if verdict is not None:
            return verdict
    return allow("allow")


def decide_move(machine: Machine, move: Move, *, variables: Variables) -> Verdict:
    """Whether `archmax_advance` may take an edge; evidence is checked before this (02 §17.1)."""
    surface = machine.states.get(move.from_)
    if surface is None:
        return block("transition.no-edge", f"state {move.from_!r} is not declared by this workflow")
    state = surface.state
    unset = [name for name in state.requires if name not in variables] if state.type != "human" else []
    if unset:
        return block(
            "transition.requires",
            f"state {state.slug!r} may be left only once these variables are set: {', '.join(unset)}; "
            "set them with archmax_set_variables, then advance",
        )
    if state.edge(move.to) is None:
        return block("transition.no-edge", reasons.no_edge(state, move.to))
    return allow("allow")


def _consult(rule: ConsumerRule, action: ToolCall, view: RuleView) -> Verdict | None:
    """A rule that fails or answers something else has not permitted the call: it is blocked."""
    try:
        verdict = rule(action, view)
    except Exception as error:  # a host's code: whatever it raises must not open the call
        name = getattr(rule, "__name__", type(rule).__name__)
        return block(
            "policy.failed", f"{action.tool!r}: the host's rule {name} failed ({type(error).__name__})"
        )
    if verdict is None or isinstance(verdict, Verdict):
        return verdict
    return block("policy.failed", f"{action.tool!r}: a host rule answered neither a verdict nor nothing")


# --- 4 to 6: calls that are never made ---------------------------------------------------------------------------


def _reply_only(subject: Subject) -> Verdict | None:
    if not subject.action.reply_only:
        return None
    return block(
        "tool.reply-only",
        f"{subject.tool!r} was not run: this turn only replies. Answer in words; no tool can be called.",
    )


def _dead_eval(subject: Subject) -> Verdict | None:
    if subject.tool != DEAD_EVAL:
        return None
    return block("tool.eval", f"{DEAD_EVAL!r} is never available; code runs in {EVAL!r}", warn=False)


def _ungrantable(subject: Subject) -> Verdict | None:
    if subject.tool != TASK:
        return None
    return block(
        "tool.ungrantable",
        f"{TASK!r} cannot be granted in state {subject.state!r}; call a sub-workflow's archmax_workflow_… tool instead",
        warn=False,
    )


# --- 12 to 14: declared denials ----------------------------------------------------------------------------------


def _inherited(subject: Subject) -> Verdict | None:
    for ancestor in subject.machine.inherited:
        guard = ancestor.tools.match(subject.call, subject.variables)
        if guard is not None:
            key = f"tools.forbid_always of workflow {ancestor.workflow!r}"
            return block("tool.forbidden", reasons.denied(subject, guard, key))
        for path in subject.paths:
            if path.bundle is not None and path.bundle.slug in ancestor.skills:
                key = f"skills.forbid_always of workflow {ancestor.workflow!r}"
                return block("skill.forbidden", reasons.skill(subject, path, path.bundle.slug, key))
            if path.mount in ancestor.mounts:
                key = f"mounts.forbid_always of workflow {ancestor.workflow!r}"
                return block("mount.forbidden", reasons.mount(subject, path, path.mount, key))
    return None


def _forbidden(subject: Subject) -> Verdict | None:
    guard = subject.machine.forbid_always.match(subject.call, subject.variables)
    if guard is None:
        return None
    return block("tool.forbidden", reasons.denied(subject, guard, "tools.forbid_always"))


def _forbidden_here(subject: Subject) -> Verdict | None:
    guard = subject.surface.forbid.match(subject.call, subject.variables)
    if guard is None:
        return None
    return block(
        "tool.forbidden-here", reasons.denied(subject, guard, f"states.{subject.state}.tools.forbid")
    )


# --- 16 to 19: what is granted -----------------------------------------------------------------------------------

_OPEN_ON_SCRATCHPAD: Final = frozenset(
    {PathAccess.READ, PathAccess.LIST, PathAccess.WRITE, PathAccess.REMOVE}
)
_OPEN_ON_OFFLOAD: Final = frozenset({PathAccess.READ, PathAccess.LIST})


def _open_areas(subject: Subject) -> Verdict | None:
    paths = subject.paths
    if not paths or not subject.surface.open_on_scratchpad(subject.tool):
        return None
    scratchpad = False
    for path in paths:
        if path.zone is Zone.RUN_OPEN and path.access in _OPEN_ON_SCRATCHPAD:
            scratchpad = True
        elif path.zone is not Zone.RUN_OFFLOAD or path.access not in _OPEN_ON_OFFLOAD:
            return None
    return allow("tool.scratchpad" if scratchpad else "tool.offload-read")


def _controls(subject: Subject) -> Verdict | None:
    return allow("tool.allowed") if subject.tool in subject.surface.tier.controls else None


def _surface(subject: Subject) -> Verdict | None:
    tool, surface = subject.tool, subject.surface
    if tool in surface.tier.removed:
        return block("tool.not-allowed", reasons.not_allowed(subject, ()))
    guards = surface.own.get(tool)
    if guards is None:
        guards = subject.machine.workflow.get(tool, ())
        if tool in subject.machine.essential:
            return allow("tool.allowed")
    unresolved: Unresolved | None = None
    for guard in guards:
        granted = True if guard.open else guard.grants(subject.call, subject.variables)
        if granted is True:
            return allow("tool.allowed")
        if isinstance(granted, Unresolved) and unresolved is None:
            unresolved = granted
    if unresolved is not None:
        return block("tool.unresolved-variable", reasons.unresolved(subject, unresolved), terminal=True)
    return block("tool.not-allowed", reasons.not_allowed(subject, guards))


#: rules 1 to 14 of 02 §3: they only block. `zone.escapes` stands before rule 7 (02 OP-12)
_DENYING: Final[tuple[Rule, ...]] = (
    safety.path_argument,
    safety.governance_plane,
    safety.skill_only,
    _reply_only,
    _dead_eval,
    _ungrantable,
    safety.escapes,
    safety.read_only,
    safety.runtime_internal,
    safety.runtime_managed,
    safety.skills,
    safety.mounts,
    _inherited,
    _forbidden,
    _forbidden_here,
)
#: the same for a call whose paths are all plain: the rules about special places abstain on those
_ABOUT_PLACES: Final = frozenset(
    {
        safety.skill_only,
        safety.escapes,
        safety.read_only,
        safety.runtime_internal,
        safety.runtime_managed,
        safety.skills,
        safety.mounts,
    }
)
_DENYING_PLAIN: Final[tuple[Rule, ...]] = tuple(rule for rule in _DENYING if rule not in _ABOUT_PLACES)
#: rules 16 to 19; the last always answers
_GRANTING: Final[tuple[Rule, ...]] = (_open_areas, _controls, _surface)
