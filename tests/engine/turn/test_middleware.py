"""LangChain middleware in the turn loop: the published classes, and each hook by itself (05 §13 `middleware`)."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, NotRequired

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    FilesystemFileSearchMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRefusalMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    ProviderToolSearchMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
    after_agent,
    before_agent,
    before_model,
    wrap_model_call,
    wrap_tool_call,
)
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.types import Command, interrupt

from engine.errors import MiddlewareError
from engine.turn.middleware import MiddlewareChain
from tests.support.engine import Bench, RawModel, bench, raw_call
from tests.support.worlds import World

__all__ = ["bench"]
Make = Callable[..., Bench]

SPEC = """
states:
  work:
    triggers: {manual: {}}
    instructions: Work.
    tools: {allow: [touch, flaky, fragile]}
"""
HUMAN = """
states:
  work:
    triggers: {manual: {}}
    transitions: [{to: check, description: Ready.}]
  check: {type: human, transitions: [{to: done, type: approve, description: Good.}]}
  done: {}
"""


def chain(*given: Any) -> MiddlewareChain:
    return MiddlewareChain(given)


# -- the published ones ----------------------------------------------------------------------------------------------


async def test_model_fallback_answers_with_the_second_model(bench: Make) -> None:
    """05 §13: LangChain's own classes run unchanged."""
    second = RawModel(answers=[AIMessage("from the second")])
    b = bench(SPEC, [ValueError("down")], middleware=chain(ModelFallbackMiddleware(second)))
    outcome = await b.send()
    assert (outcome.kind, outcome.reply) == ("completed", "from the second")
    assert len(second._seen) == 1
    assert second._seen[0].system == b.seen[0].system


async def test_model_retry_asks_again(bench: Make) -> None:
    b = bench(
        SPEC,
        [ValueError("once"), AIMessage("then")],
        middleware=chain(ModelRetryMiddleware(max_retries=2, initial_delay=0)),
    )
    assert (await b.send()).reply == "then"


async def test_an_error_no_middleware_handles_fails_the_turn_as_without(bench: Make) -> None:
    b = bench(SPEC, [ValueError("down")], middleware=chain(ToolRetryMiddleware()))
    outcome = await b.send()
    assert outcome.kind == "failed"
    assert outcome.exit and outcome.exit["code"] == "turn-error"


async def test_tool_retry_runs_a_raising_tool_again(bench: Make) -> None:
    tries: list[int] = []

    def flaky() -> str:
        """Fails twice."""
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return "at last"

    b = bench(
        SPEC,
        [raw_call("flaky"), AIMessage("ok")],
        tools=[StructuredTool.from_function(flaky)],
        middleware=chain(ToolRetryMiddleware(max_retries=3, initial_delay=0)),
    )
    outcome = await b.send()
    assert b.results(outcome) == ["at last"]
    assert len(tries) == 3


async def test_tool_retry_that_gives_up_tells_the_model(bench: Make) -> None:
    b = bench(
        SPEC,
        [raw_call("touch", n=-1), AIMessage("ok")],
        middleware=chain(ToolRetryMiddleware(max_retries=1, initial_delay=0)),
    )
    outcome = await b.send()
    assert b.touched == [-1, -1]
    assert b.results(outcome)[0].startswith("Error: ")
    assert b.one("tool-result")["status"] == "error"


async def test_a_tool_error_is_told_in_the_hosts_words(bench: Make) -> None:
    b = bench(
        SPEC,
        [raw_call("touch", n=-1), AIMessage("ok")],
        middleware=chain(
            ToolErrorMiddleware(on_error=lambda error, request: f"{request.tool_call['name']} is shut")
        ),
    )
    outcome = await b.send()
    assert "touch is shut" in b.results(outcome)[0]
    assert b.one("tool-result")["status"] == "error"


