"""Tools as the turn loop sees them: a name, a schema for the model, and something to run.

File tools, sandbox tools and host tools all take this one shape. A control tool is none: it is serviced by the loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig

from core.jsontext import JsonObject
from engine.governance.calls import Origin
from engine.workspace.router import Workspace
from engine.workspace.tools import ToolResult


@dataclass(frozen=True)
class ToolCallContext:
    """What one call may know. `idempotency_key` is the same for every attempt at this call, in any process."""

    session_id: str
    call_id: str
    idempotency_key: str
    origin: Origin
    state: str
    workspace: Workspace
    #: whether the active state may see this path in a listing
    visible: Callable[[str], bool]
    config: RunnableConfig = field(default_factory=RunnableConfig)


ToolRun: TypeAlias = Callable[[JsonObject, ToolCallContext], Awaitable[ToolResult]]


@dataclass(frozen=True)
class Tool:
    """`run` answers; what it raises becomes an error result for a model and an exception for a script.

    `outside` tells whether a call reaches beyond the session, so that its result is committed as it settles.
    `at_most_once`: its start is committed first, and a start without a result is never repeated.
    """

    name: str
    description: str
    schema: JsonObject
    run: ToolRun
    outside: Callable[[Mapping[str, Any]], bool] = lambda _args: True
    at_most_once: bool = False


def model_schema(name: str, description: str, schema: Mapping[str, Any]) -> JsonObject:
    """The OpenAI-style function schema LangChain's `bind_tools` takes for every provider."""
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": dict(schema)},
    }


def object_schema(properties: JsonObject, required: Sequence[str] = ()) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema
