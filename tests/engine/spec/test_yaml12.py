"""YAML 1.2 core, and everything hostile refused while reading."""

from __future__ import annotations

import math

import pytest

from engine.spec.yaml12 import MAX_DEPTH, YamlProblem, load_yaml


def value(text: str | bytes):
    return load_yaml(text).value


def problem(text: str | bytes) -> YamlProblem:
    with pytest.raises(YamlProblem) as caught:
        load_yaml(text)
    return caught.value


@pytest.mark.parametrize(
    "word",
    [
        "on",
        "off",
        "yes",
        "No",
        "y",
        "N",
        "ON",
        "12:30:00",
        "2026-03-20",
        "1_000",
        "0b1",
        "+0x1",
        "1e",
        ".",
        "+",
        "TrUe",
    ],
)
def test_words_of_yaml_1_1_stay_strings(word: str):
    """01 §2.4; H21."""
    assert value(f"a: {word}") == {"a": word}
    assert value(f"{word}: a") == {word: "a"}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("~", None),
        ("", None),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("014", 14),
        ("-7", -7),
        ("+7", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.10", 1.1),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        (".inf", math.inf),
        ("-.INF", -math.inf),
    ],
)
def test_plain_scalars_resolve_by_the_core_schema(word: str, expected: object):
    """01 §2.3."""
    found = value(f"a: {word}")["a"]
    assert found == expected
    assert type(found) is type(expected)


def test_nan_is_a_float():
    """01 §2.3."""
    assert math.isnan(value("a: .NaN")["a"])


def test_quoted_and_block_scalars_are_strings():
    """01 §2.3."""
    assert value("a: \"1\"\nb: 'true'\nc: |\n  2\nd: >-\n  null\n") == {
        "a": "1",
        "b": "true",
        "c": "2\n",
        "d": "null",
    }


def test_keys_become_strings_in_their_canonical_text():
    """01 §2.5."""
    assert list(value("1: a\ntrue: b\n~: c\n0x10: d\n1.0e1: e\n'2': f\n.inf: g")) == [
        "1",
        "true",
        "",
        "16",
        "10",
        "2",
        ".inf",
    ]


def test_a_repeated_key_names_both_lines():
    """01 §2.6; H22."""
    found = problem("states:\n  draft:\n    a: 1\n  other: 2\n  draft:\n    b: 1\n")
    assert "line 2" in found.message
    assert "line 5" in found.message
    assert (found.line, found.column) == (5, 3)


def test_keys_are_compared_as_strings():
    """01 §2.6 after §2.5."""
    assert "twice" in problem("1: a\n'1': b").message


def test_order_is_kept():
    """01 §2.9."""
    assert list(value("z: 1\na: 2\nm: 3")) == ["z", "a", "m"]


def test_a_leading_byte_order_mark_and_carriage_returns_are_dropped():
    """01 §2.1."""
    assert value(b"\xef\xbb\xbfa: |\r\n  x\r\n  y\r\n") == {"a": "x\ny\n"}


def test_a_byte_order_mark_elsewhere_is_refused():
    """01 §2.1."""
    assert (problem("a: 1\nb: \ufeff2").line, problem("a: 1\nb: \ufeff2").column) == (2, 4)


def test_bytes_that_are_no_utf_8_are_refused_at_their_place():
    """01 §2.1."""
    found = problem(b"a: 1\nb: \xff")
    assert (found.line, found.column) == (2, 4)


def test_merge_keys_are_ordinary_keys():
    """01 §2.7."""
    assert value("a: &a { x: 1 }\nb: { <<: *a }") == {"a": {"x": 1}, "b": {"<<": {"x": 1}}}


def test_an_alias_is_an_independent_copy():
    """01 §2.7."""
    found = value("a: &a [1]\nb: *a")
    found["a"].append(2)
    assert found["b"] == [1]


def test_line_separators_of_yaml_1_1_are_ordinary_characters():
    """01 §2.3: YAML 1.2 breaks lines at LF and CR only."""
    assert value("a: x\u2028y\nb: |\n  p\x85q\n  r\u2029s\n") == {"a": "x\u2028y", "b": "p\x85q\nr\u2029s\n"}
    assert value("a: \U000f0000\u2028") == {"a": "\U000f0000\u2028"}


