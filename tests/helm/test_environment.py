"""The variables the chart sets, against the settings classes, and the secrets as their readers get them."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import Celery
from redis import Redis
from redis.connection import parse_url
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from api.settings import ApiSettings
from archmax.docs.configuration import settings_classes, variables
from archmax.local.ports import free_port
from archmax.local.redis import find_server
from tests.support.chart_values import NASTY, NASTY_AUTH
from tests.support.helm import CHART, Rendered
from tests.support.workers import until
from worker.settings import FleetSettings, ModelEnvironment

#: what the chart has a place of its own for; the rest may be set under `settings`
KNOWN = {name for settings in settings_classes() for name, _, _ in variables(settings)}


def environment(container: dict[str, Any]) -> dict[str, Any]:
    names = [entry["name"] for entry in container.get("env", ())]
    assert len(names) == len(set(names)), "a variable is set twice"
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env", ())}


def secret(rendered: Rendered) -> dict[str, str]:
    found = rendered.of("Secret")
    data = found[0]["data"] if found else {}  # none when every secret is one's own
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def values_of(rendered: Rendered, container: dict[str, Any]) -> dict[str, str]:
    """The variables as the process gets them; what another secret holds is left out."""
    held = secret(rendered)
    own = [found["metadata"]["name"] for found in rendered.of("Secret")]
    found: dict[str, str] = {}
    for name, value in environment(container).items():
        if isinstance(value, str):
            found[name] = value
        elif value["secretKeyRef"]["name"] in own:
            found[name] = held[value["secretKeyRef"]["key"]]
    return found


def test_every_variable_the_chart_sets_is_a_setting(rendered: Rendered) -> None:
    """pydantic-settings ignores a misspelt name."""
    for name, spec in rendered.pods():
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            for variable in environment(container):
                assert not variable.startswith("ARCHMAX_") or variable in KNOWN, f"{name}: {variable}"


def test_every_setting_is_set_by_the_chart_or_may_be_set_under_settings(everything: Rendered) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    open_names = {f"ARCHMAX_{name.upper()}" for name in schema["properties"]["settings"]["properties"]}
    assert open_names <= KNOWN
    set_names = {
        name
        for _, spec in everything.pods()
        for container in spec["containers"]
        for name in environment(container)
    }
    fleet = {
        name
        for settings in (FleetSettings, ApiSettings, ModelEnvironment)
        for name, _, _ in variables(settings)
    }
    # keys are never off in a cluster: the API is reached from other machines
    assert fleet - set_names - open_names == {"ARCHMAX_AUTH_DISABLED"}


def test_the_settings_classes_read_what_every_pod_is_given(
    rendered: Rendered, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, spec in rendered.pods():
        container = spec["containers"][0]
        if container["name"] not in ("api", "worker", "beat"):
            continue
        with monkeypatch.context() as patched:
            for variable, value in values_of(rendered, container).items():
                patched.setenv(variable, value)
            fleet, api, model = FleetSettings(), ApiSettings(), ModelEnvironment()
        assert fleet.store_url.startswith(("s3://", "file:///")), name
        assert str(fleet.root) == container["args"][-1]
        assert not api.auth_disabled
        assert fleet.log_format == "json"
        assert model.streaming


def test_large_and_small_numbers_arrive_as_they_were_written(everything: Rendered) -> None:
    worker = values_of(
        everything, everything.one("Deployment", "worker-slow")["spec"]["template"]["spec"]["containers"][0]
    )
    assert worker["ARCHMAX_EVENT_STREAM_SECONDS"] == "10000000"
    assert worker["ARCHMAX_OTLP_SAMPLE_RATIO"] == "0.1"
    assert worker["ARCHMAX_STORE_FSYNC"] == "false"
    assert worker["ARCHMAX_CONCURRENCY"] == "20"


def test_special_characters_in_every_secret_arrive_as_they_were_written(everything: Rendered) -> None:
    worker = everything.one("Deployment", "worker-default")["spec"]["template"]["spec"]["containers"][0]
    flower = everything.one("Deployment", "-flower")["spec"]["template"]["spec"]["containers"][0]
    given = values_of(everything, worker)
    assert given["ARCHMAX_API_KEY"] == NASTY
    assert given["ARCHMAX_S3_SECRET_ACCESS_KEY"] == NASTY
    assert given["ARCHMAX_WEBHOOK_SECRET"] == NASTY
    assert values_of(everything, flower)["FLOWER_BASIC_AUTH"] == NASTY_AUTH
    url = given["ARCHMAX_REDIS_URL"]
    assert parse_url(url)["password"] == NASTY
    assert Celery(broker=url, set_as_current=False).connection_for_read().password == NASTY
    assert urlsplit(url).hostname == "everything-redis"


def test_only_workers_get_the_models_key(everything: Rendered) -> None:
    for name, spec in everything.pods():
        holds = any("ARCHMAX_API_KEY" in environment(container) for container in spec["containers"])
        assert holds == ("-worker-" in name), name


@pytest.fixture
def configured_redis(everything: Rendered, tmp_path: Path) -> Iterator[int]:
    """A server run with the bundled Redis' own configuration, on a port and in a folder of the test."""
    port = free_port()
    text = (
        secret(everything)["valkey.conf"]
        .replace("port 6379", f"port {port}")
        .replace("dir /data", f"dir {tmp_path}")
    )
    file = tmp_path / "valkey.conf"
    file.write_text(text)
    process = subprocess.Popen([str(find_server()), str(file)], stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


async def test_the_bundled_redis_starts_with_its_configuration_and_takes_the_password_of_the_url(
    everything: Rendered, configured_redis: int
) -> None:
    password = str(parse_url(secret(everything)["redis-url"])["password"])

    def answers() -> bool:
        try:
            return client.ping()
        except (RedisConnectionError, OSError):
            return False

    with Redis(port=configured_redis, password=password, socket_timeout=20) as client:
        await until(answers, what="the server to start")
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    with Redis(port=configured_redis) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()
