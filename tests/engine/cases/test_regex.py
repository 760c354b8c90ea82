from __future__ import annotations

import pickle
import threading

import pytest

from engine.cases import regex as regex_module
from engine.cases.regex import QuickJsRegexEngine, Regex, RegexStopped, as_regex, regex_engine


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/orders.json", None),
        ("/scratchpad/report.json", None),
        ("/a/b", Regex("a", "b")),
        ("//", Regex("", "")),
        ("/refund(ed)?/i", Regex("refund(ed)?", "i")),
        ("/a/b/i", Regex("a/b", "i")),
        ("/line\nbreak/", Regex("line\nbreak", "")),
        ("/a/i\n", None),
        ("plain", None),
        ("", None),
        ("/", None),
        ("/a/I", None),
        (" /a/", None),
    ],
)
def test_a_string_is_regex_shaped_by_its_first_and_last_usable_slash(
    text: str, expected: Regex | None
) -> None:
    """06 §4.1."""
    assert as_regex(text) == expected
    if expected is not None:
        assert str(expected) == text


@pytest.mark.parametrize(
    "text", ["/a/b", "/a/ii", "/a/uv", "/(/", "/a{2,1}/", "/[/", "/*/", "/(?<n>a)(?<n>b)/", r"/\u{110000}/u"]
)
def test_a_regex_that_does_not_compile_has_a_problem(text: str) -> None:
    """06 §4.1: any other letter, a repeated one, and `u` with `v` are malformed."""
    regex = as_regex(text)
    assert regex is not None
    assert regex_engine().problems([regex, Regex("fine", "")])[0]


def test_every_flag_is_accepted_once() -> None:
    """06 §4.1."""
    assert regex_engine().problems([Regex("a", flags) for flags in ("dgimsuy", "v", "")]) == [None] * 3


@pytest.mark.parametrize(
    ("text", "subject", "found"),
    [
        ("//", "", True),
        ("//", "anything", True),
        ("/refund(ed)?/i", "REFUNDED", True),
        ("/^b/", "a\nb", False),
        ("/^b/m", "a\nb", True),
        ("/a.b/", "a\nb", False),
        ("/a.b/s", "a\nb", True),
        ("/b/y", "ab", False),
        ("/a/y", "ab", True),
        ("/a/g", "ba", True),
        (r"/\d/", "٣", False),  # ASCII digits only
        (r"/\w/", "é", False),
        (r"/\bfoo\b/", "éfoo", True),
        (r"/\s/", "\u2003", True),
        ("/a$/", "a\n", False),  # the very end, not before a final line break
        (r"/(?<n>a)\k<n>/", "aa", True),
        (r"/a\/b/", "a/b", True),
        ("/a/b/", "a/b", True),
        ("/[^]/", "\n", True),
        ("/[]/", "a", False),
        (r"/\u0041/", "A", True),
        (r"/\u{1F600}/u", "😀", True),
        (r"/^.$/", "😀", False),  # two UTF-16 units
        (r"/^.$/u", "😀", True),
        (r"/\cJ/", "\n", True),
        ("/(?<=a+)b/", "aaab", True),
        ("/(?<!a)b/", "ab", False),
        (r"/\p{Lu}/u", "É", True),
        (r"/[\p{L}--[a-z]]/v", "É", True),
        ("/a\0b/", "a\0b", True),
        (r"/^\ud800$/", "\ud800", True),
    ],
)
def test_semantics_are_ecmascripts_and_a_test_is_an_unanchored_search(
    text: str, subject: str, found: bool
) -> None:
    """06 §4.1."""
    regex = as_regex(text)
    assert regex is not None
    assert regex_engine().problems([regex]) == [None]
    assert regex_engine().search(regex, subject) is found


def test_a_test_has_no_memory_of_the_one_before() -> None:
    """06 §4.1: every test starts at index 0."""
    assert [regex_engine().search(Regex("a", "g"), "a") for _ in range(3)] == [True] * 3


def test_a_regex_that_never_ends_is_stopped_and_the_next_one_works() -> None:
    """Everything from a document is hostile."""
    with pytest.raises(RegexStopped, match="takes too long") as caught:
        regex_engine().search(Regex("(a+)+$", ""), "a" * 60 + "b")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert regex_engine().search(Regex("a", ""), "a")


def test_a_process_that_does_not_answer_is_killed_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock holds also where the interpreter's own limit does not."""
    engine = QuickJsRegexEngine()
    assert engine.search(Regex("a", ""), "a")
    monkeypatch.setattr(regex_module, "WALL_SECONDS", 0.05)
    with pytest.raises(RegexStopped):
        engine.search(Regex("(a+)+$", ""), "a" * 60 + "b")
    monkeypatch.undo()
    assert engine.search(Regex("a", ""), "a")
    engine.close()


def test_a_pattern_that_eats_memory_is_stopped() -> None:
    """Everything from a document is hostile."""
    with pytest.raises(RegexStopped):
        regex_engine().search(Regex("(?:(a)|b)*c", ""), "ab" * 4_000_000)


def test_threads_take_turns() -> None:
    """Mocks are matched from several calls at once."""
    wrong: list[int] = []

    def run(number: int) -> None:
        regex = Regex(f"^{number}$", "")
        wrong.extend(number for _ in range(20) if not regex_engine().search(regex, str(number)))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_closed_engine_starts_again() -> None:
    """A closed engine leaves no process; the next use makes one."""
    engine = QuickJsRegexEngine()
    assert engine.search(Regex("a", ""), "a")
    engine.close()
    assert engine.search(Regex("a", ""), "a")
    engine.close()
