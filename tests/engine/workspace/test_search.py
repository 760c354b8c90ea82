"""Literal search and globs: bounded, and linear whatever the pattern (05 §9.3, ruling 23)."""

from __future__ import annotations

import pytest

from engine.workspace.search import (
    MAX_LINE_CHARS,
    MAX_SEARCHED_FILE_BYTES,
    GrepRun,
    glob_problem,
    needle_problem,
    path_matcher,
    residual_globs,
)


@pytest.mark.parametrize(
    ("pattern", "path", "holds"),
    [
        ("*.md", "a/b/c.md", True),
        ("*.md", "c.md", True),
        ("/*.md", "c.md", True),
        ("/*.md", "a/c.md", False),
        ("**/*.md", "a/b/c.md", True),
        ("**/*.md", "c.md", True),
        ("a/**/*.md", "a/c.md", True),
        ("a/**/*.md", "b/a/c.md", False),
        ("a/*.md", "a/b/c.md", False),
        ("*", ".hidden", True),
        ("**/*", ".git/config", True),
        ("{x,y}.md", "deep/y.md", True),
        ("[!a].md", "b.md", True),
        ("[!a].md", "a.md", False),
        ("?.md", "ab.md", False),
        ("*.MD", "a.md", False),
        ("[...slug].md", "[...slug].md", False),
        ("[[]...slug].md", "[...slug].md", True),
    ],
)
def test_a_glob_names_files_as_its_rules_say(pattern: str, path: str, holds: bool) -> None:
    assert path_matcher(pattern)(path) is holds


@pytest.mark.parametrize("pattern", ["", "/", "../*.md", "a/../b", "x" * 257])
def test_a_glob_that_is_empty_climbs_or_is_too_long_is_refused(pattern: str) -> None:
    assert glob_problem(pattern) is not None


def test_a_glob_of_many_stars_takes_no_longer_than_its_path() -> None:
    assert path_matcher("**/" * 20 + "*a" * 95 + "b")("a/" * 500 + "a" * 3_000) is False


@pytest.mark.parametrize(
    ("pattern", "folder", "rests"),
    [
        ("*.md", "data", ["*.md"]),
        ("data/*.md", "data", ["/*.md"]),
        ("/data/*.md", "data", ["/*.md"]),
        ("other/*.md", "data", []),
        ("/data", "data", []),
        ("**/*.md", "a/b", ["/**/*.md", "/*.md"]),
        ("**/b/*.md", "a/b", ["/**/b/*.md", "/*.md", "/b/*.md"]),
        ("a/**/x", "a/b/c", ["/**/x", "/x"]),
        ("{a/b,c}/x", "a", None),
        ("d*/x", "data", ["/x"]),
    ],
)
def test_what_is_left_of_a_glob_below_a_folder(pattern: str, folder: str, rests: list[str] | None) -> None:
    left = residual_globs(pattern, folder)
    if rests is None:
        assert left is None
        return
    assert left is not None
    probe = ["x", "y/x", "n.md", "k/n.md", "b/n.md", "k/b/n.md"]
    wanted = {path for path in probe if path_matcher(pattern)(f"{folder}/{path}")}
    assert {path for path in probe if any(path_matcher(rest)(path) for rest in left)} == wanted
    assert (left == []) is (rests == [])


def search(needle: str, text: str | bytes, max_count: int = 1_000) -> GrepRun:
    run = GrepRun(needle, max_count)
    run.search("/f", text.encode() if isinstance(text, str) else text)
    return run


def test_matching_lines_come_with_their_numbers_once_each() -> None:
    found = search("a", "a\nb\nxaaax\r\n\nca").matches
    assert found == [
        {"path": "/f", "line": 1, "text": "a"},
        {"path": "/f", "line": 3, "text": "xaaax"},
        {"path": "/f", "line": 5, "text": "ca"},
    ]


def test_the_text_is_literal() -> None:
    assert search("a.c(", "abc\na.c(\n").matches == [{"path": "/f", "line": 2, "text": "a.c("}]


@pytest.mark.parametrize(("max_count", "truncated"), [(2, True), (3, False), (4, False)])
def test_exactly_as_many_matches_as_asked_for_is_a_complete_answer(max_count: int, truncated: bool) -> None:
    run = search("x", "x\nx\nx\n", max_count)
    assert (len(run.matches), run.truncated) == (min(max_count, 3), truncated)


def test_a_very_long_line_shows_the_part_around_its_match() -> None:
    line = "p" * 100_000 + "needle" + "s" * 100_000
    shown = search("needle", line).matches[0]["text"]
    assert "needle" in shown
    assert len(shown) <= MAX_LINE_CHARS + 2
    assert shown.startswith("…") and shown.endswith("…")


def test_content_that_is_no_text_has_no_lines() -> None:
    assert search("a", b"a\0a").matches == []
    assert search("a", b"a\xff").matches == []


def test_binary_types_are_not_opened_and_large_files_are_told() -> None:
    run = GrepRun("a")
    assert not run.admits("x.png", 10)
    assert not run.truncated
    assert not run.admits("x.txt", MAX_SEARCHED_FILE_BYTES + 1)
    assert run.truncated


def test_a_search_looks_at_no_more_bytes_than_its_bound() -> None:
    run = GrepRun("a", bytes_left=10)
    assert run.admits("x", 6)
    assert not run.admits("y", 6)
    assert run.done


@pytest.mark.parametrize("needle", ["", "a\nb"])
def test_an_empty_text_or_one_over_lines_is_refused(needle: str) -> None:
    assert needle_problem(needle) is not None
