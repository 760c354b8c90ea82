"""The report of a run: a Markdown table against the targets, and a page with plots."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from bench.figures import QUIET, Figures, read_figures
from bench.peers import PeerRow, read_peers
from bench.svg import bars, lines, number
from bench.targets import IN_PROCESS, QUEUED, TARGETS, Target, Verdict, judge, named

BUSY: Final = "⚠"
#: title, unit, our rows, the peers' rows, and our unit in theirs
COMPARED: Final = (
    ("W1 in process, 0 ms model", "ms", ("W1", "in process.*lat 0", "turn"), ("W1", rf"{IN_PROCESS}|objs3/in-process/lat0", "turn"), 1e-3),
    ("W1 queued, 0 ms model", "ms", ("W1", r"(queue|HTTP).*lat 0", "turn"), ("W1", rf"{QUEUED}|http-ingress/lat0|objs3/queue/lat0", "turn"), 1e-3),
    ("W1 queued, 20 ms model", "ms", ("W1", r"(queue|HTTP).*lat 20", "turn"), ("W1", r"(.*/queue.*|http-ingress|create_agent\+RestateMiddleware|runs\..*|(local-)?activities)/lat20", "turn"), 1e-3),
    ("W2 bytes stored", "MB", ("W2", ".*", "bytes kept"), ("W2", ".*", "store_size"), 1.0),
    ("W3 fan-out, 20 ms model", "s", ("W3", ".*lat 20", "fan-out"), ("W3", ".*lat20", "fanout_50"), 1.0),
    ("W4 from kill to going on", "s", ("W4", ".*", "until it goes on"), ("W4", ".*", "kill_to_resume"), 1.0),
    ("W5 throughput, 0 ms model", "turns/s", ("W5", ".*lat 0", "turns/s"), ("W5", ".*lat0", "throughput"), 1.0),
    ("W5 throughput, 20 ms model", "turns/s", ("W5", ".*lat 20", "turns/s"), ("W5", ".*lat20", "throughput"), 1.0),
)  # fmt: skip
STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1340px; margin: 2rem auto; padding: 0 1rem; color: #24292f; background: #fff }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
td, th { border-bottom: 1px solid #d8dee4; padding: .25rem .7rem; text-align: left }
td.n, th.n { text-align: right }
.met { color: #1a7f37; font-weight: 600 } .missed { color: #cf222e; font-weight: 600 }
.plots { display: flex; flex-wrap: wrap; gap: 1rem }
svg { border: 1px solid #d8dee4; border-radius: 6px; max-width: 100%; height: auto }
"""


