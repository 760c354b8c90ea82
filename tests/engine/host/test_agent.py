"""`Agent` and its sessions: resolution, operations, streams, artifacts (05 §2.1, §7, §14, §16)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from engine.errors import (
    InvalidSessionPathError,
    SessionNotAwaitingInputError,
    SessionNotParkedError,
    SessionNotResumableError,
    SessionStoreIdError,
    UnknownSessionTriggerError,
    UnknownTriggerError,
)
from engine.host.agent import Agent
from engine.host.backend_store import BackendObjectStore
from engine.host.session_folder import SessionFolder
from engine.host.stores import create_filesystem_session_store, create_memory_session_store
from engine.models.errors import ModelCallError
from engine.session.notes import messages_since
from engine.session.outcome import Outcome
from engine.turn.recorder import EventStream
from engine.workspace.memory_backend import MemoryBackend
from engine.workspace.seed import SeedPathError
from storage.conformance import conformance_checks
from storage.memory import MemoryStore
from storage.objects import StoreUnavailable
from tests.support.engine import Bench, bench, raw_call
from tests.support.workspaces import SyncBackend

__all__ = ["bench"]
Make = Callable[..., Bench]

SPEC = """
title: Desk
states:
  work:
    triggers:
      manual: {}
      mail: {session: mail.thread}
    tools: {allow: [touch]}
    transitions: [{to: check, description: Ready.}]
    on_error: mend
  mend: {}
  check: {type: human, title: Look, transitions: [{to: done, type: approve, description: Good.}]}
  done: {}
"""


def advance(to: str) -> AIMessage:
    return raw_call("archmax_advance", to=to, reason="so")


# -- where a firing goes ---------------------------------------------------------------------------------------------


async def test_the_most_specific_word_on_the_session_wins(bench: Make) -> None:
    """05 §2.1: explicit id, the firing's path, the assembly's, the trigger's, a minted one."""
    b = bench(SPEC)
    agent = Agent(b.agent.assembly, b.agent.folder, EventStream(b.events.append), session_path="order.id")
    values = {"order": {"id": "o-1"}, "mail": {"thread": "t-1"}, "ref": 12.0}

    async def goes(**firing: Any) -> str:
        return (await agent.resolve_session(variables=values, **firing)).session_id

    assert await goes(session_id="mine", session_path="ref", trigger="mail") == "mine"
    assert await goes(session_path="ref", trigger="mail") == "12"
    assert await goes(trigger="mail") == "o-1"
    assert (await b.agent.resolve_session(variables=values, trigger={"id": "mail"})).session_id == "t-1"
    minted = await b.agent.resolve_session(variables=values)
    assert minted.native
    assert minted.session_id.startswith("session-")
    assert (minted.disposition, minted.start_state) == ("turn", "work")


@pytest.mark.parametrize("value", [None, True, " ", [], float("nan"), float("inf")])
async def test_a_path_without_an_id_mints_one_and_warns(bench: Make, value: Any) -> None:
    b = bench(SPEC)
    found = await b.agent.resolve_session(trigger="mail", variables={"mail": {"thread": value}})
    assert found.native
    warning = b.one("warning", scope="session-path")
    assert "'mail'" in warning["message"]
    assert "'mail.thread'" in warning["message"]


async def test_bad_firings_are_refused_by_type(bench: Make) -> None:
    b = bench(SPEC)
    with pytest.raises(InvalidSessionPathError):
        await b.agent.resolve_session(session_path="${{mail.thread}}")
    with pytest.raises(UnknownSessionTriggerError):
        await b.agent.resolve_session(trigger="nothing")
    with pytest.raises(SessionStoreIdError):
        await b.agent.resolve_session(session_id="checkpoints/x")
    with pytest.raises(UnknownTriggerError):
        b.agent.resolve_trigger("nothing")
    assert b.agent.resolve_trigger("mail").start_state == "work"


async def test_a_parked_session_takes_a_reply(bench: Make) -> None:
    b = bench(SPEC, [advance("check"), AIMessage("over")])
    await b.send()
    found = await b.agent.resolve_session(session_id="s1")
    assert (found.disposition, found.state, found.native) == ("reply", "check", False)


