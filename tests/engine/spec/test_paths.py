"""Names, dotted paths, titles."""

from __future__ import annotations

import pytest

from core.jsontext import Json
from engine.spec.paths import (
    MISSING,
    dotted_path_problem,
    parse_dotted_path,
    resolve_path,
    slug_ok,
    title_problem,
    variable_name_ok,
)

DATA = {"mail": {"thread": {"id": "t"}, "to": ["x", {"name": "y"}], "none": None}, "n": 4}


@pytest.mark.parametrize(
    ("path", "value"),
    [("mail.thread.id", "t"), (" n ", 4), ("mail.to.0", "x"), ("mail.to.-1.name", "y"), ("mail.none", None)],
)
def test_a_path_addresses_data(path: str, value: Json):
    """01 §8.2, 02 §14.3."""
    assert resolve_path(path, DATA) == value


@pytest.mark.parametrize(
    "path",
    [
        "mail.gone",
        "gone",
        "mail.to.2",
        "mail.to.-3",
        "mail.to.01",
        "mail.to.-0",
        "mail.to.length",
        "n.real",
        "mail.none.x",
        "",
        "a..b",
        "Mail",
    ],
)
def test_everything_else_is_a_miss(path: str):
    """02 §14.3."""
    assert resolve_path(path, DATA) is MISSING


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "blank"),
        ("  ", "blank"),
        (3, "string"),
        ("${{a}}", "without"),
        ("A.b", "variable name"),
        ("a..b", "empty"),
        ("a.", "empty"),
        (".a", "variable name"),
    ],
)
def test_a_malformed_path_is_told_what_is_wrong(text: Json, words: str):
    """01 §8.2."""
    problem = dotted_path_problem(text)
    assert problem is not None
    assert words in problem


def test_segments_after_the_first_are_free():
    """01 §8.2."""
    assert parse_dotted_path(" a.B-c.-1.0 ") == ("a", "B-c", "-1", "0")
    assert parse_dotted_path("") is None


@pytest.mark.parametrize(
    ("name", "ok"),
    [("a", True), ("a_1", True), ("a\n", False), ("A", False), ("a.b", False), ("٣", False), (None, False)],
)
def test_variable_names(name: object, ok: bool):
    """01 §4."""
    assert variable_name_ok(name) is ok


@pytest.mark.parametrize(
    ("slug", "ok"),
    [
        ("a", True),
        ("a-1", True),
        ("-a", False),
        ("a-", False),
        ("a--b", False),
        ("A", False),
        ("a_b", False),
        ("a\n", False),
        ("", False),
    ],
)
def test_slugs(slug: str, ok: bool):
    """01 §4."""
    assert slug_ok(slug) is ok


@pytest.mark.parametrize("title", ["x", " x ", "y" * 200, "  " + "y" * 200, "line\n"])
def test_titles_of_one_line_up_to_200_characters(title: str):
    """02 §16.3."""
    assert title_problem(title) is None


@pytest.mark.parametrize("title", ["", " \n", "a\nb", "a\rb", "y" * 201, 3, None, ["x"]])
def test_other_titles_are_refused(title: Json):
    """02 §16.3."""
    assert title_problem(title)
