"""`${{…}}`: syntax, addressing, text and the ways a reference fails."""

from __future__ import annotations

from typing import Any

import pytest

from engine.governance.references import (
    MAX_PATTERN_CHARS,
    MAX_SUBSTITUTED_CHARS,
    Unresolved,
    UnresolvedReason,
    lookup,
    reference_names,
    reference_problem,
    resolve_glob,
    resolve_text,
    scalar_text,
    substitute,
    substitute_typed,
)

VARIABLES: dict[str, Any] = {
    "berth": "7*",
    "count": 3.0,
    "open": True,
    "gone": None,
    "rows": [{"id": "r1"}, {"id": "r2"}],
    "rec": {"a": {"-1": "key"}, "list": [1, 2], "keys": "data"},
    "echo": "${{berth}}",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x ${{berth}} y", "x 7* y"),
        ("${{ berth }}${{count}}", "7*3"),
        ("${{rows.-1.id}}", "r2"),
        ("${{rows.0.id}}", "r1"),
        ("${{rec.a.-1}}", "key"),
        ("${{rec.keys}}", "data"),
        ("$${{berth}}", "${{berth}}"),
        ("$$${{berth}}", "$${{berth}}"),
        ("${{echo}}", "${{berth}}"),
        ("${{open}}", "true"),
        ("${{not closed", "${{not closed"),
        ("plain", "plain"),
    ],
)
def test_references_become_the_values_text(text: str, expected: str) -> None:
    """02 §14.1 to §14.3: one pass, escapes kept, data entries only."""
    assert resolve_text(text, VARIABLES) == expected


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ("", "malformed"),
        (" ", "malformed"),
        (".a", "malformed"),
        ("a..b", "malformed"),
        ("a.", "malformed"),
        ("Berth", "invalid-name"),
        ("1a", "invalid-name"),
        ("my-name", "invalid-name"),
        ("nothing", "unset"),
        ("rows.2", "path-missing"),
        ("rows.-3", "path-missing"),
        ("rows.01", "path-missing"),
        ("rows.-0", "path-missing"),
        ("rows.length", "path-missing"),
        ("rows." + "9" * 6_000, "path-missing"),
        ("rec.__class__", "path-missing"),
        ("berth.0", "path-missing"),
        ("gone.x", "path-missing"),
        ("gone", "non-scalar"),
        ("rows", "non-scalar"),
        ("rec", "non-scalar"),
    ],
)
def test_an_unresolved_reference_says_why(inner: str, reason: UnresolvedReason) -> None:
    """02 §14.3, §14.4."""
    found = resolve_text(f"a ${{{{{inner}}}}}", VARIABLES)
    assert isinstance(found, Unresolved)
    assert found.reason == reason
    assert found.reference == inner.strip() or inner.startswith(found.reference.removesuffix("…"))


def test_a_value_in_a_guard_is_literal() -> None:
    """02 §14.2."""
    assert resolve_glob("notices/${{berth}}/**", VARIABLES) == r"notices/7\*/**"
    assert resolve_glob("$${{berth}}", VARIABLES) == r"\$\{\{berth\}\}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("s", "s"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (3.0, "3"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (100.0, "100"),
        (1e22, "1" + "0" * 22),
        (1e-7, "0.0000001"),
        (float("nan"), None),
        (float("inf"), None),
        pytest.param(10**5_000, None, id="endless"),
        (None, None),
        ([], None),
        ({}, None),
    ],
)
def test_the_text_of_a_scalar(value: Any, text: str | None) -> None:
    """02 §5.1.4, §14.2, OP-25."""
    assert scalar_text(value) == text


def test_arguments_are_walked_deeply_and_keys_stay() -> None:
    """02 §15.3."""
    arguments = {"a": ["${{berth}}", {"${{berth}}": "${{count}}"}], "n": 4}
    assert substitute(arguments, VARIABLES) == {"a": ["7*", {"${{berth}}": "3"}], "n": 4}
    assert arguments["a"] == ["${{berth}}", {"${{berth}}": "${{count}}"}]