# -- turns -----------------------------------------------------------------------------------------------------------


async def test_the_workflow_member_holds_the_ways_in(bench: Make) -> None:
    """05 §14."""
    b = bench(SPEC, [advance("check"), AIMessage("over"), AIMessage("hm"), AIMessage("done")])
    workflow = b.agent.workflow
    assert workflow is not None
    assert workflow.name == "main"
    assert workflow.machine is b.agent.assembly.machine
    parked = await workflow.send("s1", message="go")
    assert (parked.kind, parked.reparked, parked.parked_channel, parked.state) == (
        "parked",
        True,
        "decision",
        "check",
    )
    assert parked.exit is None
    replied = await workflow.reply("s1", "and?")
    assert (replied.reparked, replied.parked_channel, replied.reply) == (True, "decision", "hm")
    decided = await workflow.decide("s1", "done")
    assert (decided.kind, decided.exit, decided.workflow_state) == ("completed", {"success": True}, "done")


async def test_a_stream_gives_events_then_the_outcome_and_tells_the_handler(bench: Make) -> None:
    """Ruling 13."""
    b = bench(SPEC, [AIMessage("hi there")])
    items = [item async for item in b.agent.stream({"messages": [{"role": "user", "content": "go"}]}, "s1")]
    assert items[-1]["type"] == "outcome"
    assert items[-1]["reply"] == "hi there"
    streamed = [item["type"] for item in items[:-1]]
    assert streamed == b.kinds()
    assert [item["seq"] for item in items[:-1]] == list(range(1, len(items)))


async def test_closing_a_stream_cancels_its_turn(bench: Make) -> None:
    """03 §16."""
    b = bench(SPEC, [AIMessage("never")])
    started = asyncio.Event()

    async def never(*_: Any, **__: Any) -> Any:
        started.set()
        await asyncio.Event().wait()

    b.agent.assembly.call = never  # type: ignore[method-assign]
    stream = b.agent.stream({"message": "go"}, "s1")
    async for item in stream:
        if item["type"] == "state-enter":
            await started.wait()
            break
    await stream.aclose()
    state = await b.state()
    assert (state.status, (state.exit or {}).get("code")) == ("failed", "turn-cancelled")


async def test_an_error_before_the_turn_comes_out_of_the_stream(bench: Make) -> None:
    b = bench(SPEC)
    with pytest.raises(UnknownTriggerError):
        async for _ in b.agent.stream({"message": "go", "trigger": "nothing"}, "s1"):
            pass


WAITING = """
states:
  work: {triggers: {manual: {}}, transitions: [{to: check, description: Ready.}]}
  check: {type: human, transitions: [{to: done, description: Good.}, {to: work, description: Again.}]}
  done: {}
"""


async def test_of_two_resumes_that_race_for_one_park_exactly_one_wins(bench: Make) -> None:
    """05 §8: the loser gets the typed "not parked" error, whether the winner is still at work or done."""
    b = bench(WAITING, [advance("check"), AIMessage("look"), AIMessage("done")])
    await b.send()
    one, other = await asyncio.gather(b.decide("done"), b.decide("work"), return_exceptions=True)
    assert isinstance(one, Outcome) and one.state == "done"
    assert isinstance(other, SessionNotParkedError) and other.status == "running"

    b = bench(WAITING, [raw_call("archmax_wait", reason="mail"), AIMessage("waiting"), AIMessage("done")])
    await b.send()
    one, other = await asyncio.gather(b.deliver("a"), b.deliver("b"), return_exceptions=True)
    assert isinstance(one, Outcome) and one.kind == "completed"
    assert isinstance(other, SessionNotAwaitingInputError)


async def test_a_resume_another_turn_came_before_is_refused_by_type(bench: Make) -> None:
    """03 §2.3: checked again when its turn comes, and told the same way."""
    b = bench(WAITING, [advance("check"), AIMessage("look"), AIMessage("done")])
    await b.send()

    class Late(SessionFolder):
        """Another turn is over between the check and the turn itself."""

        async def look(self, session_id: str) -> Any:
            look = await super().look(session_id)
            if not held:
                held.append(session_id)
                await b.decide("done")
            return look

    held: list[str] = []
    late = Agent(b.agent.assembly, Late(b.store), EventStream(None))
    with pytest.raises(SessionNotParkedError):
        await late.decide("s1", "done")
    assert (await b.state()).position == "done"


