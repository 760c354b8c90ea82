"""Host tools from descriptors: paths, context, essential ones, what is refused (05 §10.2, §10.3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import ReservedToolNameError, ToolPathsError
from engine.host.tool_map import HostToolContext, current_context, tools_from_map
from engine.workspace.memory_backend import MemoryBackend
from tests.support.engine import Bench, bench, call, do, say

__all__ = ["bench"]
Make = Callable[..., Bench]
SPEC = """
    states:
      work:
        triggers: { manual: }
        tools: { allow: [{ tool: put, args: { dest: ["scratchpad/*", "notes/*"] } }, archmax_eval] }
        transitions: [{ to: quiet, description: go on }]
      quiet:
        tools: { allow: [touch] }
"""
SCHEMA = {"type": "object", "properties": {"dest": {}, "text": {"type": "string"}}, "required": ["dest"]}


class Puts:
    """A handler that writes through its context and remembers every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, Any], HostToolContext]] = []

    async def __call__(self, given: dict[str, Any], context: HostToolContext) -> Any:
        self.calls.append((given, context))
        if given.get("text") == "fail":
            raise ValueError("the shelf is full")
        answer = await context.workspace.write(given["dest"], given.get("text", "x"))
        return {"wrote": answer.get("path"), "error": answer.get("error")}


def described(handler: Any, **more: Any) -> dict[str, dict[str, Any]]:
    return {"put": {"description": "Puts a text.", "input_schema": SCHEMA, "handler": handler, **more}}


PATHS = {"dest": "write"}


async def test_a_descriptor_is_a_tool_with_its_schema_and_a_bound_context(bench: Make) -> None:
    puts = Puts()
    b = bench(
        SPEC,
        [do(call("put", dest="scratchpad/a", text="hi")), say("ok")],
        tools=tools_from_map(described(puts)),
    )
    outcome = await b.send()
    (result,) = b.results(outcome)
    assert json.loads(result) == {"wrote": "/scratchpad/a", "error": None}
    ((given, context),) = puts.calls
    assert given == {"dest": "scratchpad/a", "text": "hi"}
    assert (context.session_id, context.state) == ("s1", "work")
    assert context.call_id == b.one("tool-called")["callId"]
    assert "scratchpad/a" in (await b.state()).files  # the session's own file, committed with the turn
    assert "put" in b.seen[0].tools


async def test_a_plain_function_is_called_in_a_thread_with_the_same_context(bench: Make) -> None:
    seen: list[str] = []

    def handler(given: dict[str, Any], context: HostToolContext) -> str:
        seen.append(f"{context.session_id} {current_context().session_id}")
        return "done"

    b = bench(
        SPEC, [do(call("put", dest="scratchpad/a")), say("ok")], tools=tools_from_map(described(handler))
    )
    assert b.results(await b.send()) == ["done"]
    assert seen == ["s1 s1"]


async def test_a_mounts_posture_holds_for_a_handler_too(bench: Make) -> None:
    puts = Puts()
    b = bench(
        SPEC.replace('"notes/*"', '"skills/*"'),
        [do(call("put", dest="skills/a")), say("ok")],
        tools=tools_from_map(described(puts)),
        mounts={"/skills/": MemoryBackend()},
    )
    (result,) = b.results(await b.send())
    assert (
        "read-only" in result and len(puts.calls) == 1
    )  # no paths declared: the handler ran, the mount refused


@pytest.mark.parametrize(
    ("dest", "words"),
    [
        ("checkpoints/head", "checkpoints/head"),
        ("elsewhere/a", "elsewhere/a"),
        (["scratchpad/a", "elsewhere/b"], "elsewhere/b"),
        (7, "must be a path or a list of paths"),
        (["scratchpad/a", 7], "must be a path or a list of paths"),
    ],
)
async def test_a_refused_path_never_reaches_the_handler(bench: Make, dest: Any, words: str) -> None:
    """Each element is governed; what is neither a path nor a list of paths is `tool.path-argument`."""
    puts = Puts()
    b = bench(
        SPEC, [do(call("put", dest=dest)), say("ok")], tools=tools_from_map(described(puts, paths=PATHS))
    )
    (result,) = b.results(await b.send())
    assert words in result
    assert puts.calls == [] and b.one("tool-blocked")["tool"] == "put"


