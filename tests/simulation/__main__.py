"""`python -m tests.simulation [--seeds N | --turns N] [--from M]`: play worlds and print what they held.

`--turns` goes on until that many turns were accepted. Every thousand worlds a line tells how far it is. A world that breaks
an invariant is told and counted, and the next one is played.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter

from tests.simulation.mutations import MUTATIONS, mutated
from tests.simulation.story import SeedFailed, play

_TELL_EVERY = 1000
#: worlds that break after which the rest would tell nothing new
_ENOUGH = 20


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10_000, help="how many worlds")
    parser.add_argument("--turns", type=int, help="as many worlds as it takes to accept so many turns")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="take one rule out first")
    chosen = parser.parse_args()
    with mutated(chosen.mutation) if chosen.mutation else contextlib.nullcontext():
        return _play(chosen.first, chosen.seeds, chosen.turns)


def _play(first: int, seeds: int, turns: int | None) -> int:
    total: Counter[str] = Counter()
    broken: list[int] = []
    worlds = 0
    while total["turns"] < turns if turns is not None else worlds < seeds:
        try:
            total += play([first + worlds])
        except SeedFailed as failed:
            print(failed, flush=True)
            broken.append(first + worlds)
        worlds += 1
        if worlds % _TELL_EVERY == 0:
            _tell(worlds, total, broken)
        if len(broken) >= _ENOUGH:
            break
    _tell(worlds, total, broken)
    return 1 if broken else 0


def _tell(worlds: int, total: Counter[str], broken: list[int]) -> None:
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(total.items()))
    seeds = f" (seeds {', '.join(map(str, broken))})" if broken else ""
    print(
        f"{worlds:,} worlds, {len(broken)} broken{seeds}, {time.process_time():,.0f} s of CPU: {told}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