async def test_a_refusal_falls_back_to_the_second_model(bench: Make) -> None:
    second = RawModel(answers=[AIMessage("here you are")])
    refusal = AIMessage(
        [{"type": "refusal", "refusal": "No."}], response_metadata={"finish_reason": "refusal"}
    )
    b = bench(SPEC, [refusal], middleware=chain(ModelFallbackMiddleware(second), ModelRefusalMiddleware()))
    assert (await b.send()).reply == "here you are"


async def test_cleared_tool_uses_are_cleared_for_the_model_alone(bench: Make) -> None:
    edit = ClearToolUsesEdit(trigger=1, keep=0, placeholder="[gone]")
    b = bench(
        SPEC,
        [raw_call("touch", n=1), AIMessage("ok")],
        middleware=chain(ContextEditingMiddleware(edits=[edit])),
    )
    outcome = await b.send()
    assert b.seen[1].text.endswith("[gone]")
    assert b.results(outcome) == ["touched 1"]


async def test_a_tool_that_may_run_at_most_once_is_not_retried(bench: Make) -> None:
    """03 §13.1 holds whatever a middleware asks for."""
    tries: list[int] = []

    def fragile() -> str:
        """Pays."""
        tries.append(1)
        raise ConnectionError("lost")

    b = bench(
        SPEC,
        [raw_call("fragile"), AIMessage("ok")],
        tools=[StructuredTool.from_function(fragile, metadata={"at_most_once": True})],
        middleware=chain(ToolRetryMiddleware(max_retries=3, initial_delay=0)),
    )
    await b.send()
    assert len(tries) == 1


async def test_pii_is_taken_out_of_what_the_model_sees_and_says(bench: Make) -> None:
    b = bench(
        SPEC,
        [AIMessage("write to bob@example.com"), AIMessage("again")],
        middleware=chain(PIIMiddleware("email", strategy="redact", apply_to_output=True)),
    )
    outcome = await b.send("I am amy@example.com")
    assert outcome.reply == "write to [REDACTED_EMAIL]"
    assert b.seen[0].text == "I am [REDACTED_EMAIL]"
    shown = [event["text"] for event in b.events if event["type"] in ("agent-text", "agent-text-delta")]
    assert shown == ["write to [REDACTED_EMAIL]"] * 2
    # what was rewritten stays rewritten, in every later turn and for every reader
    await b.send("and?")
    assert "amy@example.com" not in b.seen[1].text
    assert "bob@example.com" not in b.seen[1].text
    assert [m["text"] for m in (await b.folded()).messages][:2] == [
        "I am [REDACTED_EMAIL]",
        "write to [REDACTED_EMAIL]",
    ]


async def test_pii_is_taken_out_of_tool_results(bench: Make) -> None:
    def flaky() -> str:
        """Looks up."""
        return "amy@example.com"

    b = bench(
        SPEC,
        [raw_call("flaky"), AIMessage("ok")],
        tools=[StructuredTool.from_function(flaky)],
        middleware=chain(
            PIIMiddleware("email", strategy="redact", apply_to_input=False, apply_to_tool_results=True)
        ),
    )
    outcome = await b.send()
    assert b.seen[1].text.endswith("[REDACTED_EMAIL]")
    assert b.results(outcome) == ["[REDACTED_EMAIL]"]


async def test_pii_is_taken_out_of_a_reply_to_a_parked_session(bench: Make) -> None:
    """A reply-only call is a model call like another (03 §10.5)."""
    b = bench(
        HUMAN,
        [raw_call("archmax_advance", to="check", reason="r"), AIMessage("handed over"), AIMessage("hm")],
        middleware=chain(PIIMiddleware("email", strategy="redact", apply_to_output=True)),
    )
    assert (await b.send()).kind == "parked"
    await b.reply("I am amy@example.com")
    assert "amy@example.com" not in b.seen[-1].text
    assert b.of("park-message", direction="outbound")[0]["text"] == "hm"


