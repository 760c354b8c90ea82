"""Scripts that attack their host: each ends as an error of that one evaluation, and the next one works."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox import Evaluation, Fault, Repl, Sandbox, Status
from tests.support.scripts import Host, eventually, process_status, run, value_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUT_MS = 300

#: run until they are killed
ENDLESS = {
    "loop": "while (true) {}",
    "loop under try": "try { while (true) {} } catch { 1 } finally { 2 }",
    "loop in a microtask": "Promise.resolve().then(() => { while (true) {} }); 1",
    "for without a condition": "for (;;);",
    "await null for ever": "while (true) await null",
    "microtasks that breed": "const f = () => { queueMicrotask(f); }; f(); await new Promise(() => {})",
    "two chains of promises": "const f = () => Promise.resolve().then(f); f(); f(); 1",
    "flood after the end": "(async () => { while (true) await null })(); 1",
    "regex nested plus": "/(a+)+$/.test('a'.repeat(40) + 'b')",
    "regex alternation": "/(a|aa)+$/.test('a'.repeat(80) + 'b')",
    "regex nested star": "/^(([a-z])+.)+[A-Z]([a-z])+$/.test('a'.repeat(60))",
    "regex replace": "'a'.repeat(50).replace(/(a*)*b/g, 'x')",
    "sparse indexOf": "Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)",
    "sparse includes": "Array.prototype.includes.call({ length: 2 ** 53 - 1 }, 1)",
    "sparse lastIndexOf": "Array.prototype.lastIndexOf.call({ length: 2 ** 53 - 1 }, 1)",
    "sparse forEach": "Array.prototype.forEach.call({ length: 2 ** 53 - 1 }, () => 1)",
    "sparse reverse": "Array.prototype.reverse.call({ length: 2 ** 53 - 1 })",
    "quadratic indexOf": "const s = 'a'.repeat(4e6); while (true) s.indexOf('a'.repeat(2e6) + 'b')",
    "join of a huge array": "Array(2 ** 32 - 1).join('')",
    "String.raw of huge length": "String.raw({ raw: { length: 2 ** 53 - 1 } })",
    "concat of a proxy": "[].concat(new Proxy([], { get: (t, k) => k === 'length' ? 2 ** 53 - 2 : t[k] }))",
    "endless generator": "[...function* () { while (true); }()]",
    "endless iterator": "for (const x of { [Symbol.iterator]: () => ({ next: () => ({ done: false }) }) });",
    "toJSON that does not end": "({ toJSON() { while (true); } })",
    "getter that does not end": "({ get x() { while (true); } })",
    "name of an error that does not end": "throw { get name() { while (true); } }",
    "thenable that does not end": "({ then() { while (true); } })",
    "await of a thenable that recurses": "const t = { then(f) { f(t) } }; await t",
    "arguments with an endless getter": "await tools.echo({ get x() { while (true); } })",
    "console with an endless toString": "console.log({ toJSON() { while (true); } })",
    "sort that never agrees": "while (true) [3, 1, 2].sort(() => Math.random() - 0.5)",
    "proxy as prototype": "const p = new Proxy({}, { get() { while (true); } }); Object.create(p).x",
    "bigint growth in a loop": "let x = 3n; while (true) x = (x * x) % (2n ** 4000n)",
    "exponential string replace": "let s = 'aa'; while (true) s = s.replace(/a/g, 'aa').slice(0, 1e5)",
    "endless console": "while (true) console.log('x')",
    "endless console of long lines": "while (true) console.log('x'.repeat(1e5))",
    "Symbol.species trap": "class A extends Array { static get [Symbol.species]() { while (true); } } new A(1, 2).map(x => x)",
    "eval that loops": "eval('while (true);')",
    "Function that loops": "new Function('while (true);')()",
    "label loop": "a: while (true) { continue a; }",
    "JSON reviver loop": "JSON.parse('[1]', () => { while (true); })",
    "Date constructed for ever": "while (true) new Date().toISOString()",
}  # fmt: skip

#: end by themselves, as an error
FAILING = {
    "recursion": "const f = () => f(); f()",
    "mutual recursion": "const f = () => g(), g = () => f(); f()",
    "recursion through a getter": "const o = { get x() { return this.x } }; o.x",
    "recursion through toString": "const o = { toString() { return '' + this } }; '' + o",
    "recursion through a proxy": "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x",
    "deep nesting of arrays": "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; JSON.stringify(a)",
    "deep nesting returned": "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a",
    "nesting deeper than the host reads": "let a = []; for (let i = 0; i < 1500; i++) a = [a]; a",
    "nesting deeper than a value may be": "let a = []; for (let i = 0; i < 150; i++) a = [a]; a",
    "arguments deeper than a value may be": "let a = []; for (let i = 0; i < 150; i++) a = [a]; await tools.echo({ x: a })",
    "deep source": "[" * 20000 + "]" * 20000,
    "eval of deep source": "eval('['.repeat(1e5) + ']'.repeat(1e5))",
    "huge shift of a bigint": "1n << (2n ** 40n)",
    "huge power of a bigint": "2n ** (2n ** 40n)",
    "huge string": "'x'.repeat(2 ** 30)",
    "huge pad": "'x'.padStart(2 ** 30)",
    "array of everything": "const a = []; while (true) a.push(a.length)",
    "array of buffers": "const a = []; while (true) a.push(new ArrayBuffer(1e6))",
    "buffer beyond the limit": "new ArrayBuffer(2 ** 31)",
    "typed array beyond the limit": "new Float64Array(2 ** 28)",
    "string doubling": "let s = 'x'; while (true) s += s",
    "map of everything": "const m = new Map(); for (let i = 0; ; i++) m.set(i, 'x'.repeat(100))",
    "closures of everything": "let f = () => 0; while (true) { const g = f, b = new Array(1000).fill(0); f = () => [g, b] }",
    "symbols without end": "const a = []; while (true) a.push(Symbol('x'.repeat(1000)))",
    "fill with objects": "new Array(1e8).fill().map(() => ({}))",
    "promise never settled": "await new Promise(() => {})",
    "promise waiting for itself": "let r; const p = new Promise(f => { r = f }); r(p); await p",
    "all of nothing that settles": "await Promise.all([new Promise(() => {})])",
    "throw in a job": "queueMicrotask(() => { throw new Error('x') }); await new Promise(() => {})",
    "throws null": "throw null",
    "throws undefined": "throw undefined",
    "throws a proxy": "throw new Proxy({}, { get() { throw 1 } })",
    "throws a revoked proxy": "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); throw proxy",
    "error with a hostile stack": "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { throw 1 } }); throw e",
    "message of a megabyte": "throw new Error('x'.repeat(1e6))",
    "result too large": "'x'.repeat(5e6)",
    "result that throws": "({ toJSON() { throw new Error('no') } })",
    "calls without end": "while (true) tools.echo({})",
    "calls with large arguments": "while (true) tools.echo({ x: 'x'.repeat(1e6) })",
    "arguments too large": "await tools.echo({ x: 'x'.repeat(5e6) })",
    "arguments with a cycle": "const a = {}; a.a = a; await tools.echo(a)",
    "too much to spread": "Math.max(...new Array(1e7).fill(0))",
    "broken syntax": "let let = 1;;; }{",
    "escape from the wrapper": "}); globalThis.out = 1; (async () => { throw new Error('x')",
    "unclosed template": "`",
    "static import": "import fs from 'fs'; 1",
    "dynamic import": "await import('fs')",
    "import of a file": "await import('/etc/passwd')",
    "import out of eval": "await eval('import(\"os\")')",
    "require": "require('fs')",
    "process": "process.exit(1)",
    "std": "std.exit(1)",
}  # fmt: skip

#: may do no harm, and end well
HARMLESS = {
    "replacing JSON": "JSON.stringify = JSON.parse = () => { throw 1 }; await tools.echo({ x: 7 })",
    "replacing then": "Promise.prototype.then = () => { throw 1 }; 7",
    "replacing Map": "Map.prototype.get = Map.prototype.set = () => undefined; await tools.echo({ x: 7 })",
    "replacing Reflect": "Reflect.apply = Reflect.ownKeys = null; await tools.echo({ x: 7 })",
    "setters on Object.prototype": "Object.defineProperty(Object.prototype, 'ok', { set() { throw 1 } }); 7",
    "toJSON on Object.prototype": "Object.prototype.toJSON = () => 7; ({})",
    "then on Object.prototype": "Object.prototype.then = function (f) { f(7) }; 7",
    "deleting globals": "for (const k of Object.getOwnPropertyNames(globalThis)) try { delete globalThis[k] } catch {} 7",
    "freezing globals": "Object.freeze(globalThis.console); Object.freeze(Object.prototype); 7",
    "locking tools": "try { Object.defineProperty(globalThis, 'tools', { value: 1, configurable: false }) } catch {} 7",
    "stack traces prepared": "Error.prepareStackTrace = () => { throw 1 }; try { null.x } catch {} 7",
    "iterators replaced": "Array.prototype[Symbol.iterator] = () => { throw 1 }; console.log('a', 'b'); await tools.echo({ x: 7 })",
    "console flood": "for (let i = 0; i < 1e5; i++) console.log(i); 7",
    "one long line": "console.log('x'.repeat(1e7)); 7",
    "detached buffer": "const b = new ArrayBuffer(8); b.transfer(); console.log(b); 7",
    "species on promises": "Object.defineProperty(Promise, Symbol.species, { get() { throw 1 } }); 7",
}  # fmt: skip


async def usable(repl: Repl) -> None:
    assert await value_of(repl, "await tools.echo({ x: 40 + 2 })") == "42"


async def test_there_are_more_than_sixty_attacks() -> None:
    assert len(ENDLESS) + len(FAILING) + len(HARMLESS) >= 100


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_script_without_end_is_stopped_at_its_limit(repl: Repl, name: str) -> None:
    """03 §19.5."""
    assert await value_of(repl, "1") == 1
    result = await run(repl, ENDLESS[name], timeout_ms=TIMEOUT_MS)
    assert result.error is not None, result
    assert result.error.fault in (Fault.TIMEOUT, Fault.MEMORY, Fault.THROWN)
    assert result.error.fault is Fault.TIMEOUT or result.journal.active_ms <= TIMEOUT_MS
    await usable(repl)


async def test_the_stop_comes_within_a_quarter_second_of_the_limit(repl: Repl) -> None:
    """Not a measurement: the bound that the caller of a script relies on."""
    assert await value_of(repl, "1") == 1
    began = time.monotonic()
    result = await run(repl, "String.raw({ raw: { length: 2 ** 53 - 1 } })", timeout_ms=TIMEOUT_MS)
    assert result.status is Status.ERROR and result.lost_state
    assert time.monotonic() - began < (TIMEOUT_MS + 250) / 1000 * 4  # the machine may be busy


@pytest.mark.parametrize("name", FAILING)
async def test_a_script_that_goes_too_far_fails_alone(repl: Repl, name: str) -> None:
    """03 §19.5."""
    result = await run(repl, FAILING[name], timeout_ms=10_000, max_calls=None)
    assert result.status is Status.ERROR, result
    assert result.error is not None
    assert result.error.fault is not Fault.TIMEOUT, result.error
    assert len(result.formatted) <= 4000
    await usable(repl)


@pytest.mark.parametrize("name", HARMLESS)
async def test_a_script_that_breaks_its_own_world_still_gets_its_answer(repl: Repl, name: str) -> None:
    result = await run(repl, HARMLESS[name], timeout_ms=10_000)
    assert result.error is None, result.error
    assert str(result.value) == "7"
    assert len(result.logs) <= 1001
    assert sum(map(len, result.logs)) <= 600_000


async def test_other_scripts_go_on_while_one_is_stuck(sandbox: Sandbox) -> None:
    stuck, free = await sandbox.repl(), await sandbox.repl()
    attack = asyncio.create_task(run(stuck, "while (true);", timeout_ms=600_000))
    for number in range(20):
        assert await value_of(free, f"await tools.echo({{ x: {number} }})") == str(number)
    assert not attack.done()
    await stuck.close()
    assert (await attack).status is Status.ERROR


async def test_the_event_loop_is_not_held_up_by_an_attack(sandbox: Sandbox) -> None:
    """The loop turns thousands of times while scripts spin, flood and allocate."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    sources = [
        "while (true);",
        "while (true) console.log(1)",
        "let s = 'x'; while (true) s += s",
        "/(a+)+$/.test('a'.repeat(40) + 'b')",
    ]
    repls = [await sandbox.repl() for _ in sources]
    results = await asyncio.gather(*(run(r, s, timeout_ms=1500) for r, s in zip(repls, sources, strict=True)))
    counter.cancel()
    assert all(result.status is Status.ERROR for result in results)
    assert turns > 1000


