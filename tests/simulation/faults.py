"""How hostile one simulated world is: drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Faults:
    """Chances per event, from 0 to 1."""

    #: a store request's reply is lost, the write done
    lost_reply: float = 0.0
    #: a store request fails, nothing done
    refused: float = 0.0
    #: a store write is done later than its sender was told "unknown"
    late: float = 0.0
    #: a client's silent retry meets its own first write
    doubled: float = 0.0
    #: the process dies at a store request
    crash: float = 0.0
    #: a message is lost / delivered twice / delayed for long
    message_lost: float = 0.0
    message_doubled: float = 0.0
    message_delayed: float = 0.0
    #: a Redis request fails
    redis: float = 0.0
    #: per second of the hostile phase: a process freezes / Redis is wiped / the wall clock jumps / a worker drains
    freeze: float = 0.0
    wipe: float = 0.0
    jump: float = 0.0
    drain: float = 0.0
    #: an engine step raises or never comes back
    poison: float = 0.0
    #: a process freezes right after a store reply was lost
    stunned: float = 0.0
    #: leases are worth nothing: given out twice at this chance, and never seen to be lost
    rude: float = 0.0
    #: longest latency of a store request, ms
    latency: int = 20

    @property
    def none(self) -> bool:
        return self == Faults(latency=self.latency)


def draw(random: random.Random) -> Faults:
    """One in eight worlds is free of faults; the others mix a few kinds, some of them hard."""
    if random.random() < 0.125:
        return Faults(latency=random.choice((3, 20, 200)))

    def some(hard: float) -> float:
        return random.choice((0.0, 0.0, hard / 5, hard))

    return Faults(
        lost_reply=some(0.06),
        refused=some(0.06),
        late=some(0.05),
        doubled=some(0.05),
        crash=some(0.04),
        message_lost=some(0.4),
        message_doubled=some(0.3),
        message_delayed=some(0.3),
        redis=some(0.1),
        freeze=some(0.2),
        wipe=some(0.05),
        jump=some(0.05),
        drain=some(0.05),
        poison=some(0.05),
        stunned=some(0.5),
        rude=random.choice((0.0, 0.0, 0.0, 0.3)),
        latency=random.choice((3, 20, 200)),
    )
