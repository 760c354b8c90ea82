"""The report judges our rows against the best peer's, and its page stands alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.figures import Figures
from bench.peers import PeerRow, run_peers
from bench.report import write_report
from bench.svg import bars, lines, number
from bench.targets import TARGETS, judge


def _peer(
    workload: str,
    variant: str,
    metric: str,
    unit: str,
    median: float,
    *,
    peer: str = "a peer",
    free: float = 1.0,
) -> PeerRow:
    return PeerRow(workload, variant, metric, unit, median, median, 9, cpu_available=free, peer=peer)


def _target(beginning: str) -> int:
    [index] = [index for index, target in enumerate(TARGETS) if target.title.startswith(beginning)]
    return index


def test_a_time_is_divided_by_the_best_peers_and_held_to_the_bound() -> None:
    figures = Figures()
    figures.add("W1", "in process, directory, fsync, lat 0", "turn", "ms", [9.0, 9.0])
    peers = [
        _peer("W1", "sqlite/in-process/lat0", "turn", "s", 0.0155),
        _peer("W1", "objfs/in-process/lat0", "turn", "s", 0.020),
        _peer("W1", "sqlite/in-process/lat20", "turn", "s", 0.001),  # other work
    ]
    found = judge(TARGETS[_target("W1 plain")], figures, peers)
    assert found.peer == pytest.approx(15.5)
    assert found.ratio == pytest.approx(9 / 15.5)
    assert found.met is True and not found.busy


def test_more_is_better_where_the_target_says_so() -> None:
    figures = Figures()
    figures.add("W5", "500 turns, 2 process(es), lat 20", "turns/s", "1/s", [140.0], "higher")
    peers = [
        _peer("W5", f"{name}/lat20", "throughput", "turns/s", rate) for name, rate in (("a", 14), ("b", 107))
    ]
    found = judge(TARGETS[_target("W5")], figures, peers)
    assert (found.peer, found.met) == (107, False)


def test_a_peers_growth_is_its_last_turns_by_its_first() -> None:
    figures = Figures()
    figures.add("W2", "40 turns", "last 3 / first 3", "ratio", [1.05])
    peers = [
        _peer("W2", "flat", "turn_first3", "s", 0.02),
        _peer("W2", "flat", "turn_last3", "s", 0.022),
        _peer("W2", "other", "turn_last3", "s", 0.001),
    ]
    found = judge(TARGETS[_target("W2 last")], figures, peers)
    assert found.peer == pytest.approx(1.1)
    assert found.met is True


@pytest.mark.parametrize(("ours", "theirs"), [(0.5, 1.0), (1.0, 0.5)])
def test_a_row_of_a_busy_machine_is_marked_whosever_it_is(ours: float, theirs: float) -> None:
    figures = Figures(cpu_available=ours)
    figures.add("W1", "in process, S3, lat 0", "turn", "ms", [30.0])
    found = judge(
        TARGETS[_target("W1 the same")],
        figures,
        [_peer("W1", "objs3/in-process/lat0", "turn", "s", 0.1, free=theirs)],
    )
    assert found.busy and found.met is True


def test_without_a_peer_a_ratio_is_not_told_and_a_plain_bound_is() -> None:
    figures = Figures()
    figures.add("W1", "in process, S3, lat 0", "turn", "ms", [30.0])
    figures.add("memory", "idle worker", "resident (PSS)", "MiB", [150.0])
    assert judge(TARGETS[_target("W1 the same")], figures, []).met is None
    assert judge(TARGETS[_target("Idle worker")], figures, []).met is False
    assert judge(TARGETS[_target("W4 worker")], figures, []).ours is None


def test_the_report_is_a_table_and_a_page_that_asks_for_nothing(tmp_path: Path) -> None:
    figures = Figures(quick=True)
    figures.add("W1", "in process, S3, lat 0", "turn", "ms", [30.0])
    for sessions in (10, 100, 1_000):
        figures.add("growth", "sweep, by sessions waiting", "sweep", "ms", [sessions / 10], at=sessions)
    figures.write(tmp_path / "project.json")
    page = tmp_path / "report.html"
    write_report(tmp_path, page)
    table = (tmp_path / "report.md").read_text()
    assert "| W1 the same on S3 | 30 ms | – | – | ≤ 0.3 × best peer | no peer |" in table
    assert "A quick run" in table
    html = page.read_text()
    assert "growth: by sessions" in html
    assert not re.search(r"<(script|link|img|iframe)|\b(src|href)=|@import|url\(", html)
    for plot in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(plot)


def test_a_peer_without_its_environment_is_skipped_and_another_is_run(tmp_path: Path) -> None:
    peers = tmp_path / "peers"
    python = tmp_path / "environments/venv-restate/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        '#!/bin/sh\necho "{\\"ran\\": \\"$*\\", \\"quick\\": \\"$PEERS_QUICK\\"}" > "$PEERS_RESULTS/restate.json"\n'
    )
    python.chmod(0o755)
    peers.mkdir()
    (peers / "common.py").write_text(f"ROOT = {str(tmp_path / 'environments')!r}\n")
    results = tmp_path / "results"
    told = run_peers(peers, ["restate --only W1", "celery"], results, quick=True, quiet_seconds=1)
    assert told == ["restate: ran", "celery: skipped, no venv-lc in $PEERS_ROOT"]
    assert json.loads((results / "restate.json").read_text()) == {
        "ran": "peer_restate.py --only W1",
        "quick": "1",
    }


def test_plots_are_well_formed_for_any_words_and_values() -> None:
    for plot in (
        bars("a < b & c", [("“ours” <1>", 3.0, True), ("theirs", 0.0, False)], "ms"),
        lines("flat", {"one": [(1, 5.0), (2, 5.0)]}, "x", "y"),
        lines("wide", {"a": [(10, 0.01), (100_000, 900.0)], "b": [(10, 2.0)]}, "sessions", "ms"),
    ):
        ElementTree.fromstring(plot)
        assert "nan" not in plot


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.01234, "0.0123"), (1.5, "1.5"), (12.34, "12.3"), (100, "100"), (12_345.6, "12,346")],
)
def test_numbers_have_three_digits(value: float, words: str) -> None:
    assert number(value) == words
