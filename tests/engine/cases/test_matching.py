from __future__ import annotations

from typing import Any

import pytest

from core.jsvalues import deep_equal, js_text
from engine.cases.matching import UNRESOLVED, partial_match, value_at


@pytest.mark.parametrize(
    ("expected", "observed", "matches"),
    [
        # 1: lists
        ([1, {"a": 1}], [1, {"a": 1, "b": 2}], True),
        ([1], [1, 2], False),
        ([1, 2], [2, 1], False),
        ([], [], True),
        ([], {}, False),
        # 2: mappings
        ({}, {"a": 1}, True),
        ({}, [], False),
        ({}, None, False),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}, True),
        ({"a": 1}, {}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, True),
        # 3: regexes over JavaScript's text
        ("/^PX-/", "PX-77", True),
        ("/^$/", None, True),
        ("/^true$/", True, True),
        ("/^7$/", 7.0, True),
        ("/^7.5$/", 7.5, True),
        ("/^1,2,,x$/", [1, 2, None, "x"], True),
        (r"/^\[object Object\]$/", {"a": 1}, True),
        ("/^a,b$/", ["a", ["b"]], True),
        ({"a": "/x/"}, {"a": "axb"}, True),
        ({"a": "/x/"}, {}, False),
        ("/orders.json", "/orders.json", True),
        ("/orders.json", "/ordersXjson", False),
        # 4: strict
        (1, "1", False),
        (True, 1, False),
        (0, False, False),
        (1, 1.0, True),
        (None, 0, False),
        (None, "", False),
        ("a", "A", False),
        ("a", ["a"], False),
    ],
)
def test_partial_match(expected: Any, observed: Any, matches: bool) -> None:
    """06 §4.2."""
    assert partial_match(expected, observed) is matches


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (None, ""),
        (False, "false"),
        (3.0, "3"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (-12.5, "-12.5"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1.5e300, "1.5e+300"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.25e-9, "1.25e-9"),
        (123456.789, "123456.789"),
        (2**53, "9007199254740992"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        ([1, [2, None], {"a": 1}], "1,2,,[object Object]"),
        ([], ""),
    ],
)
def test_values_become_text_as_in_javascript(value: Any, text: str) -> None:
    """06 §4.2, rule 3."""
    assert js_text(value) == text


@pytest.mark.parametrize(
    ("expected", "observed", "equal"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1.0}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ([1, 2], [2, 1], False),
        ("/x/", "axb", False),
        ("/x/", "/x/", True),
        (True, 1, False),
        (1, True, False),
        ([], {}, False),
        ({"a": None}, {}, False),
    ],
)
def test_deep_equality(expected: Any, observed: Any, equal: bool) -> None:
    """06 §4.3: no regexes, nothing partial."""
    assert deep_equal(expected, observed) is equal


VALUE = {"items": [{"sku": "a"}, {"sku": "b"}], "note": None, "0": "zero", "": "blank", "n": 5}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", VALUE),
        ("items.0.sku", "a"),
        ("items.-1.sku", "b"),
        ("items.-2.sku", "a"),
        ("items.2", UNRESOLVED),
        ("items.-3", UNRESOLVED),
        ("items.-0", UNRESOLVED),
        ("items.01", UNRESOLVED),
        ("items.length", UNRESOLVED),
        ("items.+1", UNRESOLVED),
        ("items.1 ", UNRESOLVED),
        ("items." + "9" * 5000, UNRESOLVED),
        ("note", None),
        ("note.x", UNRESOLVED),
        ("n.x", UNRESOLVED),
        ("0", "zero"),
        ("nothing", UNRESOLVED),
        ("items.", UNRESOLVED),
        (".", UNRESOLVED),
    ],
)
def test_a_path_steps_by_canonical_index_and_own_key(path: str, found: Any) -> None:
    """06 §4.4."""
    result = value_at(VALUE, path)
    assert result is found if found is UNRESOLVED else result == found
