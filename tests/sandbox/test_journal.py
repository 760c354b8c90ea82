"""Suspension and replay: a script goes on where it stopped, and nothing is called twice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sandbox import (
    CallRecord,
    Deferred,
    Evaluation,
    Fault,
    HostAnswer,
    HostCall,
    Journal,
    Repl,
    Result,
    Sandbox,
    Status,
)
from tests.support.scripts import TOOLS, Host, run, value_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


def stored(journal: Journal) -> Journal:
    """The journal as another process would read it."""
    text = json.dumps(journal.to_json())
    loaded = Journal.from_json(json.loads(text))
    assert loaded == journal
    return loaded


def answered(result: Result) -> Journal:
    """The journal with an answer for every deferred call, as a resume brings them."""
    answers = {record.seq: HostAnswer.ok(f"child {record.seq}") for record in result.journal.unanswered}
    return stored(result.journal.answered(answers))


async def resume(sandbox: Sandbox, source: str, result: Result, host: Host, **options: Any) -> Result:
    repl = await sandbox.repl()
    try:
        return await run(repl, source, host, journal=answered(result), **options)
    finally:
        await repl.close()


async def test_a_script_that_waits_for_a_child_is_suspended_and_goes_on(sandbox: Sandbox, repl: Repl) -> None:
    source = "const a = await tools.echo({ x: 1 }); const b = await tools.child({ n: 2 }); [a, b, await tools.echo({ x: 3 })]"
    host = Host()
    first = await run(repl, source, host)
    assert first.status is Status.SUSPENDED and first.error is None and first.lost_state
    assert repl.fresh
    assert [record.seq for record in first.journal.unanswered] == [2]
    second = await resume(sandbox, source, first, host)
    assert second.value == ["1", "child 2", "3"]
    assert [call.seq for call in host.calls] == [1, 2, 3]


async def test_two_hundred_children_are_each_called_once(sandbox: Sandbox, repl: Repl) -> None:
    source = "(await Promise.all(Array.from({ length: 200 }, (_, i) => tools.child({ i })))).join()"
    host = Host()
    first = await run(repl, source, host)
    assert first.status is Status.SUSPENDED and len(first.journal.unanswered) == 200
    second = await resume(sandbox, source, first, host)
    assert second.value == ",".join(f"child {n}" for n in range(1, 201))
    assert [call.seq for call in host.calls] == list(range(1, 201))


async def test_children_in_a_loop_suspend_once_a_round(sandbox: Sandbox, repl: Repl) -> None:
    source = """
    const out = [];
    for (let i = 0; i < 4; i++) {
      console.log('round', i);
      out.push(await tools.echo({ x: i }), await tools.child({ i }), Date.now(), Math.random());
    }
    out"""
    host, lines = Host(), list[str]()
    result = await run(repl, source, host, on_console=lines.append)
    rounds = 0
    while result.status is Status.SUSPENDED:
        rounds += 1
        assert len(lines) == rounds
        result = await resume(sandbox, source, result, host, on_console=lines.append)
    assert rounds == 4
    assert result.error is None
    assert lines == [f"round {n}" for n in range(4)] == list(result.logs)
    assert [call.seq for call in host.calls] == list(range(1, 9))
    again = await run(
        await sandbox.repl(), source, host, journal=stored(result.journal), on_console=lines.append
    )
    assert again.value == result.value and len(host.calls) == 8 and len(lines) == 4


async def test_time_and_chance_are_the_same_in_a_replay(sandbox: Sandbox, repl: Repl) -> None:
    source = """
    const seen = [];
    const look = () => seen.push(Date.now(), new Date().toISOString(), Date(), Math.random(), new Date().constructor.now(),
      new (class X extends Date {})().getTime(), Object.getPrototypeOf(class extends Date {}).now(), new Date() instanceof Date);
    look(); await tools.echo({ x: 1 }); look(); await Promise.all([tools.echo({ x: 2 }), tools.echo({ x: 3 })]); look(); seen"""
    first = await run(repl, source)
    second = await run(await sandbox.repl(), source, journal=stored(first.journal))
    assert first.value == second.value
    third = await run(await sandbox.repl(), source)
    assert third.value[3] != first.value[3]
    assert first.value[0] == first.journal.started_ms
    assert [record.at_ms for record in first.calls] == sorted(record.at_ms for record in first.calls)


async def test_answers_replay_in_the_order_they_came_in(sandbox: Sandbox, repl: Repl) -> None:
    source = """
    const order = [];
    await Promise.all([tools.slow().then(() => order.push('slow')), tools.echo().then(async () => { order.push('echo'); await tools.fail().catch(() => order.push('fail')) })]);
    order.join()"""
    host = Host()

    async def record(batch: Any) -> None:
        if any(entry.tool == "fail" for entry in batch):
            host.gate.set()

    first = await run(repl, source, host, record=record)
    assert first.value == "echo,fail,slow"
    assert [entry.order for entry in first.calls] == [3, 1, 2]
    replayed = await run(await sandbox.repl(), source, Host(), journal=stored(first.journal))
    assert replayed.value == "echo,fail,slow" and replayed.calls == first.calls


async def test_deferred_answers_settle_in_call_order(sandbox: Sandbox, repl: Repl) -> None:
    source = (
        "const o = []; await Promise.all([3, 2, 1].map(i => tools.child({ i }).then(() => o.push(i)))); o"
    )
    first = await run(repl, source)
    assert (await resume(sandbox, source, first, Host())).value == [3, 2, 1]


async def test_a_script_goes_on_while_anything_else_can_run(repl: Repl) -> None:
    source = "const c = tools.child(); for (let i = 0; i < 3; i++) await tools.echo({ x: i }); console.log('done'); await c"
    host = Host()
    result = await run(repl, source, host)
    assert result.status is Status.SUSPENDED and result.logs == ("done",)
    assert len(host.calls) == 4


async def test_a_race_that_a_child_loses_still_waits_for_the_child(sandbox: Sandbox, repl: Repl) -> None:
    source = "await Promise.race([tools.child(), tools.echo({ x: 1 })])"
    first = await run(repl, source)
    assert first.status is Status.SUSPENDED
    assert (await resume(sandbox, source, first, Host())).value == "1"


async def test_a_script_that_failed_starts_no_children(repl: Repl) -> None:
    result = await run(repl, "const c = tools.child(); await tools.echo(); throw new Error('no')")
    assert result.status is Status.ERROR and result.error is not None and result.error.message == "no"


async def test_a_child_that_failed_rejects_its_call(sandbox: Sandbox, repl: Repl) -> None:
    source = "try { await tools.child() } catch (e) { [e.name, e.message, e.kind] }"
    first = await run(repl, source)
    journal = first.journal.answered(
        {1: HostAnswer.failed("SubWorkflowError", "it parked", {"kind": "parked"})}
    )
    result = await run(await sandbox.repl(), source, journal=stored(journal))
    assert result.value == ["SubWorkflowError", "it parked", "parked"]


@pytest.mark.parametrize(
    "changed",
    [
        "await tools.echo({ x: 2 }); await tools.child(); 1",
        "await tools.read_file({ x: 1 }); await tools.child(); 1",
        "await tools.child(); await tools.echo({ x: 1 }); 1",
        "1",
        "await tools.echo({ x: 1 }); 1",
        "throw new Error('x')",
        "await new Promise(() => {})",
    ],
)
async def test_a_script_that_diverges_fails_and_calls_nothing(
    sandbox: Sandbox, repl: Repl, changed: str
) -> None:
    first = await run(repl, "await tools.echo({ x: 1 }); await tools.child(); 1")
    host = Host()
    result = await resume(sandbox, changed, first, host)
    assert result.status is Status.ERROR and result.error is not None
    assert result.error.fault is Fault.DIVERGED and "did not repeat" in result.error.message
    assert host.calls == []


async def test_a_script_cut_off_by_a_crash_repeats_only_what_has_no_answer(
    sandbox: Sandbox, repl: Repl
) -> None:
    """What was committed is a prefix: calls with their delivered answers, and one that had only been made."""
    source = "const a = await tools.echo({ x: 1 }); const b = await tools.echo({ x: 2 }); a + b + await tools.echo({ x: 3 })"
    whole = await run(repl, source)
    calls = whole.calls
    cut = replace(whole.journal, calls=(calls[0], CallRecord(2, "echo", {"x": 2})), active_ms=0, lines=0)
    host = Host()
    result = await run(await sandbox.repl(), source, host, journal=stored(cut))
    assert result.value == "123"
    assert [call.seq for call in host.calls] == [2, 3]
    assert result.calls[0] == calls[0]


async def test_answers_are_recorded_before_the_script_sees_them(repl: Repl) -> None:
    events: list[str] = []

    async def record(batch: Any) -> None:
        events.extend(f"recorded {entry.seq} as {entry.order}" for entry in batch)

    result = await run(
        repl,
        "await tools.echo(); console.log('one'); await Promise.all([tools.echo(), tools.echo()]); console.log('two')",
        record=record,
        on_console=events.append,
    )
    assert result.error is None
    assert events == ["recorded 1 as 1", "one", "recorded 2 as 2", "recorded 3 as 3", "two"]


async def test_a_journal_grown_from_records_is_the_results_journal(repl: Repl) -> None:
    header = Journal.begin(1_000)
    grown = [header]

    async def record(batch: Any) -> None:
        grown.append(grown[-1].with_calls(batch))

    source = "await Promise.all([tools.echo({ x: 1 }), tools.echo({ x: 2 })]); await tools.fail().catch(() => Date.now())"
    result = await run(repl, source, record=record, journal=header)
    assert grown[-1].calls == result.calls
    assert (result.journal.seed, result.journal.started_ms) == (header.seed, 1_000)


async def test_neither_replay_nor_suspension_counts_against_the_limit(sandbox: Sandbox, repl: Repl) -> None:
    """Ruling 7. What is left of the limit is half of what the first run took: it would not do for a repeat."""
    source = "const s = Date.now(); let n = 0; for (let i = 0; i < 1e7; i++) n += i; await tools.child(); n"
    first = await run(repl, source, timeout_ms=60_000)
    assert first.status is Status.SUSPENDED
    spent = replace(first.journal, active_ms=60_000 - first.journal.active_ms // 2)
    second = await resume(sandbox, source, replace(first, journal=spent), Host(), timeout_ms=60_000)
    assert second.error is None and second.value == 49999995000000
    over = replace(first.journal, active_ms=60_001)
    waits = source.replace("n", "n", 1) + "; await tools.slow()"
    third = await run(
        await sandbox.repl(), waits, Host(), journal=over.answered({1: HostAnswer.ok("x")}), timeout_ms=60_000
    )
    assert third.error is not None and third.error.fault is Fault.TIMEOUT


async def test_a_replay_has_a_limit_of_its_own(sandbox: Sandbox, repl: Repl) -> None:
    first = await run(repl, "await tools.child()")
    result = await resume(sandbox, "while (true);", first, Host(), timeout_ms=100)
    assert (
        result.error is not None and result.error.fault is Fault.TIMEOUT and "replay" in result.error.message
    )


async def test_a_lost_repl_is_rebuilt_from_its_journals_without_a_call(repl: Repl) -> None:
    host = Host()
    sources = (
        "let total = Number(await tools.echo({ x: 5 })); const r = Math.random()",
        "total += 1; const t = Date.now()",
        "throw new Error(total)",
    )
    history = [(source, await run(repl, source, host)) for source in sources]
    before = await value_of(repl, "[total, r, t]")
    lost = await run(repl, "total = 99; while (true);", timeout_ms=100)
    assert lost.lost_state and repl.fresh
    calls = len(host.calls)
    for source, past in history:
        again = await run(repl, source, host, journal=stored(past.journal))
        assert (again.status, again.value, again.error) == (past.status, past.value, past.error)
    assert len(host.calls) == calls
    assert await value_of(repl, "[total, r, t]") == before


async def test_a_rebuilt_repl_goes_on_with_the_suspended_evaluation(sandbox: Sandbox, repl: Repl) -> None:
    """The agent's REPL: an earlier evaluation, then one lost to a suspension."""
    earlier = await run(repl, "const base = await tools.echo({ x: 7 })")
    source = "base + await tools.child()"
    suspended = await run(repl, source)
    elsewhere, host = await sandbox.repl(), Host()
    await run(elsewhere, "const base = await tools.echo({ x: 7 })", host, journal=stored(earlier.journal))
    result = await run(elsewhere, source, host, journal=answered(suspended))
    assert result.value == "7child 1" and host.calls == []


