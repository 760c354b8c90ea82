from __future__ import annotations

import asyncio

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from engine.models.calling import RetryPolicy, call_model
from engine.models.errors import CallFailure, ModelCallError, ScriptExhausted
from engine.models.scope import CallScope, ScriptPlay
from engine.models.script import ModelScript
from engine.models.scripted import ScriptedChatModel

FAST = RetryPolicy(first_wait_seconds=0)
ASKED = [HumanMessage("hello")]


def model(text: str, model_id: str = "scripted") -> ScriptedChatModel:
    return ScriptedChatModel(script=ModelScript.parse("s.yaml", text), model_id=model_id)


@tool
def look(path: str) -> str:
    """Look at a path."""
    return path


def test_it_is_a_chat_model_that_binds_tools_and_answers() -> None:
    """09, first paragraph."""
    scripted = model("- { text: hi, tool_calls: [{ name: look, args: { path: a } }] }\n")
    assert isinstance(scripted, BaseChatModel)
    answer = scripted.bind_tools([look]).invoke(ASKED)
    assert answer.text == "hi"
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [("look", {"path": "a"})]
    assert answer.tool_calls[0]["id"]


async def test_it_answers_the_same_in_every_way_of_asking() -> None:
    """09: sync, async, streamed."""
    text = "- { text: a rather long answer in pieces, repeat: true, usage: { input: 7, output: 3, cache_read: 2 } }\n"
    scripted = model(text)
    whole = [scripted.invoke(ASKED), await scripted.ainvoke(ASKED)]
    streams = [list(scripted.stream(ASKED)), [chunk async for chunk in scripted.astream(ASKED)]]
    for chunks in streams:
        assert len([chunk for chunk in chunks if chunk.text]) > 1
        added = chunks[0]
        for chunk in chunks[1:]:
            added = added + chunk
        assert isinstance(added, AIMessageChunk)
        whole.append(added)
    for answer in whole:
        assert answer.text == "a rather long answer in pieces"
        assert answer.usage_metadata is not None
        assert answer.usage_metadata["input_tokens"] == 7
        assert answer.usage_metadata["output_tokens"] == 3
        assert answer.usage_metadata["input_token_details"]["cache_read"] == 2  # type: ignore[typeddict-item]


async def test_usage_is_estimated_from_lengths_when_the_script_gives_none() -> None:
    """09 §2: `usage`."""
    answer = await model(f"- text: {'y' * 80}\n").ainvoke([HumanMessage("x" * 400)])
    assert answer.usage_metadata is not None
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (100, 20)


@pytest.mark.parametrize("raw", ['{"ref": ', "[1]", "null", "5", '"x"', "{'a': 1}", '{"a": NaN}', "{}x"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_arguments_that_are_no_json_object_come_out_as_an_invalid_call(
    raw: str, streamed: bool
) -> None:
    """09 §2 `raw_args`; known fault H13: never invented arguments, and the good sibling survives."""
    quoted = raw.replace("'", "''")
    scripted = model(
        f"- tool_calls: [{{ name: look, raw_args: '{quoted}' }}, {{ name: look, args: {{ path: b }} }}]\n"
    )
    answer = await call_model(
        scripted, ASKED, scope=CallScope("agent"), on_text_delta=(lambda *_: None) if streamed else None
    )
    assert [call["args"] for call in answer.tool_calls] == [{"path": "b"}]
    assert [(call["name"], call["args"]) for call in answer.invalid_tool_calls] == [("look", raw)]
    assert answer.invalid_tool_calls[0]["error"]
    assert answer.invalid_tool_calls[0]["id"]


async def test_the_callers_role_workflow_and_state_decide_the_answer() -> None:
    """09 §2."""
    scripted = model(
        """
- { text: judged, role: judge }
- { text: there, when_state: there }
- { text: child, when_workflow: child }
"""
    )
    play = ScriptPlay()
    child = await call_model(scripted, ASKED, scope=CallScope("agent", "child", "here", play))
    there = await call_model(scripted, ASKED, scope=CallScope("agent", "shop", "there", play))
    judged = await call_model(scripted, ASKED, scope=CallScope("judge", "shop", "", play))
    assert (child.text, there.text, judged.text) == ("child", "there", "judged")
    assert play.used == {0, 1, 2}
    assert scripted.script.unused(play.used) == ()


async def test_conditions_see_system_prompt_messages_and_tool_results() -> None:
    """09 §2: `when_contains`, `after_tool`."""
    request = [
        SystemMessage([{"type": "text", "text": "static ALPHA"}, {"type": "text", "text": "volatile BETA"}]),
        HumanMessage("GAMMA"),
        AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}]),
        ToolMessage("DELTA", tool_call_id="c1"),
    ]
    scripted = model("- { text: found, when_contains: [ALPHA, BETA, GAMMA, DELTA], after_tool: look }\n")
    assert (await call_model(scripted, request, scope=CallScope("agent"))).text == "found"


