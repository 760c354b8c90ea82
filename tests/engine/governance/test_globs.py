"""Globs: the table, the refusals, and a slow matcher written from the table to agree with."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.paths import canonical
from engine.governance.globs import compile_glob, escape_glob, glob_problem, literal_prefix

TABLE: list[tuple[str, list[str], list[str]]] = [
    # pattern, values it matches, values it does not
    ("a/*", ["a/b", "a/.hidden"], ["a", "a/b/c"]),
    ("a*c", ["ac", "abc"], ["a/c", "abcd"]),
    ("a/**", ["a", "a/b", "a/b/c"], ["ab", "b/a"]),
    ("**", ["a", "a/b", ".hidden"], [""]),
    ("**/b", ["b", "a/b", "a/c/b"], ["ab"]),
    ("a/**/b", ["a/b", "a/x/y/b"], ["axb", "ab"]),
    ("a**b", ["ab", "axxb"], ["a/b"]),
    ("a?c", ["abc"], ["ac", "a/c"]),
    ("[abc]x", ["ax", "cx"], ["dx", "x"]),
    ("[a-c]x", ["bx"], ["dx"]),
    ("[^a]x", ["bx"], ["ax", "/x"]),
    ("a[/]b", [], ["a/b"]),
    ("{x,y}/z", ["x/z", "y/z"], ["z", "{x,y}/z"]),
    ("{a,b{c,d/e}}", ["a", "bc", "bd/e"], ["b"]),
    ("{x}", ["{x}"], ["x"]),
    ("{{a,b}}", ["{a}", "{b}"], ["a"]),
    (r"\*", ["*"], ["a"]),
    ("keys/**", ["keys/.pem"], ["KEYS/a"]),
    ("/a/b", ["a/b"], ["b"]),
    ("b", ["b"], ["a/b", "bb"]),
    ("https://x.test/*", ["https:/x.test/a"], ["https:/x.test/a/b"]),
    ("./a//b/", ["a/b"], ["a"]),
    ("a/[b", ["a/[b"], ["a/b"]),
    ("a{b,c", ["a{b,c"], ["ab"]),
    ("**/*.md", ["x.md", "a/b/.md"], ["md"]),
    ("a\nb", ["a\nb"], ["a b"]),
]


@pytest.mark.parametrize(("pattern", "yes", "no"), TABLE)
def test_every_row_of_the_glob_table_holds(pattern: str, yes: list[str], no: list[str]) -> None:
    """02 §6, OP-5."""
    glob = compile_glob(pattern)
    assert [value for value in yes if not glob.matches(value)] == []
    assert [value for value in no if glob.matches(value)] == []


@pytest.mark.parametrize("pattern", ["**", "**/**", "*", "a", "?", "{a,**}"])
def test_the_empty_value_matches_nothing(pattern: str) -> None:
    """02 §6."""
    assert not compile_glob(pattern).matches("")


@pytest.mark.parametrize(
    ("pattern", "holds"), [("**", True), ("{**,a}", True), ("*", False), ("a/**", False)]
)
def test_only_a_pattern_of_whole_folders_holds_the_root(pattern: str, holds: bool) -> None:
    """02 OP-4."""
    assert compile_glob(pattern).matches_root is holds


@pytest.mark.parametrize(
    "pattern",
    [
        "!a",
        "+(a)",
        "a/@(b)",
        "?(a)",
        "*(a)",
        "!(a)",
        "x/[!a]",
        "{1..3}",
        "a/{x..z}b",
        "../a",
        "a/../b",
        "{a,..}/b",
    ],
)
def test_syntax_beyond_the_table_is_refused_at_load(pattern: str) -> None:
    """02 OP-3, OP-5."""
    assert glob_problem(pattern) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        "a/**",
        r"\!a",
        r"a\[!b",
        "{a,b}",
        "{a..b,c}",
        "a..b",
        "notices/${{berth}}/**",
        "${{a}}",
        "$${{a}}",
        "[^a]",
        "[",
        "{",
    ],
)
def test_syntax_of_the_table_loads(pattern: str) -> None:
    """02 §6."""
    assert glob_problem(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("a/b/*.md", "a/b"), ("a/b", "a/b"), ("*", ""), ("/a/b*/c", "a"), ("a/${{x}}/b", "a"), ("a/{b,c}", "a")],
)
def test_the_literal_prefix_is_cut_at_a_whole_folder(pattern: str, prefix: str) -> None:
    """02 §22."""
    assert literal_prefix(pattern) == prefix


def test_a_climbing_pattern_matches_nothing() -> None:
    """02 OP-5: a value may bring a `..` into a guard."""
    glob = compile_glob("notices/../**")
    assert glob.climbs
    assert not glob.matches("a")


def test_hostile_patterns_and_values_take_linear_work() -> None:
    """02 §6: stars that would backtrack, braces that would multiply, brackets that would be searched again."""
    assert not compile_glob("*a" * 40 + "c").matches("a" * 3_000)
    assert compile_glob("{a,b}" * 200).matches("ab" * 100)
    assert compile_glob("{a," * 3_000 + "b" + "}" * 3_000).matches("b")
    assert not compile_glob("[" * 20_000 + "x").matches("x")
    assert compile_glob("{" + ",".join("a" * 5 + str(n) for n in range(5_000)) + "}").matches("aaaaa4999")


@given(st.text(min_size=1).filter(lambda text: bool(canonical(text).text) and not canonical(text).escaping))
@settings(max_examples=100)
def test_escaped_text_matches_itself_and_no_other(text: str) -> None:
    """02 §14.2."""
    value = canonical(text).text
    glob = compile_glob(escape_glob(value))
    assert glob.matches(value)
    assert not glob.matches(value + "x")
    assert not glob.matches("x" + value)


# --- the slow matcher --------------------------------------------------------------------------------------------

_JOIN = "\x00"  # where an alternative was put in: stars on either side are two stars, not `**`


def expand(pattern: str) -> list[str]:
    """Every alternative, braces without a comma turned into ⟨ and ⟩."""
    start = pattern.find("{")
    if start < 0:
        return [pattern]
    depth, cuts = 0, [start]
    for at in range(start, len(pattern)):
        depth += (pattern[at] == "{") - (pattern[at] == "}")
        if pattern[at] == "," and depth == 1:
            cuts.append(at)
        if depth == 0:
            cuts.append(at)
            break
    head, tail = pattern[:start], pattern[cuts[-1] + 1 :]
    if len(cuts) == 2:
        return expand(head + "⟨" + pattern[start + 1 : cuts[1]] + "⟩" + tail)
    inner = [pattern[left + 1 : right] for left, right in itertools.pairwise(cuts)]
    return [found for each in inner for found in expand(head + _JOIN + each + _JOIN + tail)]


def segment_matches(segment: str, value: str) -> bool:
    text = segment.replace(_JOIN, "")
    if set(text) == {"*"}:
        return True
    parts = re.split(r"(\*+|\?|\[\^?\w+\])", text)
    return re.fullmatch("".join(map(translate, parts)), value, re.DOTALL) is not None


def translate(part: str) -> str:
    if part.startswith("*"):
        return ".*"
    if part == "?":
        return "."
    return part if part.startswith("[") else re.escape(part.replace("⟨", "{").replace("⟩", "}"))


def segments_match(pattern: list[str], value: list[str]) -> bool:
    if not pattern:
        return not value
    if pattern[0].strip(_JOIN) == "**":
        return any(segments_match(pattern[1:], value[skip:]) for skip in range(len(value) + 1))
    return bool(value) and segment_matches(pattern[0], value[0]) and segments_match(pattern[1:], value[1:])


def slow_match(pattern: str, value: str) -> bool:
    alternatives = [
        [segment for segment in text.split("/") if segment.replace(_JOIN, "") not in ("", ".")]
        for text in expand(pattern)
    ]
    if any(segment.replace(_JOIN, "") == ".." for each in alternatives for segment in each):
        return False
    return any(segments_match(each, value.split("/")) for each in alternatives)


PIECES = st.sampled_from(["a", "b", ".", "/", "/", "*", "**", "?", "[ab]", "[^a]", "{a}"])
PATTERNS = st.recursive(
    st.lists(PIECES, min_size=1, max_size=6).map("".join),
    lambda inner: st.tuples(inner, inner, inner).map(lambda parts: f"{parts[0]}{{{parts[1]},{parts[2]}}}"),
    max_leaves=4,
)
VALUES = st.lists(st.sampled_from(["a", "b", "ab", ".a", "aab", "{a}", "b.a"]), min_size=1, max_size=4).map(
    "/".join
)


@given(PATTERNS, st.lists(VALUES, min_size=1, max_size=8))
@settings(max_examples=100)
def test_the_matcher_agrees_with_one_written_from_the_table(pattern: str, values: list[str]) -> None:
    """02 §6."""
    assume(len(expand(pattern)) <= 64)
    glob = compile_glob(pattern)
    assert [glob.matches(value) for value in values] == [slow_match(pattern, value) for value in values]
