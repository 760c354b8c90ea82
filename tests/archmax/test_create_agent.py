"""`create_agent`: its options, the order of its refusals, and agents of every kind (05 §13, §14)."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelCallLimitMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

import archmax
from archmax import create_agent, create_backend_session_store, create_memory_session_store
from archmax.console import line_of
from engine.governance.calls import ToolCall
from engine.models.script import ModelScript
from engine.models.scripted import ScriptedChatModel
from engine.workspace.memory_backend import MemoryBackend
from tests.support.engine import RawModel, raw_call
from tests.support.second_runtime import SecondRuntime
from tests.support.workspaces import SyncBackend

SPEC = """
title: Lending desk
instructions: Be kind.
states:
  work:
    triggers:
      manual: {}
      mail: {session: mail.thread}
    instructions: Work.
    tools: {allow: [look]}
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ARCHMAX_MODEL", "ARCHMAX_API_BASE_URL", "ARCHMAX_API_KEY", "ARCHMAX_STREAMING"):
        monkeypatch.delenv(name, raising=False)


def workspace_at(root: Path, *specs: str, **files: str) -> Path:
    for name in specs or ("desk",):
        write(root, f"workflows/{name}/workflow.yaml", SPEC)
    for path, body in files.items():
        write(root, path.replace("__", "/"), body)
    return root


def write(root: Path, path: str, body: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(body))


def ignore(event: Any) -> None:
    """A handler that wants nothing."""


def look(where: str) -> str:
    """Looks somewhere."""
    return f"seen {where}"


async def agent_of(tmp_path: Path, *answers: Any, **options: Any) -> Any:
    options.setdefault("workspace", {"root_dir": tmp_path, "session_store": create_memory_session_store()})
    options.setdefault("model", RawModel(answers=list(answers)))
    options.setdefault("on_event", ignore)
    return await create_agent(**options)


# -- which workflow --------------------------------------------------------------------------------------------------


async def test_an_omitted_workflow_governs_only_when_it_is_the_only_one(tmp_path: Path) -> None:
    """05 OP-8."""
    async with await agent_of(tmp_path) as plain:
        assert plain.workflow is None
    workspace_at(tmp_path, "desk")
    async with await agent_of(tmp_path) as governed:
        assert governed.workflow.name == "desk"
    workspace_at(tmp_path, "desk", "shelf")
    with pytest.raises(archmax.WorkflowLoadError, match="several workflows; name one: desk, shelf"):
        await agent_of(tmp_path)


async def test_an_omitted_workflow_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "workflows/desk/workflow.yaml", "states: {}")
    with pytest.raises(archmax.WorkflowLoadError):
        await agent_of(tmp_path)
    async with await agent_of(tmp_path, workflow=False) as plain:  # by declaration: no spec is read
        assert plain.workflow is None


async def test_a_named_workflow_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(archmax.WorkflowLoadError):
        await agent_of(tmp_path, workflow="nobody")


