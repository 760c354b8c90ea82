"""Broken model output: each kind has a rule, none ends a turn silently, good sibling calls still run (03 §13, 09)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from tests.support.engine import Bench, RawModel, call, do, say

Make = Callable[..., Bench]
SPEC = """
    states:
      intake:
        triggers: { manual: }
        on_error: rescue
        tools: { allow: [touch] }
      rescue:
"""


def bad(raw: str, name: str = "touch") -> dict[str, Any]:
    return {"name": name, "raw_args": raw}


def finished(text: str, reason: str, **more: Any) -> AIMessage:
    return AIMessage(text, response_metadata={"finish_reason": reason}, **more)


async def test_unreadable_arguments_are_answered_and_good_siblings_run(bench: Make) -> None:
    """Not JSON, or JSON that is no object: an error answer quoting it; nothing is invented."""
    message = do(bad('{"n": 1'), call("touch", n=2), bad("[3]"), bad('"four"'))
    b = bench(SPEC, [message, say("done")])
    outcome = await b.send()
    assert b.touched == [2]
    results = [m for m in outcome.transcript if m["role"] == "tool"]
    assert [m["status"] for m in results].count("error") == 3
    assert sum("not a JSON object" in m["text"] for m in results) == 3
    assert outcome.kind == "completed"


async def test_unreadable_arguments_four_messages_in_a_row_fail_the_state(bench: Make) -> None:
    """A model that never gets it right ends in the state's `on_error`, not at the recursion limit."""
    b = bench(SPEC, [{**do(bad("{")), "repeat": True, "when_state": "intake"}, say("tidied")])
    outcome = await b.send()
    assert outcome.state == "rescue"
    assert "unreadable" in b.one("state-error-routed")["reason"]
    assert len([seen for seen in b.seen if seen.state == "intake"]) == 4


async def test_a_readable_message_between_starts_the_count_again(bench: Make) -> None:
    """Consecutive ones count."""
    three = [do(bad("{"))] * 3
    b = bench(SPEC, [*three, do(call("touch", n=1)), *three, say("done")])
    assert (await b.send()).state == "intake"


@pytest.mark.parametrize("levels", [150, 600, 5000])
@pytest.mark.parametrize("as_text", [True, False])
async def test_arguments_nested_too_deeply_are_answered(bench: Make, levels: int, as_text: bool) -> None:
    """Whether a provider gives them as text or parsed: what no writer of JSON takes must not end the turn."""
    deep: Any = 1
    for _ in range(levels):
        deep = [deep]
    wrong = {"name": "archmax_set_variables", "args": {"variables": {"a": deep}}, "id": "c1"}
    raw = f'{{"variables": {{"a": {"[" * levels}1{"]" * levels}}}}}'
    first = do(bad(raw, "archmax_set_variables")) if as_text else AIMessage("", tool_calls=[wrong])
    b = bench(SPEC, [first, say("done") if as_text else AIMessage("done")])
    outcome = await b.send()
    assert outcome.kind == "completed"
    [result] = [m for m in outcome.transcript if m["role"] == "tool"]
    assert result["status"] == "error" and "levels deep" in result["text"]
    assert b.values(outcome) == {}


async def test_unknown_tools_are_answered_by_name(bench: Make) -> None:
    """03 §6: error status; `archmax_note` is no tool (§12)."""
    b = bench(SPEC, [do(call("teleport"), call("archmax_note"), call("touch", n=1)), say("done")])
    outcome = await b.send()
    first, note, good = b.results(outcome)
    assert "teleport" in first and "archmax_note" in note and good == "touched 1"
    assert [m["status"] for m in outcome.transcript if m["role"] == "tool"] == ["error", "error", "ok"]


async def test_two_calls_with_one_id_both_run_and_are_told_apart(bench: Make) -> None:
    """Every id has exactly one result; a missing id gets one."""
    calls: list[dict[str, Any]] = [{"name": "touch", "args": {"n": n}, "id": "same"} for n in (1, 2)]
    calls.append({"name": "touch", "args": {"n": 3}, "id": None})
    again = AIMessage("", tool_calls=[{"name": "touch", "args": {"n": 4}, "id": "same"}])
    b = bench(SPEC, [AIMessage("", tool_calls=calls), again, AIMessage("done")])
    outcome = await b.send()
    assert sorted(b.touched) == [1, 2, 3, 4]
    ids = [m["id"] for m in outcome.transcript if m["role"] == "tool"]
    assert len(set(ids)) == 4 and all(ids)


async def test_a_call_beside_a_final_text_runs_and_the_turn_goes_on(bench: Make) -> None:
    """03 §4.2: a turn ends with a message that carries no call."""
    b = bench(SPEC, [do(call("touch", n=1), text="All done!"), say("Now it is.")])
    outcome = await b.send()
    assert b.touched == [1] and outcome.reply == "All done!\n\nNow it is."


async def test_an_empty_answer_is_asked_for_again_and_then_told(bench: Make) -> None:
    """Twice; then the turn completes with a warning, never silently."""
    b = bench(SPEC, [say(""), say("  "), say("here")])
    assert (await b.send()).reply == "here"
    assert len(b.of("warning")) == 2
    silent = bench(SPEC, [say(""), say(""), say("")])
    outcome = await silent.send()
    assert (outcome.kind, outcome.reply, len(silent.of("warning"))) == ("completed", "", 3)


