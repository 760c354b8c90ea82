"""What is aimed at: for each row our figure, the best peer's of the same run, and the bound between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bench.figures import QUIET, Figures, Row
from bench.peers import PeerRow


@dataclass(frozen=True)
class Target:
    """`ours` names a row by regular expressions of workload, variant, metric; `figure` is its median or p99.

    `bound` is on our figure, or, `of_peer`, on our figure divided by the best peer's. `peers`: the same names of rows that
    count as the same work; `over`: the metric to divide theirs by. `scale` turns our unit into theirs.
    """

    title: str
    unit: str
    ours: tuple[str, str, str]
    bound: float
    of_peer: bool = False
    peers: tuple[str, str, str] | None = None
    over: str | None = None
    scale: float = 1.0
    figure: Literal["median", "p99"] = "median"
    higher: bool = False
    #: whether other load on the machine changes it
    timed: bool = True

    @property
    def words(self) -> str:
        sign = "≥" if self.higher else "≤"
        return f"{sign} {self.bound:g}" + (" × best peer" if self.of_peer else f" {self.unit}".rstrip())


@dataclass(frozen=True)
class Verdict:
    """One line of the report. `peer`: the best one's figure in our unit, and which it is. `met` None: not to be told."""

    target: Target
    ours: float | None
    peer: float | None
    peer_name: str
    ratio: float | None
    met: bool | None
    busy: bool
    variant: str = ""


IN_PROCESS: Final = r"(?!objs3).*in-process/lat0|http-ingress/lat0"
QUEUED: Final = (
    r"(?!objs3)(.*/queue.*/lat0|create_agent\+RestateMiddleware/lat0|runs\..*/lat0|(local-)?activities/lat0)"
)
MS: Final = 1e-3

TARGETS: Final = (
    Target("W1 plain turn in process, directory, fsync", "ms", ("W1", "in process, directory, fsync, lat 0", "turn"), 0.6, True, ("W1", IN_PROCESS, "turn"), scale=MS),
    Target("W1 the same on S3", "ms", ("W1", "in process, S3, lat 0", "turn"), 0.3, True, ("W1", "objs3/in-process/lat0", "turn"), scale=MS),
    Target("W1 through HTTP, queue and worker", "ms", ("W1", r"HTTP, \?wait=, directory, fsync, lat 0", "turn"), 1.0, True, ("W1", QUEUED, "turn"), scale=MS),
    Target("W2 40 turns on one session: bytes stored", "MB", ("W2", ".*", "bytes kept"), 1.0, True, ("W2", ".*", "store_size"), timed=False),
    Target("W2 last three turns ÷ first three", "", ("W2", ".*", "last 3 / first 3"), 1.1, False, ("W2", ".*", "turn_last3"), over="turn_first3"),
    Target("W3 50 children, 20 ms model, two processes", "s", ("W3", ".*2 processes, lat 20", "fan-out"), 1.2, True, ("W3", ".*lat20", "fanout_50")),
    Target("W3 the same with one slot: it ends", "s", ("W3", ".*one slot.*", "fan-out"), 60.0),
    Target("W4 worker killed: until the turn goes on", "s", ("W4", ".*", "until it goes on"), 3.0, False, ("W4", ".*", "kill_to_resume")),
    Target("W4 committed calls repeated", "", ("W4", ".*", "committed calls repeated"), 0.0, figure="p99", timed=False),
    Target("W5 turns at once, 20 ms model, two processes", "turns/s", ("W5", r".*2 process\(es\), lat 20", "turns/s"), 1.5, True, ("W5", ".*lat20", "throughput"), higher=True),
    Target("Waiting turns in one process: each adds", "MiB", ("memory", ".*waiting.*", "each adds"), 3.0, timed=False),
    Target("Waiting turns: other turns' latency", "×", ("memory", ".*waiting.*", "others' latency"), 1.2),
    Target("Idle worker, resident", "MiB", ("memory", "idle worker", ".*"), 140.0, False, ("W1", ".*", "worker_rss"), timed=False),
    Target("`archmax worker` to the end of its first turn", "s", ("start", ".*", ".*"), 2.5),
    Target("Enqueue to first model call, p50", "ms", ("latency", ".*", ".*"), 15.0),
    Target("Enqueue to first model call, p99", "ms", ("latency", ".*", ".*"), 60.0, figure="p99"),
    Target("Prompt prefix of the reference workspace", "characters", ("prompt", "prefix of .*", "characters"), 12_000.0, timed=False),
    Target("Static block identical across a session's calls", "%", ("prompt", ".*", "static block identical"), 100.0, higher=True, timed=False),
)  # fmt: skip


def judge(target: Target, figures: Figures, peers: Sequence[PeerRow]) -> Verdict:
    """The worst of our rows against the best of the peers'."""
    rows = [row for row in figures.rows if named(target.ours, row)]
    best = _best(target, peers)
    busy = target.timed and any(row.cpu_available < QUIET for row in rows)
    if not rows:
        return Verdict(target, None, best[0], best[1], None, None, False)
    pick = min if target.higher else max
    row = pick(rows, key=lambda row: _figure(target, row))
    ours = _figure(target, row)
    busy = busy or (target.timed and best[0] is not None and best[2] < QUIET)
    if best[0] is None:
        met = None if target.of_peer else _holds(target, ours)
        return Verdict(target, ours, None, "", None, met, busy, row.variant)
    ratio = ours / best[0] if best[0] else None
    met = _holds(target, ratio if target.of_peer and ratio is not None else ours)
    return Verdict(target, ours, best[0], best[1], ratio, met, busy, row.variant)


def named(names: tuple[str, str, str], row: Row) -> bool:
    """Whether a row's workload, variant and metric match these expressions."""
    values = (row.workload, row.variant, row.metric)
    return all(re.fullmatch(name, value) for name, value in zip(names, values, strict=True))


def _figure(target: Target, row: Row) -> float:
    return row.p99 if target.figure == "p99" else row.median


def _holds(target: Target, value: float) -> bool:
    return value >= target.bound if target.higher else value <= target.bound


def _best(target: Target, peers: Sequence[PeerRow]) -> tuple[float | None, str, float]:
    """The best peer's figure in our unit, its name, and how quiet its machine was."""
    if target.peers is None:
        return None, "", 1.0
    found: list[tuple[float, str, float]] = []
    for row in peers:
        if not named(target.peers, row):
            continue
        value = row.median
        if target.over is not None:
            under = [
                other.median
                for other in peers
                if (other.peer, other.variant, other.metric) == (row.peer, row.variant, target.over)
            ]
            if not under:
                continue
            value /= under[0]
        found.append((value / target.scale, f"{row.peer}: {row.variant}", row.cpu_available))
    if not found:
        return None, "", 1.0
    return (max if target.higher else min)(found)
