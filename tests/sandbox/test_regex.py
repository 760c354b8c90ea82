"""Regular expressions of case assertions, by the engine that defines them (06 §4.1)."""

from __future__ import annotations

import asyncio

import pytest

from sandbox import MalformedRegexError, RegexTester, RegexTimeoutError, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("pattern", "flags", "text", "found"),
    [
        ("refund(ed)?", "i", "REFUNDED", True),
        ("^b", "", "a\nb", False),
        ("^b", "m", "a\nb", True),
        ("a.b", "s", "a\nb", True),
        ("a.b", "", "a\nb", False),
        ("", "", "", True),
        ("b", "y", "ab", False),
        ("b", "g", "ab", True),
        (r"\d", "", "٣", False),
        (r"a$", "", "a\n", False),
        (r"(?<n>x)\k<n>", "", "xx", True),
        (r"\/", "", "a/b", True),
        ("[^]", "", "\n", True),
        ("[]", "", "x", False),
        (r"\u{1F600}", "u", "😀", True),
        (r"(?<=a+)b", "", "aab", True),
        (r"\p{L}", "v", "é", True),
        ("a\0b", "", "a\0b", True),
    ],
)
async def test_a_search_means_what_javascript_means(
    sandbox: Sandbox, pattern: str, flags: str, text: str, *, found: bool
) -> None:
    """06 §4.1."""
    assert await sandbox.test_regex(pattern, flags, text) is found
    assert await sandbox.test_regex(pattern, flags, text) is found  # no lastIndex is remembered


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [("(", ""), ("a", "b"), ("a", "gg"), ("a", "uv"), ("[", ""), ("*", ""), (r"\u{zz}", "u")],
)
async def test_what_does_not_compile_is_malformed(sandbox: Sandbox, pattern: str, flags: str) -> None:
    """06 §4.1, §14."""
    with pytest.raises(MalformedRegexError, match="malformed regex"):
        await sandbox.compile_regex(pattern, flags)


async def test_a_catastrophic_search_is_stopped_and_the_next_one_works(sandbox: Sandbox) -> None:
    with pytest.raises(RegexTimeoutError, match="200 ms"):
        await sandbox.test_regex("(a+)+$", "", "a" * 40 + "b", timeout_ms=200)
    assert await sandbox.test_regex("a", "", "a")


async def test_searches_may_be_asked_for_at_the_same_time(sandbox: Sandbox) -> None:
    assert await asyncio.gather(*(sandbox.test_regex(f"^{n}$", "", str(n)) for n in range(30))) == [True] * 30


async def test_the_blocking_form_answers_the_same_and_leaves_nothing() -> None:
    """06 §13: parsing and `partial_match` are not asynchronous."""
    with RegexTester() as tester:
        assert tester.test("^a", "", "abc") and not tester.test("^b", "", "abc")
        tester.compile("a+", "gi")
        with pytest.raises(MalformedRegexError):
            tester.compile("(", "")
        with pytest.raises(RegexTimeoutError):
            tester.test("(a+)+$", "", "a" * 40 + "b", timeout_ms=100)
        assert tester.test("a", "", "a")
    tester.close()
    assert tester.test("a", "", "a")
    tester.close()