@pytest.mark.parametrize("name", ["subagents", "hook_executors", "checkpointer", "interrupt_on", "nonsense"])
async def test_an_unknown_parameter_is_a_type_error(tmp_path: Path, name: str) -> None:
    """05 §13, ruling 13."""
    with pytest.raises(TypeError, match=name):
        await agent_of(tmp_path, **{name: []})


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("workspace", {"rootdir": "."}, "workspace has no 'rootdir'"),
        ("images", {"max": 1}, "images has no 'max'"),
        ("prompt_cache", {"on": True}, "prompt_cache has no 'on'"),
        ("sub_workflow_bounds", {"depth": 1}, "sub_workflow_bounds has no 'depth'"),
        ("trigger", {"name": "manual"}, "trigger has no 'name'"),
        ("sandbox_runtime", object(), "sandbox_runtime is a SandboxRuntime"),
    ],
)
async def test_an_unknown_key_of_an_option_is_a_type_error(
    tmp_path: Path, option: str, value: Any, words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        await agent_of(tmp_path, **{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("prompt_cache", {"ttl": "1d"}),
        ("sub_workflow_bounds", {"max_concurrent": 0}),
        ("images", {"max_bytes": "big"}),
        ("pricing", {"m": {"in": 1}}),
    ],
)
async def test_a_value_an_option_cannot_take_is_a_value_error(
    tmp_path: Path, option: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=r"."):
        await agent_of(tmp_path, **{option: value})


# -- refusals, in order ----------------------------------------------------------------------------------------------


async def test_refusals_come_in_the_contracts_order(tmp_path: Path) -> None:
    """05 §13: names and paths of tools, the workspace, the spec, its contract, trigger and variables."""

    def bad(wrong: int) -> dict[str, Any]:
        """Everything from the `wrong`-th refusal on is wrong."""
        every: list[tuple[str, Any]] = [
            ("tools", {"copy_file": {"handler": look}}),
            ("workspace", {"root_dir": tmp_path, "mounts": {"/scratchpad/": MemoryBackend()}}),
            ("workflow", "missing"),
            ("trigger", {"id": "nothing"}),
            ("variables", {"not a name": 1}),
        ]
        return dict(every[wrong:])

    workspace_at(tmp_path)
    expected = [
        archmax.ReservedToolNameError,
        archmax.MountCollisionError,
        archmax.WorkflowLoadError,
        archmax.UnknownTriggerError,
        archmax.InvalidVariableNameError,
    ]
    for wrong, error in enumerate(expected):
        with pytest.raises(error):
            await agent_of(tmp_path, **bad(wrong))


async def test_another_contract_version_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, "workflows/desk/workflow.yaml", "runtime: {version: '2'}\n" + SPEC)
    with pytest.raises(archmax.UnsupportedRuntimeContractError):
        await agent_of(tmp_path)


async def test_bad_seeds_are_refused(tmp_path: Path) -> None:
    workspace_at(tmp_path)
    with pytest.raises(archmax.InvalidTitleError):
        await agent_of(tmp_path, variables={"title": "two\nlines"})


async def test_a_disabled_workflow_assembles_and_starts_nothing(tmp_path: Path) -> None:
    write(tmp_path, "workflows/desk/workflow.yaml", "disabled: true\n" + SPEC)
    async with await agent_of(tmp_path) as agent:
        with pytest.raises(archmax.WorkflowDisabledError):
            await agent.send(message="hello")


async def test_human_in_the_loop_is_refused_at_assembly(tmp_path: Path) -> None:
    with pytest.raises(archmax.MiddlewareError, match="HumanInTheLoopMiddleware"):
        await agent_of(tmp_path, middleware=[HumanInTheLoopMiddleware(interrupt_on={"look": True})])


async def test_what_is_elsewhere_needs_a_root_for_the_rest(tmp_path: Path) -> None:
    """05 §9.2."""
    with pytest.raises(archmax.SessionStoreRequiredError):
        await create_agent(backend=MemoryBackend())
    with pytest.raises(archmax.WorkspaceRootRequiredError):
        await create_agent(workspace={"session_store": create_memory_session_store()})
    with pytest.raises(archmax.WorkspaceRootRequiredError):
        await create_agent(workspace={"mounts": {}})
    with pytest.raises(archmax.WorkspaceRootRequiredError):
        await create_agent(authoring=MemoryBackend())


async def test_a_writable_mount_over_the_authored_files_is_refused(tmp_path: Path) -> None:
    backend = MemoryBackend()
    with pytest.raises(archmax.AuthoringBackendExposedError):
        await create_agent(
            backend=backend,
            workspace={
                "session_store": create_memory_session_store(),
                "mounts": {"/all/": {"backend": backend, "read_only": False}},
            },
        )


# -- backends --------------------------------------------------------------------------------------------------------


