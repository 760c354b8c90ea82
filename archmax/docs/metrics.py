"""`docs/operating/metrics.md`, written from the metrics in the code; a test keeps the file true.

`python -m archmax.docs.metrics` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric

from api.metrics import ApiMetrics
from worker.metrics import (
    READINGS,
    FleetMetrics,
    QueueCollector,
    Queues,
    Reading,
    ReadingCollector,
    StoreCollector,
    StoreWatch,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operating" / "metrics.md"
#: the readings that only ever grow
COUNTED = frozenset({"archmax_leases_lost", "archmax_events_dropped"})

_HEAD = """\
# Metrics

Workers serve them on `ARCHMAX_METRICS_PORT`, without a key. The API serves its own at `/metrics` to keys that may read, and
on that port too. Several processes on one machine take the next free ports; their logs say which. Queues look the same from
every process: take the maximum, never the sum. `helm/archmax-fleet/files/` holds a Grafana dashboard and alert rules.
Counters of the workspace's workflows begin at zero with the process, so that the first failure counts as growth.

![The dashboard's panels under a load with dying workers, drawn from Prometheus](../images/dashboard.png)

This page is generated: `python -m archmax.docs.metrics`.
"""


def page() -> str:
    readings = [Reading(name, lambda: 0.0, counter=name in COUNTED) for name in READINGS]
    parts: list[tuple[str, Iterable[Metric]]] = [
        ("Workers: turns", FleetMetrics().registry.collect()),
        ("Workers: the process", ReadingCollector(readings).collect()),
        (
            "Workers and API: what they stand on",
            [*QueueCollector(Queues).collect(), *StoreCollector(StoreWatch()).collect()],
        ),
        ("API", ApiMetrics().registry.collect()),
    ]
    lines = [_HEAD]
    for heading, families in parts:
        lines += [f"## {heading}", "", "| metric | type | meaning |", "| --- | --- | --- |"]
        for family in families:
            suffix = "_total" if family.type == "counter" else ""
            lines.append(f"| `{family.name}{suffix}` | {family.type} | {family.documentation} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