async def test_a_model_call_limit_ends_the_turn_in_words(bench: Make) -> None:
    b = bench(
        SPEC,
        [raw_call("touch", f"c{n}", n=n) for n in range(9)],
        middleware=chain(ModelCallLimitMiddleware(run_limit=2)),
    )
    outcome = await b.send()
    assert outcome.kind == "completed"
    assert "run limit (2/2)" in outcome.reply
    assert b.touched == [0, 1]
    # counted per run: the next turn has its own two
    await b.send()
    assert b.touched == [0, 1, 2, 3]


async def test_a_limit_per_thread_counts_across_turns(bench: Make) -> None:
    b = bench(
        SPEC,
        [AIMessage("one"), AIMessage("two"), AIMessage("three")],
        middleware=chain(ModelCallLimitMiddleware(thread_limit=2)),
    )
    replies = [(await b.send()).reply for _ in range(3)]
    assert replies[:2] == ["one", "two"]
    assert "thread limit (2/2)" in replies[2]


async def test_a_limit_that_raises_fails_the_turn(bench: Make) -> None:
    b = bench(
        SPEC,
        [raw_call("touch")] * 3,
        middleware=chain(ModelCallLimitMiddleware(run_limit=1, exit_behavior="error")),
    )
    outcome = await b.send()
    assert outcome.kind == "failed"
    assert outcome.exit and "ModelCallLimitExceededError" in outcome.exit["reason"]


async def test_a_tool_call_limit_blocks_the_calls_above_it(bench: Make) -> None:
    both = AIMessage(
        "",
        tool_calls=[
            {"name": "touch", "args": {"n": n}, "id": f"c{n}", "type": "tool_call"} for n in range(3)
        ],
    )
    b = bench(SPEC, [both, AIMessage("ok")], middleware=chain(ToolCallLimitMiddleware(run_limit=1)))
    outcome = await b.send()
    assert b.touched == [0]
    assert [text.startswith("Tool call limit exceeded") for text in b.results(outcome)] == [False, True, True]
    assert outcome.reply == "ok"


async def test_a_tool_call_limit_may_end_the_turn(bench: Make) -> None:
    b = bench(
        SPEC,
        [raw_call("touch", "a"), raw_call("touch", "b"), AIMessage("never")],
        middleware=chain(ToolCallLimitMiddleware(run_limit=1, exit_behavior="end")),
    )
    outcome = await b.send()
    assert outcome.kind == "completed"
    assert b.touched == [0]
    assert "limit" in outcome.reply
    assert len(b.seen) == 2


def test_human_in_the_loop_is_refused_by_name() -> None:
    """It needs a graph's interrupt; a human state does that here (ruling 13)."""
    with pytest.raises(MiddlewareError, match=r"HumanInTheLoopMiddleware.*human state"):
        chain(HumanInTheLoopMiddleware(interrupt_on={"touch": True}))


def test_any_hook_that_interrupts_is_refused_by_name() -> None:
    @before_model
    def ask(state: Any, runtime: Any) -> None:
        interrupt("well?")

    class Asks(AgentMiddleware[Any, Any, Any]):
        async def abefore_agent(self, state: Any, runtime: Any) -> None:
            self._ask()

        def _ask(self) -> list[Any]:
            return [well(question) for question in ("a", "b")]

    with pytest.raises(MiddlewareError, match="ask"):
        chain(ask)
    with pytest.raises(MiddlewareError, match=r"Asks.*interrupts a graph"):
        chain(Asks())


def well(question: str) -> Any:
    return interrupt(question)


def test_summarization_is_refused_by_name() -> None:
    """05 §13: what it would do to the transcript is known before the first turn (decision 0130)."""
    with pytest.raises(MiddlewareError, match=r"SummarizationMiddleware.*removes messages"):
        chain(SummarizationMiddleware(model=RawModel(answers=[])))