def authored() -> Mapping[str, str]:
    return {
        "workflows/desk/workflow.yaml": SPEC,
        "workflows/desk/WORKFLOW.md": "Lend books.",
        "skills/pay/SKILL.md": "---\ndescription: How to pay.\n---\nPay.",
        "AGENTS.md": "You are Ann.",
    }


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_authored_files_may_come_from_any_backend(tmp_path: Path, kind: str) -> None:
    """05 §9.2, §9.4: specs from the backend, nothing served without mounts."""
    backend: Any = SyncBackend(authored())
    if kind == "async":
        backend = MemoryBackend()
        for path, body in authored().items():
            await backend.write(f"/{path}", body)
    model = RawModel(answers=[raw_call("ls", path="/"), AIMessage("ok")])
    async with await create_agent(
        backend=backend,
        workspace={"session_store": create_memory_session_store()},
        model=model,
        on_event=ignore,
    ) as agent:
        assert agent.workflow and agent.workflow.name == "desk"
        await agent.send("s", message="hi")
    assert "Lend books." in model._seen[0].system
    assert "You are Ann." not in model._seen[0].system
    assert "skills" not in model._seen[1].text


async def test_what_is_mounted_is_where_persona_and_skills_come_from(tmp_path: Path) -> None:
    backend: Any = SyncBackend(authored())
    model = RawModel(answers=[AIMessage("ok")])
    events: list[Any] = []
    async with await create_agent(
        backend=backend,
        workspace={
            "session_store": create_memory_session_store(),
            "mounts": {"/AGENTS.md": backend, "/skills/": archmax.mount_subtree(backend, "skills")},
        },
        model=model,
        on_event=events.append,
    ) as agent:
        await agent.send("s", message="hi")
    assert model._seen[0].system.startswith("You are Ann.")
    assert next(e for e in events if e["type"] == "skills-loaded")["names"] == ["pay"]


async def test_sessions_may_lie_on_a_hosts_backend(tmp_path: Path) -> None:
    """05 §5: `prefix` is applied inside the store; deleting needs `delete_session`."""
    workspace_at(tmp_path)
    backend = MemoryBackend()
    store = create_backend_session_store(backend, "tenants/a")
    given = {"root_dir": tmp_path, "session_store": store}
    async with await agent_of(tmp_path, AIMessage("one"), AIMessage("two"), workspace=given) as agent:
        assert (await agent.send("s1", message="hi")).reply == "one"
        assert (await agent.send("s1", message="again")).reply == "two"
        assert [s["sessionId"] for s in await agent.sessions.list()] == ["s1"]
        with pytest.raises(archmax.SessionStoreCapabilityError):
            await agent.sessions.delete("s1")
    entries = (await backend.ls("/tenants/a")).get("files", [])
    assert {"/tenants/a/_specs", "/tenants/a/s1"} <= {entry["path"] for entry in entries}
    assert [entry["path"] for entry in (await backend.ls("/")).get("files", [])] == ["/tenants"]


async def test_a_backends_own_delete_and_its_lists_are_honoured(tmp_path: Path) -> None:
    workspace_at(tmp_path)
    gone: list[str] = []

    def delete(session_id: str) -> bool:
        gone.append(session_id)
        return True

    store = create_backend_session_store(MemoryBackend(), delete_session=delete, list=False)
    assert store.capabilities == {"list": False, "delete": True}
    given = {"root_dir": tmp_path, "session_store": store}
    async with await agent_of(tmp_path, AIMessage("one"), workspace=given) as agent:
        await agent.send("s1", message="hi")
        assert await agent.sessions.list() == []
        assert await agent.sessions.delete("s1") is True
    assert gone == ["s1"]


# -- options at work -------------------------------------------------------------------------------------------------


async def test_policy_rules_block_and_fail_closed(tmp_path: Path) -> None:
    """05 §13: `(action) → {decision, rule_id, reason} | None`."""
    workspace_at(tmp_path)
    asked: list[str] = []

    def no_attic(action: ToolCall) -> dict[str, str] | None:
        asked.append(action.tool)
        if action.args.get("where") == "attic":
            return {"decision": "block", "rule_id": "house.attic", "reason": "not the attic"}
        if action.args.get("where") == "cellar":
            return {"decision": "perhaps"}
        return None

    answers = [
        AIMessage(
            "",
            tool_calls=[
                {"name": "look", "args": {"where": where}, "id": where, "type": "tool_call"}
                for where in ("attic", "cellar", "hall")
            ],
        ),
        AIMessage("ok"),
    ]
    async with await agent_of(tmp_path, *answers, tools=[look], policy_rules=[no_attic]) as agent:
        outcome = await agent.send("s", message="go")
    texts = [m["text"] for m in outcome.transcript if m["role"] == "tool"]
    assert texts[0] == "not the attic"
    assert "no_attic failed" in texts[1]
    assert texts[2] == "seen hall"
    assert set(asked) == {"look"}


