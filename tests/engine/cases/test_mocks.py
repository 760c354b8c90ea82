from __future__ import annotations

from typing import Any

import pytest

from engine.cases.document import Mock
from engine.cases.mocks import find_mock, mocked_text
from engine.delegation.mocks import MockedChild, mocked_child


def test_the_first_matching_entry_in_document_order_wins() -> None:
    """06 §8."""
    mocks = (
        Mock("look", {"path": "/^a/"}, "regex"),
        Mock("look", {"path": "b", "deep": {"n": 1}}, "deep"),
        Mock("look", None, "any"),
        Mock("look", {}, "never"),
    )

    def answer(tool: str, args: dict[str, Any]) -> str | None:
        mock = find_mock(mocks, tool, args)
        return mock.result if mock else None

    assert answer("look", {"path": "abc"}) == "regex"
    assert answer("look", {"path": "b", "deep": {"n": 1, "m": 2}, "x": 1}) == "deep"
    assert answer("look", {}) == "any"
    assert answer("other", {}) is None


def test_control_tools_are_never_mocked() -> None:
    """06 §8."""
    assert find_mock([Mock("archmax_advance"), Mock("archmax_wait")], "archmax_advance", {}) is None


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, "null"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        (False, "false"),
    ],
)
def test_a_result_is_the_tools_text_or_compact_json(result: Any, text: str) -> None:
    """06 §8."""
    assert mocked_text(Mock("look", None, result)) == text


@pytest.mark.parametrize(
    ("result", "child"),
    [
        ({"error": "no stock", "message": "x"}, MockedChild(error="no stock")),
        ({"error": {"code": 1}}, MockedChild(error='{"code":1}')),
        ({"message": "done", "returns": {"a": 1}}, MockedChild("done", {"a": 1})),
        ({"returns": {"a": 1}}, MockedChild("", {"a": 1})),
        ({"message": "done"}, MockedChild("done")),
        ({}, MockedChild()),
        ("closing words", MockedChild("closing words")),
        ({"other": 1}, MockedChild('{"other":1}')),
        ([1], MockedChild("[1]")),
        (None, MockedChild("null")),
    ],
)
def test_a_mocked_sub_workflow_answers_as_its_result_says(result: Any, child: MockedChild) -> None:
    """06 §8.1."""
    assert mocked_child(result) == child
