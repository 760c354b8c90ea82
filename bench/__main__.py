"""`python -m bench [--quick] [--only W1,session [--keep]] [--peers DIR [--peer "celery --savers sqlite,objs3"]] [--report]`

Runs every bench of the project, then the peers of a folder, one after the other; writes `bench/results/*.json`,
`bench/results/report.md` with ratios to the best peer against the targets, and `bench/report.html` with plots.
Seconds say something only beside others of the same run on a quiet machine: each step waits for one, and what was
measured beside other load is marked.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from bench.counts import measure as counts
from bench.figures import Figures, await_quiet, read_figures
from bench.growth import long_sessions, queues, sweeps
from bench.kernel_decision import kernel
from bench.peers import run_peers
from bench.report import write_report
from bench.sandbox_cost import scripts
from bench.simulated import simulated
from bench.spec_validate import spec
from bench.store_ops import store
from bench.turns import (
    first_call,
    starts,
    w1_in_process,
    w1_queued,
    w2_long_session,
    w3_fan_out,
    w4_killed,
    w5_throughput,
    waiting_turns,
)

HERE: Final = Path(__file__).resolve().parent
STEPS: Final[dict[str, Callable[[Figures, bool], Coroutine[Any, Any, None]]]] = {
    "W1": w1_in_process,
    "W1Q": w1_queued,
    "W2": w2_long_session,
    "W3": w3_fan_out,
    "W4": w4_killed,
    "W5": w5_throughput,
    "memory": waiting_turns,
    "start": starts,
    "latency": first_call,
    "counts": counts,
    "kernel": kernel,
    "spec": spec,
    "store": store,
    "scripts": scripts,
    "simulator": simulated,
    "session": long_sessions,
    "sweep": sweeps,
    "queue": queues,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that everything runs")
    parser.add_argument("--only", default="", help=f"steps, separated by commas: {', '.join(STEPS)}")
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(os.environ["ARCHMAX_BENCH_PEERS"]) if os.environ.get("ARCHMAX_BENCH_PEERS") else None,
        help="folder of the peers' harness; default $ARCHMAX_BENCH_PEERS; none runs no peer",
    )
    parser.add_argument(
        "--peer", action="append", default=[], help="a peer, with options of its script; default: all"
    )
    parser.add_argument(
        "--quiet-seconds", type=float, default=60.0, help="how long a step waits for a quiet machine"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--report", action="store_true", help="measure nothing: write the report again")
    parser.add_argument(
        "--keep", action="store_true", help="keep the rows an earlier run left of the steps that are not run"
    )
    options = parser.parse_args()
    results: Path = options.results
    page = HERE / "report.html" if results == HERE / "results" else results / "report.html"
    chosen = [name for name in options.only.split(",") if name] or list(STEPS)
    if unknown := [name for name in chosen if name not in STEPS]:
        parser.error(f"no such step: {', '.join(unknown)}")
    failed = False
    if not options.report:
        failed = _measure(
            chosen, results, quick=options.quick, quiet_seconds=options.quiet_seconds, keep=options.keep
        )
        if options.peers is not None:
            told = run_peers(
                options.peers,
                options.peer,
                results / "peers",
                quick=options.quick,
                quiet_seconds=options.quiet_seconds,
            )
            path = results / "project.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "peers": told}, indent=2) + "\n")
    report = write_report(results, page)
    print(f"\n{report.target_table()}\n\n{results / 'report.md'}\n{page}")
    return 1 if failed else 0


def _measure(
    chosen: list[str], results: Path, *, quick: bool, quiet_seconds: float, keep: bool = False
) -> bool:
    """Run steps; their rows are on disk after each. Returns whether one failed."""
    os.environ["LANGSMITH_TRACING"] = "false"
    before = results / "project.json"
    figures = read_figures(before) if keep and before.exists() else Figures(quick=quick)
    if figures.quick != quick:
        raise SystemExit("a quick run and a whole one are not kept together")
    for name in chosen:
        gc.collect()
        figures.cpu_available = await_quiet(quiet_seconds)
        figures.begin(name)
        print(f"step {name}, CPU free {figures.cpu_available}", flush=True)
        began = time.monotonic()
        try:
            asyncio.run(STEPS[name](figures, quick))
        except Exception as problem:
            traceback.print_exc()
            figures.failed[name] = f"{type(problem).__name__}: {problem}"
        print(f"step {name}: {time.monotonic() - began:.1f} s", flush=True)
        figures.write(results / "project.json")
    return bool(figures.failed)


if __name__ == "__main__":
    raise SystemExit(main())
