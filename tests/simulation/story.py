"""Playing seeds, and telling the story of one that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.simulation.faults import Faults
from tests.simulation.world import World

#: lines of trace shown
_LINES = 150


class SeedFailed(AssertionError):
    """An invariant broke: the seed, the faults and the trace that led there."""


def play(seeds: Iterable[int], *, faults: Faults | None = None) -> Counter[str]:
    """Play each seed's world. Returns what happened, counted. Raises: `SeedFailed` at the first that breaks."""
    total: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed, faults=faults)
        try:
            world.run()
        except Exception as failure:
            trace = "\n".join(line[:300] for line in list(world.scheduler.trace)[-_LINES:])
            raise SeedFailed(
                f"{trace}\n\nseed {seed}: {type(failure).__name__}: {failure}\n{world.drawn}"
            ) from failure
        total += world.oracle.counts
    return total
