"""`python -m tests.simulation --seeds N [--from M]`: play N worlds and print what they held."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.mutations import MUTATIONS, mutated
from tests.simulation.story import SeedFailed, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="take one rule out first")
    chosen = parser.parse_args()
    total: Counter[str] = Counter()
    began = time.process_time()
    try:
        if chosen.mutation:
            with mutated(chosen.mutation):
                total = play(range(chosen.first, chosen.first + chosen.seeds))
        else:
            total = play(range(chosen.first, chosen.first + chosen.seeds))
    except SeedFailed as failed:
        print(failed)
        return 1
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(total.items()))
    print(f"{chosen.seeds:,} worlds held in {time.process_time() - began:,.0f} s of CPU: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
