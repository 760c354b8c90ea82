"""Metrics: values of real turns, from real workers where it matters."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from archmax.local.ports import free_port
from sandbox import Evaluation, Sandbox
from storage.open import open_store
from tests.support.helm import CHART
from tests.support.workers import Worker, WorkerFleet, until
from worker.celery_app import INTAKE_QUEUE, SHARED_QUEUE, child_queue, queues_taken, turn_queue
from worker.client import FleetClient
from worker.metrics import (
    MAX_MODELS,
    OTHER,
    READINGS,
    STORE_STALE_SECONDS,
    Exporter,
    FleetMetrics,
    QueueCollector,
    Queues,
    ReadingCollector,
    StoreCollector,
    StoreWatch,
    look_at_queues,
)
from worker.settings import FleetSettings


def scrape(port: int) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Sample name → labels → value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(found: dict[str, dict[frozenset[tuple[str, str]], float]], name: str, **labels: str) -> float:
    return found.get(name, {}).get(frozenset(labels.items()), 0.0)


def port_of(worker: Worker) -> int:
    match = re.search(r"metrics on port (\d+)", worker.log)
    assert match is not None, worker.log
    return int(match[1])


MARKS = """
title: Marks
instructions: Leave marks.
tools:
  allow_always: [quick]
states:
  work:
    triggers: { manual: }
    instructions: Leave marks.
    transitions: [ { to: done, description: all marks are left } ]
  done:
    instructions: Say so.