async def test_an_answer_is_used_when_its_request_arrives_also_if_nobody_waits_for_it() -> None:
    """09 §2, Choosing; `delay_ms` is cancellable."""
    scripted = model("- { text: slow, delay_ms: 3600000 }\n- text: quick\n")
    play = ScriptPlay()
    scope = CallScope("agent", play=play)
    call = asyncio.create_task(call_model(scripted, ASKED, scope=scope, timeout_ms=86_400_000))
    while not play.used:  # noqa: ASYNC110 - the model tells nobody, by design
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert scope.taken == [0]
    assert (await call_model(scripted, ASKED, scope=CallScope("agent", play=play))).text == "quick"


async def test_the_answer_says_which_indexes_the_call_used_up_retried_errors_included() -> None:
    """Ruling 20."""
    scripted = model(
        "- { error: busy, error_status: 429 }\n- { error: down, error_status: 503 }\n- text: at last\n"
    )
    scope = CallScope("agent")
    answer = await call_model(scripted, ASKED, scope=scope, retry=FAST)
    assert answer.text == "at last"
    assert answer.response_metadata["scripted"] == {"used": [0, 1, 2]}
    assert scope.taken == [0, 1, 2]


async def test_a_failed_call_says_which_indexes_it_used_up() -> None:
    """Ruling 20; 09 §2 `error`."""
    scripted = model("- { error: busy, error_status: 429, repeat: true }\n")
    with pytest.raises(ModelCallError) as caught:
        await call_model(scripted, ASKED, scope=CallScope("agent"), retry=FAST)
    assert (caught.value.kind, caught.value.used) == (CallFailure.RATE_LIMITED, (0, 0, 0))
    assert "busy" in str(caught.value)


async def test_an_error_without_a_status_is_raised_with_its_text_and_not_tried_again() -> None:
    """09 §2 `error`."""
    scripted = model("- error: the cat ate it\n- text: never\n")
    with pytest.raises(ModelCallError, match="the cat ate it") as caught:
        await call_model(scripted, ASKED, scope=CallScope("agent"), retry=FAST)
    assert (caught.value.kind, caught.value.used) == (CallFailure.FAILED, (0,))


async def test_a_request_nothing_fits_names_role_workflow_and_state() -> None:
    """09 §2, Failures of the script."""
    play = ScriptPlay()
    with pytest.raises(ModelCallError) as caught:
        await call_model(model("[]\n"), ASKED, scope=CallScope("grader", "shop", "check", play), retry=FAST)
    assert caught.value.kind is CallFailure.EXHAUSTED
    for word in ("script exhausted", "'grader'", "'shop'", "'check'"):
        assert word in str(caught.value)
    assert play.exhausted == [str(caught.value)]


async def test_a_request_nothing_fits_tells_the_error_it_ends_with() -> None:
    """Mostly a call of the script itself was refused, and its author has not foreseen it."""
    asked = [
        *ASKED,
        AIMessage("", tool_calls=[{"name": "archmax_advance", "args": {}, "id": "c1"}]),
        ToolMessage("Error: archmax_advance needs\na reason", tool_call_id="c1", status="error"),
    ]
    with pytest.raises(ModelCallError) as caught:
        await call_model(model("[]\n"), asked, scope=CallScope("agent", "shop", "ask"), retry=FAST)
    assert str(caught.value).endswith("with 'Error: archmax_advance needs a reason'")


async def test_a_step_repeated_after_a_crash_gets_the_same_answer() -> None:
    """09 §2, In the fleet: what is used comes from the caller, never from the model's memory."""
    scripted = model("- text: one\n- text: two\n")
    for _ in range(2):
        answer = await call_model(scripted, ASKED, scope=CallScope("agent", play=ScriptPlay({0})))
        assert answer.text == "two"


async def test_one_model_object_serves_many_copies_at_once() -> None:
    """Ruling 20: each session plays its own copy."""
    scripted = model("- { text: one, delay_ms: 1 }\n- { text: two, delay_ms: 1 }\n")

    async def session() -> list[str]:
        play = ScriptPlay()
        answers = [await call_model(scripted, ASKED, scope=CallScope("agent", play=play)) for _ in range(2)]
        return [str(answer.text) for answer in answers]

    assert await asyncio.gather(*(session() for _ in range(20))) == [["one", "two"]] * 20


async def test_used_directly_it_remembers_what_it_played() -> None:
    """09: without a caller's scope it is an ordinary model."""
    scripted = model("- text: one\n- text: two\n")
    assert [(await scripted.ainvoke(ASKED)).text for _ in range(2)] == ["one", "two"]
    with pytest.raises(ScriptExhausted):
        await scripted.ainvoke(ASKED)


async def test_the_id_that_was_asked_for_is_reported() -> None:
    """09 §1: the id requested is in `model-usage` events."""
    answer = await call_model(model("- text: a\n", model_id="vendor/big"), ASKED, scope=CallScope("agent"))
    assert answer.response_metadata["model_name"] == "vendor/big"
