from __future__ import annotations

from archmax.docs.configuration import PAGE, page, settings_classes, variables


def test_the_page_lists_every_variable_as_the_settings_classes_have_it():
    """Run `python -m archmax.docs.configuration` after changing a setting."""
    assert PAGE.read_text("utf-8") == page()


def test_every_variable_says_what_it_is_for_and_none_of_one_class_stands_twice():
    for settings in settings_classes():
        rows = variables(settings)
        assert all(meaning for _, _, meaning in rows), settings
        names = [name for name, _, _ in rows]
        assert len(names) == len(set(names)), settings
        assert settings.__doc__
