from __future__ import annotations

import pickle

import pytest

from engine.models.errors import ModelScriptError
from engine.models.script import DONE, ModelScript, Request


def script(text: str) -> ModelScript:
    return ModelScript.parse("case.model.yaml", text)


def request(**fields: object) -> Request:
    values: dict[str, object] = {"role": "agent", "workflow": "shop", "state": "ask", "text": "", **fields}
    return Request(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, ["list of answers"]),
        ("text: hi\n", 1, ["list of answers"]),
        ("- text: hi\n-\n  - a\n", 3, ["answer 1", "mapping"]),
        ("- text: hi\n  txt: no\n", 2, ["unknown key", "'txt'", "tool_calls"]),
        ("- text: 4\n", 1, ["text", "string"]),
        ("- text: a\n- role: person\n", 2, ["role", "agent, grader, judge"]),
        ("- when_state: ''\n", 1, ["when_state", "non-empty"]),
        ("- when_contains: []\n", 1, ["when_contains"]),
        ("- when_contains: [a, 3]\n", 1, ["when_contains"]),
        ("- text: a\n  delay_ms: -1\n", 2, ["delay_ms"]),
        ("- text: a\n  delay_ms: soon\n", 2, ["delay_ms", "milliseconds"]),
        ("- error: ''\n", 1, ["error"]),
        ("- error_status: 429\n", 1, ["error_status", "needs an error"]),
        ("- error: no\n  error_status: 200\n", 2, ["status between 400 and 599"]),
        ("- error: no\n  text: yes\n", 2, ["no text"]),
        ("- usage: { input: 1 }\n", 1, ["usage needs output"]),
        ("- usage:\n    input: 1\n    output: 2\n    cached: 3\n", 4, ["unknown key", "'cached'"]),
        ("- usage: { input: 1, output: true }\n", 1, ["usage.output", "whole number"]),
        ("- repeat: 1\n", 1, ["repeat", "true or false"]),
        ("- tool_calls: {}\n", 1, ["tool_calls", "list"]),
        ("- tool_calls:\n    - args: {}\n", 2, ["tool_calls[0]", "needs a name"]),
        ("- tool_calls:\n    - name: a\n      argz: {}\n", 3, ["unknown key", "'argz'", "tool_calls[0]"]),
        ("- tool_calls:\n    - name: a\n      args: [1]\n", 3, ["args", "mapping"]),
        ("- tool_calls:\n    - name: a\n      raw_args: 4\n", 3, ["raw_args", "string"]),
        ("- tool_calls: [{ name: a, raw_args: '{}', args: {} }]\n", 1, ["both"]),
        ("- text: a\n  text: b\n", 2, ["not YAML", "twice"]),
        ("- text: [\n", 2, ["not YAML"]),
    ],
)
def test_a_malformed_script_is_refused_with_file_and_line(text: str, line: int, words: list[str]) -> None:
    """09 §1, §2."""
    with pytest.raises(ModelScriptError) as caught:
        script(text)
    assert (caught.value.file, caught.value.line) == ("case.model.yaml", line)
    assert str(caught.value).startswith(f"case.model.yaml:{line}: ")
    assert [word for word in words if word not in str(caught.value)] == []
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_every_key_of_an_answer_is_read() -> None:
    """09 §2."""
    (answer,) = script(
        """
- text: hi
  tool_calls:
    - { name: read_file, args: { path: a } }
    - { name: note }
    - { name: bad, raw_args: '{"a": ' }
  role: grader
  when_state: check
  when_workflow: shop
  when_contains: [one, two]
  after_tool: read_file
  delay_ms: 20
  usage: { input: 10, output: 2, cache_read: 4, cache_write: 1 }
  repeat: true
  optional: true
"""
    ).answers
    assert answer.line == 2
    assert [call.args for call in answer.tool_calls] == [{"path": "a"}, {}, {}]
    assert answer.tool_calls[2].raw_args == '{"a": '
    assert (answer.role, answer.when_state, answer.when_workflow) == ("grader", "check", "shop")
    assert (answer.when_contains, answer.after_tool, answer.delay_ms) == (("one", "two"), "read_file", 20)
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.cache_write) == (10, 1)
    assert answer.repeat and answer.optional


