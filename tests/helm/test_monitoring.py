"""The alert rules and the dashboard, judged by Prometheus' own tool on series as the fleet's registries tell them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric

from api.metrics import ApiMetrics
from archmax.docs.metrics import COUNTED
from sandbox.evaluation import Fault
from tests.support.helm import CHART
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

FILES = CHART / "files"
RULES_TEST = Path(__file__).with_name("alerts_test.yaml")
DASHBOARD: dict[str, Any] = json.loads((FILES / "dashboard.json").read_text())
EXPRESSIONS = [
    (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]
]


@pytest.fixture
def promtool(tmp_path: Path) -> Path:
    """A folder with the rules, for the tool to run in."""
    if shutil.which("promtool") is None:
        told = "promtool is missing: it comes with Prometheus (Debian: apt-get install prometheus)"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    shutil.copy(FILES / "alerts.yaml", tmp_path)
    return tmp_path


def run(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_on_its_incident_and_on_nothing_else(promtool: Path) -> None:
    shutil.copy(RULES_TEST, promtool)
    run(promtool, "check", "rules", "alerts.yaml")
    run(promtool, "test", "rules", RULES_TEST.name)


def test_every_alert_is_shown_to_fire_and_to_be_silent() -> None:
    names = {
        rule["alert"] for rule in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"][0]["rules"]
    }
    cases = [
        case for test in yaml.safe_load(RULES_TEST.read_text())["tests"] for case in test["alert_rule_test"]
    ]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == names
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == names


def told() -> Iterable[Metric]:
    """Everything a fleet tells once it has worked a little of everything."""
    worker, api = FleetMetrics(), ApiMetrics()
    worker.expect(["w"])
    usage = {"inputTokens": 10, "outputTokens": 2, "cacheReadTokens": 4, "costUsd": 0.25}
    changes = [{"t": "usage", "add": usage, "model": "m"}, {"t": "result", "blocked": True}]
    worker.committed("w", {"changes": changes}, 0.1)
    worker.ended("w", {"kind": "failed", "exit": {"code": "worker-lost"}}, 1)
    worker.wait_seconds.labels("w").observe(1)
    worker.fan_out.labels("w").observe(3)
    worker.sandbox_killed(Fault.MEMORY)
    api.requests.labels("POST", "/v1/x", "202").inc()
    api.seconds.labels("/v1/x").observe(0.1)
    yield from worker.registry.collect()
    yield from api.registry.collect()
    yield from QueueCollector(lambda: Queues(up=True, depth={"q": 3}, age_seconds={"q": 2.0})).collect()
    yield from StoreCollector(StoreWatch()).collect()
    yield from ReadingCollector(
        [Reading(name, lambda: 1.0, counter=name in COUNTED) for name in READINGS]
    ).collect()


def test_every_panel_shows_something_of_a_fleet_that_works(promtool: Path) -> None:
    series = [
        {
            "series": f"{sample.name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in sample.labels.items())}}}",
            "values": "1+1x60" if family.type in ("counter", "histogram") else "1+0x60",
        }
        for family in told()
        for sample in family.samples
    ]
    questions = [
        {
            "expr": f"count({expression.replace('$workflow', '.*')}) > bool 0",
            "eval_time": "25m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for _, expression in EXPRESSIONS
    ]
    test = {"interval": "30s", "input_series": series, "promql_expr_test": questions}
    (promtool / "panels.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    run(promtool, "test", "rules", "panels.yaml")


def test_every_metric_of_the_fleet_is_on_the_dashboard() -> None:
    def bare(name: str) -> str:
        return re.sub(r"_(total|bucket|count|sum)$", "", name)

    shown = {bare(name) for _, expression in EXPRESSIONS for name in re.findall(r"\barchmax_\w+", expression)}
    assert {family.name for family in told()} <= shown


def test_panels_do_not_lie_over_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
