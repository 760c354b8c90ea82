"""How much a turn writes: near its unique content, whatever its length (design "Commit", known fault H15)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import yaml
from langchain_core.tools import tool

from engine.host.agent import Agent
from engine.host.session_folder import SessionFolder
from engine.host.wiring import wire
from engine.models.factory import ModelFactory, ModelSettings
from engine.turn.assembly import HostOptions, assemble
from engine.turn.recorder import EventStream
from sandbox import Sandbox
from storage.memory import MemoryStore
from storage.objects import ListedObject, StoredObject

MESSAGE = 640
WORKFLOW = """
title: Long
instructions: Work long.
tools: { allow_always: [echo, read_file, write_file] }
states:
  only: { triggers: { manual: }, instructions: Work. }
"""


class CountingStore:
    """A memory store that adds up what is written to it."""

    def __init__(self) -> None:
        self._inner = MemoryStore()
        self.written = 0
        self.puts = 0

    async def get(self, key: str) -> StoredObject | None:
        return await self._inner.get(key)

    async def put(
        self, key: str, body: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        self.written += len(body)
        self.puts += 1
        return await self._inner.put(key, body, if_absent=if_absent, if_match=if_match)

    def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ListedObject]:
        return self._inner.list(prefix, after=after)

    async def delete(self, keys: Iterable[str]) -> None:
        await self._inner.delete(keys)

    async def close(self) -> None:
        await self._inner.close()


@tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text[::-1]


def _filler(number: int) -> str:
    # no two alike and poorly compressible, as prose is
    words = [f"{(number * 7919 + index * 104729) % 999983:x}" for index in range(200)]
    return " ".join(words)[:MESSAGE]


async def _run(tmp_path: Path, steps: list[dict[str, object]]) -> CountingStore:
    root = tmp_path / "workspace"
    (root / "workflows/long").mkdir(parents=True)
    (root / "workflows/long/workflow.yaml").write_text(WORKFLOW)
    (root / "model.yaml").write_text(yaml.safe_dump(steps, allow_unicode=True))
    store = CountingStore()
    async with Sandbox() as sandbox:
        models = ModelFactory(ModelSettings(model="scripted:model.yaml"), root=root)
        wiring = wire(root, models=models, sandbox=sandbox, options=HostOptions(tools=[echo]))
        agent = Agent(assemble(wiring, "long"), SessionFolder(store), EventStream(None))
        outcome = await agent.send("s", message="go")
    assert outcome.kind == "completed", outcome
    return store


async def test_a_turn_of_200_messages_of_640_bytes_writes_less_than_300_kib(tmp_path: Path) -> None:
    """One turn of 200 messages costs under 300 KiB written in all; the usual saver writes 13 MiB."""
    calls: list[dict[str, object]] = [
        {"tool_calls": [{"name": "echo", "args": {"text": _filler(number)}}]} for number in range(100)
    ]
    store = await _run(tmp_path, [*calls, {"text": "done"}])
    assert store.written < 300 * 1024, f"{store.written / 1024:.0f} KiB in {store.puts} writes"


async def test_a_large_value_is_stored_once_and_referred_to(tmp_path: Path) -> None:
    """H15: 60 steps that copy and read a big file stay near its size, not its size times the steps."""
    big = "\n".join(_filler(number) for number in range(400))
    steps: list[dict[str, object]] = [
        {"tool_calls": [{"name": "write_file", "args": {"file_path": "scratchpad/big.txt", "content": big}}]}
    ]
    steps += [{"tool_calls": [{"name": "echo", "args": {"text": f"step {number}"}}]} for number in range(60)]
    store = await _run(tmp_path, [*steps, {"text": "done"}])
    # once in the message that wrote it, once as the file, once more in the turn's end
    assert store.written < 3 * len(big) + 100 * 1024, f"{store.written / len(big):.2f} times the content"