def test_the_first_unresolved_reference_in_reading_order_refuses_the_call() -> None:
    """02 §15.5."""
    arguments = {"a": {"b": ["ok", "${{first}}"]}, "c": "${{second}}"}
    assert substitute(arguments, VARIABLES) == Unresolved("first", "unset")


def test_deep_arguments_do_not_exhaust_the_stack() -> None:
    """02 §15.3."""
    deep: list[Any] = ["${{berth}}"]
    for _ in range(20_000):
        deep = [deep]
    found: Any = substitute(deep, VARIABLES)
    while isinstance(found, list):
        found = found[0]
    assert found == "7*"


def test_a_whole_reference_keeps_its_type_for_a_delegation() -> None:
    """02 §15.7, 04 §5: lists, mappings and null too; mixed text is text."""
    found = substitute_typed(
        {"a": "${{rows}}", "b": "${{gone}}", "c": "n ${{count}}", "d": "$${{x}}"}, VARIABLES
    )
    assert found == {"a": VARIABLES["rows"], "b": None, "c": "n 3", "d": "${{x}}"}
    assert substitute_typed({"a": "${{rows.7}}"}, VARIABLES) == Unresolved("rows.7", "path-missing")
    assert substitute_typed({"a": "x ${{rows}}"}, VARIABLES) == Unresolved("rows", "non-scalar")


@pytest.mark.parametrize("text", ["${{}}", "${{A}}", "${{a..b}}", "x/${{open", "${{a}b}}"])
def test_a_malformed_reference_is_a_problem_of_the_guard(text: str) -> None:
    """02 §14.1."""
    assert reference_problem(text) is not None


def test_names_of_references_are_listed_once() -> None:
    """02 §14.5."""
    assert reference_names("${{a.b}}/${{c}}/${{a}}/$${{d}}/${{E}}") == ("a", "c")
    assert reference_problem("${{a.b}}/$${{E}}") is None


def test_a_miss_is_not_null() -> None:
    """02 §14.3."""
    assert lookup({"a": None}, ["a"]) is None
    assert lookup({}, ["a"]) is not None


def test_references_cannot_make_a_call_grow_without_bound() -> None:
    """02 §15, decision 28: `${{x}}${{x}}` written to `x` doubles it at each call; somewhere it is refused."""
    value, calls = "ten chars!", 0
    while True:
        found = substitute({"variables": {"x": "${{x}}" * 50}}, {"x": value})
        if isinstance(found, Unresolved):
            break
        value, calls = found["variables"]["x"], calls + 1
        assert len(value) <= MAX_SUBSTITUTED_CHARS
    assert found == Unresolved("x", "too-large")
    assert calls == 2
    many = {str(index): "${{x}}" for index in range(100)}
    assert substitute(many, {"x": "v" * 20_000}) == Unresolved("x", "too-large")
    assert substitute_typed(many, {"x": ["v" * 20_000]}) == Unresolved("x", "too-large")
    assert substitute_typed(many, {"x": {"k" * 20_000: 1}}) == Unresolved("x", "too-large")


def test_a_value_too_large_for_a_guard_leaves_it_unresolved() -> None:
    """02 §14.4, decision 28: a pattern is compiled at each call."""
    fits = {"x": "v" * MAX_PATTERN_CHARS}
    assert isinstance(resolve_glob("a/${{x}}", fits), str)
    assert resolve_glob("a/${{x}}${{x}}", fits) == Unresolved("x", "too-large")


def test_a_reference_too_long_to_repeat_is_named_by_its_beginning() -> None:
    """02 §14.4: the name goes into a message a model reads."""
    found = resolve_text("${{" + "A" * 10_000 + "}}", {})
    assert isinstance(found, Unresolved)
    assert len(found.reference) < 250
