"""The table from the contract's sections to tests is true, and the runtime's and the host's have no hole."""

from __future__ import annotations

from tests.support.contract_table import CHAPTERS, PAGE, cited, page, sections_of


def test_the_page_says_what_the_tests_cite() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.support.contract_table"


def test_citations_are_read() -> None:
    assert sections_of("03 §9.1, §14 and 05 §11") == {("03", 9), ("03", 14), ("05", 11)}
    assert sections_of("nothing") == set()


def test_every_section_of_the_runtime_and_the_host_has_a_test() -> None:
    found = cited()
    missing = [
        f"{chapter} §{section}"
        for chapter in ("03", "04", "05", "06")
        for section in range(1, CHAPTERS[chapter][1] + 1)
        if (chapter, section) != ("03", 1)  # that one holds terms
        and (chapter, section) not in found
    ]
    assert missing == []
