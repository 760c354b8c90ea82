"""Figures: medians and percentiles of one run, with the machine they were taken on."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True)
class Row:
    """One measured row. `better` says which way is good."""

    workload: str
    variant: str
    metric: str
    unit: str
    median: float
    p99: float
    n: int
    better: str = "lower"


@dataclass
class Figures:
    """What one run measured. `cpu_available` is the share of both cores that was free at the start (1: quiet)."""

    rows: list[Row] = field(default_factory=list)
    cpu_available: float = 0.0

    def add(
        self, workload: str, variant: str, metric: str, unit: str, values: list[float], better: str = "lower"
    ) -> Row:
        row = Row(
            workload,
            variant,
            metric,
            unit,
            round(percentile(values, 0.5), 3),
            round(percentile(values, 0.99), 3),
            len(values),
            better,
        )
        self.rows.append(row)
        print(
            f"{workload:12} {variant:28} {metric:24} {row.median:>10} {unit:8} p99 {row.p99} (n={row.n})",
            flush=True,
        )
        return row

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        body = {
            "schema": 1,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {
                "cores": os.cpu_count(),
                "kernel": platform.release(),
                "python": platform.python_version(),
            },
            "cpuAvailable": self.cpu_available,
            "results": [asdict(row) for row in self.rows],
        }
        path.write_text(json.dumps(body, indent=2) + "\n")


def cpu_available(seconds: float = 0.5) -> float:
    """The share of this machine's processor time nobody used just now."""

    def read() -> tuple[int, int]:
        numbers = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return numbers[3] + numbers[4], sum(numbers)

    idle, total = read()
    time.sleep(seconds)
    idle_after, total_after = read()
    return round((idle_after - idle) / max(1, total_after - total), 2)
