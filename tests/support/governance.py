"""Small machines for kernel tests: one workflow, its states given as keyword arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.governance.kernel import ConsumerRule, RuleView, ToolCall, Verdict, decide
from engine.governance.machine import Machine, SkillBundle, WorkflowDenials, compile_machine
from engine.governance.tool_paths import declare_tool_paths
from engine.governance.zones import MountPrefixes
from engine.spec.model import Spec, State, ToolEntry, Transition

MOUNTS = MountPrefixes(
    dirs=("skills", "ledger", "charts/north", "charts/south"),
    files=("AGENTS.md",),
    writable=frozenset({"ledger", "charts/north"}),
    governed=frozenset({"ledger", "charts/south"}),
)
SKILLS = (SkillBundle("tides", "skills/tides"), SkillBundle("fees", "skills/fees"))
BROKEN = (SkillBundle("torn", "skills/torn"), SkillBundle("tides", "skills/old/tides"))
TOOL_PATHS = declare_tool_paths({"stamp": {"sheets": "read", "seal": "write"}}, {})


def entries(*listed: str | ToolEntry) -> tuple[ToolEntry, ...]:
    """Bare names become unguarded entries."""
    return tuple(ToolEntry(each) if isinstance(each, str) else each for each in listed)


def state(slug: str = "quay", *, to: Iterable[str] = ("berth",), **keys: Any) -> State:
    return State(slug=slug, transitions=tuple(Transition(target) for target in to), **keys)


def machine(
    *states: State,
    inherited: Iterable[WorkflowDenials] = (),
    essential: Iterable[str] = (),
    mounts: MountPrefixes = MOUNTS,
    **root: Any,
) -> Machine:
    spec = Spec(slug="harbour", states={each.slug: each for each in states or (state(),)}, **root)
    return compile_machine(
        spec,
        essential_tools=essential,
        tool_paths=TOOL_PATHS,
        mounts=mounts,
        skills=SKILLS,
        unloadable_skills=BROKEN,
        inherited=inherited,
    )


def verdict(
    built: Machine,
    tool: str,
    args: Any = None,
    *,
    at: str = "quay",
    origin: Any = "agent",
    reply_only: bool = False,
    variables: Mapping[str, Any] | None = None,
    rules: Iterable[ConsumerRule] = (),
) -> Verdict:
    call = ToolCall(at, tool, {} if args is None else args, origin, reply_only)
    return decide(built, call, variables=variables or {}, consumer_rules=tuple(rules))


def rule(built: Machine, tool: str, args: Any = None, **more: Any) -> str:
    """The rule id of the verdict."""
    return verdict(built, tool, args, **more).rule_id


def answering(found: Verdict | None) -> ConsumerRule:
    """A host rule that answers the same to every call."""

    def answer(_action: ToolCall, _view: RuleView) -> Verdict | None:
        return found

    return answer