async def test_trigger_and_variables_are_every_turns_default(tmp_path: Path) -> None:
    workspace_at(tmp_path)
    async with await agent_of(
        tmp_path, AIMessage("ok"), trigger={"id": "mail"}, variables={"desk": 4}, session_path="mail.id"
    ) as agent:
        outcome = await agent.send(message="hi", variables={"mail": {"id": 12}})
    assert outcome.session_id == "12"
    assert outcome.variables["desk"] == {"value": 4, "locked": True}
    assert outcome.variables["trigger"]["value"] == "mail"


async def test_the_recursion_limit_holds(tmp_path: Path) -> None:
    workspace_at(tmp_path)
    answers = [raw_call("look", where="x") for _ in range(5)]
    async with await agent_of(tmp_path, *answers, tools=[look], recursion_limit=3) as agent:
        outcome = await agent.send("s", message="go")
    assert outcome.exit["code"] == "recursion-limit"


async def test_middleware_runs_and_brings_its_tools(tmp_path: Path) -> None:
    workspace_at(tmp_path)
    answers = [raw_call("look", where="x") for _ in range(5)]
    async with await agent_of(
        tmp_path, *answers, tools=[look], middleware=[ModelCallLimitMiddleware(run_limit=2)]
    ) as agent:
        assert "run limit" in (await agent.send("s", message="go")).reply


async def test_a_model_script_plays_through_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace_at(tmp_path)
    write(tmp_path, "play.model.yaml", "- text: scripted words\n")
    monkeypatch.setenv("ARCHMAX_MODEL", "scripted:play.model.yaml")
    async with await agent_of(tmp_path, model=None) as agent:
        assert (await agent.send("s", message="go")).reply == "scripted words"


async def test_a_faulty_environment_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """05 §15."""
    monkeypatch.setenv("ARCHMAX_STREAMING", "maybe")
    with pytest.raises(archmax.ArchmaxError, match="ARCHMAX_STREAMING"):
        await agent_of(tmp_path)


# -- a plain agent ---------------------------------------------------------------------------------------------------


async def test_a_plain_agent_has_files_and_tools_and_no_controls(tmp_path: Path) -> None:
    """05 §14."""
    write(tmp_path, "AGENTS.md", "You are Ann.")
    model = RawModel(
        answers=[
            raw_call("write_file", file_path="notes.md", content="kept"),
            raw_call("archmax_advance", to="agent", reason="x"),
            raw_call("read_file", file_path="checkpoints/head"),
            raw_call("look", where="attic"),
            AIMessage("done"),
            AIMessage("again"),
        ]
    )
    async with await agent_of(tmp_path, workflow=False, model=model, tools=[look]) as agent:
        outcome = await agent.invoke({"messages": [("user", "go")]}, "s1")
        assert outcome.reply == "done"
        texts = [m["text"] for m in outcome.transcript if m["role"] == "tool"]
        assert "'archmax_advance' is not a tool" in texts[1]
        assert "checkpoints" in texts[2]
        assert texts[3] == "seen attic"
        assert (outcome.state, outcome.variables, outcome.audit_trail) == (None, {}, [])
        # a session like any other: it goes on
        assert (await agent.invoke({"message": "more"}, "s1")).reply == "again"
        assert await agent.sessions.get("s1") == {
            "sessionId": "s1",
            "status": "completed",
            "classification": "finished",
        }
        assert agent.workflow is None
    system = model._seen[0].system
    assert system.startswith("You are Ann.")
    assert "state" not in system.replace("state alone", "").split("# Workspace")[0]
    assert "Current state" not in system