async def test_a_loop_that_waits_for_the_clock_ends(repl: Repl) -> None:
    assert await value_of(repl, "const s = Date.now(); while (Date.now() < s + 20); Date.now() - s") == 20


async def test_the_clock_never_goes_back(repl: Repl) -> None:
    """A journal whose times were written by a clock ahead of this one."""
    journal = Journal.begin(4_000_000_000_000)
    value = await value_of(
        repl, "const a = Date.now(); await tools.echo(); [a, Date.now() >= a]", journal=journal
    )
    assert value == [4_000_000_000_000, True]


async def test_an_answer_too_large_for_a_script_is_an_error_in_it(repl: Repl) -> None:
    async def call(_: HostCall) -> HostAnswer | Deferred:
        return HostAnswer.ok("x" * (5 * 2**20))

    request = Evaluation(source="try { await tools.echo() } catch (e) { e.name }", tools=TOOLS, call=call)
    assert (await repl.evaluate(request)).value == "RangeError"


async def test_large_answers_replay_in_several_frames(sandbox: Sandbox, repl: Repl) -> None:
    async def call(_: HostCall) -> HostAnswer | Deferred:
        return HostAnswer.ok("y" * 700_000)

    source = "let n = 0; for (let i = 0; i < 6; i++) n += (await tools.echo({ i })).length; n"
    first = await repl.evaluate(Evaluation(source=source, tools=TOOLS, call=call))
    assert first.value == 4_200_000
    host = Host()
    again = await run(await sandbox.repl(), source, host, journal=first.journal)
    assert again.value == 4_200_000 and host.calls == []