def test_no_other_published_middleware_is_taken_for_one_that_cannot_run() -> None:
    second = RawModel(answers=[])
    chain(
        ContextEditingMiddleware(edits=[ClearToolUsesEdit()]),
        FilesystemFileSearchMiddleware(root_path="."),
        LLMToolEmulator(model=second),
        LLMToolSelectorMiddleware(model=second),
        ModelCallLimitMiddleware(run_limit=1),
        ModelFallbackMiddleware(second),
        ModelRefusalMiddleware(),
        ModelRetryMiddleware(),
        PIIMiddleware("email"),
        ProviderToolSearchMiddleware(),
        ToolCallLimitMiddleware(run_limit=1),
        ToolErrorMiddleware(on_error=lambda error, request: str(error)),
        ToolRetryMiddleware(),
    )


def test_what_is_no_middleware_is_refused() -> None:
    with pytest.raises(MiddlewareError, match="no langchain AgentMiddleware"):
        chain(object())
    with pytest.raises(MiddlewareError, match="given twice"):
        chain(ModelRetryMiddleware(), ModelRetryMiddleware())


# -- hooks -----------------------------------------------------------------------------------------------------------


class Noted(AgentMiddleware[Any, Any, Any]):
    """Notes the hooks as they come; async or sync by `kind`."""

    def __init__(self, label: str, log: list[str]) -> None:
        super().__init__()
        self.label, self.log = label, log

    @property
    def name(self) -> str:
        return self.label

    def before_agent(self, state: Any, runtime: Any) -> None:
        self.log.append(f"{self.label} before_agent")

    def before_model(self, state: Any, runtime: Any) -> None:
        self.log.append(f"{self.label} before_model")

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        self.log.append(f"{self.label} after_model")

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        self.log.append(f"{self.label} after_agent")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"{self.label} model in")
        answer = handler(request)
        self.log.append(f"{self.label} model out")
        return answer

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.log.append(f"{self.label} tool in")
        answer = await handler(request)
        self.log.append(f"{self.label} tool out")
        return answer


async def test_hooks_run_in_langchains_order(bench: Make) -> None:
    """Before hooks in order, after hooks in reverse, the first given is the outermost wrap."""
    log: list[str] = []
    b = bench(SPEC, [raw_call("touch"), AIMessage("ok")], middleware=chain(Noted("a", log), Noted("b", log)))
    assert (await b.send()).reply == "ok"
    round_ = [
        *("a before_model", "b before_model"),
        *("a model in", "b model in", "b model out", "a model out"),
        *("b after_model", "a after_model"),
    ]
    assert log == [
        *("a before_agent", "b before_agent"),
        *round_,
        *("a tool in", "b tool in", "b tool out", "a tool out"),
        *round_,
        *("b after_agent", "a after_agent"),
    ]


class Counted(AgentState[Any]):
    seen: NotRequired[Annotated[int, operator.add]]
    last: NotRequired[str]


class Counter(AgentMiddleware[Any, Any, Any]):
    state_schema = Counted

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"last": f"seen {state.get('seen', 0)}", "seen": 1}


async def test_declared_fields_last_and_reduce(bench: Make) -> None:
    b = bench(SPEC, [raw_call("touch"), AIMessage("a"), AIMessage("b")], middleware=chain(Counter()))
    await b.send()
    await b.send()
    state = await b.folded()
    assert state.middleware == {"last": "seen 2", "seen": 3}


async def test_an_undeclared_field_fails_the_turn(bench: Make) -> None:
    @before_model
    def odd(state: Any, runtime: Any) -> dict[str, Any]:
        return {"nobody_said": 1}

    outcome = await bench(SPEC, [AIMessage("never")], middleware=chain(odd)).send()
    assert outcome.exit and "'nobody_said', which no state_schema declares" in outcome.exit["reason"]


