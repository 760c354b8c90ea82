"""The workload every benchmark of a turn runs: one message, five model calls, four tool calls, a fake model.

The message says what the model does, so that the model keeps nothing and any process can play it:

    session=<id> turn=<k> calls=5 lat=0 tool=0 fan=0 :: filler

`calls` model calls, all but the last of which ask for one tool; `lat` and `tool` milliseconds that a model call and a
tool call pretend to take; `fan` > 0: the first model call starts so many children, the second is the answer. The peers'
harness runs the same. Wired into workers by `ARCHMAX_HOST=bench.workload:wire`. Tools write and read small notes below
`$BENCH_NOTES` and append a line to `$BENCH_EFFECTS` when they complete; the model appends one to `$BENCH_CALLS` when it
is called.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from typing_extensions import override

FILL = "Please look at the quarterly numbers again, compare them with the plan, note what changed and say what to do next. "
_TOOLS = ("write_note", "read_note", "echo")
_FIELDS = re.compile(r"(session|turn|calls|lat|tool|fan)=([\w~-]+)")

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
tools: { allow_always: [write_note] }
states:
  work: { triggers: { manual: }, instructions: Do the part. }
"""
#: another workflow of the same fleet, for what one does to the other
OTHER = WORKFLOW.replace("title: Bench", "title: Other")


def message(
    session: str = "s", turn: int = 0, *, calls: int = 5, latency_ms: int = 0, tool_ms: int = 0, fan: int = 0
) -> str:
    return f"session={session} turn={turn} calls={calls} lat={latency_ms} tool={tool_ms} fan={fan} :: {FILL}"


def write_workspace(root: Path) -> None:
    for slug, text in (("bench", WORKFLOW), ("bench-child", CHILD), ("other", OTHER)):
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
    """The answer, and how many milliseconds it takes."""
    answered, said = 0, ""
    for item in reversed(messages):
        if isinstance(item, HumanMessage):
            said = str(item.content)
            break
        if isinstance(item, AIMessage):
            answered += 1
    fields = dict(_FIELDS.findall(said))
    session, turn = fields.get("session", "?"), fields.get("turn", "0")
    calls, latency, fan = int(fields.get("calls", 2)), int(fields.get("lat", 0)), int(fields.get("fan", 0))
    mark("BENCH_CALLS", f"{session}/{turn}/{answered}")
    if fan and answered == 0:
        wanted = [
            {
                "name": "archmax_workflow_bench-child",
                "args": {"part": f"session={session}-c{n} turn=0 calls=2 lat={latency} tool=0 fan=0"},
                "id": f"c{n}",
            }
            for n in range(fan)
        ]
        return AIMessage(content="", tool_calls=wanted), latency
    if not fan and answered < calls - 1:
        key = f"{session}/{turn}/{answered}"
        args = {"key": key, "text": f"note {answered}: {FILL[:60]}", "ms": int(fields.get("tool", 0))}
        call = {"name": _TOOLS[answered % 3], "args": args, "id": f"c{answered}"}
        return AIMessage(content="", tool_calls=[call]), latency
    return AIMessage(content=f"answer of turn {turn}: {FILL}"), latency


def mark(variable: str, key: str) -> None:
    """Append `<key> <epoch seconds> <pid>` to the file an environment variable names, in one write."""
    path = os.environ.get(variable)
    if path:
        line = f"{key} {time.time():.6f} {os.getpid()}\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def marks(path: Path) -> list[tuple[str, float, int]]:
    """What `mark` appended: key, epoch seconds, pid."""
    if not path.exists():
        return []
    rows = [line.rsplit(" ", 2) for line in path.read_text().splitlines()]
    return [(key, float(at), int(pid)) for key, at, pid in rows]


def _note(key: str) -> Path:
    folder = Path(os.environ.get("BENCH_NOTES", Path(tempfile.gettempdir()) / "archmax-bench-notes"))
    folder.mkdir(parents=True, exist_ok=True)
    # one file per session and turn: the first call writes it, the second reads it back
    return folder / hashlib.sha1(key.rsplit("/", 1)[0].encode(), usedforsecurity=False).hexdigest()[:20]


def _tools() -> list[BaseTool]:
    @tool
    async def write_note(key: str, text: str, ms: int = 0) -> str:
        """Write a small note."""
        await _pretend(ms)
        _note(key).write_text(text)
        mark("BENCH_EFFECTS", key)
        return f"wrote {len(text)} bytes"

    @tool
    async def read_note(key: str, text: str, ms: int = 0) -> str:
        """Read a small note."""
        await _pretend(ms)
        note = _note(key)
        mark("BENCH_EFFECTS", key)
        return note.read_text() if note.exists() else "missing"

    @tool
    async def echo(key: str, text: str, ms: int = 0) -> str:
        """Echo the text."""
        await _pretend(ms)
        mark("BENCH_EFFECTS", key)
        return text

    return [write_note, read_note, echo]


async def _pretend(ms: int) -> None:
    if ms:
        await asyncio.sleep(ms / 1000)


def wire(_context: Any) -> dict[str, Any]:
    """The host function: the fake model for every role, and the three tools."""
    return {
        "tools": _tools(),
        "model": BenchModel(),
        "sub_workflow_bounds": {"max_depth": 3, "max_concurrent": 50},
    }
