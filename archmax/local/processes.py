"""Command lines for children that must not outlive this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_LAUNCHER = Path(__file__).with_name("launch.py")


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """`command`, wrapped so that the kernel kills it when the calling thread ends.

    Start it from a thread that lives as long as the child should: the main thread, or an event loop's.
    """
    return [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), *command]
