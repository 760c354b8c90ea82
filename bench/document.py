"""The generated parts of docs/performance.md and docs/operating/sizing.md: `python -m bench.document [--results DIR]`.

A part stands between `<!-- name -->` and `<!-- /name -->`. From a quick run only the counts are taken: its seconds say
nothing.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figures import Figures
from bench.fleet import REPOSITORY
from bench.report import Report
from bench.svg import number
from bench.targets import named

PERFORMANCE: Final = REPOSITORY / "docs/performance.md"
SIZING: Final = REPOSITORY / "docs/operating/sizing.md"

#: what the sizing assumes; the page says why
TURN_SECONDS: Final = 30
PEAK: Final = 3
BUSY: Final = 0.6
SLOTS: Final = 200
#: requests of a plain turn to the store, held by tests/worker/test_fleet_on_s3.py
STORE_REQUESTS: Final = 14
DAY: Final = 86_400


def counts_table(figures: Figures) -> str:
    lines = ["| what | count |", "| --- | ---: |"]
    lines += [
        f"| {row.variant}: {row.metric} | {number(row.median)} {row.unit.removeprefix('1')} |"
        for row in figures.rows
        if row.workload in ("counts", "prompt")
    ]
    return "\n".join(lines)


def growth_table(figures: Figures) -> str:
    """Curves: one row per line, one column per place."""
    lines = ["| curve | grows | median |", "| --- | --- | --- |"]
    curves: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in figures.rows:
        if row.at is not None:
            curves.setdefault((row.variant, row.metric, row.unit), []).append((row.at, row.median))
    for (variant, metric, unit), points in curves.items():
        what, _, by = variant.rpartition(", by ")
        shown = ", ".join(f"{number(x)}: {number(y)}" for x, y in points)
        lines.append(f"| {what}: {metric} [{unit}] | {by} | {shown} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Costs:
    """What a turn costs, as a run measured it. Milliseconds of one processor, MiB, bytes."""

    worker_ms: float
    redis_ms: float
    api_ms: float
    waiting_mib: float
    idle_mib: float
    kept_bytes: float
    queued_bytes: float
    commands: float
    stored_bytes: float
    fault_writes: float

    @classmethod
    def of(cls, figures: Figures) -> Costs:
        """Raises: `LookupError` naming a row that the run has not."""

        def find(*names: str, at: Callable[[list[float]], float] = max) -> float:
            workload, variant, metric = names
            found = [row.median for row in figures.rows if named((workload, variant, metric), row)]
            if not found:
                raise LookupError(f"no row {names}")
            return at(found)

        turns = find("counts", ".* turns on one session", "bytes kept")
        count = next(row.variant for row in figures.rows if row.variant.endswith("turns on one session"))
        calm = find("simulator", ".*no faults", "store writes")
        return cls(
            worker_ms=find("W5", r".*2 process\(es\), lat 20", "worker CPU of a turn"),
            redis_ms=find("W5", r".*2 process\(es\), lat 20", "Redis CPU of a turn"),
            api_ms=find("W1", "HTTP, directory, fsync", "API CPU of a turn"),
            waiting_mib=find("memory", ".*waiting turns", "each adds"),
            idle_mib=find("memory", "idle worker", ".*"),
            kept_bytes=find("counts", "a turn in the fleet", "kept in Redis.*"),
            queued_bytes=find("queue", ".*", "Redis memory of each"),
            commands=find("counts", "a turn in the fleet", "Redis commands.*"),
            stored_bytes=turns / int(count.split()[0]),
            fault_writes=find("simulator", ".*losses.*", "store writes") / calm,
        )


def sizing_table(costs: Costs) -> str:
    """What 1 million and 100 million turns a day need."""
    columns = [_needs(costs, turns) for turns in (1_000_000, 100_000_000)]
    lines = ["| | by | 1 million a day | 100 million a day |", "| --- | --- | ---: | ---: |"]
    lines += [
        f"| {name} | {by} | {first} | {second} |"
        for (name, by, first), (_, _, second) in zip(*columns, strict=True)
    ]
    return "\n".join(lines)


def _needs(costs: Costs, turns: int) -> list[tuple[str, str, str]]:
    peak = turns / DAY * PEAK
    under_way = peak * TURN_SECONDS
    by_cpu = math.ceil(peak * costs.worker_ms / 1000 / BUSY)
    by_slots = math.ceil(under_way / SLOTS)
    workers = max(2, by_cpu, by_slots)
    each_mib = costs.idle_mib + under_way / workers * costs.waiting_mib
    apis = max(2, math.ceil(peak * costs.api_ms / 1000 / BUSY))
    redis_cores = peak * costs.redis_ms / 1000
    return [
        ("turns/s, mean and peak", f"turns ÷ {DAY:,} s; × {PEAK}", f"{number(turns / DAY)}; {number(peak)}"),
        ("turns under way at the peak", f"peak × {TURN_SECONDS} s", number(math.ceil(under_way))),
        ("worker processes for the CPU", f"peak × {number(costs.worker_ms)} ms ÷ {BUSY}", number(by_cpu)),
        ("worker processes for the slots", f"under way ÷ {SLOTS}", number(by_slots)),
        ("**worker processes, one core each**", "the larger, at least 2", f"**{number(workers)}**"),
        ("memory of each", f"{number(costs.idle_mib)} MiB + its turns × {number(costs.waiting_mib)} MiB", f"{number(math.ceil(each_mib))} MiB"),
        ("**API processes**", f"peak × {number(costs.api_ms)} ms ÷ {BUSY}, at least 2", f"**{number(apis)}**"),
        ("Redis: cores at the peak", f"peak × {number(costs.redis_ms)} ms", number(redis_cores)),
        ("**Redis servers, so fleets**", f"cores ÷ {BUSY}", f"**{number(max(1, math.ceil(redis_cores / BUSY)))}**"),
        ("Redis: commands/s at the peak", f"peak × {number(costs.commands)}", number(peak * costs.commands)),
        ("Redis: memory for a day of events", f"turns × {number(costs.kept_bytes)} bytes", _bytes(turns * costs.kept_bytes)),
        ("Redis: memory of an hour's queue", f"peak × 3,600 s × {number(costs.queued_bytes)} bytes", _bytes(peak * 3600 * costs.queued_bytes)),
        ("store: requests/s at the peak", f"peak × {STORE_REQUESTS}", number(peak * STORE_REQUESTS)),
        ("store: the same while everything fails", f"× {number(costs.fault_writes)}, by the simulator", number(peak * STORE_REQUESTS * costs.fault_writes)),
        ("store: growth a day", f"turns × {number(costs.stored_bytes)} bytes, of the benches' small messages", _bytes(turns * costs.stored_bytes)),
    ]  # fmt: skip


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{number(count)} {unit}"
        count /= 1000
    raise AssertionError


def fill(text: str, name: str, body: str) -> str:
    """`text` with the part `name` replaced. Raises: `ValueError` when it has no such part."""
    part = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not part.search(text):
        raise ValueError(f"no part {name!r}")
    return part.sub(lambda found: f"{found[1]}\n{body}\n\n{found[2]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.document", description=__doc__)
    parser.add_argument("--results", type=Path, default=REPOSITORY / "bench/results")
    report = Report(parser.parse_args().results)
    counted = f"Counted at {report.about['at']}; a busy machine does not change them."
    page = fill(PERFORMANCE.read_text(), "counts", f"{counted}\n\n{counts_table(report.figures)}")
    if report.about["quick"]:
        print("a quick run: only its counts are taken")
    else:
        page = fill(page, "targets", f"{report.heading()}\n\n{report.target_table()}")
        page = fill(page, "growth", growth_table(report.figures))
        table = sizing_table(Costs.of(report.figures))
        SIZING.write_text(fill(SIZING.read_text(), "needs", table))
    PERFORMANCE.write_text(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