class Report:
    """All figures of a results folder: our `project.json`, the peers' files below `peers/`, what became of the peers."""

    def __init__(self, results: Path) -> None:
        self.figures: Figures = read_figures(results / "project.json")
        self.about = json.loads((results / "project.json").read_text())
        self.peers: list[PeerRow] = read_peers(results / "peers")
        self.verdicts: list[Verdict] = [judge(target, self.figures, self.peers) for target in TARGETS]

    # -- Markdown ------------------------------------------------------------------------------------------------

    def markdown(self) -> str:
        parts = ["# Report of a run", self.heading(), self.target_table(), "## Every row", self.row_table()]
        if self.peers:
            parts += ["## The peers' rows", self.peer_table()]
        return "\n\n".join(parts) + "\n"

    def heading(self) -> str:
        machine = self.about["machine"]
        least = min((row.cpu_available for row in self.figures.rows), default=1.0)
        words = [
            f"{self.about['at']}, {machine['cores']} cores, Python {machine['python']}, Linux {machine['kernel']}.",
            f"Least CPU free before a step: {least:.2f}; {BUSY} marks what was measured below {QUIET}.",
        ]
        words.append(f"Steps as they were begun: {self._steps()}.")
        if self.about["quick"]:
            words.append("**A quick run: sizes and rounds are cut, so its seconds are no figures.**")
        words += [f"Failed: {name}: {problem}." for name, problem in self.figures.failed.items()]
        words += [f"Peer {line}." for line in self.about.get("peers", [])]
        return " ".join(words)

    def _steps(self) -> str:
        """Each step with the time it was begun, the earliest first: those of one run follow on one another."""
        begun = {row.step: row.measured for row in self.figures.rows}
        shown = sorted(begun.items(), key=lambda item: item[1])
        return ", ".join(f"{step} {when[:16].replace('T', ' ')}" for step, when in shown)

    def target_table(self) -> str:
        lines_ = [
            "| row | ours | best peer | ratio | target | met |",
            "| --- | ---: | ---: | ---: | --- | --- |",
        ]
        for verdict in self.verdicts:
            target = verdict.target
            peer = (
                f"{_with_unit(verdict.peer, target)} ({verdict.peer_name})"
                if verdict.peer is not None
                else "–"
            )
            ours = _with_unit(verdict.ours, target) if verdict.ours is not None else "–"
            ratio = f"{verdict.ratio:.2f}" if verdict.ratio is not None else "–"
            mark = f" {BUSY}" if verdict.busy else ""
            lines_.append(
                f"| {target.title} | {ours} | {peer} | {ratio} | {target.words} | {_met(verdict)}{mark} |"
            )
        return "\n".join(lines_)

    def row_table(self) -> str:
        lines_ = [
            "| workload | variant | metric | median | p99 | n | unit | CPU free |",
            "| --- | --- | --- | ---: | ---: | ---: | --- | ---: |",
        ]
        for row in self.figures.rows:
            variant = row.variant if row.at is None else f"{row.variant}: {number(row.at)}"
            lines_.append(
                f"| {row.workload} | {variant} | {row.metric} | {number(row.median)} | {number(row.p99)} | {row.n} "
                f"| {row.unit} | {_free(row.cpu_available)} |"
            )
        return "\n".join(lines_)

    def peer_table(self) -> str:
        lines_ = [
            "| peer | workload | variant | metric | median | p99 | n | unit | CPU free |",
            "| --- | --- | --- | --- | ---: | ---: | ---: | --- | ---: |",
        ]
        lines_ += [
            f"| {row.peer} | {row.workload} | {row.variant} | {row.metric} | {number(row.median)} | {number(row.p99)} "
            f"| {row.n} | {row.unit} | {_free(row.cpu_available)} |"
            for row in self.peers
        ]
        return "\n".join(lines_)

    # -- HTML ----------------------------------------------------------------------------------------------------

    def html(self) -> str:
        plots = "".join(f"<div>{plot}</div>" for plot in [*self._comparisons(), *self._curves()])
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>Benchmarks</title><style>{STYLE}</style><h1>Benchmarks</h1><p>{_inline(self.heading())}</p>"
            f"<h2>Against the targets</h2>{_table(self.target_table())}<h2>Plots</h2>"
            f'<div class="plots">{plots}</div><details><summary>Every row</summary>{_table(self.row_table())}</details>'
            + (
                f"<details><summary>The peers' rows</summary>{_table(self.peer_table())}</details>"
                if self.peers
                else ""
            )
            + "</html>\n"
        )

    def _comparisons(self) -> list[str]:
        plots: list[str] = []
        for title, unit, ours, theirs, scale in COMPARED:
            rows = [(row.variant, row.median, True) for row in self.figures.rows if named(ours, row)]
            rows += [
                (f"{row.peer}: {row.variant}", row.median / scale, False)
                for row in self.peers
                if named(theirs, row)
            ]
            if rows:
                plots.append(bars(title, sorted(rows, key=lambda row: row[1]), unit))
        return plots

    def _curves(self) -> list[str]:
        """Rows that have an x: one plot per kind of x and unit, one line per variant and metric."""
        found: dict[tuple[str, str, str], dict[str, list[tuple[float, float]]]] = defaultdict(dict)
        for row in self.figures.rows:
            if row.at is not None:
                what, _, by = row.variant.rpartition(", by ")
                line = found[row.workload, _axis(by), row.unit]
                name = what if row.metric in ("turn", "open", "sweep", "CPU") else f"{what}: {row.metric}"
                line.setdefault(f"{name} ({by})" if _axis(by) != by else name, []).append(
                    (row.at, row.median)
                )
        return [
            lines(f"{workload}: by {axis}", series, axis, unit)
            for (workload, axis, unit), series in found.items()
            if max(map(len, series.values())) > 1
        ]


def _axis(by: str) -> str:
    """Sessions at rest and waiting share a plot."""
    return "sessions" if by.startswith("sessions ") else by


def _free(share: float) -> str:
    return f"{share:.2f}" + (f" {BUSY}" if share < QUIET else "")


def _with_unit(value: float, target: Target) -> str:
    return f"{number(value)} {target.unit}".rstrip()


def _met(verdict: Verdict) -> str:
    if verdict.met is None:
        return "not measured" if verdict.ours is None else "no peer"
    return "yes" if verdict.met else "**no**"


def _inline(words: str) -> str:
    """Escaped, with `**` as bold."""
    pieces = escape(words).split("**")
    return "".join(f"<b>{piece}</b>" if index % 2 else piece for index, piece in enumerate(pieces))


def _table(markdown: str) -> str:
    """A Markdown table as HTML; numbers to the right, verdicts coloured."""
    rows = [[cell.strip() for cell in line.strip("|").split(" |")] for line in markdown.splitlines()]
    right = [cell.endswith(":") for cell in rows[1]]

    def cell(tag: str, index: int, words: str) -> str:
        kinds = ["n"] if right[index] else []
        if words.startswith("yes"):
            kinds.append("met")
        if words.startswith("**no**"):
            kinds.append("missed")
        shown = f' class="{" ".join(kinds)}"' if kinds else ""
        return f"<{tag}{shown}>{_inline(words)}</{tag}>"

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(cell(tag, index, words) for index, words in enumerate(cells)) + "</tr>"

    return "<table>" + line("th", rows[0]) + "".join(line("td", cells) for cells in rows[2:]) + "</table>"


def write_report(results: Path, page: Path) -> Report:
    """Write `report.md` beside the results and the page with plots."""
    report = Report(results)
    (results / "report.md").write_text(report.markdown())
    page.write_text(report.html())
    return report
