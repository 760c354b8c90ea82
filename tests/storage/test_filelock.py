"""File locks among tasks and processes."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from storage.filelock import LockHeld, exclusive

HOLDER = """
    import asyncio, sys
    from pathlib import Path
    from storage.filelock import exclusive

    async def main(path):
        async with exclusive(Path(path)):
            print("held", flush=True)
            await asyncio.sleep(600)

    asyncio.run(main(sys.argv[1]))
"""


async def test_a_lock_held_by_another_process_is_refused_at_once_and_freed_by_its_death(
    tmp_path: Path,
) -> None:
    """Ruling 11: none is ever stale."""
    path = tmp_path / "locks" / "S"
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(HOLDER), str(path), stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert holder.stdout is not None and await holder.stdout.readline() == b"held\n"
    with pytest.raises(LockHeld, match=f"locked by process {holder.pid}"):
        async with exclusive(path):
            raise AssertionError("two holders")
    holder.kill()
    await holder.communicate()
    async with exclusive(path):
        assert path.exists()
    assert not path.exists()


async def test_a_lock_is_freed_by_an_error_inside(tmp_path: Path) -> None:
    """Ruling 11."""
    with pytest.raises(KeyError):
        async with exclusive(tmp_path / "S"):
            raise KeyError
    async with exclusive(tmp_path / "S"):
        pass


async def test_of_many_that_come_at_once_one_holds_at_a_time(tmp_path: Path) -> None:
    """Ruling 11: also while holders come and go."""
    holders = most = entered = 0

    async def work() -> None:
        nonlocal holders, most, entered
        while True:
            try:
                async with exclusive(tmp_path / "S"):
                    holders += 1
                    most, entered = max(most, holders), entered + 1
                    await asyncio.sleep(0)
                    holders -= 1
                return
            except LockHeld:
                await asyncio.sleep(0)

    await asyncio.gather(*(work() for _ in range(20)))
    assert (most, entered) == (1, 20)


def test_the_refusal_survives_pickling() -> None:
    """Errors cross processes."""
    error = pickle.loads(pickle.dumps(LockHeld("/p", 7)))
    assert (error.path, error.holder, str(error)) == ("/p", 7, "'/p' is locked by process 7")
