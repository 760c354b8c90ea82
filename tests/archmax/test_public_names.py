"""The public surface: every name `archmax` promises can be imported, the typed errors of 05 §17 among them."""

from __future__ import annotations

import subprocess
import sys

import archmax


def test_every_public_name_resolves() -> None:
    missing = [name for name in archmax.__all__ if getattr(archmax, name, None) is None]
    assert not missing


def test_importing_the_package_imports_nothing_else_of_the_project() -> None:
    code = (
        "import archmax, sys; "
        "print([m for m in sys.modules if m.split('.')[0] in {'engine','worker','api','storage','sandbox','langchain_core'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
