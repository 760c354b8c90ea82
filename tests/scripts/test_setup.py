"""The set-up script where it has something to say before it can install anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.command import REPOSITORY


def project(directory: Path) -> Path:
    (directory / "scripts").mkdir()
    shutil.copy(REPOSITORY / "scripts" / "setup", directory / "scripts" / "setup")
    for name in ("requirements.lock", "pyproject.toml"):
        (directory / name).write_text("")
    return directory


def setup(directory: Path, python: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "scripts/setup"],
        cwd=directory,
        env=dict(os.environ, PYTHON=python),
        capture_output=True,
        text=True,
        check=False,
    )


def fake_python(directory: Path, refuses: str) -> str:
    """The real interpreter, but for programs that speak of `refuses`."""
    file = directory / "fake-python"
    file.write_text(f'#!/bin/sh\ncase "$*" in *{refuses}*) exit 1 ;; esac\nexec {sys.executable} "$@"\n')
    file.chmod(0o755)
    return str(file)


def test_a_python_without_venv_is_one_line_that_says_what_to_install(tmp_path: Path):
    run = setup(project(tmp_path), fake_python(tmp_path, "ensurepip"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert run.returncode == 1
    assert run.stderr == f"setup: this Python has no venv; on Debian: apt install python{version}-venv\n"
    assert not (tmp_path / ".venv").exists()


def test_an_old_or_missing_python_is_one_line_that_says_what_is_needed(tmp_path: Path):
    for python in (fake_python(project(tmp_path), "version_info"), "/nonexistent/python"):
        run = setup(tmp_path, python)
        assert run.returncode == 1
        assert run.stderr.startswith("setup: Python 3.11 or newer is needed")
        assert run.stderr.count("\n") == 1


def test_a_current_environment_is_left_alone(tmp_path: Path):
    """The same files and a working interpreter: nothing is done and nothing is said."""
    directory = project(tmp_path)
    (directory / ".venv" / "bin").mkdir(parents=True)
    (directory / ".venv" / "bin" / "python").symlink_to(sys.executable)
    stamp = subprocess.run(
        ["sh", "-c", "cat requirements.lock pyproject.toml scripts/setup | cksum"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (directory / ".venv" / "setup.stamp").write_text(stamp)
    run = setup(directory, "/nonexistent/python")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