@pytest.mark.parametrize("text", ["---\na: 1\n", "%YAML 1.2\n---\na: 1\n"])
def test_one_document_marker_is_plain_yaml(text: str):
    """01 §2.8."""
    assert value(text) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("%YAML 1.1\n---\na: 1", "1.1"),
        ("%YAML 2.0\n---\na: 1", ""),
        ("a: 1\n---\nb: 2", "second document"),
        ("a:\n\tb: 1", ""),
        ("a: !x 1", "!x"),
        ("a: !!timestamp 2026-03-20", "timestamp"),
        ("a: !!set {x}", "set"),
        ("a: !!int x", "no value"),
        ("? [1]\n: 2", "must be a scalar"),
        ("? {a: 1}\n: 2", "must be a scalar"),
        ("k: &k [1]\n? *k\n: 2", "must be a scalar"),
        ("a: &a [*a]", "inside its own anchor"),
        ("a: *nope", "no anchor"),
        ("a: \x01", "U+0001"),
        ("a: [1", ""),
        ("a: " + "9" * 401, "digits"),
        ('a: "\ud800"', "surrogate"),
        ("%TAG !a! x\n" * 20 + "---\na: 1", "directives"),
    ],
)
def test_what_is_no_single_acceptable_document_is_refused(text: str, words: str):
    """01 §2.2, §2.8, 01 OP-14."""
    found = problem(text)
    assert words in found.message
    assert found.line >= 1
    assert found.column >= 1
    assert str(found.line) in str(found)


def test_core_tags_are_allowed():
    """01 OP-14."""
    assert value("a: !!str 5\nb: !!int '5'\nc: !!float 3\nd: !!map {}\ne: !!seq []\nf: ! 5\ng: !!null ''\nh: !!bool true") == {
        "a": "5", "b": 5, "c": 3.0, "d": {}, "e": [], "f": "5", "g": None, "h": True,
    }  # fmt: skip


def test_a_hundred_alias_expansions_are_allowed_and_one_more_is_not():
    """01 OP-14."""
    head = "- &a x\n"
    assert len(value(head + "- *a\n" * 100)) == 101
    assert "alias" in problem(head + "- *a\n" * 101).message


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60)),
        "- &a [" + "x," * 5000 + "]\n" + "- *a\n" * 90,
        '- &a "' + "x" * 900_000 + '"\n' + "- *a\n" * 90,
        "[" * 100_000,
        "- " * 100_000,
        "{a: " * 100_000,
        "x: &a " + "[" * 60 + "]" * 60 + "\ny: " + "[" * 60 + "*a" + "]" * 60,
        "[" + "1," * 60_000 + "1]",
        "x" * ((1 << 20) + 1),
        "é" * (1 << 19) + "é",
    ],
    ids=[
        "laughs",
        "wide",
        "heavy",
        "brackets",
        "dashes",
        "braces",
        "deep-alias",
        "nodes",
        "characters",
        "bytes",
    ],
)
def test_bombs_are_refused_before_they_are_expanded(text: str):
    """01 OP-14."""
    problem(text)


def test_nesting_up_to_the_limit_is_read():
    """01 OP-14."""
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert load_yaml(text).position((0,) * 5) == (1, 6)


def test_every_value_and_key_knows_its_place():
    """01 §2; H22: errors name line and column."""
    document = load_yaml("a:\n  b:\n    - x: 1\n      yy: 2\nc: &c { d: 3 }\ne: *c\n")
    assert document.position(("a", "b", 0, "yy")) == (4, 11)
    assert document.key_position(("a", "b", 0, "yy")) == (4, 7)
    assert document.position(("a", "nothing", "there")) == (2, 3)
    assert document.key_position(("e", "d")) == (5, 9)
    assert document.position(("e",)) == (6, 4)
    assert document.position(()) == (1, 1)


def test_an_empty_text_is_null():
    """01 §2.2: the caller refuses it as no mapping."""
    assert value("") is None
    assert value("# nothing\n") is None


@pytest.mark.parametrize(
    ("text", "words", "line", "column"),
    [
        ("states:\n\tx: 1\n", "a tab cannot indent", 2, 1),
        ("a:\n  b: 'x\n", "a quoted text is never closed", 2, 6),
        ("a:\n  b: [1, 2\nc: 1\n", "the list that begins in line 2", 3, 2),
        ("a:\n  b: {x: 1\nc: 1\n", "the mapping that begins in line 2", 3, 2),
        ("a:\n  b: 1\n  c\nd: 1\n", "expected ':' behind a key", 3, 3),
        ("a: b: c\n", "put a text with ': ' in quotes", 1, 5),
        ("a: @x\n", "no text can begin with '@'", 1, 4),
        ("a: 1\rb: @x\n", "no text can begin with '@'", 2, 4),
        ("a: 'it's'\n", "quotes inside quotes", 1, 8),
        ("a:\n- b\nc\n- d\n", "expected ':' behind a key", 3, 1),
        ('a: "\\q"\n', "a backslash is written twice", 1, 5),
    ],
)
def test_a_fault_of_syntax_is_told_in_an_authors_words_at_its_place(
    text: str, words: str, line: int, column: int
):
    """01 §2.2: a place that can be found, and what to do there."""
    with pytest.raises(YamlProblem) as caught:
        load_yaml(text)
    assert words in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)
