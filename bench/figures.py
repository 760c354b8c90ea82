"""Figures: medians and percentiles of one run, each with how quiet the machine was when its step began."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

#: below this share of free processors a figure says little: such rows are marked
QUIET: Final = 0.85

Better = Literal["lower", "higher"]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True)
class Row:
    """One measured row, named by (workload, variant, metric). `better` says which way is good.

    `cpu_available`: the share of all cores nobody used just before the step (1: quiet). `at`: for a curve, its x.
    `step`, `measured`: which step of the bench gave it, and when that began, in UTC.
    """

    workload: str
    variant: str
    metric: str
    unit: str
    median: float
    p99: float
    n: int
    better: Better = "lower"
    cpu_available: float = 1.0
    at: float | None = None
    step: str = ""
    measured: str = ""


@dataclass
class Figures:
    """What a run measured. The steps of one run are comparable; what it kept of an earlier one says when that was."""

    rows: list[Row] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    cpu_available: float = 1.0
    quick: bool = False
    step: str = ""
    measured: str = ""

    def begin(self, step: str) -> None:
        """What is added from here on is this step's; nothing of an earlier run of it stays."""
        self.step, self.measured = step, utc_now()
        self.rows = [row for row in self.rows if row.step not in ("", step)]
        self.failed.pop(step, None)

    def add(
        self,
        workload: str,
        variant: str,
        metric: str,
        unit: str,
        values: Sequence[float],
        better: Better = "lower",
        *,
        at: float | None = None,
    ) -> Row:
        row = Row(
            workload,
            variant,
            metric,
            unit,
            round(percentile(values, 0.5), 4),
            round(percentile(values, 0.99), 4),
            len(values),
            better,
            self.cpu_available,
            at,
            self.step,
            self.measured,
        )
        self.rows.append(row)
        print(
            f"{workload:10} {variant:44} {metric:26} {row.median:>12} {unit:8} p99 {row.p99:<10} n={row.n}",
            flush=True,
        )
        return row

    def body(self) -> dict[str, Any]:
        return {
            "schema": 2,
            "at": utc_now(),
            "quick": self.quick,
            "machine": {
                "cores": os.cpu_count(),
                "kernel": platform.release(),
                "python": platform.python_version(),
            },
            "failed": self.failed,
            "results": [asdict(row) for row in self.rows],
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.body(), indent=2) + "\n")


def utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_figures(path: Path) -> Figures:
    """Raises: `ValueError` for a file of another schema."""
    body = json.loads(path.read_text())
    if body.get("schema") != 2:
        raise ValueError(f"{path}: not the figures of this release; run the benches again")
    return Figures([Row(**row) for row in body["results"]], body["failed"], quick=body["quick"])


def cpu_available(seconds: float = 0.5) -> float:
    """The share of this machine's processor time nobody used just now."""

    def read() -> tuple[int, int]:
        numbers = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return numbers[3] + numbers[4], sum(numbers)

    idle, total = read()
    time.sleep(seconds)
    idle_after, total_after = read()
    return round((idle_after - idle) / max(1, total_after - total), 2)


def await_quiet(seconds: float) -> float:
    """Wait, for at most so long, until the machine is quiet. Returns the share that is free then."""
    deadline = time.monotonic() + seconds
    while (free := cpu_available()) < QUIET and time.monotonic() < deadline:
        time.sleep(2)
    return free
