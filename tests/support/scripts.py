"""Helpers of the sandbox tests: a sandbox per test, a recording host, and looks at /proc."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import DEFERRED, Deferred, Evaluation, HostAnswer, HostCall, Repl, Result

TOOLS = ("echo", "fail", "slow", "child", "read_file", "archmax_workflow_check-card")


@dataclass
class Host:
    """Answers calls and remembers them. `child` is deferred, `slow` waits for `gate`, `fail` is refused."""

    calls: list[HostCall] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, call: HostCall) -> HostAnswer | Deferred:
        self.calls.append(call)
        match call.tool:
            case "child":
                return DEFERRED
            case "fail":
                data = {"tool": "fail", "ruleId": "tool.not-allowed", "reason": "not here"}
                return HostAnswer.failed("PtcGovernanceError", "fail is refused", data)
            case "slow":
                await self.gate.wait()
                return HostAnswer.ok("late")
            case _:
                return HostAnswer.ok(str(call.args.get("x", "")))


async def run(repl: Repl, source: str, host: Host | None = None, **options: Any) -> Result:
    """Evaluate with the usual tools."""
    options.setdefault("tools", TOOLS)
    return await repl.evaluate(Evaluation(source=source, call=host or Host(), **options))


async def value_of(repl: Repl, source: str, host: Host | None = None, **options: Any) -> Any:
    result = await run(repl, source, host, **options)
    assert result.error is None, result.error
    return result.value


async def eventually(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait until `condition` holds; the test's own time limit ends a wait in vain."""
    while True:
        holds = condition()
        if isinstance(holds, Awaitable):
            holds = await holds
        if holds:
            return
        await asyncio.sleep(0.005)


def live_descendants(pid: int) -> set[int]:
    """Processes below `pid` that are not zombies."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None and stat[0] not in "ZX":
            parents[int(entry.name)] = stat[1]
    found: set[int] = set()
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent == pid or parent in found} - found
        found |= more
        grown = bool(more)
    return found


def is_live(pid: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], int(fields[1])


def process_status(pidfd: int) -> dict[str, str]:
    """/proc/…/status of the process behind `pidfd`."""
    info = _fields(Path(f"/proc/self/fdinfo/{pidfd}"))
    return _fields(Path(f"/proc/{info['Pid'].strip()}/status"))


def _fields(path: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in path.read_text().splitlines())


def sandbox_processes() -> set[int]:
    """Live processes started by this one that run the sandbox."""
    return {pid for pid in live_descendants(os.getpid()) if b"zygote" in _cmdline(pid)}


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
