"""The command run in this process: the same door, streams and exit codes, without the price of a start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from archmax.cli.main import main


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


class Here:
    """`archmax <arguments>` in `cwd`, with no `ARCHMAX_` variable but those given."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cwd: Path
    ) -> None:
        self._patch, self._capsys, self.cwd = monkeypatch, capsys, cwd
        self.env: dict[str, str] = {}

    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None) -> Ran:
        with self._patch.context() as patch:
            for name in list(os.environ):
                if name.startswith("ARCHMAX_") or name == "NO_COLOR":
                    patch.delenv(name)
            before = dict(os.environ)
            os.environ.update({**self.env, **(env or {})})
            patch.chdir(self.cwd)
            try:
                code = main(arguments)
            finally:
                os.environ.clear()
                os.environ.update(before)
        captured = self._capsys.readouterr()
        return Ran(code, captured.out, captured.err)