async def test_memory_is_bounded_by_the_workflows_setting(sandbox: Sandbox) -> None:
    """03 §19.5, OP-5."""
    small, large = (
        await sandbox.repl(memory_limit_bytes=4 * 2**20),
        await sandbox.repl(memory_limit_bytes=64 * 2**20),
    )
    source = "const a = new Uint8Array(16 * 2 ** 20); a.length"
    result = await run(small, source)
    assert result.error is not None and result.error.fault is Fault.MEMORY
    assert "settings.memoryLimitBytes" in result.error.message
    assert await value_of(large, source) == 16 * 2**20


async def test_a_memory_limit_too_small_for_anything_is_an_error_too(sandbox: Sandbox) -> None:
    result = await run(await sandbox.repl(memory_limit_bytes=1), "1")
    assert result.error is not None and result.error.fault is Fault.MEMORY


async def test_a_process_killed_from_outside_is_an_error_of_that_evaluation(repl: Repl) -> None:
    host = Host()
    pending = asyncio.create_task(run(repl, "await tools.slow(); while (true);", host))
    await eventually(lambda: bool(host.calls))
    child = repl._child
    assert child is not None
    child.kill()
    host.gate.set()
    result = await pending
    assert result.error is not None and result.error.fault is Fault.CRASH
    await usable(repl)