async def test_messages_are_never_removed(bench: Make) -> None:
    """The transcript is a log: what a middleware wants gone is refused by name."""

    gone = RemoveMessage  # one that assembly does not see

    @before_model
    def forget(state: Any, runtime: Any) -> dict[str, Any]:
        return {"messages": [gone(id=state["messages"][0].id)]}

    outcome = await bench(SPEC, [AIMessage("never")], middleware=chain(forget)).send()
    assert outcome.exit and "'forget'" in outcome.exit["reason"]


async def test_a_hook_may_add_a_message_and_jump(bench: Make) -> None:
    @before_agent(can_jump_to=["end"])
    def greet(state: Any, runtime: Any) -> dict[str, Any] | None:
        if state["messages"][-1].content == "stop":
            return {"messages": [AIMessage("closed")], "jump_to": "end"}
        return {"messages": [HumanMessage("be brief")]}

    b = bench(SPEC, [AIMessage("ok")], middleware=chain(greet))
    assert (await b.send("stop")).reply == "closed"
    assert b.seen == []
    await b.send("hello")
    assert b.seen[0].text.endswith("hello\nbe brief")


async def test_after_agent_may_send_the_agent_back(bench: Make) -> None:
    turns: list[int] = []

    @after_agent(can_jump_to=["model"])
    async def more(state: Any, runtime: Any) -> dict[str, Any] | None:
        turns.append(len(state["messages"]))
        if len(turns) == 1:
            return {"messages": [HumanMessage("and the rest?")], "jump_to": "model"}
        return None

    b = bench(SPEC, [AIMessage("half"), AIMessage("whole")], middleware=chain(more))
    assert (await b.send()).reply == "half\n\nwhole"
    assert len(turns) == 2


async def test_a_sync_wrap_makes_its_call_on_the_turns_loop(bench: Make) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def flaky() -> str:
        """Notes its loop."""
        loops.append(asyncio.get_running_loop())
        return "there"

    @wrap_tool_call
    def louder(request: Any, handler: Any) -> Any:
        answer = handler(request)
        return ToolMessage(answer.content.upper(), tool_call_id=request.tool_call["id"])

    b = bench(
        SPEC,
        [raw_call("flaky"), AIMessage("ok")],
        tools=[StructuredTool.from_function(coroutine=flaky, name="flaky")],
        middleware=chain(louder),
    )
    outcome = await b.send()
    assert b.results(outcome) == ["THERE"]
    assert loops == [asyncio.get_running_loop()]


async def test_a_wrap_may_change_the_request(bench: Make) -> None:
    @wrap_model_call
    async def shorter(request: Any, handler: Any) -> Any:
        assert [t["function"]["name"] for t in request.tools][-1] == "touch"
        return await handler(request.override(tools=[], messages=request.messages[-1:]))

    b = bench(SPEC, [AIMessage("a"), AIMessage("b")], middleware=chain(shorter))
    await b.send("one")
    await b.send("two")
    assert b.seen[1].text == "two"


async def test_changed_arguments_are_judged_again(bench: Make) -> None:
    """A middleware cannot carry a call past the kernel (02 §3)."""

    @wrap_tool_call
    async def elsewhere(request: Any, handler: Any) -> Any:
        args = {**request.tool_call["args"], "file_path": "checkpoints/head"}
        return await handler(request.override(tool_call={**request.tool_call, "args": args}))

    b = bench(
        SPEC,
        [raw_call("write_file", file_path="scratchpad/a", content="x"), AIMessage("ok")],
        middleware=chain(elsewhere),
    )
    outcome = await b.send()
    assert b.results(outcome)[0].startswith("Error: ")
    assert (await b.state()).files == {}


async def test_a_wrap_may_answer_with_a_command(bench: Make) -> None:
    class Stamps(AgentMiddleware[Any, Any, Any]):
        state_schema = Counted

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return Command(
                update={
                    "last": "stamped",
                    "messages": [ToolMessage("by hand", tool_call_id=request.tool_call["id"])],
                }
            )

    b = bench(SPEC, [raw_call("touch"), AIMessage("ok")], middleware=chain(Stamps()))
    outcome = await b.send()
    assert b.results(outcome) == ["by hand"]
    assert b.touched == []
    assert (await b.state()).middleware == {"last": "stamped"}