async def test_a_raw_turn_that_throws_is_stored_as_failed_and_raises_what_was_thrown(bench: Make) -> None:
    """03 OP-2; `send` returns the failure as an outcome instead."""
    errors = [LookupError("one"), LookupError("two"), LookupError("three")]
    b = bench(SPEC, [*errors, AIMessage("fine")])
    with pytest.raises(ModelCallError, match="one"):
        await b.agent.invoke({"message": "go"}, "s1")
    assert (await b.state()).exit == {"success": False, "code": "turn-error", "reason": "one"}
    stream = b.agent.stream({"message": "go"}, "s1")
    seen = [(await anext(stream))["type"] for _ in range(2)]
    assert seen == ["advance", "state-enter"]
    with pytest.raises(ModelCallError, match="two"):
        assert (await anext(stream))["type"] != "outcome"
    assert (await b.send("go")).kind == "failed"
    assert (await b.agent.invoke({"message": "go"}, "s1")).reply == "fine"


async def test_with_config_holds_for_every_turn_and_the_callers_limit_wins(bench: Make) -> None:
    """05 §14."""
    seen: list[Any] = []

    async def note(n: int = 0) -> str:
        """Notes its config."""
        return "x"

    b = bench(SPEC, [raw_call("touch", n=1), raw_call("touch", n=2), AIMessage("never")])
    original = b.agent.assembly.run_tool

    async def spy(tool: Any, args: Any, context: Any) -> Any:
        seen.append(context.config)
        return await original(tool, args, context)

    b.agent.assembly.run_tool = spy  # type: ignore[method-assign]
    agent = b.agent.with_config({"tags": ["mine"], "metadata": {"k": 1}, "recursion_limit": 3})
    assert agent.folder is b.agent.folder
    outcome = await agent.send("s1", message="go")
    assert outcome.exit and outcome.exit["code"] == "recursion-limit"
    assert set(seen[0]["tags"]) == {"archmax", "mine"}
    assert seen[0]["metadata"]["k"] == 1
    assert seen[0]["configurable"]["session_id"] == "s1"


async def test_a_thread_id_names_the_session_of_an_invoke(bench: Make) -> None:
    b = bench(SPEC, [AIMessage("ok"), AIMessage("ok")])
    outcome = await b.agent.invoke({"message": "go"}, config={"configurable": {"thread_id": "t9"}})
    assert outcome.session_id == "t9"
    assert (await b.agent.invoke({"message": "go"})).session_id == "__default__"


# -- session operations ----------------------------------------------------------------------------------------------


async def test_lists_and_counts(bench: Make) -> None:
    """05 §7."""
    b = bench(SPEC, [AIMessage("one"), AIMessage("two")])
    assert await b.agent.sessions.list() == []
    assert await b.agent.sessions.get("s1") is None
    assert await b.agent.sessions.message_count("s1") == 0
    await b.send()
    count = await b.agent.sessions.message_count("s1")
    outcome = await b.send("again")
    assert [m.text for m in messages_since(outcome.messages, count)] == ["again", "two"]
    summary = await b.agent.sessions.get("s1")
    assert await b.agent.sessions.list() == [summary]
    assert summary is not None
    assert (summary["status"], summary["classification"], summary["workflowState"]) == (
        "completed",
        "finished",
        "work",
    )
    assert len(summary["specHash"]) == 32


async def test_deleting_removes_one_sessions_folder(bench: Make) -> None:
    b = bench(SPEC, [AIMessage("one"), AIMessage("two")])
    await b.send(session="a")
    await b.send(session="ab")
    assert await b.agent.sessions.delete("a") is True
    assert await b.agent.sessions.delete("a") is False
    assert [s["sessionId"] for s in await b.agent.sessions.list()] == ["ab"]
    keys = [item.key async for item in b.store.list("")]
    assert any(key.startswith("_specs/") for key in keys)
    with pytest.raises(SessionStoreIdError):
        await b.agent.sessions.delete("../x")


