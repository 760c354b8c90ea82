"""What faults add to a turn's writes, by the simulator of the protocol: the same code in virtual time, hostile and calm."""

from __future__ import annotations

from bench.figures import Figures
from tests.simulation.faults import Faults
from tests.simulation.story import play


async def simulated(figures: Figures, quick: bool) -> None:
    worlds = 20 if quick else 400
    calm = play(range(worlds), faults=Faults())
    hostile = play(range(worlds))
    for name, counts in (("no faults", calm), ("crashes, losses, freezes", hostile)):
        each = counts["writes"] / counts["ended"]
        figures.add("simulator", f"{worlds} worlds, {name}", "store writes", "1/turn", [each])