def test_an_answer_with_nothing_to_say_is_an_empty_answer() -> None:
    """09 §2."""
    (answer,) = script("- {}\n").answers
    assert (answer.text, answer.tool_calls, answer.error) == ("", (), None)


def test_the_first_unused_answer_whose_conditions_hold_is_chosen() -> None:
    """09 §2, Choosing."""
    played = script(
        """
- { text: elsewhere, when_state: other }
- { text: first }
- { text: second }
"""
    )
    assert played.choose(request(), frozenset()).text == "first"  # type: ignore[union-attr]
    assert played.choose(request(), frozenset({1})).text == "second"  # type: ignore[union-attr]
    assert played.choose(request(state="other"), frozenset({1})).text == "elsewhere"  # type: ignore[union-attr]
    assert played.choose(request(), frozenset({1, 2})) is None


@pytest.mark.parametrize(
    ("condition", "fits", "misses"),
    [
        ("role: judge", {"role": "judge"}, {"role": "agent"}),
        ("when_state: ask", {"state": "ask"}, {"state": "other"}),
        ("when_workflow: shop", {"workflow": "shop"}, {"workflow": "shop2"}),
        ("when_contains: parcel", {"text": "my parcel?"}, {"text": "my Parcel?"}),
        ("when_contains: [a, b]", {"text": "b then a"}, {"text": "only a"}),
        ("after_tool: grep", {"last_tool": "grep"}, {"last_tool": "read_file"}),
        ("after_tool: grep", {"last_tool": "grep", "last_accepted": False}, {"last_tool": None}),
    ],
)
def test_a_condition_lets_only_its_requests_through(
    condition: str, fits: dict[str, object], misses: dict[str, object]
) -> None:
    """09 §2."""
    played = script(f"- {{ text: yes, {condition} }}\n")
    assert played.choose(request(**fits), frozenset()) is not None
    assert played.choose(request(**misses), frozenset()) is None


def test_a_request_of_another_role_is_not_answered_by_an_agents_answer() -> None:
    """09 §2: `role` defaults to `agent`."""
    assert script("- text: hi\n").choose(request(role="grader"), frozenset()) is None


def test_a_repeated_answer_is_never_used_up() -> None:
    """09 §2."""
    played = script("- { text: again, repeat: true }\n")
    assert played.choose(request(), frozenset({0})) is not None


@pytest.mark.parametrize("tool", ["archmax_advance", "archmax_raise"])
def test_a_grader_that_has_decided_is_answered_done_and_uses_nothing_up(tool: str) -> None:
    """09 §2, Choosing."""
    played = script("- { text: next visit, role: grader }\n")
    after = request(role="grader", last_tool=tool, last_accepted=True)
    assert played.choose(after, frozenset()) is DONE
    assert played.choose(request(role="grader"), frozenset()).text == "next visit"  # type: ignore[union-attr]


def test_a_grader_that_has_decided_is_answered_by_an_answer_that_names_the_call() -> None:
    """09 §2, Choosing."""
    played = script(
        "- { text: visit, role: grader }\n- { text: closing, role: grader, after_tool: archmax_advance }\n"
    )
    after = request(role="grader", last_tool="archmax_advance", last_accepted=True)
    assert played.choose(after, frozenset()).text == "closing"  # type: ignore[union-attr]
    assert played.choose(after, frozenset({1})) is DONE


def test_a_refused_move_of_a_grader_is_answered_from_the_script() -> None:
    """09 §2: only an accepted call settles the visit."""
    played = script("- { text: another try, role: grader }\n")
    refused = request(role="grader", last_tool="archmax_advance", last_accepted=False)
    assert played.choose(refused, frozenset()).text == "another try"  # type: ignore[union-attr]


def test_an_agent_that_moved_is_answered_from_the_script() -> None:
    """09 §2: the rule is about graders."""
    played = script("- text: moved on\n")
    moved = request(last_tool="archmax_advance", last_accepted=True)
    assert played.choose(moved, frozenset()).text == "moved on"  # type: ignore[union-attr]


def test_answers_that_had_to_be_given_and_were_not_are_named_by_index_and_line() -> None:
    """09 §2, Failures of the script."""
    played = script("- text: a\n- { text: b, optional: true }\n- text: c\n- { text: d, repeat: true }\n")
    assert [(answer.index, answer.line) for answer in played.unused({0})] == [(2, 3), (3, 4)]
    assert played.unused({0, 2, 3}) == ()
