"""The engine bench for the tests of this folder."""

from __future__ import annotations

from tests.support.engine import bench

__all__ = ["bench"]
