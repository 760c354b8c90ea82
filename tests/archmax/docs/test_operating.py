"""The operator's guide: its pages agree with the code, and its snippets run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from archmax.docs.configuration import settings_classes, variables
from archmax.docs.metrics import PAGE, page
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


@pytest.mark.parametrize(
    "line", [line for _, language, body in BLOCKS if language == "sh" for line in body.splitlines()]
)
def test_commands_in_the_guide_run_as_far_as_they_can_without_a_cluster(line: str) -> None:
    tool, verb, *rest = line.split()
    if (tool, verb) == ("docker", "build"):
        assert (CHART.parents[1] / "Dockerfile").is_file()
        return
    assert tool == "helm"
    if verb == "test":
        assert find_helm("helm4").render({}).of("Pod"), "the chart's test"
        return
    assert verb in ("install", "upgrade")
    more = [word for word in rest[2:] if word != "--reuse-values"]
    assert rest[1] == "helm/archmax-fleet"
    assert find_helm("helm4").render({}, *more).documents


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
