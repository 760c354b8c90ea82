"""Host tools from plain descriptors (05 §10.2): `{name: {description, input_schema, handler, paths?}}`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import tool as make_tool

from engine.turn.host_tools import current_call
from engine.workspace.router import Workspace


@dataclass(frozen=True)
class HostToolContext:
    """What a handler is given beside its input. `idempotency_key` is the same for every attempt at this call."""

    session_id: str
    call_id: str
    idempotency_key: str
    state: str
    _workspace: Workspace | None

    @property
    def workspace(self) -> Workspace:
        """The turn's workspace. Raises: `RuntimeError` outside a turn."""
        if self._workspace is None:
            raise RuntimeError("there is no workspace outside a turn: the tool was called by itself")
        return self._workspace

    def __repr__(self) -> str:
        return f"HostToolContext(session_id={self.session_id!r}, call_id={self.call_id!r})"


def current_context() -> HostToolContext:
    """The context of the host tool call that is running; one without a workspace outside a turn."""
    call = current_call.get()
    if call is None:
        return HostToolContext("", "", "", "", None)
    return HostToolContext(call.session_id, call.call_id, call.idempotency_key, call.state, call.workspace)


def tools_from_map(descriptors: Mapping[str, Mapping[str, Any]]) -> list[BaseTool]:
    """LangChain tools from descriptors; sync handlers run in threads. Raises: `ValueError` naming the descriptor."""
    return [_from_descriptor(name, descriptor) for name, descriptor in descriptors.items()]


def _from_descriptor(name: str, descriptor: Mapping[str, Any]) -> BaseTool:
    handler = descriptor.get("handler")
    if not callable(handler):
        raise ValueError(f"tool {name!r} has no callable handler")

    async def run(**given: Any) -> Any:
        context = current_context()
        if inspect.iscoroutinefunction(handler):
            return await handler(given, context)
        answer = await asyncio.to_thread(handler, given, context)
        return await answer if inspect.isawaitable(answer) else answer

    metadata: dict[str, Any] = {}
    if descriptor.get("paths") is not None:
        metadata["paths"] = dict(descriptor["paths"])
    if descriptor.get("at_most_once"):
        metadata["at_most_once"] = True
    return StructuredTool(
        name=name,
        description=descriptor.get("description") or name,
        args_schema=dict(descriptor.get("input_schema") or {"type": "object", "properties": {}}),
        coroutine=run,
        metadata=metadata,
    )


def as_tools(
    given: Iterable[BaseTool | Callable[..., Any]] | Mapping[str, Mapping[str, Any]],
) -> list[BaseTool]:
    """Tools, plain functions, or a map of descriptors."""
    if isinstance(given, Mapping):
        return tools_from_map(cast(Mapping[str, Mapping[str, Any]], given))
    return [item if isinstance(item, BaseTool) else make_tool(item) for item in given]