async def test_a_plain_agents_session_ids_are_checked(tmp_path: Path) -> None:
    async with await agent_of(tmp_path, workflow=False) as agent:
        with pytest.raises(archmax.SessionStoreIdError):
            await agent.invoke({"message": "x"}, "scratchpad/x")


async def test_a_plain_agent_is_bound_to_the_default_session(tmp_path: Path) -> None:
    """05 §2."""
    async with await agent_of(tmp_path, AIMessage("a"), workflow=False) as agent:
        assert (await agent.invoke({"message": "x"})).session_id == "__default__"


# -- events of an assembly -------------------------------------------------------------------------------------------


async def test_an_assembly_is_announced(tmp_path: Path) -> None:
    """03 §20: interpreter, skills, topology, prompt shaping, warnings; none carries a session."""
    workspace_at(tmp_path)
    write(
        tmp_path,
        "workflows/desk/workflow.yaml",
        """
        settings: {model: gpt-x}
        tools: {allow_always: [read_file]}
        states:
          work:
            triggers: {manual: {}}
            instructions: Work.
            tools: {allow: [{tool: read_file, paths: ["${{folder}}/**"]}]}
            transitions: [{to: check, description: Ready.}]
          check:
            type: human
            transitions: [{to: done, type: approve, description: Good.}]
          done: {model: gpt-y}
        """,
    )
    events: list[Any] = []
    async with await agent_of(tmp_path, on_event=events.append):
        pass
    assert not any("sessionId" in event for event in events)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["skills-loaded", "graph-topology", "prompt-shaping"]
    topology = events[1]["topology"].split("\n")
    assert topology == ["work -> check", "check (human) -> done", "done (terminal)"]
    shaping = events[2]
    assert shaping["cache"] == "unsupported"
    assert "write_todos" in shaping["withheld"]
    assert "read_file" not in shaping["withheld"]
    said = [event["message"] for event in events if event["type"] == "warning"]
    assert any("folder" in message for message in said)  # a guard reference nothing guarantees
    assert any("'gpt-x' (settings.model)" in m and "'gpt-y' (state 'done')" in m for m in said)
    assert all(event["level"] == "warn" for event in events if event["type"] == "warning")


async def test_the_interpreter_is_announced_where_a_state_has_it(tmp_path: Path) -> None:
    workspace_at(tmp_path)
    events: list[Any] = []
    async with await agent_of(tmp_path, on_event=events.append, prompt_cache={"enabled": False}):
        pass
    assert events[0]["type"] == "interpreter-enabled"
    assert next(e for e in events if e["type"] == "prompt-shaping")["cache"] == "off"


async def test_without_a_handler_the_console_shows_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """03 §20: `[workflow]` and `[interpreter]` lines, silent for the talkative events; nothing with a handler."""
    workspace_at(tmp_path)
    async with await agent_of(tmp_path, AIMessage("quiet words"), on_event=None) as agent:
        await agent.send("s", message="go")
    shown = capsys.readouterr().err
    assert "[interpreter] interpreter-enabled" in shown
    assert "[workflow] state-enter state=work" in shown
    assert "quiet words" not in shown
    async with await agent_of(tmp_path, AIMessage("quiet words"), on_event=ignore) as agent:
        await agent.send("s", message="go")
    assert capsys.readouterr().err == ""


def test_a_console_line_carries_nothing_a_terminal_obeys() -> None:
    line = line_of({"type": "code-output", "state": "work", "line": "a\x1b[31m\nb"})
    assert line == "[interpreter] code-output state=work line=a [31m b"


def test_every_public_name_is_importable() -> None:
    for name in archmax.__all__:
        assert getattr(archmax, name) is not None


def test_scripted_models_are_chat_models() -> None:
    """A host may hand the scripted model in as `model`."""
    script = ModelScript.parse("x", "- text: hi\n")
    assert ScriptedChatModel(script=script)._llm_type