async def test_a_blocked_call_reaches_no_middleware(bench: Make) -> None:
    asked: list[str] = []

    @wrap_tool_call
    async def spy(request: Any, handler: Any) -> Any:
        asked.append(request.tool_call["name"])
        return await handler(request)

    b = bench(
        SPEC,
        [raw_call("read_file", file_path="checkpoints/head"), AIMessage("ok")],
        middleware=chain(spy),
    )
    await b.send()
    assert asked == []


async def test_tools_of_scripts_pass_through_the_wrap_too(bench: Make) -> None:
    @wrap_tool_call
    async def louder(request: Any, handler: Any) -> Any:
        answer = await handler(request)
        return ToolMessage(answer.content.upper(), tool_call_id=request.tool_call["id"])

    b = bench(
        SPEC,
        [raw_call("archmax_eval", code="await tools.touch({n: 4})"), AIMessage("ok")],
        middleware=chain(louder),
    )
    outcome = await b.send()
    assert "TOUCHED 4" in b.results(outcome)[0]


async def test_a_middlewares_tools_can_be_granted(bench: Make) -> None:
    @tool
    def flaky() -> str:
        """Tells the time."""
        return "noon"

    class Brings(AgentMiddleware[Any, Any, Any]):
        tools = (flaky,)

    given = chain(Brings())
    b = bench(SPEC, [raw_call("flaky"), AIMessage("ok")], tools=given.tools, middleware=given)
    outcome = await b.send()
    assert b.results(outcome) == ["noon"]


async def test_a_graders_calls_pass_through_the_wraps(bench: Make) -> None:
    second = RawModel(answers=[raw_call("archmax_advance", to="done", reason="fine")])
    b = bench(
        """
        states:
          work: {triggers: {manual: {}}, type: grader, instructions: Judge., transitions: [{to: done, description: Good.}]}
          done: {}
        """,
        [ValueError("down"), AIMessage("end")],
        middleware=chain(ModelFallbackMiddleware(second)),
    )
    outcome = await b.send()
    assert outcome.state == "done"
    assert second._seen[0].role == "grader"


@pytest.mark.parametrize("error", [ValueError("no budget left"), TimeoutError("too slow")])
async def test_what_a_middleware_raises_around_a_grader_fails_the_state(
    bench: Make, error: Exception
) -> None:
    """03 §11.4: an automated state that threw takes its `on_error`; the turn goes on."""

    @wrap_model_call
    async def stop(request: Any, handler: Any) -> Any:
        if "You judge work" in request.system_message.text:
            raise error
        return await handler(request)

    b = bench(
        """
        states:
          work: {triggers: {manual: {}}, type: grader, instructions: Judge., on_error: mend,
                 transitions: [{to: mend, description: Good.}]}
          mend: {}
        """,
        [AIMessage("mended")],
        middleware=chain(stop),
    )
    outcome = await b.send()
    assert (outcome.kind, outcome.state) == ("completed", "mend")
    assert b.one("state-error-routed")["reason"] == f"grader state 'work': {error}"


async def test_a_turn_taken_over_after_any_commit_keeps_what_middleware_counted(bench: Make) -> None:
    """Middleware state is part of the fold: a process that takes a turn over counts on."""
    for crash_at in range(1, 8):
        b = bench(
            SPEC,
            [raw_call("touch", f"c{n}", n=n) for n in range(9)],
            middleware=chain(ModelCallLimitMiddleware(run_limit=3)),
        )
        world = World(b)
        world.crash.left = crash_at
        ended = await world.turn({"kind": "message", "message": "go"})
        assert "run limit (3/3)" in ended["reply"]
