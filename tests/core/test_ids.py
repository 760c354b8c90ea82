"""Identifiers differ, also among the children of one process."""

from __future__ import annotations

import random
import re
import subprocess
import sys

from core.ids import fresh_id


def test_ids_have_their_digits_and_differ_whatever_a_program_seeds() -> None:
    """Write ids tell two writes apart: one that came twice would be taken for a retry."""
    random.seed(1)
    first = fresh_id()
    random.seed(1)
    made = {first, *(fresh_id() for _ in range(10_000))}
    assert len(made) == 10_001
    assert all(re.fullmatch(r"[0-9a-f]{16}", one) for one in made)
    assert re.fullmatch(r"[0-9a-f]{20}", fresh_id(20))


FORKS = """
import os
from core.ids import fresh_id
if os.fork() == 0:
    os.write(1, fresh_id().encode() + b"\\n")
    os._exit(0)
os.wait()
os.write(1, fresh_id().encode() + b"\\n")
"""


def test_a_forked_child_has_ids_of_its_own() -> None:
    """A copy of the parent's generator would give the parent's next ids."""
    told = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert len(set(told.stdout.split())) == 2
