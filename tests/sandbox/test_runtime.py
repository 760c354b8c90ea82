"""A host's own runtime behind `sandbox_runtime`: the interface of 03 §19.6, held to the same journal as ours."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sandbox import (
    CallRecord,
    Evaluation,
    Fault,
    HostAnswer,
    HostRepl,
    HostSandbox,
    Journal,
    Result,
    RuntimeOptions,
    SandboxRuntime,
    Status,
)
from tests.support.scripts import Host, eventually
from tests.support.second_runtime import SecondRuntime

TOOLS = ("echo", "fail", "slow", "child", "read_file")


async def repl(runtime: SandboxRuntime | None = None) -> HostRepl:
    return await HostSandbox(runtime or SecondRuntime()).repl()


async def run(on: HostRepl, source: str, host: Host | None = None, **options: Any) -> Result:
    return await on.evaluate(Evaluation(source=source, call=host or Host(), tools=TOOLS, **options))


async def test_the_second_implementation_fulfils_the_protocol() -> None:
    assert isinstance(SecondRuntime(), SandboxRuntime)


async def test_a_script_has_its_value_its_tools_and_its_lines() -> None:
    lines: list[str] = []
    host = Host()
    source = "console.log('a', { b: 1 });\nconst got = await tools.echo({ x: 6 });\nNumber(got) * 7"
    result = await run(await repl(), source, host, on_console=lines.append)
    assert (result.status, result.value, result.logs) == (Status.OK, 42, ('a {"b":1}',))
    assert result.formatted == 'a {"b":1}\n42'
    assert lines == ['a {"b":1}']
    assert [(call.seq, call.tool, call.args) for call in host.calls] == [(1, "echo", {"x": 6})]


async def test_tools_are_reached_by_both_names_and_listed_by_one() -> None:
    result = await run(await repl(), "[Object.keys(tools).includes('read_file'), await tools.read_file({ x: 1 }), await tools.readFile({ x: 2 })]")  # fmt: skip
    assert result.value == [False, "1", "2"]


async def test_globals_last_until_the_namespace_is_disposed_of() -> None:
    runtime = SecondRuntime()
    on = await repl(runtime)
    assert on.fresh
    await run(on, "const n = 1; function twice(x) { return 2 * x }", session_id="s1")
    assert not on.fresh
    assert (await run(on, "const n = 2; twice(n)", session_id="s1")).value == 4
    assert [asked.session_id for asked in runtime.asked] == ["s1", "s1"]
    await on.close()
    await on.close()
    assert runtime.disposed == list(dict.fromkeys(runtime.disposed)) and not runtime.namespaces


async def test_a_module_is_called_with_its_input_and_tools() -> None:
    source = """import { defineCodeState } from "@archmax-ai/harness/code-state";
    export default defineCodeState(async ({ state, tools }) => `${state} ${await tools.echo({ x: SANDBOX_CONTRACT.context })}`);"""
    result = await run(await repl(), source, kind="module", context="code-state", args={"state": "check"})
    assert result.value == "check code-state"


async def test_a_foreign_import_never_reaches_the_runtime() -> None:
    runtime = SecondRuntime()
    result = await run(await repl(runtime), "import fs from 'fs'; 1")
    assert result.error is not None and result.error.fault is Fault.IMPORT
    assert result.forbidden == ("fs",) and not runtime.asked


async def test_a_refused_call_rejects_with_its_rule() -> None:
    result = await run(await repl(), "try { await tools.fail() } catch (e) { [e.name, e.ruleId, e.message] }")
    assert result.value == ["PtcGovernanceError", "tool.not-allowed", "fail is refused"]


async def test_a_failing_script_is_a_result_and_keeps_its_globals() -> None:
    on = await repl()
    result = await run(on, "globalThis.kept = 5; throw new RangeError('too far')")
    assert result.error is not None
    assert (result.error.name, result.error.message) == ("RangeError", "too far")
    assert (await run(on, "kept")).value == 5


async def test_calls_run_side_by_side() -> None:
    host = Host()
    work = asyncio.create_task(
        run(await repl(), "await Promise.all([tools.slow(), tools.echo({ x: 1 })])", host)
    )
    await eventually(lambda: len(host.calls) == 2)
    host.gate.set()
    assert (await work).value == ["late", "1"]


async def test_the_call_above_the_limit_ends_the_script() -> None:
    host = Host()
    result = await run(await repl(), "while (true) await tools.echo({})", host, max_calls=3)
    assert result.error is not None and result.error.fault is Fault.CALLS
    assert len(host.calls) == 3


async def test_a_script_past_its_time_is_dropped() -> None:
    runtime = SecondRuntime()
    on = await repl(runtime)
    result = await run(on, "await tools.slow()", timeout_ms=50)
    assert result.error is not None and result.error.fault is Fault.TIMEOUT
    assert on.fresh and runtime.disposed


async def test_a_script_that_needs_children_is_dropped_and_goes_on_with_their_answers() -> None:
    """Journal and replay, as for our own sandbox (decision 0136): nothing is called twice."""
    host, recorded = Host(), list[CallRecord]()

    async def record(records: Sequence[CallRecord]) -> None:
        recorded.extend(records)

    source = """console.log('before');
    const first = await tools.echo({ x: Math.random() });
    const both = await Promise.all([tools.child({ n: 1 }), tools.child({ n: 2 })]);
    console.log('after');
    [first === String(Math.random()), ...both, await tools.echo({ x: Date.now() })]"""
    lines: list[str] = []
    on = await repl()
    first = await run(on, source, host, record=record, on_console=lines.append)
    assert first.status is Status.SUSPENDED and first.lost_state and on.fresh
    assert [call.tool for call in host.calls] == ["echo", "child", "child"]
    stored = Journal.from_json(first.journal.to_json())
    answered = stored.answered(
        {call.seq: HostAnswer.ok(f"child {call.args['n']}") for call in stored.unanswered}
    )
    second = await run(on, source, host, record=record, on_console=lines.append, journal=answered)
    assert second.error is None
    assert second.value == [True, "child 1", "child 2", str(stored.started_ms)]
    assert [call.tool for call in host.calls] == ["echo", "child", "child", "echo"]
    assert [record.seq for record in recorded] == [1, 2, 3, 4]
    assert lines == ["before", "after"]


async def test_an_unawaited_child_is_not_forgotten() -> None:
    result = await run(await repl(), "tools.child({}); 7")
    assert result.status is Status.SUSPENDED


async def test_a_replay_that_does_something_else_is_found_before_anything_is_called() -> None:
    on, host = await repl(), Host()
    journal = Journal.begin().with_calls([CallRecord(1, "echo", {"x": 1}, HostAnswer.ok("1"), order=1)])
    result = await run(on, "await tools.echo({ x: 2 })", host, journal=journal)
    assert result.error is not None and result.error.fault is Fault.DIVERGED
    result = await run(on, "7", host, journal=journal)
    assert result.error is not None and result.error.fault is Fault.DIVERGED
    assert host.calls == []


async def test_what_the_host_raises_is_its_own() -> None:
    async def call(_: object) -> HostAnswer:
        raise LookupError("lease lost")

    on = await repl()
    with pytest.raises(LookupError, match="lease lost"):
        await on.evaluate(Evaluation(source="await tools.echo()", tools=["echo"], call=call))
    assert on.fresh


async def test_a_cancelled_caller_leaves_nothing_running() -> None:
    runtime, host = SecondRuntime(), Host()
    work = asyncio.create_task(run(await repl(runtime), "await tools.slow()", host))
    await eventually(lambda: bool(host.calls))
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not runtime.namespaces


class Broken:
    """A runtime that does not keep its side."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def session(self, namespace: str, options: RuntimeOptions) -> Broken:
        return self

    async def eval(self, code: str, timeout_ms: int) -> Mapping[str, Any]:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    async def dispose(self, namespace: str) -> None:
        raise OSError("gone already")


@pytest.mark.parametrize(
    ("said", "fault", "message"),
    [
        (ValueError("no isolate left"), Fault.CRASH, "ValueError: no isolate left"),
        ("text", Fault.CRASH, "answered with str"),
        ({"ok": True, "value": object()}, Fault.THROWN, "the result is no JSON"),
        ({"ok": False, "error": "bad luck"}, Fault.THROWN, "bad luck"),
        ({}, Fault.THROWN, "the script failed"),
    ],
)
async def test_a_runtime_that_fails_is_an_error_of_that_evaluation(
    said: Any, fault: Fault, message: str
) -> None:
    result = await run(await repl(Broken(said)), "1")
    assert result.error is not None
    assert (result.status, result.error.fault) == (Status.ERROR, fault)
    assert message in result.error.message


async def test_the_result_is_cut_visibly() -> None:
    shown = {"ok": True, "value": "x", "formatted": "x" * 500}
    result = await run(await repl(Broken(shown)), "1", max_result_chars=100)
    assert len(result.formatted) <= 100 and "shortened" in result.formatted