async def test_nothing_of_the_host_is_reachable(repl: Repl) -> None:
    """03 §19.2: no Node, no filesystem, no network, no timers."""
    names = ["process", "require", "module", "std", "os", "fetch", "XMLHttpRequest", "WebSocket", "setTimeout",
             "setInterval", "setImmediate", "Deno", "Bun", "load", "read", "print", "scriptArgs", "task", "Worker",
             "__emit", "__take", "performance", "WeakRef", "FinalizationRegistry", "Atomics",
             "SharedArrayBuffer"]  # fmt: skip
    assert (
        await value_of(
            repl, f"[{','.join(f'typeof {name}' for name in names)}].filter(t => t !== 'undefined')"
        )
        == []
    )


async def test_the_system_call_filter_is_in_force(sandbox: Sandbox, repl: Repl) -> None:
    assert await value_of(repl, "1") == 1
    assert sandbox.filtered is True
    child = repl._child
    assert child is not None
    status = process_status(child._pidfd)
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    assert status["Threads"].strip() == "1"


async def test_a_host_that_raises_gets_its_own_error_and_the_process_is_gone(repl: Repl) -> None:
    async def call(_: object) -> object:
        raise LookupError("lease lost")

    with pytest.raises(LookupError, match="lease lost"):
        await repl.evaluate(Evaluation(source="await tools.echo()", tools=["echo"], call=call))  # type: ignore[arg-type]
    assert repl.fresh
    await usable(repl)


async def test_a_cancelled_caller_leaves_nothing_running(repl: Repl) -> None:
    host = Host()
    pending = asyncio.create_task(run(repl, "await tools.slow()", host))
    await eventually(lambda: bool(host.calls))
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    assert repl.fresh
    await usable(repl)
