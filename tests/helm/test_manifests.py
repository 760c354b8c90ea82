"""What the chart renders: valid for Kubernetes, the same under both majors of Helm, closed by default."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest

from tests.support.chart_values import EVERYTHING, MATRIX, NASTY
from tests.support.helm import CHART, Helm, Rendered, find_helm
from worker.celery_app import create_app
from worker.settings import FleetSettings

#: kinds of operators that Kubernetes' own schemas do not know
CUSTOM = {"PodMonitor", "PrometheusRule", "ScaledObject"}
_valid: set[tuple[str, str]] = set()  # sets of values share most of their manifests
#: keys that are random unless given
RANDOM = {"redis-password", "redis-url", "valkey.conf", "flower-basic-auth"}


@pytest.mark.parametrize("case", sorted(MATRIX))
def test_the_chart_lints_under_both_majors_of_helm(helm: Helm, case: str) -> None:
    answer = helm.lint(MATRIX[case])
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_every_manifest_is_valid_by_kubernetes_own_schemas(rendered: Rendered, version: str) -> None:
    for document in rendered.documents:
        seen = (version, json.dumps(document, sort_keys=True))
        if document["kind"] not in CUSTOM and seen not in _valid:
            kubernetes_validate.validate(document, version, strict=True)
            _valid.add(seen)


@pytest.mark.parametrize("case", sorted(MATRIX))
def test_both_majors_of_helm_render_the_same(case: str) -> None:
    def shown(helm: str) -> list[dict[str, Any]]:
        documents = find_helm(helm).render(MATRIX[case]).documents
        for document in documents:
            if document["kind"] == "Secret":
                document["data"] = {k: v for k, v in document["data"].items() if k not in RANDOM}
        return sorted(documents, key=lambda o: (o["kind"], o["metadata"]["name"]))

    assert shown("helm3") == shown("helm4")


def test_every_container_runs_without_rights(rendered: Rendered) -> None:
    for name, spec in rendered.pods():
        assert spec["automountServiceAccountToken"] is False, name
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["limits"]["memory"], name
            assert ":" in container["image"].rpartition("/")[2], (
                "an image without a version is whatever is newest"
            )
            assert not container["image"].endswith(":latest")


def test_no_pod_reads_a_services_variables_as_settings(rendered: Rendered) -> None:
    """A service `archmax-api` would set ARCHMAX_API_PORT=tcp://… in every pod."""
    assert all(spec["enableServiceLinks"] is False for _, spec in rendered.pods())


def test_every_mount_has_its_volume_and_every_claim_of_the_chart_exists(rendered: Rendered) -> None:
    claims = {claim["metadata"]["name"] for claim in rendered.of("PersistentVolumeClaim")}
    given = {"ws", "sessions"}
    for name, spec in rendered.pods():
        volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
        volumes |= {"data": {}} if name.endswith("-redis") else {}
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            for mount in container.get("volumeMounts", ()):
                assert mount["name"] in volumes, f"{name}: {mount['name']}"
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim is None or claim in claims | given


def test_services_autoscalers_budgets_and_policies_select_what_exists(everything: Rendered) -> None:
    labels = [
        o["spec"]["template"]["metadata"]["labels"]
        for o in everything.documents
        if o["kind"] in ("Deployment", "StatefulSet")
    ]

    def selects(wanted: dict[str, str]) -> bool:
        return any(wanted.items() <= found.items() for found in labels)

    for service in everything.of("Service"):
        assert selects(service["spec"]["selector"]), service["metadata"]["name"]
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        for found in everything.of(kind):
            assert selects(found["spec"]["selector"]["matchLabels"]), found["metadata"]["name"]
    for policy in everything.of("NetworkPolicy"):
        assert selects(policy["spec"]["podSelector"]["matchLabels"]), policy["metadata"]["name"]
    deployments = {o["metadata"]["name"]: o for o in everything.of("Deployment")}
    scaled = [*everything.of("HorizontalPodAutoscaler"), *everything.of("ScaledObject")]
    assert len(scaled) == 3
    for scaler in scaled:
        target = deployments[scaler["spec"]["scaleTargetRef"]["name"]]
        assert "replicas" not in target["spec"], "an upgrade must not undo what the autoscaler did"


def test_redis_is_reached_from_the_fleets_own_pods_only(defaults: Rendered) -> None:
    policy = defaults.one("NetworkPolicy", "-redis")["spec"]
    (rule,) = policy["ingress"]
    assert [set(source) for source in rule["from"]] == [{"podSelector"}]
    assert policy["egress"] == []


def test_no_secret_stands_outside_the_secret(everything: Rendered) -> None:
    for document in everything.documents:
        if document["kind"] != "Secret":
            assert json.dumps(NASTY)[1:-1] not in json.dumps(document), document["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"settings": {"lease_ttl_secnds": 3}}, "lease_ttl_secnds"),
        ({"wrokers": {}}, "wrokers"),
        ({"flower": {"urlPrefix": "a b"}}, "urlPrefix"),
        ({"workspace": {"source": "git"}}, "source"),
        ({"secrets": {"flowerBasicAuth": {"value": "no colon"}}}, "flowerBasicAuth"),
        ({"redis": {"bundled": False}}, "no Redis"),
        ({"workers": {"pools": [{"name": "only", "workflows": ["a"]}]}}, "one pool must serve all workflows"),
        ({"workers": {"pools": [{"name": "a"}, {"name": "a"}]}}, "two pools are called"),
        ({"workers": {"defaults": {"terminationGraceSeconds": 20}}}, "shorter than a call may take"),
        ({"workspace": {"source": "volume"}}, "existingClaim"),
        ({"workspace": {"source": "s3"}}, "workspace.s3.url"),
        ({"flower": {"urlPrefix": "/"}, "ingress": {"enabled": True, "flower": True}}, "ingress.flowerHost"),
        (
            {"metrics": {"enabled": False}, "workers": {"defaults": {"autoscaling": {"mode": "keda"}}}},
            "needs metrics.enabled",
        ),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(helm: Helm, values: dict[str, Any], said: str) -> None:
    answer = helm.try_render(values)
    assert answer.returncode != 0
    assert said in answer.stderr


def test_the_notes_say_how_to_reach_what_was_installed(helm4: Helm) -> None:
    """Helm 4 renders them without a cluster; the older major asks one first."""
    answer = helm4.run("install", "fleet", str(CHART), "--dry-run=client")
    assert answer.returncode == 0, answer.stderr
    notes = answer.stdout.partition("NOTES:")[2]
    assert "svc/fleet-archmax-fleet-api 8000:80" in notes
    assert "http://127.0.0.1:5555/flower/" in notes
    assert "helm -n default test fleet" in notes


def test_the_broker_url_of_a_secret_is_one_celery_reads() -> None:
    """The names in the matrix are real: the same URL builds the app."""
    url = MATRIX["external redis by value"]["secrets"]["redisUrl"]["value"]
    app = create_app(FleetSettings.model_validate({"redis_url": url}))
    assert app.connection_for_read().password == "p@"
    assert EVERYTHING["fullnameOverride"] == "everything"
