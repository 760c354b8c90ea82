"""Mocks for agents a host builds with LangChain itself (06 §8).

A governed agent needs none of this: its turns ask for mocks once the kernel has decided. The middleware answers from the
case that runs in this context and does nothing outside one. A module of its own, because LangChain's agents are slow to
import.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.types import Command
from typing_extensions import override

from engine.cases.mocks import find_mock, mocked_text
from engine.cases.runner import current_mocks


class ToolMockMiddleware(AgentMiddleware[Any, Any]):
    """Answers a LangChain agent's tool call from the running case's mocks instead of running the tool."""

    @override
    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        return self._mocked(request) or handler(request)

    @override
    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        return self._mocked(request) or await handler(request)

    def _mocked(self, request: ToolCallRequest) -> ToolMessage | None:
        call = request.tool_call
        found = find_mock(current_mocks.get(), call["name"], call["args"])
        if found is None:
            return None
        return ToolMessage(mocked_text(found), tool_call_id=call["id"] or "", name=call["name"])
