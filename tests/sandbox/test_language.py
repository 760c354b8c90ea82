"""The language of scripts, their globals, and what crosses the edge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox import Evaluation, Fault, HostAnswer, Repl, Status, camel_case, forbidden_imports
from tests.support.scripts import Host, eventually, run, value_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

VALUES: dict[str, Any] = {
    "1 + 1": 2,
    "const a = await Promise.resolve(5); a + 1": 6,
    "a = 1\n+2": 3,
    "if (await 1) { 'yes' } else { 'no' }": "yes",
    "if (await 0) 'yes'; else if (1) 'other'; else 'no'": "other",
    "try { await Promise.reject(3) } catch (e) { e * 2 }": 6,
    "({ k: await 1 })": {"k": 1},
    "`t${await 2}`": "t2",
    "/* c */ await 9; // tail": 9,
    "async function f() { return 4 }\nawait f()": 4,
    "return 8": 8,
    "let o = {}; o.x = 3": 3,
    "'use strict'; 7": 7,
    "await 1;\n[1, 2].map(x => x)": [1, 2],
    "x => x; 3;;;": 3,
    "{ 5 }": 5,
    "#!/usr/bin/env qjs\n6": 6,
    "const { p, q: [r = 4, ...s], ...t } = { p: 1, q: [undefined, 3], u: 9 }; [p, r, s, t]": [
        1,
        4,
        [3],
        {"u": 9},
    ],
    "let b = 1\nlet c = 2\n;[b, c]": [1, 2],
    "var d = 1, e; [d, e === undefined]": [1, True],
    "for (var i = 0, j = 5; i < j; i++); i": 5,
    "for (var k of [1, 2]); k": 2,
    "for (var { z } of [{ z: 3 }]); z": 3,
    "if (true) var y = 2; else var w = 1; [y, w === undefined]": [2, True],
    "class A { static x = 1; m() { return A.x } } new A().m()": 1,
    "switch (1) { case 1: var sw = 4 } sw": 4,
    "const f = () => {}; f.name": "f",
    "g(); function g() { return 1 }\ng() + 1": None,
    "[1, 2, 3].at(-1)": 3,
    "Object.groupBy([1, 2], x => x % 2 ? 'odd' : 'even')": {"odd": [1], "even": [2]},
    "new Set([1, 2]).union(new Set([3]))": [1, 2, 3],
    "await Promise.all([1, Promise.resolve(2)])": [1, 2],
    "Promise.resolve(11)": 11,
    "for await (const v of (async function* () { yield 1 })()) v": None,
    "let only = 5": None,
    "for (const v of [1]) v": None,
    "": None,
    "// nothing": None,
    "new Date(0).getTimezoneOffset()": 0,
}
VALUES["g(); function g() { return 1 }\ng() + 1"] = 2


@pytest.mark.parametrize("source", VALUES)
async def test_the_last_expression_is_the_value(repl: Repl, source: str) -> None:
    """03 §19.2."""
    assert await value_of(repl, source) == VALUES[source]


async def test_declarations_persist_and_may_be_repeated(repl: Repl) -> None:
    """03 §19.1: state persists for the turn."""
    await run(
        repl,
        "const a = 1; let b; var c = 3; function f() { return a + c } class K {} try { var d = 4 } catch {}",
    )
    assert await value_of(repl, "[a, typeof b, c, f(), typeof K, d]") == [1, "undefined", 3, 4, "function", 4]
    assert await value_of(repl, "const a = 2; a") == 2
    assert (await run(repl, "let q = (() => { throw new Error('x') })()")).status is Status.ERROR
    assert await value_of(repl, "let q = 5; q") == 5


async def test_an_error_names_the_scripts_own_lines(repl: Repl) -> None:
    source = "import type from '@archmax-ai/harness/x';\nfunction f() {\n  throw new TypeError('no')\n}\n[1].map(f)"
    result = await run(repl, source, filename="scripts/a.js")
    assert result.error is not None
    assert (result.error.name, result.error.message, result.error.fault) == ("TypeError", "no", Fault.THROWN)
    frames = result.error.stack.splitlines()
    assert "f (scripts/a.js:3)" in frames[0]
    assert "scripts/a.js:5" in frames[-1]
    assert "native" not in result.error.stack and "input" not in result.error.stack
    assert result.formatted.startswith("TypeError: no\n")


async def test_a_syntax_error_names_line_and_column(repl: Repl) -> None:
    result = await run(repl, "let ok = 1;\nlet = = 2")
    assert result.error is not None and result.error.name == "SyntaxError"
    assert "script.js:2:" in result.error.stack


async def test_a_nul_in_the_source_is_refused(repl: Repl) -> None:
    result = await run(repl, "1\0; while (true);")
    assert result.error is not None and "NUL" in result.error.message and not result.lost_state


async def test_a_default_export_is_called_once_with_its_input(repl: Repl) -> None:
    """03 §11.5."""
    host = Host()
    source = """
    import { CodeState } from "@archmax-ai/harness/code-state";
    let count = 0;
    export const helper = () => ++count;
    export default async function ({ state, trigger, variables, tools }) {
      let frozen = false;
      try { variables.fee.cents = 1 } catch { frozen = true }
      await tools.echo({ x: variables.fee.cents });
      return [state, trigger, frozen, helper(), args.state, typeof globalThis.helper];
    }
    """
    args = {"state": "screen", "trigger": "manual", "variables": {"fee": {"cents": 7}}}
    value = await value_of(repl, source, host, kind="module", args=args, context="code-state")
    assert value == ["screen", "manual", True, 1, "screen", "undefined"]
    assert [call.args for call in host.calls] == [{"x": 7}]


@pytest.mark.parametrize(
    "source",
    [
        "export default defineCodeState(() => 42)",
        "export default class { }; export { f as default }; const f = () => 42",
        "const f = () => 42; export { f as default }",
        "async function f() { return 42 }\nexport { f as default, f as other }",
        "export default () => 42",
        "export default async () => 42\n// tail",
        "export default function run() { return 42 }",
        "import { defineCodeState as d } from '@archmax-ai/harness/x'\nexport default d(async () => 42)",
        "import * as h from '@archmax-ai/harness/x'\nexport default h.defineCodeState(() => 42)",
        "import '@archmax-ai/harness/x'; export * from '@archmax-ai/harness/y'; export default () => 42",
        "42",
        "const x = args.n; export const y = x; y + 2",
    ],
)
async def test_every_way_to_register_a_code_state(repl: Repl, source: str) -> None:
    """03 §19.4, OP-8."""
    assert await value_of(repl, source, kind="module", args={"n": 40}) == 42


async def test_a_default_export_that_is_no_function_is_an_error(repl: Repl) -> None:
    result = await run(repl, "export default 5", kind="module")
    assert result.error is not None and "not a function" in result.error.message


async def test_a_plain_script_reads_args_and_tools(repl: Repl) -> None:
    """03 OP-8."""
    value = await value_of(
        repl,
        "await args.tools.echo({ x: args.n }) + await tools.echo({ x: 2 })",
        kind="module",
        args={"n": 1},
    )
    assert value == "12"


async def test_tools_are_reachable_under_both_names(repl: Repl) -> None:
    """03 §19.3."""
    host = Host()
    source = """[await tools.read_file({ x: 1 }), await tools.readFile({ x: 2 }),
      await tools['archmax_workflow_check-card']({ x: 3 }), await tools.archmaxWorkflowCheckCard(), Object.keys(tools),
      typeof tools.nope, 'read_file' in tools, [...(() => { const n = []; for (const k in tools) n.push(k); return n })()].length]"""
    value = await value_of(repl, source, host)
    keys = ["echo", "fail", "slow", "child", "readFile", "archmaxWorkflowCheckCard"]
    assert value == ["1", "2", "3", "", keys, "undefined", True, 6]
    assert [call.tool for call in host.calls] == ["read_file", "read_file"] + [
        "archmax_workflow_check-card"
    ] * 2
    assert host.calls[-1].args == {}
    assert [call.seq for call in host.calls] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("await tools.readFiel({})", "there is no tools.readFiel here: did you mean tools.readFile?"),
        (
            "const t = tools;\nawait t.READ_FILE({})",
            "there is no tools.READ_FILE here: did you mean tools.readFile?",
        ),
        ("const { slo } = tools\nawait slo({})", "there is no tools.slo here: did you mean tools.slow?"),
        (
            "async function f() { await tools['zzz zzz'].call() }\nawait tools['zzz zzz']({})",
            'there is no tools["zzz zzz"] here: it offers echo, fail, slow, child, readFile, archmaxWorkflowCheckCard',
        ),
        ("new tools.nope()", "there is no tools.nope here: it offers"),
        ("await Promise.all([1].map(n => tools.nope(n)))", "there is no tools.nope here: it offers"),
    ],
)
async def test_a_call_of_a_tool_that_is_not_there_is_told_which_there_are(
    repl: Repl, source: str, said: str
) -> None:
    """03 §19.3: it is `undefined`; only tools of this evaluation are named."""
    await run(repl, "1", Host(), tools=["secret", "readFiles"])
    result = await run(repl, source)
    assert result.error is not None and result.error.name == "TypeError"
    assert result.error.message.startswith(f"not a function: {said}")
    assert "secret" not in result.formatted and "readFiles" not in result.formatted


@pytest.mark.parametrize(
    "source",
    [
        "typeof tools.nope\nlet f; f()",
        "tools.nope; await tools.echo({ x: 1 }); let f; f()",
        "tools.nope.call()",
        "throw new TypeError('tools.nope')",
        "tools.nope; const e = new TypeError('not a function'); e.stack = 'x:' + '9'.repeat(5000); throw e",
        "await tools.fail({})",
        "let f; f()",
    ],
)
async def test_another_error_is_told_as_it_is(repl: Repl, source: str) -> None:
    await run(repl, "try { tools.nope() } catch {}")
    result = await run(repl, source)
    assert result.error is not None and "there is no" not in result.error.message


async def test_a_script_without_tools_is_told_that_there_are_none(repl: Repl) -> None:
    result = await run(repl, "await tools.nope({})", tools=[])
    assert result.error is not None
    assert result.error.message == "not a function: there is no tools.nope here: it offers no tool"


async def test_camel_case_of_tool_names() -> None:
    """03 §19.3."""
    names = {
        "read_file": "readFile",
        "archmax_workflow_check-card": "archmaxWorkflowCheckCard",
        "ls": "ls",
        "a__b_": "aB",
    }
    assert {name: camel_case(name) for name in names} == names


async def test_an_own_name_wins_over_another_tools_alias(repl: Repl) -> None:
    host = Host()
    await value_of(
        repl, "await tools.readFile(); await tools.read_file()", host, tools=["read_file", "readFile"]
    )
    assert [call.tool for call in host.calls] == ["readFile", "read_file"]


async def test_tools_is_one_object_that_follows_the_state(repl: Repl) -> None:
    """03 §19.3, OP-10."""
    await run(repl, "const kept = tools, one = tools.echo; tools = 5;", tools=["echo"])
    assert await value_of(repl, "[kept === tools, typeof kept.echo, typeof kept.ls]", tools=["ls"]) == [
        True,
        "undefined",
        "function",
    ]
    host = Host()
    assert await value_of(repl, "await one({ x: 1 })", host, tools=["ls"]) == "1"
    assert host.calls[0].tool == "echo"  # the host's kernel decides
    assert (
        await value_of(repl, "tools.echo = 1; delete tools.ls; typeof tools.ls", tools=["ls"]) == "function"
    )


async def test_a_refused_call_rejects_with_what_the_kernel_said(repl: Repl) -> None:
    """03 §19.3, 02 §5."""
    source = "try { await tools.fail() } catch (e) { [e instanceof Error, e.name, e.message, e.tool, e.ruleId, e.reason] }"
    expected = [True, "PtcGovernanceError", "fail is refused", "fail", "tool.not-allowed", "not here"]
    assert await value_of(repl, source) == expected
    result = await run(repl, "await tools.fail()")
    assert result.error is not None and str(result.error).startswith("PtcGovernanceError: fail is refused")


@pytest.mark.parametrize("argument", ["5", "'x'", "null", "[1]", "() => 1", "new Map()", "true", "Symbol()"])
async def test_an_argument_that_is_no_object_never_reaches_the_host(repl: Repl, argument: str) -> None:
    host = Host()
    result = await run(repl, f"await tools.echo({argument})", host)
    assert result.error is not None and result.error.name == "TypeError"
    assert host.calls == []


async def test_calls_run_at_the_same_time(repl: Repl) -> None:
    """03 §19.3: `Promise.all` fans out."""
    host = Host()

    async def release() -> None:
        await eventually(lambda: len(host.calls) == 8)
        host.gate.set()

    releasing = asyncio.create_task(release())
    assert (
        await value_of(
            repl, "(await Promise.all(Array.from({ length: 8 }, () => tools.slow()))).length", host
        )
        == 8
    )
    await releasing


async def test_a_call_nobody_awaits_is_still_answered_before_the_end(repl: Repl) -> None:
    host = Host()
    assert await value_of(repl, "tools.echo({ x: 1 }).then(v => { globalThis.got = v }); 1", host) == 1
    assert await value_of(repl, "got") == "1"


async def test_a_script_that_throws_begins_none_of_the_calls_made_in_the_same_breath(repl: Repl) -> None:
    host = Host()
    result = await run(repl, "tools.echo(); throw new Error('x')", host)
    assert result.status is Status.ERROR and host.calls == [] and result.calls == ()


async def test_the_contract_of_the_sandbox(repl: Repl) -> None:
    """03 §19.2."""
    assert await value_of(repl, "SANDBOX_CONTRACT.version = 4; SANDBOX_CONTRACT") == {
        "context": "ptc",
        "version": 3,
    }
    assert (await value_of(repl, "SANDBOX_CONTRACT", context="code-state"))["context"] == "code-state"


async def test_console_lines_come_before_the_value(repl: Repl) -> None:
    """03 §9.8."""
    seen: list[str] = []
    source = "console.log('a', 1, { b: [1n] }); console.error(new Error('e')); console.assert(1 > 2, 'no'); const c = {}; c.c = c; console.log(c, undefined, () => 1); ({ x: 1 })"
    result = await run(repl, source, on_console=seen.append)
    expected = [
        'a 1 {"b":["1"]}',
        "Error: e",
        "Assertion failed: no",
        '{"c":"[Circular]"} undefined [Function (anonymous)]',
    ]
    assert seen == list(result.logs) == expected
    assert result.formatted == "\n".join([*seen, '{"x":1}'])


async def test_console_lines_arrive_while_the_script_runs(repl: Repl) -> None:
    seen: list[str] = []
    result = await run(repl, "console.log('before'); while (true);", on_console=seen.append, timeout_ms=500)
    assert seen == ["before"] and result.logs == ("before",)
    assert "before" in result.formatted and "settings.timeoutMs" in result.formatted


async def test_a_long_result_is_shortened_visibly(repl: Repl) -> None:
    """03 §19.5."""
    result = await run(repl, "'ab'.repeat(50000)", max_result_chars=200)
    assert len(result.formatted) == 200
    assert "100000 characters, shortened to 200" in result.formatted
    assert result.value == "ab" * 50000


@pytest.mark.parametrize(("limit", "calls"), [(3, 4), (1, 2)])
async def test_more_calls_than_allowed_are_an_error(repl: Repl, limit: int, calls: int) -> None:
    """03 §19.5."""
    host = Host()
    result = await run(
        repl, f"for (let i = 0; i < {calls}; i++) await tools.echo({{ x: i }})", host, max_calls=limit
    )
    assert result.error is not None and result.error.fault is Fault.CALLS
    assert "settings.maxPtcCalls" in result.error.message
    assert len(host.calls) == limit


async def test_calls_can_be_unbounded(repl: Repl) -> None:
    """03 §19.5: `null`."""
    host = Host()
    await value_of(repl, "for (let i = 0; i < 300; i++) await tools.echo({ x: i })", host, max_calls=None)
    assert len(host.calls) == 300


EDGE: dict[str, Any] = {
    "10n ** 20n": "100000000000000000000",
    "NaN": None,
    "[Infinity, -Infinity, -0]": [None, None, 0],
    "undefined": None,
    "({ u: undefined, f() {}, s: Symbol('x'), n: null })": {"n": None},
    "[undefined, () => 1]": [None, None],
    "new Date(0)": "1970-01-01T00:00:00.000Z",
    "new Date(NaN)": None,
    "new Map([['a', new Map([[1, 2n]])]])": [["a", [[1, "2"]]]],
    "new Set(['a', 1])": ["a", 1],
    "new Uint8Array([1, 2]).buffer": [1, 2],
    "new Float32Array([0.5, NaN])": [0.5, None],
    "new DataView(new ArrayBuffer(2))": [0, 0],
    "new RangeError('x')": {"name": "RangeError", "message": "x"},
    "/a+/gi": "/a+/gi",
    "'a\\0b'": "a\0b",
    "'a\\ud800b'": "a\ufffdb",
    "({ ['k\\udc00']: '\\ud83d\\ude00' })": {"k\ufffd": "😀"},
    "1e300 * 10": 1e301,
    "2 ** 53": 2**53,
    "'é\\u2028\\u2029'": "é\u2028\u2029",
    "({ toJSON() { return { a: 1 } } })": {"a": 1},
    "JSON.parse('{\"__proto__\": 1}')": {"__proto__": 1},
}


@pytest.mark.parametrize("source", EDGE)
async def test_values_leave_by_one_rule(repl: Repl, source: str) -> None:
    """docs/decisions/0031."""
    assert await value_of(repl, source) == EDGE[source]
    host = Host()
    await value_of(repl, f"await tools.echo({{ v: {source} }})", host)
    if source != "undefined":
        assert host.calls[0].args == {"v": EDGE[source]}


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "😀", "\u2028", '"\\', "x" * 100_000])
async def test_text_comes_in_by_the_same_rule(repl: Repl, text: str) -> None:
    """docs/decisions/0031: lone surrogates become U+FFFD in both directions."""

    async def call(_: Any) -> Any:
        return HostAnswer.ok(text)

    result = await repl.evaluate(
        Evaluation(source="[await tools.t(), args.t]", tools=["t"], call=call, args={"t": text})
    )
    assert result.value == [text.replace("\ud800", "\ufffd")] * 2
    assert result.calls[0].answer is not None
    result.calls[0].answer.text.encode()


async def test_a_cycle_is_refused_as_argument_and_shown_as_result(repl: Repl) -> None:
    """docs/decisions/0031."""
    assert await value_of(repl, "const a = { b: [] }; a.b.push(a); a") == {"b": ["[Circular]"]}
    host = Host()
    result = await run(repl, "await tools.echo(a)", host)
    assert result.error is not None and result.error.name == "TypeError" and host.calls == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import a from 'fs'; import b from 'fs'; import 'x'", ["fs", "x"]),
        ("import type from '@archmax-ai/harness/types'; 1", []),
        ("import x from '@archmax-ai/harness'", ["@archmax-ai/harness"]),
        ("import x from '@archmax-ai/harness-evil/x'", ["@archmax-ai/harness-evil/x"]),
        ("export * from './a.js'; export { b } from \"./b.js\"", ["./a.js", "./b.js"]),
        ("async () => { await import('node:fs') }", ["node:fs"]),
        ("import(`y`); import(name); import('a' + b)", ["y", "name", "'a' + b"]),
        ("import('@archmax-ai/harness/types')", ["@archmax-ai/harness/types"]),
        ("const s = \"import x from 'fs'\"; // import y from 'z'", []),
        ("export default 1", []),
        ("let x = ;", []),
    ],
)
async def test_foreign_imports_are_found_and_fail_the_run(repl: Repl, source: str, found: list[str]) -> None:
    """03 §19.4, 01 `code.foreign-import`."""
    assert forbidden_imports(source) == found
    if found:
        result = await run(repl, source, kind="module")
        assert result.error is not None
        assert result.error.fault is Fault.IMPORT and result.error.name == "ForbiddenSandboxImportError"
        assert list(result.forbidden) == found


async def test_stripped_imports_keep_the_line_numbers(repl: Repl) -> None:
    """03 §19.4."""
    source = "import {\n  A,\n  B\n} from '@archmax-ai/harness/x'\nexport default () => {\n  throw new Error('here')\n}"
    result = await run(repl, source, kind="module")
    assert result.error is not None and "script.js:6" in result.error.stack.splitlines()[0]