async def test_a_list_of_granted_paths_is_allowed(bench: Make) -> None:
    seen: list[Any] = []

    def handler(given: dict[str, Any], context: HostToolContext) -> None:
        seen.append(given["dest"])

    b = bench(
        SPEC,
        [do(call("put", dest=["scratchpad/a", "notes/b"])), say("ok")],
        tools=tools_from_map(described(handler, paths=PATHS)),
    )
    await b.send()
    assert seen == [["scratchpad/a", "notes/b"]]


async def test_the_option_wins_over_the_descriptor(bench: Make) -> None:
    puts = Puts()
    tools = tools_from_map(described(puts, paths={"text": "read"}))
    b = bench(
        SPEC,
        [do(call("put", dest="checkpoints/x", text="a")), say("ok")],
        tools=tools,
        tool_paths={"put": PATHS},
    )
    assert "checkpoints/x" in b.results(await b.send())[0] and puts.calls == []


@pytest.mark.parametrize(
    "paths", [{"put": {"dest": "peek"}}, {"put": {}}, {"read_file": {"file_path": "read"}}]
)
async def test_a_declaration_that_cannot_be_meant_is_refused_at_assembly(bench: Make, paths: Any) -> None:
    with pytest.raises(ToolPathsError):
        bench(SPEC, [], tools=tools_from_map(described(Puts())), tool_paths=paths)


async def test_every_reserved_name_is_told_at_once_before_the_workflow_is_read(bench: Make) -> None:
    taken = {name: described(Puts())["put"] for name in ("archmax_mine", "copy_file", "put", "remove_file")}
    with pytest.raises(ReservedToolNameError) as refused:
        bench("no: workflow", [], tools=tools_from_map(taken))
    assert refused.value.names == ("archmax_mine", "copy_file", "remove_file")


def test_a_descriptor_without_a_handler_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'put' has no callable handler"):
        tools_from_map({"put": {"description": "x"}})


async def test_a_raising_handler_is_answered_to_the_model_and_thrown_to_a_script(bench: Make) -> None:
    script = (
        "try { await tools.put({ dest: 'scratchpad/a', text: 'fail' }) } catch (e) { `caught ${e.message}` }"
    )
    b = bench(
        SPEC,
        [do(call("put", dest="scratchpad/a", text="fail")), do(call("archmax_eval", code=script)), say("ok")],
        tools=tools_from_map(described(Puts())),
    )
    answered, thrown = b.results(await b.send())
    assert "the shelf is full" in answered
    assert thrown.startswith("caught ") and "the shelf is full" in thrown


async def test_outside_a_turn_a_handler_runs_and_has_no_workspace() -> None:
    """Reading it raises, saying why; the attribute shows in neither `vars`, `repr` nor equality."""
    held: list[HostToolContext] = []

    def handler(given: dict[str, Any], context: HostToolContext) -> str:
        held.append(context)
        return "ran"

    (tool,) = tools_from_map(described(handler))
    assert await tool.ainvoke({"dest": "a"}) == "ran"
    with pytest.raises(RuntimeError, match="outside a turn"):
        _ = held[0].workspace
    assert "workspace" not in vars(held[0]) and "workspace" not in repr(held[0])
    assert held[0] == current_context()


async def test_an_essential_tool_is_there_in_every_state_until_a_denial(bench: Make) -> None:
    """05 §10.3: whatever the lists grant; every denial beats it."""
    puts = Puts()
    answers = [
        do(call("archmax_advance", to="quiet", reason="r")),
        do(call("put", dest="scratchpad/a")),
        say("ok"),
    ]
    b = bench(SPEC, answers, tools=tools_from_map(described(puts, paths=PATHS)), essential_tools=["put"])
    await b.send()
    assert "put" in b.seen[1].tools and len(puts.calls) == 1
    denied = SPEC.replace("tools: { allow: [touch] }", "tools: { allow: [touch], forbid: [put] }")
    b = bench(denied, answers, tools=tools_from_map(described(puts, paths=PATHS)), essential_tools=["put"])
    await b.send()
    assert "put" not in b.seen[1].tools and len(puts.calls) == 1
