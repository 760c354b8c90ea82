from __future__ import annotations

import pytest

from archmax.settings import CommandSettings, LocalSettings, SettingsError, read_settings


def test_blank_is_unset(monkeypatch: pytest.MonkeyPatch):
    """05 §15."""
    monkeypatch.setenv("ARCHMAX_FLOWER_PORT", "")
    assert read_settings(LocalSettings).flower_port == 5555


def test_a_wrong_value_is_an_error_that_names_the_variable_and_not_the_value(monkeypatch: pytest.MonkeyPatch):
    """05 §15."""
    monkeypatch.setenv("ARCHMAX_FLOWER_PORT", "hunter2")
    with pytest.raises(SettingsError, match="ARCHMAX_FLOWER_PORT") as caught:
        read_settings(LocalSettings)
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("ARCHMAX_FLOWER_PORT", "70000")
    with pytest.raises(SettingsError, match="ARCHMAX_FLOWER_PORT"):
        read_settings(LocalSettings)


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ARCHMAX_KEY", "hunter2")
    assert "hunter2" not in repr(read_settings(CommandSettings))