async def test_an_empty_answer_after_a_spoken_one_ends_the_turn(bench: Make) -> None:
    """Models say what they do, call, and have nothing to add: that is no fault."""
    b = bench(SPEC, [do(call("touch", n=1), text="Touched it."), say("")])
    outcome = await b.send()
    assert (outcome.kind, outcome.reply, len(b.seen)) == ("completed", "Touched it.", 2)


async def test_a_refusal_without_words_fails_the_state(bench: Make) -> None:
    """Fail closed: a filtered answer is not a finished one; decision 0120."""
    b = bench(SPEC, [finished("", "content_filter"), AIMessage("tidied")])
    outcome = await b.send()
    assert outcome.state == "rescue" and "refused" in b.one("state-error-routed")["reason"]
    assert b.of("warning")


async def test_a_refusal_in_words_is_an_answer_with_a_warning(bench: Make) -> None:
    """What it said stands."""
    b = bench(SPEC, [finished("I would rather not.", "refusal")])
    outcome = await b.send()
    assert (outcome.kind, outcome.reply) == ("completed", "I would rather not.")
    assert "refusal" in b.one("warning")["message"]


@pytest.mark.parametrize(
    "refusal",
    [
        AIMessage("", additional_kwargs={"refusal": "I would rather not."}),
        AIMessage([{"type": "refusal", "refusal": "I would rather not."}]),
    ],
)
async def test_a_refusal_a_provider_keeps_apart_from_the_text_is_heard(
    bench: Make, refusal: AIMessage
) -> None:
    """Chat completions and the Responses API each have their place for it."""
    b = bench(SPEC, [refusal])
    outcome = await b.send()
    assert (outcome.kind, outcome.reply) == ("completed", "I would rather not.")
    assert "refusal" in b.one("warning")["message"]
    assert b.one("agent-text")["text"] == "I would rather not."


@pytest.mark.parametrize(
    "metadata",
    [
        {"finish_reason": "SAFETY"},
        {"finish_reason": "PROHIBITED_CONTENT"},
        {"stopReason": "guardrail_intervened"},
        {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
    ],
)
async def test_every_providers_word_for_a_refusal_is_known(bench: Make, metadata: dict[str, Any]) -> None:
    b = bench(SPEC, [AIMessage("", response_metadata=metadata), AIMessage("tidied")])
    assert (await b.send()).state == "rescue"


@pytest.mark.parametrize(
    "metadata",
    [
        {"finish_reason": "MAX_TOKENS"},
        {"stopReason": "max_tokens"},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ],
)
async def test_every_providers_word_for_a_cut_is_known(bench: Make, metadata: dict[str, Any]) -> None:
    b = bench(SPEC, [AIMessage("one", response_metadata=metadata), AIMessage("two")])
    assert (await b.send()).reply == "one\n\ntwo"


async def test_an_answer_cut_by_its_length_is_continued_twice(bench: Make) -> None:
    """The note asks to go on; all parts are the reply."""
    b = bench(SPEC, [finished("one", "length"), finished("two", "max_tokens"), finished("three", "stop")])
    outcome = await b.send()
    assert outcome.reply == "one\n\ntwo\n\nthree"
    assert [kind for kind, _ in b.notes(outcome)] == ["error", "error"]
    b = bench(SPEC, [finished(str(n), "length") for n in range(3)])
    assert (await b.send()).kind == "completed" and len(b.of("warning")) == 1


async def test_progress_between_two_cuts_starts_the_count_again(bench: Make) -> None:
    """Consecutive ones count."""
    touch = AIMessage("", tool_calls=[{"name": "touch", "args": {"n": 1}, "id": "t"}])
    cut = [finished("a", "length"), finished("b", "length")]
    b = bench(SPEC, [*cut, touch, *[m.model_copy(update={"id": None}) for m in cut], AIMessage("done")])
    assert (await b.send()).reply.endswith("done")


async def test_a_call_cut_in_the_middle_of_its_arguments_does_not_run(bench: Make) -> None:
    """Completed JSON nobody wrote must not reach a tool."""
    cut = AIMessage(
        "", invalid_tool_calls=[{"name": "touch", "args": '{"n": 1', "id": "c", "error": "cut", "type": "invalid_tool_call"}],
        response_metadata={"finish_reason": "length"},
    )  # fmt: skip
    b = bench(SPEC, [cut, AIMessage("done")])
    outcome = await b.send()
    assert b.touched == [] and "not a JSON object" in b.results(outcome)[0]


async def test_text_streamed_before_a_model_fails_is_told_once_as_partial(bench: Make) -> None:
    """03 §13.4: `agent-text` with `partial`, without a committed message."""

    class Breaks(Exception):
        status_code = 400

    class Breaking(RawModel):
        async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
            yield ChatGenerationChunk(message=AIMessageChunk(content="Half a "))
            yield ChatGenerationChunk(message=AIMessageChunk(content="sentence"))
            raise Breaks("gone")

    b = bench(SPEC, Breaking(answers=[]))
    outcome = await b.send()
    assert outcome.kind == "failed"
    partial = b.one("agent-text")
    assert (partial["text"], partial["partial"]) == ("Half a sentence", True)
    assert outcome.reply == ""
