"""Pools, probes, grace, Flower's path: what the chart's numbers and paths mean to the processes behind them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.chart_values import PREFIXES
from tests.support.helm import CHART, Helm, Rendered
from worker.celery_app import INTAKE_QUEUE, SHARED_QUEUE, child_queue, queues_taken, turn_queue
from worker.health import BEAT_SECONDS, MAX_AGE_SECONDS


def container(rendered: Rendered, ending: str) -> dict[str, Any]:
    found: dict[str, Any] = rendered.one("Deployment", ending)["spec"]["template"]["spec"]["containers"][0]
    return found


def variable(found: dict[str, Any], name: str) -> str | None:
    return next((entry["value"] for entry in found["env"] if entry["name"] == name), None)


@pytest.mark.parametrize("ending", ["-worker-default", "-beat"])
def test_a_fresh_heartbeat_is_alive_and_an_old_or_missing_one_is_not(
    defaults: Rendered, ending: str, tmp_path: Path
) -> None:
    """Known fault H27: the probe reads a file's age and starts nothing else."""
    found = container(defaults, ending)
    heartbeat = tmp_path / "heartbeat"
    written = variable(found, "ARCHMAX_HEARTBEAT_FILE")
    assert written is not None
    shell, flag, script = found["livenessProbe"]["exec"]["command"]
    assert (shell, flag) == ("sh", "-c")
    assert set(re.findall(r"[a-z]{4,}", script)) <= {"test", "date", "stat", "archmax", "heartbeat"}
    assert f"-lt {MAX_AGE_SECONDS}" in script
    assert BEAT_SECONDS * 5 < MAX_AGE_SECONDS

    def alive() -> bool:
        command = [shell, flag, script.replace(written, str(heartbeat))]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert not alive()
    heartbeat.touch()
    assert alive()
    old = time.time() - MAX_AGE_SECONDS - 1
    os.utime(heartbeat, (old, old))
    assert not alive()


def test_the_apis_liveness_asks_nothing_of_redis_or_the_store(defaults: Rendered) -> None:
    """Known fault H27: an outage of Redis restarts nothing."""
    found = container(defaults, "-api")
    assert found["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert found["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert found["readinessProbe"]["httpGet"]["path"] == "/readyz"


@pytest.mark.parametrize("call_seconds", [10, 120, 600.5])
def test_the_grace_of_a_worker_exceeds_the_longest_step(helm4: Helm, call_seconds: float) -> None:
    """Known fault H26: three attempts at a call fit, each as long as it may take."""
    rendered = helm4.render({"settings": {"call_timeout_seconds": call_seconds}})
    spec = rendered.one("Deployment", "-worker-default")["spec"]["template"]["spec"]
    assert (
        spec["terminationGracePeriodSeconds"] >= 3 * call_seconds + 40
    )  # the waits between attempts, 20 s each
    assert variable(spec["containers"][0], "ARCHMAX_CALL_TIMEOUT_SECONDS") == f"{call_seconds:g}"


def test_every_process_gets_its_signals_itself(defaults: Rendered) -> None:
    """Known fault H26: no shell stands between the kubelet and a process."""
    for name, spec in defaults.pods():
        for found in spec["containers"]:
            command = found.get("command", ["tini"])
            assert command[0] != "sh" or name.endswith("-test"), name


def test_a_pool_takes_the_queues_of_its_workflows_and_no_other(everything: Rendered) -> None:
    workflows = ["slow", "mail", "batch-a", "orders"]

    def taken(pool: str) -> set[str]:
        return set(
            queues_taken(variable(container(everything, f"-worker-{pool}"), "ARCHMAX_WORKFLOWS"), workflows)
        )

    assert taken("slow") == {
        turn_queue("slow"),
        child_queue("slow"),
        turn_queue("batch-a"),
        child_queue("batch-a"),
    }
    assert taken("hpa") == {turn_queue("mail"), child_queue("mail")}
    general = taken("default")
    assert {SHARED_QUEUE, INTAKE_QUEUE, turn_queue("orders"), turn_queue("mail")} <= general
    assert turn_queue("slow") not in general
    assert turn_queue("batch-a") not in general


def test_keda_asks_for_the_age_of_the_queues_the_pool_takes(everything: Rendered) -> None:
    (scaler,) = everything.of("ScaledObject")
    (trigger,) = scaler["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    match = re.fullmatch(r'max\(archmax_queue_age_seconds\{queue=~"(.+)"\}\)', query)
    assert match is not None, query
    pattern = re.compile(match[1].replace("\\\\", "\\"))
    assert pattern.fullmatch(turn_queue("slow"))
    assert pattern.fullmatch(child_queue("batch-x"))
    assert not pattern.fullmatch(turn_queue("mail"))
    assert not pattern.fullmatch(SHARED_QUEUE)
    assert trigger["metadata"]["threshold"] == "2.5"


@pytest.mark.parametrize("written", sorted(PREFIXES))
def test_one_value_gives_flowers_path_to_process_probes_ingress_and_test(helm4: Helm, written: str) -> None:
    """Known fault H25: empty and `/` mean none."""
    path = PREFIXES[written]
    values: dict[str, Any] = {"flower": {"urlPrefix": written}, "ingress": {"enabled": True, "flower": True}}
    if not path:
        values["ingress"]["flowerHost"] = "flower.example.com"
    rendered = helm4.render(values)
    found = container(rendered, "-flower")
    assert variable(found, "FLOWER_URL_PREFIX") == (path.strip("/") or None)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert found[probe]["httpGet"]["path"] == f"{path}/healthcheck"
    paths = [
        entry["path"]
        for rule in rendered.one("Ingress", "fleet")["spec"]["rules"]
        for entry in rule["http"]["paths"]
        if entry["backend"]["service"]["name"].endswith("-flower")
    ]
    assert paths == [path or "/"]
    assert f"-flower{path}/healthcheck" in rendered.one("Pod", "-test")["spec"]["containers"][0]["args"][0]


def test_flower_always_asks_for_a_password(rendered: Rendered) -> None:
    for deployment in rendered.of("Deployment"):
        if deployment["metadata"]["name"].endswith("-flower"):
            found = deployment["spec"]["template"]["spec"]["containers"][0]
            entry = next(entry for entry in found["env"] if entry["name"] == "FLOWER_BASIC_AUTH")
            assert entry["valueFrom"]["secretKeyRef"]["key"]


def test_the_chart_is_of_the_packages_version() -> None:
    project = (CHART.parents[1] / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"$', project, re.MULTILINE)
    assert version is not None
    assert f'appVersion: "{version[1]}"' in (CHART / "Chart.yaml").read_text()
