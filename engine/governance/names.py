"""Tool names and what each class of them means to governance (contract 02 §4), and how a called name is resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from engine.errors import ReservedToolNameError
from engine.spec.model import StateType

PREFIX: Final = "archmax_"
DELEGATION_PREFIX: Final = "archmax_workflow_"

ADVANCE: Final = "archmax_advance"
RAISE: Final = "archmax_raise"
GET_VARIABLES: Final = "archmax_get_variables"
SET_VARIABLES: Final = "archmax_set_variables"
RESET: Final = "archmax_reset"
WAIT: Final = "archmax_wait"
GET_HISTORY: Final = "archmax_get_history"
EVAL: Final = "archmax_eval"
RUN: Final = "archmax_run"
WRITE_TODOS: Final = "write_todos"
#: the shape of a runtime note; nothing registers or may call it
NOTE: Final = "archmax_note"
#: the framework's sub-agent tool: no list can grant it
TASK: Final = "task"
#: a dead name: the sandbox is `archmax_eval`
DEAD_EVAL: Final = "eval"

#: the workflow-wide grant, unguarded, where a workflow declares none (02 §4.1)
DEFAULT_TOOLS: Final[tuple[str, ...]] = (
    "ls",
    "read_file",
    "write_file",
    "edit_file",
    "copy_file",
    "move_file",
    "remove_file",
    "glob",
    "grep",
    WRITE_TODOS,
    EVAL,
    RUN,
)
SANDBOX_TOOLS: Final = frozenset({EVAL, RUN})
#: every control tool, in the order they are listed
CONTROL_TOOLS: Final[tuple[str, ...]] = (
    ADVANCE,
    RAISE,
    GET_VARIABLES,
    SET_VARIABLES,
    RESET,
    WAIT,
    GET_HISTORY,
)

_MOVER_CONTROLS: Final = frozenset(CONTROL_TOOLS) - {GET_HISTORY}
_AUTOMATED_CONTROLS: Final = frozenset(CONTROL_TOOLS) - {RESET, WAIT}
#: refused in a state of the type whatever any list says (02 §4.2 and §4.3)
_AUTOMATED_REMOVED: Final = frozenset({WRITE_TODOS, EVAL, RUN, WAIT, RESET, NOTE})
_MOVER_REMOVED: Final = frozenset({GET_HISTORY, NOTE})

CONTROLS: Final[Mapping[StateType, frozenset[str]]] = {
    "agent": _MOVER_CONTROLS,
    "human": _MOVER_CONTROLS,
    "grader": _AUTOMATED_CONTROLS,
    "code": _AUTOMATED_CONTROLS,
}
REMOVED: Final[Mapping[StateType, frozenset[str]]] = {
    "agent": _MOVER_REMOVED,
    "human": _MOVER_REMOVED,
    "grader": _AUTOMATED_REMOVED,
    "code": _AUTOMATED_REMOVED,
}


def delegation_target(tool: str) -> str | None:
    """The workflow a delegation tool calls, verbatim; None for every other tool."""
    slug = tool.removeprefix(DELEGATION_PREFIX)
    return slug if slug and slug != tool else None


def is_builtin(tool: str) -> bool:
    """Whether the runtime owns the name: no host tool may carry it (02 §4.5, OP-14)."""
    return tool.startswith(PREFIX) or tool in DEFAULT_TOOLS or tool in (TASK, DEAD_EVAL)


def refuse_reserved_names(tools: Iterable[str]) -> None:
    """Check the names of host tools. Raises: `ReservedToolNameError` naming every offender."""
    reserved = tuple(dict.fromkeys(name for name in tools if is_builtin(name)))
    if reserved:
        raise ReservedToolNameError(reserved)


class NotATool(NamedTuple):
    """A called name no tool answers to; `candidates` when its bare action is ambiguous."""

    name: str
    candidates: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """What the caller is answered."""
        if self.candidates:
            return f"{self.name!r} is not a tool. Several end in it; call one by its full name: " + ", ".join(
                self.candidates
            )
        return f"{self.name!r} is not a tool."


def resolve_name(name: str, registered: Sequence[str]) -> str | NotATool:
    """The registered tool a called name means: itself, or the one `<collection>__<name>` (02 §2, stage 1)."""
    if name in registered:
        return name
    suffix = f"__{name}"
    candidates = tuple(tool for tool in registered if name and tool.endswith(suffix) and tool != suffix)
    return candidates[0] if len(candidates) == 1 else NotATool(name, candidates)
