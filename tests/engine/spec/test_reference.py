"""The reference of diagnostics and its page."""

from __future__ import annotations

from pathlib import Path

from engine.spec.reference import SECTIONS, diagnostics_by_id, diagnostics_markdown, explain


def test_the_page_is_what_the_table_generates():
    """01 §19."""
    page = Path(__file__).parents[3] / "docs/diagnostics.md"
    assert page.read_text() == diagnostics_markdown()


def test_identifiers_are_distinct_and_every_entry_is_complete():
    """01 §19."""
    entries = [entry for section in SECTIONS.values() for entry in section]
    assert len({entry.id for entry in entries}) == len(entries)
    assert all(all((entry.title, entry.meaning, entry.example, entry.cure, entry.field)) for entry in entries)
    assert all(entry.reported_as is None or entry.reported_as in diagnostics_by_id() for entry in entries)


def test_one_entry_can_be_explained():
    """01 §19."""
    entry = explain("doc.no-start-state")
    assert entry is not None
    assert "trigger" in entry.cure
    assert explain("nothing.here") is None