"""
MODEL = """
- tool_calls: [ { name: quick, args: { ref: one } } ]
- tool_calls: [ { name: slow, args: { ref: no, seconds: 0 } } ]
- tool_calls: [ { name: archmax_advance, args: { to: done, reason: marks } } ]
- text: All marks are left.
"""


async def test_two_workers_of_one_machine_tell_what_their_turns_did_each_on_a_port_of_its_own(
    worker_fleet: WorkerFleet,
) -> None:
    """Turns by outcome, steps, model calls, tokens, tools, blocked calls; one configured port serves both."""
    worker_fleet.write({"workflows/marks/workflow.yaml": MARKS, "model.yaml": MODEL})
    port = free_port()
    workers = [worker_fleet.start_worker(ARCHMAX_METRICS_PORT=str(port)) for _ in range(2)]
    for worker in workers:
        await worker_fleet.ready(worker)
    ports = [port_of(worker) for worker in workers]
    assert len(set(ports)) == 2
    told = await asyncio.to_thread(scrape, ports[0])
    assert value(told, "archmax_turn_failures_total", workflow="marks", code="worker-lost") == 0
    assert frozenset({("workflow", "marks")}) in told["archmax_recoveries_total"], "from zero on"
    for number in range(3):
        await worker_fleet.send(f"s{number}", "marks")
    for number in range(3):
        end = await worker_fleet.settled(f"s{number}")
        assert end.outcome["kind"] == "completed", end.outcome

    async def scraped() -> list[dict[str, dict[frozenset[tuple[str, str]], float]]]:
        return [await asyncio.to_thread(scrape, port) for port in ports]

    async def all_told() -> bool:
        told = [
            value(found, "archmax_turns_total", workflow="marks", outcome="completed")
            for found in await scraped()
        ]
        return sum(told) == 3

    await until(all_told, what="three turns to be counted")
    found = await scraped()

    def total(name: str, **labels: str) -> float:
        return sum(value(one, name, **labels) for one in found)

    assert total("archmax_turn_seconds_count", workflow="marks") == 3
    assert total("archmax_turn_wait_seconds_count", workflow="marks") == 3
    assert total("archmax_model_calls_total", workflow="marks", model="scripted:model.yaml") == 3 * 4
    assert (
        total("archmax_model_tokens_total", workflow="marks", model="scripted:model.yaml", kind="output") > 0
    )
    assert total("archmax_tool_calls_total", workflow="marks", result="ok") == 3 * 2
    assert total("archmax_blocked_calls_total", workflow="marks") == 3
    assert total("archmax_step_seconds_count", workflow="marks") >= 3 * 7
    assert total("archmax_turn_slots") == 16
    assert total("archmax_broker_up") == 2
    assert total("archmax_store_up") == 2
    assert all(
        f"archmax_{name}" not in one for one in found for name in ("turns_created", "turn_seconds_created")
    )


async def test_a_queue_tells_how_many_wait_and_for_how_long(worker_fleet: WorkerFleet) -> None:
    worker_fleet.write({"workflows/marks/workflow.yaml": MARKS})
    names = [turn_queue("marks"), child_queue("marks")]
    empty = await look_at_queues(worker_fleet.client.redis, names)
    assert empty.up
    assert set(empty.depth.values()) == {0}
    await worker_fleet.send("a", "marks")
    await worker_fleet.send("b", "marks")

    async def older() -> bool:
        queues = await look_at_queues(worker_fleet.client.redis, names)
        return queues.age_seconds[turn_queue("marks")] > 0.01

    await until(older, what="the oldest message to grow old")
    queues = await look_at_queues(worker_fleet.client.redis, names)
    assert queues.depth == {turn_queue("marks"): 2, child_queue("marks"): 0}
    assert abs(queues.clock_offset_seconds) < 60, "one machine, one clock"
    assert queues.age_seconds[child_queue("marks")] == 0
    # what another Celery producer sent says nothing of its age
    await worker_fleet.client.redis.rpush(
        turn_queue("marks"), "{}", "not json", json.dumps({"headers": None})
    )
    assert (await look_at_queues(worker_fleet.client.redis, names)).age_seconds[turn_queue("marks")] == 0


async def test_a_broker_that_is_away_gives_no_stale_numbers() -> None:
    settings = FleetSettings(redis_url=SecretStr(f"redis://127.0.0.1:{free_port()}/0"))
    client = FleetClient(settings)
    await client.open()
    try:
        assert await look_at_queues(client.redis, ["x"]) == Queues()
    finally:
        await client.close()
    (up, depth, age, offset) = list(QueueCollector(Queues).collect())
    assert [sample.value for sample in up.samples] == [0.0]
    assert not depth.samples
    assert not age.samples
    assert not offset.samples


def test_a_clock_that_is_ahead_of_the_fleets_is_told() -> None:
    told = Queues(up=True, clock_offset_seconds=75.5)
    (*_, offset) = list(QueueCollector(lambda: told).collect())
    assert [sample.value for sample in offset.samples] == [75.5]


async def test_the_store_is_told_up_only_while_it_answers(tmp_path: Path) -> None:
    """An outage of the store alone stops every turn, and no request need be there to notice."""
    now = 1000.0
    watch = StoreWatch(clock=lambda: now)

    def told() -> float:
        (family,) = StoreCollector(watch).collect()
        return family.samples[0].value

    assert told() == 0, "nobody has asked yet"
    store = open_store((tmp_path / "store").as_uri())
    await watch.look(store)
    assert told() == 1
    now += STORE_STALE_SECONDS + 1  # the next look hangs
    assert told() == 0
    await watch.look(store)
    assert told() == 1
    away = open_store(
        "s3://bucket/x",
        endpoint_url=f"http://127.0.0.1:{free_port()}",
        region="us-east-1",
        access_key_id="id",
        secret_access_key="secret",
    )
    await watch.look(away)
    assert told() == 0
    await away.close()
    await store.close()


def test_names_that_others_choose_do_not_become_labels_without_bound() -> None:
    metrics = FleetMetrics()
    for number in range(3 * MAX_MODELS):
        change = {"t": "usage", "add": {"inputTokens": 1}, "model": f"model-{number}"}
        metrics.committed("w", {"changes": [change]}, 0.1)
    metrics.ended("w", {"kind": "failed", "exit": {"code": "a-workflows-own-code"}}, 1)
    metrics.ended("w", {"kind": "no such kind"}, 1)
    models = {
        sample.labels["model"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "archmax_model_calls_total"
    }
    assert len(models) == MAX_MODELS + 1
    assert OTHER in models
    assert (
        metrics.registry.get_sample_value("archmax_turn_failures_total", {"workflow": "w", "code": OTHER})
        == 1
    )
    assert metrics.registry.get_sample_value("archmax_turns_total", {"workflow": "w", "outcome": OTHER}) == 1


def test_cost_and_tokens_are_added_where_they_are_known() -> None:
    metrics = FleetMetrics()
    added = {"inputTokens": 10, "outputTokens": 2, "cacheReadTokens": 4, "costUsd": 0.25}
    usage = {"t": "usage", "add": added, "model": "m"}
    metrics.committed("w", {"changes": [usage, {"t": "usage", "add": {}}]}, 0.1)
    read = metrics.registry.get_sample_value
    assert read("archmax_model_cost_usd_total", {"workflow": "w", "model": "m"}) == 0.25
    assert read("archmax_model_tokens_total", {"workflow": "w", "model": "m", "kind": "cache-read"}) == 4
    assert read("archmax_model_calls_total", {"workflow": "w", "model": "m"}) == 1
    assert read("archmax_model_calls_total", {"workflow": "w", "model": "unknown"}) == 1, "no usage reported"


def test_the_counters_of_a_workflow_are_told_before_they_count_anything() -> None:
    """To Prometheus a counter that appears as 1 has not grown: the first lost turn would raise no alert."""
    metrics = FleetMetrics()
    metrics.expect(["w"])
    metrics.expect(["w", "v"])
    read = metrics.registry.get_sample_value
    for workflow in ("w", "v"):
        assert read("archmax_turn_failures_total", {"workflow": workflow, "code": "worker-lost"}) == 0
        assert read("archmax_turns_total", {"workflow": workflow, "outcome": "failed"}) == 0
        assert read("archmax_recoveries_total", {"workflow": workflow}) == 0
        assert read("archmax_blocked_calls_total", {"workflow": workflow}) == 0
        assert read("archmax_handovers_total", {"workflow": workflow, "why": "released"}) == 0
    assert all(
        read("archmax_sandbox_kills_total", {"fault": fault}) == 0 for fault in ("crash", "memory", "timeout")
    )
    metrics.ended("w", {"kind": "failed", "exit": {"code": "worker-lost"}}, 1)
    metrics.expect(["w"])
    assert read("archmax_turn_failures_total", {"workflow": "w", "code": "worker-lost"}) == 1


async def test_an_evaluation_that_ends_its_process_is_counted_by_its_fault() -> None:
    metrics = FleetMetrics()
    async with Sandbox(on_killed=metrics.sandbox_killed) as sandbox:
        repl = await sandbox.repl()
        await repl.evaluate(Evaluation(source="1 + 1"))
        assert metrics.registry.get_sample_value("archmax_sandbox_kills_total", {"fault": "timeout"}) == 0
        await repl.evaluate(Evaluation(source="for (;;) {}", timeout_ms=200))
        await repl.close()
    assert metrics.registry.get_sample_value("archmax_sandbox_kills_total", {"fault": "timeout"}) == 1


def test_an_exporter_takes_the_next_free_port_and_gives_it_back() -> None:
    metrics, port = FleetMetrics(), free_port()
    first, second = (Exporter(metrics.registry, "127.0.0.1", port) for _ in range(2))
    assert first.port == port
    assert second.port > port
    assert "archmax_turns_total" not in scrape(second.port), "no workflow is known yet"
    first.close()
    second.close()
    again = Exporter(metrics.registry, "127.0.0.1", port)
    assert again.port == port
    again.close()


@pytest.mark.parametrize(
    ("chosen", "taken"),
    [
        (
            None,
            {
                SHARED_QUEUE,
                INTAKE_QUEUE,
                turn_queue("a"),
                child_queue("a"),
                turn_queue("b-1"),
                child_queue("b-1"),
            },
        ),
        ("a", {turn_queue("a"), child_queue("a")}),
        (" b-* , ", {turn_queue("b-1"), child_queue("b-1")}),
        ("!b-*", {SHARED_QUEUE, INTAKE_QUEUE, turn_queue("a"), child_queue("a")}),
        ("*,!a", {turn_queue("b-1"), child_queue("b-1")}),
    ],
)
def test_a_worker_takes_the_queues_of_the_workflows_it_is_told(chosen: str | None, taken: set[str]) -> None:
    assert set(queues_taken(chosen, ["a", "b-1"])) == taken


def test_a_worker_without_a_workspace_takes_nothing_over() -> None:
    """It would fail every turn it took, and the shared queue brings it those of all workflows."""
    assert queues_taken(None, []) == []
    assert queues_taken("!a", []) == []


def known_names() -> set[str]:
    """Every series the fleet may tell, by its name without suffixes."""
    from api.metrics import ApiMetrics

    families = [
        *FleetMetrics().registry.collect(),
        *ApiMetrics().registry.collect(),
        *QueueCollector(Queues).collect(),
        *StoreCollector(StoreWatch()).collect(),
    ]
    return {family.name for family in families} | {name.removesuffix("_total") for name in READINGS}


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_dashboard_and_alerts_ask_for_series_that_exist(file: str) -> None:
    text = (CHART / "files" / file).read_text()
    loaded = json.loads(text) if file.endswith("json") else yaml.safe_load(text)
    assert loaded
    asked = {
        re.sub(r"_(total|bucket|count|sum)$", "", name) for name in re.findall(r"\barchmax_[a-z_]+", text)
    }
    assert len(asked) >= 8
    assert asked <= known_names()


def test_every_reading_of_a_worker_has_its_help() -> None:
    assert list(ReadingCollector([]).collect()) == []
    assert all(text.endswith((".", "store.")) for text in READINGS.values())
