"""The operator's guide: its pages agree with the code, and its snippets run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from archmax.cli.parser import Line, parse
from archmax.docs.configuration import settings_classes, variables
from archmax.docs.metrics import PAGE, page
from archmax.local.ports import free_port
from archmax.local.redis import EmbeddedRedis
from tests.support.command import REPOSITORY, command_environment
from tests.support.helm import CHART, find_helm

PAGES = sorted(PAGE.parent.glob("*.md"))
BLOCKS = [
    (file.name, language, body)
    for file in PAGES
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", file.read_text(), re.MULTILINE | re.DOTALL)
]


def test_the_page_of_metrics_is_what_the_code_has() -> None:
    assert PAGE.read_text() == page(), "run python -m archmax.docs.metrics"


@pytest.mark.parametrize("body", [body for _, language, body in BLOCKS if language == "yaml"])
def test_values_in_the_guide_render(body: str) -> None:
    assert body.startswith("# values"), "say what it is"
    assert find_helm("helm4").render(yaml.safe_load(body)).documents


#: tools of the guide that this machine may lack, and what of a command is checked instead
ELSEWHERE = {
    "docker": "there is no daemon: that the Dockerfile is right is shown by tests/helm/test_image.py",
    "kubectl": "there is no cluster: that names and ports exist is shown by the rendered chart",
    "helm": "there is no cluster: what would be installed is rendered",
}
#: pages whose commands are run as they stand
RUN = ("processes.md",)


@pytest.mark.parametrize(
    "line",
    [
        line
        for name, language, body in BLOCKS
        if language == "sh" and name not in RUN
        for line in body.splitlines()
    ],
)
def test_commands_in_the_guide_run_as_far_as_they_can_without_a_cluster(line: str) -> None:
    tool, verb, *rest = line.split()
    assert tool in ELSEWHERE, f"run it, in a page of {RUN}"
    if tool == "docker":
        assert (verb, (CHART.parents[1] / "Dockerfile").is_file()) == ("build", True)
    elif verb == "test":
        assert find_helm("helm4").render({}).of("Pod"), "the chart's test"
    else:
        assert verb in ("install", "upgrade")
        more = [word for word in rest[2:] if word != "--reuse-values"]
        assert rest[1] == "helm/archmax-fleet"
        assert find_helm("helm4").render({}, *more).documents


@pytest.mark.timeout(600)
def test_a_fleet_installs_by_hand_as_the_guide_says(tmp_path: Path) -> None:
    """Every command of `processes.md`, in one shell; only ports and Redis are the test's own."""
    shutil.copytree(
        REPOSITORY / "examples" / "order-desk",
        tmp_path / "workspace",
        ignore=shutil.ignore_patterns("sessions"),
    )
    text = "\n".join(body for name, language, body in BLOCKS if name == "processes.md" and language == "sh")
    for port in ("8000", "9464", "5555"):
        text = re.sub(rf"\b{port}\b", str(free_port()), text)
    # what is left when a command fails must not outlive the test
    script = f"set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nset -v\n{text}"
    with EmbeddedRedis.start() as redis:
        done = subprocess.run(
            ["bash", "-c", script.replace("redis://127.0.0.1:6379/0", redis.url)],
            cwd=tmp_path,
            env=command_environment(
                {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
    logs = "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in tmp_path.glob("*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{logs}"
    for words in ('"ready":true', "archmax_store_up 1.0", "SO-4103", "order-desk  completed"):
        assert words in done.stdout, done.stdout


def test_commands_within_sentences_exist() -> None:
    for file in PAGES:
        for command in re.findall(r"`archmax ([^`]+)`", file.read_text()):
            words = re.sub(r"<\w+>", "x", command).split()
            assert isinstance(parse(words), Line), command
        for target in re.findall(r"`make (\w+)`", file.read_text()):
            assert f"\n{target}: " in (REPOSITORY / "Makefile").read_text(), target


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_pages_name_only_settings_metrics_and_alerts_that_exist(file: Path) -> None:
    text = file.read_text()
    known = {name for settings in settings_classes() for name, _, _ in variables(settings)}
    assert set(re.findall(r"\bARCHMAX_[A-Z_]+\b", text)) <= known
    alerts = set(re.findall(r"alert: (\w+)", (CHART / "files" / "alerts.yaml").read_text()))
    assert set(re.findall(r"`(Archmax\w+)`", text)) <= alerts
    metrics = set(re.findall(r"`(archmax_\w+)`", page()))
    assert set(re.findall(r"`(archmax_\w+)`", text)) <= metrics
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (file.parent / link).exists(), link


def test_every_alert_points_to_a_page_that_exists() -> None:
    alerts = (CHART / "files" / "alerts.yaml").read_text()
    for runbook, row in re.findall(r"(docs/operating/[a-z-]+\.md)(?:, ([^\".]+))?", alerts):
        text = (CHART.parents[1] / runbook).read_text()
        assert not row or f"| {row.strip()} |" in text, row
