"""Identifiers that must differ from all others and need not be secret: write ids, messages, tasks.

From a generator of this process, seeded by the system: asking the system for each one costs a call into the kernel, in which
the interpreter's lock changes hands. A forked child is seeded anew. What must not be guessed comes from `secrets`.
"""

from __future__ import annotations

import os
import random
from typing import Final

_GENERATOR: Final = random.Random()
os.register_at_fork(after_in_child=_GENERATOR.seed)


def fresh_id(digits: int = 16) -> str:
    """So many hexadecimal digits, four bits of chance each."""
    return f"{_GENERATOR.getrandbits(4 * digits):0{digits}x}"