async def test_assembly_warns_of_what_the_host_leaves_open_and_of_nothing_it_seeds(tmp_path: Path) -> None:
    """02 §14.5: a seeded variable is guaranteed; OP-23: a host tool's undeclared path argument is worth a warning."""
    workspace_at(tmp_path)
    write(
        tmp_path,
        "workflows/desk/workflow.yaml",
        """
        instructions: Be kind.
        states:
          work:
            triggers: {manual: {}}
            instructions: Work.
            tools: {allow: [publish, {tool: read_file, paths: ["${{folder}}/**"]}]}
        """,
    )

    def publish(file_path: str) -> str:
        """Publishes a file."""
        return file_path

    for seeds, expected in (({}, True), ({"folder": "notes"}, False)):
        events: list[Any] = []
        async with await agent_of(tmp_path, on_event=events.append, tools=[publish], variables=seeds):
            pass
        said = [event["message"] for event in events if event["type"] == "warning"]
        assert any("refers to 'folder'" in message for message in said) is expected
        assert any("'publish'" in message and "'file_path'" in message for message in said)


# -- a host's own JavaScript -----------------------------------------------------------------------------------------

SCRIPTED = """
states:
  work:
    triggers: {manual: {}}
    tools: {allow: [look, archmax_workflow_fee]}
    transitions: [{to: check, description: Counted.}]
  check:
    type: code
    script: scripts/check.js
    tools: {allow: [look, archmax_workflow_fee]}
    transitions: [{to: done}]
  done: {}
"""
CHECK = """
import { defineCodeState } from "@archmax-ai/harness/code-state";
export default defineCodeState(async ({ state, variables, tools }) => {
  console.log(`checking ${variables.fee}`);
  const fee = JSON.parse(await tools.archmaxWorkflowFee({ n: 2 }));
  await tools.archmax_advance({ to: "done", reason: `${state} ${fee.returns.fee} ${await tools.look({ where: "there" })}` });
});
"""


async def test_a_hosts_own_runtime_serves_agent_scripts_and_code_states(tmp_path: Path) -> None:
    """03 §19.6: any object that fulfils the interface; scripts wait for sub-workflows in it as in ours."""
    write(tmp_path, "workflows/desk/workflow.yaml", SCRIPTED)
    write(tmp_path, "workflows/desk/scripts/check.js", CHECK)
    write(
        tmp_path,
        "workflows/fee/workflow.yaml",
        "states: {start: {triggers: {manual: {requires: [n], returns: [fee]}}}}",
    )
    runtime = SecondRuntime()
    seen: list[str] = []
    script = "const seen = await tools.look({ where: 'here' });\n[seen, (await tools.archmaxWorkflowFee({ n: 1 })).length > 0]"
    answers = [
        raw_call("archmax_eval", code=script),
        raw_call("archmax_set_variables", variables={"fee": 10}),
        AIMessage("ten"),
        raw_call("archmax_set_variables", variables={"fee": 10}),
        raw_call("archmax_advance", to="check", reason="counted"),
        raw_call("archmax_set_variables", variables={"fee": 20}),
        AIMessage("twenty"),
        AIMessage("done"),
    ]

    @tool("look")
    def looked(where: str) -> str:
        """Looks somewhere and keeps where."""
        seen.append(where)
        return look(where)

    events: list[Any] = []
    agent = await agent_of(
        tmp_path, *answers, workflow="desk", sandbox_runtime=runtime, tools=[looked], on_event=events.append
    )
    async with agent:
        outcome = await agent.send("s1", message="go")
    assert (outcome.kind, outcome.state) == ("completed", "done"), outcome
    results = [m["text"] for m in outcome.transcript if m["role"] == "tool" and m["tool"] == "archmax_eval"]
    assert results == ['["seen here",true]']
    assert outcome.audit_trail[-1]["reason"] == "check 20 seen there"
    assert seen == ["here", "there"]
    assert [event["line"] for event in events if event["type"] == "code-output"] == ["checking 10"]
    assert {(asked.session_id, asked.context) for asked in runtime.asked} == {
        ("s1", "ptc"),
        ("s1", "code-state"),
    }
    assert runtime.disposed and not runtime.namespaces
    assert isinstance(runtime, archmax.SandboxRuntime)