async def test_seeding_is_all_or_nothing_and_names_every_bad_key(bench: Make) -> None:
    b = bench(
        SPEC, [raw_call("read_file", file_path="in.json"), AIMessage("ok")], mounts={"/lib/": MemoryBackend()}
    )
    bad = {
        "scratchpad/ok.txt": "x",
        "lib/a": "x",
        "checkpoints/a": "x",
        "large_tool_results/a": "x",
        "../a": "x",
        "": "x",
    }
    with pytest.raises(SeedPathError) as refused:
        await b.agent.sessions.seed("s1", bad)
    assert [path for path, _ in refused.value.problems] == [
        "lib/a",
        "checkpoints/a",
        "large_tool_results/a",
        "../a",
        "",
    ]
    assert [item.key async for item in b.store.list("")] == []
    with pytest.raises(SeedPathError):  # found out only once the files are laid beside each other
        await b.agent.sessions.seed("s1", {"a": "x", "a/b": "x"})
    await b.agent.sessions.seed("s1", {"in.json": {"b": [1], "a": "é"}, "/scratchpad/t.txt": "as it is"})
    outcome = await b.send()
    assert '"b": [' in b.results(outcome)[0]
    files = (await b.state()).files
    assert set(files) == {"in.json", "scratchpad/t.txt"}


async def test_seed_and_delete_are_refused_while_a_turn_runs(bench: Make) -> None:
    """05 OP-9."""
    b = bench(SPEC, [AIMessage("ok")])
    async with b.agent.folder.hold("s1"):
        with pytest.raises(SessionNotResumableError):
            await b.agent.sessions.seed("s1", {"a": "x"})
        with pytest.raises(SessionNotResumableError):
            await b.agent.sessions.delete("s1")
        with pytest.raises(SessionNotResumableError):
            await b.send()
    await b.send()


async def test_a_snapshot_that_cannot_be_written_is_a_warning(bench: Make) -> None:
    """05 §3."""

    class NoSpecs(MemoryStore):
        async def put(self, key: str, body: bytes, **conditions: Any) -> str | None:
            if key.startswith("_specs/"):
                raise StoreUnavailable("put", key, "full")
            return await super().put(key, body, **conditions)

    b = bench(SPEC, [AIMessage("ok")], store=NoSpecs())
    assert (await b.send()).kind == "completed"
    assert "full" in b.one("warning", scope="spec-snapshot")["message"]


async def test_a_spec_some_turn_ran_under_can_be_read_again(bench: Make) -> None:
    b = bench(SPEC, [AIMessage("ok")])
    await b.send()
    summary = await b.agent.sessions.get("s1")
    assert summary is not None
    snapshot = await b.agent.get_spec_snapshot(summary["specHash"])
    assert snapshot is not None
    assert snapshot["title"] == "Desk"
    assert await b.agent.get_spec_snapshot("0" * 32) is None
    assert await b.agent.get_spec_snapshot("../s1/checkpoints/head") is None


# -- artifacts -------------------------------------------------------------------------------------------------------


async def test_artifacts_are_written_where_no_agent_reaches(bench: Make, tmp_path: Path) -> None:
    """05 §16."""
    b = bench(SPEC, [raw_call("archmax_set_variables", variables={"n": 1}), AIMessage("ok")])
    store = create_filesystem_session_store(tmp_path)
    agent = Agent(b.agent.assembly, store.folder(), EventStream(b.events.append), store=store)
    await agent.send("s1", message="go", variables={"card": 7})
    place = await agent.emit_run_artifacts("s1", {"finalAnswer": "ok", "segments": []})
    assert place is not None
    folder = Path(place)
    assert sorted(file.name for file in folder.iterdir()) == [  # noqa: ASYNC240 - a test's own folder
        *("graph.json", "graph.mmd", "metadata.json", "trail.json", "trajectory.json", "variables.json")
    ]

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text())

    graph = read("graph.json")
    assert [node["id"] for node in graph["nodes"]] == ["__start__", "work", "mend", "check", "done"]
    assert {"source": "__start__", "target": "work", "conditional": True, "label": "mail"} in graph["edges"]
    assert {"source": "work", "target": "check", "conditional": False, "label": "Ready."} in graph["edges"]
    assert {"source": "work", "target": "mend", "conditional": True, "label": "on_error"} in graph["edges"]
    assert graph["finals"] == ["mend", "done"]
    assert graph["mermaid"] == (folder / "graph.mmd").read_text()
    assert read("trajectory.json") == {
        "sessionId": "s1",
        "workflow": "main",
        "finalAnswer": "ok",
        "segments": [],
    }
    variables = read("variables.json")["variables"]
    assert variables["card"] == {"value": 7, "locked": True}
    assert variables["n"] == {"value": 1, "locked": False}
    assert [step["kind"] for step in read("trail.json")["steps"]] == ["trigger"]
    metadata = read("metadata.json")
    assert metadata["runtimeContract"] == agent.runtime_contract
    assert set(agent.runtime_contract) == {"engine", "version", "source", "sandbox", "testFormat"}
    assert metadata["specHash"]


