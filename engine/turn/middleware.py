"""A host's LangChain `AgentMiddleware`, checked once: what each overrides, and the state fields its schema declares.

The classes are LangChain's and run unchanged (`engine.turn.hooks`). One that does what only a graph can do is refused
by name before any turn begins.

A module nobody imports without middleware: LangChain's agents are slow to import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any, Final, get_origin, get_type_hints

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import RemoveMessage
from langchain_core.tools import BaseTool
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.types import interrupt

from engine.errors import MiddlewareError

#: fields every agent's state has: they mean something of their own here and are not kept beside the others
OWN_FIELDS: Final = frozenset({"messages", "jump_to", "structured_response"})
_HOOKS: Final = ("before_agent", "before_model", "after_model", "after_agent")
_WRAPS: Final = ("wrap_model_call", "wrap_tool_call")
#: what a hook may not do here, and what its host is told
_CANNOT: Final = (
    (interrupt, "it interrupts a graph, and there is none: let a person decide in a human state instead"),
    (RemoveMessage, "it removes messages, and the transcript is a log that keeps them"),
)


@dataclass(frozen=True)
class StateField:
    """One field a middleware's schema declares. `run` fields begin anew with every turn."""

    run: bool
    reducer: Callable[[Any, Any], Any] | None = None


class MiddlewareChain:
    """The middleware of one host, checked once. The first is the outermost."""

    def __init__(self, given: Sequence[AgentMiddleware[Any, Any, Any]]) -> None:
        """Raises: `MiddlewareError` naming the one that cannot run here."""
        self.given = tuple(given)
        names: set[str] = set()
        for middleware in self.given:
            name = name_of(middleware)
            if not isinstance(middleware, AgentMiddleware):
                raise MiddlewareError(name, "it is no langchain AgentMiddleware")
            if name in names:
                raise MiddlewareError(name, "it is given twice")
            names.add(name)
            for thing, problem in _CANNOT:
                if _mentions(type(middleware), thing):
                    raise MiddlewareError(name, problem)
        self.tools: tuple[BaseTool, ...] = tuple(
            tool for middleware in self.given for tool in getattr(middleware, "tools", None) or ()
        )
        self.fields = {
            name: field
            for middleware in self.given
            for name, field in _fields_of(middleware.state_schema).items()
        }
        self._having = {
            hook: tuple(m for m in self.given if overrides(m, hook) or overrides(m, f"a{hook}"))
            for hook in (*_HOOKS, *_WRAPS)
        }

    def having(self, hook: str) -> tuple[AgentMiddleware[Any, Any, Any], ...]:
        return self._having[hook]


def name_of(middleware: Any) -> str:
    """As messages name it; it need not be one yet."""
    name = getattr(middleware, "name", None)
    return name if isinstance(name, str) else type(middleware).__name__


def overrides(middleware: AgentMiddleware[Any, Any, Any], method: str) -> bool:
    """Whether its class has a method of its own there."""
    return getattr(type(middleware), method) is not getattr(AgentMiddleware, method)


def _mentions(kind: type, thing: object) -> bool:
    """Whether a hook of the class, or a function of its class or module that a hook calls, names `thing`."""
    seen: set[CodeType] = set()

    def by_function(found: object) -> bool:
        found = getattr(found, "__func__", found)  # of a static or class method
        if not isinstance(found, FunctionType) or found.__code__ in seen:
            return False
        seen.add(found.__code__)
        return by_code(found.__code__, found.__globals__) or any(
            by_function(cell.cell_contents) for cell in found.__closure__ or () if cell != CellType()
        )

    def by_code(code: CodeType, module: Mapping[str, Any]) -> bool:
        for name in code.co_names:
            held = module.get(name)
            if held is thing or by_function(inspect.getattr_static(kind, name, None)):
                return True
            if getattr(held, "__globals__", None) is module and by_function(held):
                return True
        return any(by_code(inner, module) for inner in code.co_consts if isinstance(inner, CodeType))

    return any(
        by_function(vars(base).get(method))
        for base in kind.__mro__
        for hook in (*_HOOKS, *_WRAPS)
        for method in (hook, f"a{hook}")
    )


def _fields_of(schema: type) -> dict[str, StateField]:
    fields: dict[str, StateField] = {}
    for name, hint in get_type_hints(schema, include_extras=True).items():
        if name in OWN_FIELDS:
            continue
        marks: list[Any] = []
        while (get_origin(hint) is not None and hasattr(hint, "__metadata__")) or _is_required(hint):
            marks.extend(getattr(hint, "__metadata__", ()))
            hint = hint.__origin__ if hasattr(hint, "__metadata__") else hint.__args__[0]
        run = any(_is_channel(mark, UntrackedValue) or _is_channel(mark, EphemeralValue) for mark in marks)
        reducer = next((mark for mark in marks if _is_reducer(mark)), None)
        fields[name] = StateField(run, reducer)
    return fields


def _is_required(hint: Any) -> bool:
    return getattr(get_origin(hint), "_name", None) in ("Required", "NotRequired", "ReadOnly")


def _is_reducer(mark: Any) -> bool:
    """A callable of two values, as LangGraph reads an annotation."""
    if not callable(mark) or isinstance(mark, type):
        return False
    try:
        return len(inspect.signature(mark).parameters) == 2
    except (TypeError, ValueError):
        return False


def _is_channel(mark: Any, channel: type) -> bool:
    return isinstance(mark, channel) or (isinstance(mark, type) and issubclass(mark, channel))
