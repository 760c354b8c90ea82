"""Built-in file and sandbox tools, and a host's LangChain tools, in the loop's one shape.

A host tool marks itself `at_most_once` in its `metadata`. What it answers becomes text; a mapping or list becomes JSON.
One that takes too long is cut off, and so is one whose turn is: what it does about its cancellation is its own affair.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from types import FunctionType
from typing import Any, TypeVar, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from core.jsontext import JsonObject, text
from engine.governance.names import EVAL, RUN
from engine.session.messages import text_of
from engine.turn.tools import Tool, ToolCallContext, ToolRun, object_schema
from engine.workspace.images import ImageOptions
from engine.workspace.tools import FILE_TOOLS, FileTool, ToolContext, ToolResult

T = TypeVar("T")

#: how long a tool that was cut off is waited for, so that it can put its things away
GRACE_SECONDS = 2.0

_EVAL_DESCRIPTION = (
    "Run JavaScript in a sandbox: top-level await, `tools.<name>(args)` as async functions in camelCase, console.log. "
    "Answers the last expression. State lasts for the turn. No network, no Node."
)
_RUN_DESCRIPTION = (
    "Run a script of an enabled skill. It reads `args` (yours, plus args.variables) and `tools`."
)


#: the host tool call being run in this context; `archmax.current_tool_call()` reads it
current_call: ContextVar[ToolCallContext | None] = ContextVar("archmax_tool_call", default=None)


def builtin_tools(images: ImageOptions | None) -> dict[str, Tool]:
    tools = {name: _file_tool(tool, images) for name, tool in FILE_TOOLS.items()}
    tools[EVAL] = Tool(
        EVAL, _EVAL_DESCRIPTION, object_schema({"code": {"type": "string"}}, ("code",)), _not_run_here
    )
    tools[RUN] = Tool(
        RUN,
        _RUN_DESCRIPTION,
        object_schema({"file_path": {"type": "string"}, "args": {"type": "object"}}, ("file_path",)),
        _not_run_here,
    )
    return tools


async def _not_run_here(_args: JsonObject, _context: ToolCallContext) -> ToolResult:
    raise RuntimeError("sandbox tools are run by the session's scripts")


def _file_tool(tool: FileTool[Any], images: ImageOptions | None) -> Tool:
    async def run(args: JsonObject, context: ToolCallContext) -> ToolResult:
        return await tool.call(
            args,
            ToolContext(
                workspace=context.workspace,
                visible=context.visible,
                caller="model" if context.origin in ("agent", "grader") else "script",
                images=images if context.origin in ("agent", "grader") else None,
            ),
        )

    schema = tool.schema()
    return Tool(tool.name, tool.description, schema["parameters"], run, outside=lambda _args: False)


def host_tool(tool: BaseTool, timeout_ms: int) -> Tool:
    schema = convert_to_openai_tool(tool)["function"]
    return Tool(
        name=tool.name,
        description=schema.get("description", ""),
        schema=schema.get("parameters") or object_schema({}),
        run=_host_run(tool, timeout_ms),
        at_most_once=bool((tool.metadata or {}).get("at_most_once")),
    )


def _host_run(tool: BaseTool, timeout_ms: int) -> ToolRun:
    _evaluate_annotations(tool)

    async def run(args: JsonObject, context: ToolCallContext) -> ToolResult:
        token = current_call.set(context)
        try:
            call = {"type": "tool_call", "id": context.call_id, "name": tool.name, "args": args}
            answer = await _bounded(tool.ainvoke(call, context.config), timeout_ms)
        finally:
            current_call.reset(token)
        if isinstance(answer, ToolMessage):
            if answer.status == "error":
                raise RuntimeError(text_of(answer.content) or "the tool failed")
            return ToolResult(result_text(answer.content))
        return ToolResult(result_text(answer))

    return run


def _evaluate_annotations(tool: BaseTool) -> None:
    """Evaluate text annotations of what the tool runs, once: LangChain does so, with a compilation each, at every call."""
    for function in (
        type(tool)._run,
        type(tool)._arun,
        getattr(tool, "func", None),
        getattr(tool, "coroutine", None),
    ):
        if isinstance(function, FunctionType) and any(
            isinstance(annotation, str) for annotation in function.__annotations__.values()
        ):
            with contextlib.suppress(Exception):  # a name that is imported for type checkers alone
                function.__annotations__ = get_type_hints(function, include_extras=True)


async def _bounded(work: Coroutine[Any, Any, T], timeout_ms: int) -> T:
    """Cancel `work` after `timeout_ms`, or with its caller, and leave it to itself when it does not stop soon.

    Raises: `TimeoutError`.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout_ms / 1000)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(_forget)
            await asyncio.wait({task}, timeout=GRACE_SECONDS)
    if task.done() and not task.cancelled():
        return task.result()
    raise TimeoutError(f"it took longer than {timeout_ms / 1000:g} s")


def _forget(task: asyncio.Task[Any]) -> None:
    """Nobody asks any more what became of it."""
    if not task.cancelled():
        task.exception()


def result_text(value: Any) -> str:
    """What a tool answered, as the text a model reads."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(
        isinstance(block, Mapping) and block.get("type") == "text" for block in value
    ):
        return text_of(value)
    return text(value)