async def test_a_session_that_never_ran_has_neither_trail_nor_variables(bench: Make) -> None:
    b = bench(SPEC)
    place = await b.agent.emit_run_artifacts("s1", {"finalAnswer": "", "segments": []})
    assert place == "s1/artifacts"
    names = {item.key.rpartition("/")[2] async for item in b.store.list("s1/artifacts/")}
    assert names == {"graph.json", "graph.mmd", "trajectory.json", "metadata.json"}
    await b.agent.emit_run_artifacts("s1", {"finalAnswer": "", "segments": []}, trail=[])
    assert await b.store.get("s1/artifacts/trail.json") is not None


async def test_artifacts_that_cannot_be_written_are_warnings(bench: Make) -> None:
    class Full(MemoryStore):
        async def put(self, key: str, body: bytes, **conditions: Any) -> str | None:
            if "/artifacts/" in key:
                raise StoreUnavailable("put", key, "full")
            return await super().put(key, body, **conditions)

    b = bench(SPEC, [AIMessage("ok")], store=Full())
    await b.send()
    assert await b.agent.emit_run_artifacts("s1", {"finalAnswer": "", "segments": []}) is None
    assert len(b.of("warning", scope="run-artifacts")) == 6


async def test_disposing_is_idempotent_and_deletes_nothing(bench: Make) -> None:
    b = bench(SPEC, [AIMessage("ok")])
    await b.send()
    await b.agent.dispose("s1")
    await b.agent.dispose("s1")
    await b.agent.dispose("never")
    assert await b.agent.sessions.get("s1") is not None


async def test_disposing_ends_the_repl_of_a_turn_and_the_turn_goes_on(bench: Make) -> None:
    """03 §19.1: what the REPL held is rebuilt when it is needed."""
    b = bench(
        SPEC,
        [
            raw_call("archmax_eval", code="globalThis.kept = 41"),
            raw_call("touch"),
            raw_call("archmax_eval", code="1 + 1"),
            AIMessage("ok"),
        ],
    )
    original = b.agent.assembly.run_tool

    async def disposing(tool: Any, args: Any, context: Any) -> Any:
        await b.agent.dispose("s1")
        return await original(tool, args, context)

    b.agent.assembly.run_tool = disposing  # type: ignore[method-assign]
    outcome = await b.send()
    assert outcome.kind == "completed"
    assert "2" in b.results(outcome)[-1]


# -- stores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule_and_check", conformance_checks(), ids=lambda item: item[1].__name__)
async def test_the_store_over_a_backend_keeps_the_stores_rules(rule_and_check: Any) -> None:
    """05 §5, in one process."""
    _, check = rule_and_check
    await check(BackendObjectStore(MemoryBackend(), "tenants/a"))


async def test_a_backend_of_the_least_kind_will_do() -> None:
    store = BackendObjectStore(SyncBackend(), "")
    assert await store.put("a/b", b"text", if_absent=True)
    assert await store.put("a/b", b"other", if_absent=True) is None
    found = await store.get("a/b")
    assert found is not None
    assert found.body == b"text"
    assert [item.key async for item in store.list("a")] == ["a/b"]
    await store.delete(["a/b"])  # it cannot: what was written stays


def test_stores_say_what_they_can_do() -> None:
    assert create_memory_session_store().capabilities == {"list": True, "delete": True}
    assert not create_memory_session_store().shared
