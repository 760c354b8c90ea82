from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Here


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """The command in a workspace of the test's own."""
    return Here(monkeypatch, capsys, tmp_path)
