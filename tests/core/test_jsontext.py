"""One rule for text and numbers that JSON cannot hold (known fault H20)."""

from __future__ import annotations

import pickle

import pytest

from core.errors import ArchmaxError
from core.jsontext import MAX_DEPTH, clean, dumps, loads, too_deep, well_formed


def test_half_an_emoji_becomes_the_replacement_character_both_ways() -> None:
    assert well_formed("a\ud800b") == "a\ufffdb"
    assert loads(dumps({"k\ud800": ["x\udfff"]})) == {"k\ufffd": ["x\ufffd"]}


def test_a_whole_emoji_written_as_two_halves_is_joined() -> None:
    assert well_formed("\ud83d\ude00") == "\U0001f600"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_becomes_null(value: float) -> None:
    assert clean({"n": value}) == {"n": None}
    assert loads(dumps({"n": value})) == {"n": None}


def test_integers_of_any_size_survive() -> None:
    assert loads(dumps({"n": 2**200})) == {"n": 2**200}


def test_what_is_no_json_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"JSON|Expecting|line 1"):
        loads("{")


def test_how_deep_a_value_is_is_told_without_recursion() -> None:
    assert not too_deep({"a": [1, "x", None]})
    assert not too_deep([[] for _ in range(10_000)])
    deepest: list[object] = []
    for _ in range(MAX_DEPTH - 1):
        deepest = [deepest]
    assert not too_deep(deepest)
    assert too_deep([deepest]) and too_deep({"a": deepest})
    for _ in range(100_000):
        deepest = [deepest]
    assert too_deep(deepest)


class _Sample(ArchmaxError):
    def __init__(self, name: str, number: int) -> None:
        super().__init__(name, number)
        self.name, self.number = name, number


def test_an_error_survives_the_way_between_processes() -> None:
    again = pickle.loads(pickle.dumps(_Sample("x", 3)))
    assert (again.name, again.number) == ("x", 3)
