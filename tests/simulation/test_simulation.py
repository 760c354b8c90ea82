"""The durable protocol under every fault the simulator knows (docs/protocol.md §9)."""

from __future__ import annotations

import pytest

from tests.simulation.faults import Faults
from tests.simulation.mutations import MUTATIONS, mutated
from tests.simulation.story import SeedFailed, play

_SEEDS = 2_000
_BATCH = 100
#: worlds that bring out a rule whose absence does harm only in rare ones
_HARD = {
    "retry trusted without the head": Faults(lost_reply=0.06, stunned=0.5, rude=0.3),
    "entries removed at once": Faults(freeze=0.2, latency=20),
    "slow accept trusted": Faults(freeze=0.2, latency=20),
    "dues not repeated": Faults(crash=0.04),
    "suspended parent not pumped": Faults(crash=0.04, message_lost=0.4),
    "lost messages forgotten": Faults(message_lost=0.4),
    "local turn without a number": Faults(latency=200),
}


@pytest.mark.parametrize("first", range(0, _SEEDS, _BATCH))
def test_every_invariant_holds_after_every_write_and_everything_comes_to_rest(first: int) -> None:
    """docs/protocol.md §9."""
    total = play(range(first, first + _BATCH))
    assert total["turns"] > _BATCH
    assert total["takeovers"] > 0


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_rule_taken_out_is_noticed(name: str) -> None:
    """docs/protocol.md: where the model breaks when the rule is dropped."""
    with mutated(name), pytest.raises(SeedFailed):
        play(range(300), faults=_HARD.get(name))


def test_one_seed_is_one_story() -> None:
    """A failure is told by its seed alone."""
    assert play([7, 14]) == play([7, 14])
