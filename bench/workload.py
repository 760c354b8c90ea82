"""The workload every benchmark of a turn runs: one message, five model calls, four tool calls, a fake model.

The message says what the model does (`calls=5 lat=0 fan=0`), so the model keeps nothing and any process can play it. Wired
into workers by `ARCHMAX_HOST=bench.workload:wire`.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from typing_extensions import override

FILL = "Please look at the quarterly numbers again, compare them with the plan, note what changed and say what to do next. "
_FIELDS = re.compile(r"(calls|lat|fan)=([0-9]+)")

WORKFLOW = """
title: Bench
instructions: Work through the numbers.
tools: { allow_always: [write_note, read_note, echo, archmax_workflow_bench-child] }
states:
  work: { triggers: { manual: }, instructions: Do the work. }
"""
CHILD = """
title: Bench child
instructions: Work through one part.
tools: { allow_always: [echo] }
states:
  work: { triggers: { manual: }, instructions: Do the part. }
"""


def message(*, calls: int = 5, latency_ms: int = 0, fan: int = 0) -> str:
    return f"calls={calls} lat={latency_ms} fan={fan} :: {FILL}"


def write_workspace(root: Path) -> None:
    for slug, text in (("bench", WORKFLOW), ("bench-child", CHILD)):
        folder = root / "workflows" / slug
        folder.mkdir(parents=True)
        (folder / "workflow.yaml").write_text(text)


class BenchModel(BaseChatModel):
    """Answers by the newest message of a person or, in a child, by its opening."""

    @property
    @override
    def _llm_type(self) -> str:
        return "bench"

    @override
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer, _ = _decide(messages)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer, latency = _decide(messages)
        if latency:
            await asyncio.sleep(latency / 1000)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _decide(messages: list[BaseMessage]) -> tuple[AIMessage, int]:
    answered, said = 0, ""
    for item in reversed(messages):
        if isinstance(item, HumanMessage):
            said = str(item.content)
            break
        if isinstance(item, AIMessage):
            answered += 1
    fields = {name: int(value) for name, value in _FIELDS.findall(said)}
    calls, latency, fan = fields.get("calls", 2), fields.get("lat", 0), fields.get("fan", 0)
    if fan and answered == 0:
        wanted = [
            {
                "name": "archmax_workflow_bench-child",
                "args": {"part": f"calls=2 lat={latency} fan=0"},
                "id": f"c{n}",
            }
            for n in range(fan)
        ]
        return AIMessage(content="", tool_calls=wanted), latency
    if not fan and answered < calls - 1:
        name = "echo" if "part:" in said else ("write_note", "read_note", "echo")[answered % 3]
        args = {"text": f"note {answered}: {FILL[:60]}"}
        return AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": f"c{answered}"}]), latency
    return AIMessage(content=f"answer: {FILL}"), latency


def _tools() -> list[BaseTool]:
    @tool
    async def write_note(text: str) -> str:
        """Write a small note."""
        return f"wrote {len(text)} bytes"

    @tool
    async def read_note(text: str) -> str:
        """Read a small note."""
        return text

    @tool
    async def echo(text: str) -> str:
        """Echo the text."""
        return text

    return [write_note, read_note, echo]


def wire(_context: Any) -> dict[str, Any]:
    """The host function: the fake model for every role, and the three tools."""
    return {
        "tools": _tools(),
        "model": BenchModel(),
        "sub_workflow_bounds": {"max_depth": 3, "max_concurrent": 50},
    }
