"""The version of the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

PACKAGE: Final = "archmax-fleet"


def package_version() -> str:
    """`0` when the code runs without having been installed."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "0"
