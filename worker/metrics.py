"""What a fleet tells Prometheus: every metric of worker and API, and where its value comes from.

Turns are counted as their records commit (`worker.observing`), so a number here is never ahead of the store and never
counts a step twice. Queues and leases are looked at when they are asked for. Labels are the workspace's workflows, closed
sets, and model names up to a bound; nothing a model, a script or a client writes becomes a label.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.asyncio import Redis
from redis.exceptions import RedisError

from core.errors import ArchmaxError
from sandbox.evaluation import Fault
from storage.objects import ObjectStore
from storage.records import Why
from worker.celery_app import SENT_HEADER

logger = logging.getLogger(__name__)

#: seconds: a step is mostly a model call, a turn may wait for people's tools for an hour
STEP_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
TURN_BUCKETS = (0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 3600)
WIDTH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
#: how often the store is asked, and how long an answer counts: a request is tried again for some seconds
STORE_SECONDS = 10.0
STORE_STALE_SECONDS = 30.0
#: models told apart; a provider that answers under ever new names fills no memory
MAX_MODELS = 40
OTHER = "other"
#: ports tried above the configured one: workers on one machine take one each
PORTS_TRIED = 64
#: the kinds of outcome; anything else is `other`
OUTCOMES = frozenset({"completed", "parked", "failed", "rejected", "refused", "cancelled"})
#: exit codes of the runtime that an operator acts on; a workflow's own codes are `other`
CODES = frozenset({"worker-lost", "turn-deadline", "turn-cancelled", "turn-error", "recursion-limit"})

#: faults that end a script's process; the others leave it as it was
KILLING = tuple(fault for fault in Fault if fault not in (Fault.THROWN, Fault.IMPORT))


class FleetMetrics:
    """The counters of one process, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # a second series beside every counter, which nobody asks for
        self.registry = CollectorRegistry(auto_describe=True)
        self._models: set[str] = set()
        self._expected: set[str] = set()
        by_workflow = ["workflow"]
        r = self.registry
        self.turns = Counter("archmax_turns", "Turns ended, by outcome.", ["workflow", "outcome"], registry=r)
        self.failures = Counter(
            "archmax_turn_failures", "Turns that failed, by exit code.", ["workflow", "code"], registry=r
        )
        self.turn_seconds = Histogram(
            "archmax_turn_seconds",
            "Seconds from a turn's acceptance to its outcome.",
            by_workflow,
            buckets=TURN_BUCKETS,
            registry=r,
        )
        self.wait_seconds = Histogram(
            "archmax_turn_wait_seconds",
            "Seconds from a turn's acceptance until a worker began it.",
            by_workflow,
            buckets=TURN_BUCKETS,
            registry=r,
        )
        self.step_seconds = Histogram(
            "archmax_step_seconds",
            "Seconds between two commits of a turn: a model call, a batch of tools, an automated state.",
            by_workflow,
            buckets=STEP_BUCKETS,
            registry=r,
        )
        self.model_calls = Counter(
            "archmax_model_calls", "Model answers committed.", ["workflow", "model"], registry=r
        )
        self.tokens = Counter(
            "archmax_model_tokens",
            "Tokens of model calls; cache-read and cache-write are parts of input.",
            ["workflow", "model", "kind"],
            registry=r,
        )
        self.cost = Counter(
            "archmax_model_cost_usd",
            "Cost of model calls in USD, where a price is known.",
            ["workflow", "model"],
            registry=r,
        )
        self.tool_calls = Counter(
            "archmax_tool_calls",
            "Tool calls settled: ok, error, or blocked by the workflow's rules.",
            ["workflow", "result"],
            registry=r,
        )
        self.blocked = Counter(
            "archmax_blocked_calls", "Tool calls the workflow's rules refused.", by_workflow, registry=r
        )
        self.fan_out = Histogram(
            "archmax_fan_out_width",
            "Sub-workflow calls of one suspension.",
            by_workflow,
            buckets=WIDTH_BUCKETS,
            registry=r,
        )
        self.recoveries = Counter(
            "archmax_recoveries",
            "Turns taken over from a worker that died, or was thought dead.",
            by_workflow,
            registry=r,
        )
        self.resumed = Counter(
            "archmax_handovers",
            "Turns taken over from a worker that drained, or resumed after their children.",
            ["workflow", "why"],
            registry=r,
        )
        self.sandbox_kills = Counter(
            "archmax_sandbox_kills", "Script processes ended by their evaluation.", ["fault"], registry=r
        )
        for fault in KILLING:
            self.sandbox_kills.labels(fault.value)

    def expect(self, workflows: Iterable[str]) -> None:
        """Tell the counters of these workflows from zero on.

        To Prometheus a counter that appears as 1 has not grown, so the first failure of a process would raise no alert.
        """
        for workflow in set(workflows) - self._expected:
            self._expected.add(workflow)
            for outcome in OUTCOMES:
                self.turns.labels(workflow, outcome)
            for code in (*CODES, OTHER):
                self.failures.labels(workflow, code)
            for result in ("ok", "error", "blocked"):
                self.tool_calls.labels(workflow, result)
            for why in (Why.RELEASED, Why.JOINED):
                self.resumed.labels(workflow, why.value)
            self.blocked.labels(workflow)
            self.recoveries.labels(workflow)

    def model(self, name: object) -> str:
        """`name` as a label: bounded in number and length."""
        text = name if isinstance(name, str) and name else "unknown"
        if text in self._models:
            return text
        if len(text) > 100 or len(self._models) >= MAX_MODELS:
            return OTHER
        self._models.add(text)
        return text

    def committed(self, workflow: str, record: Mapping[str, Any], seconds: float) -> None:
        """A record of a turn is durable. `seconds`: since the commit before it, or since the turn was opened."""
        self.step_seconds.labels(workflow).observe(seconds)
        for change in record.get("changes", ()):
            match change.get("t"):
                case "usage":
                    self._used(workflow, change)
                case "result" if change.get("blocked"):
                    self.blocked.labels(workflow).inc()
                    self.tool_calls.labels(workflow, "blocked").inc()
                case "result":
                    good = change.get("ok") and not change.get("refused")
                    self.tool_calls.labels(workflow, "ok" if good else "error").inc()
                case _:
                    pass

    def _used(self, workflow: str, change: Mapping[str, Any]) -> None:
        added = change.get("add") or {}
        model = self.model(change.get("model"))
        self.model_calls.labels(workflow, model).inc()
        for kind, key in (
            ("input", "inputTokens"),
            ("output", "outputTokens"),
            ("cache-read", "cacheReadTokens"),
            ("cache-write", "cacheCreationTokens"),
        ):
            if added.get(key):
                self.tokens.labels(workflow, model, kind).inc(added[key])
        if added.get("costUsd"):
            self.cost.labels(workflow, model).inc(added["costUsd"])

    def ended(self, workflow: str, outcome: Mapping[str, Any], seconds: float) -> None:
        """A turn is over, `seconds` after its acceptance."""
        kind = outcome.get("kind")
        self.turns.labels(workflow, kind if kind in OUTCOMES else OTHER).inc()
        self.turn_seconds.labels(workflow).observe(seconds)
        if kind == "failed":
            code = (outcome.get("exit") or {}).get("code")
            self.failures.labels(workflow, code if code in CODES else OTHER).inc()

    def sandbox_killed(self, fault: Fault) -> None:
        self.sandbox_kills.labels(fault.value).inc()


@dataclass(slots=True)
class Queues:
    """What waits in the broker, as last looked at. Empty while the broker does not answer."""

    up: bool = False
    depth: dict[str, int] = field(default_factory=dict)
    age_seconds: dict[str, float] = field(default_factory=dict)
    #: how far this host's clock is ahead of the broker's, which is the fleet's
    clock_offset_seconds: float = 0.0


async def look_at_queues(redis: Redis, names: Sequence[str]) -> Queues:
    """Depth of each queue and the age of its oldest message, in one round trip. Never raises."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.time()
    for name in names:
        pipeline.llen(name)
        pipeline.lindex(name, -1)
    try:
        (seconds, micros), *found = await pipeline.execute()
    except (RedisError, OSError):
        return Queues()
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    queues = Queues(up=True, clock_offset_seconds=time.time() - now_ms / 1000)
    for name, depth, oldest in zip(names, found[::2], found[1::2], strict=True):
        queues.depth[name] = int(depth)
        queues.age_seconds[name] = _age_seconds(oldest, now_ms)
    return queues


def _age_seconds(message: str | bytes | None, now_ms: int) -> float:
    """0 for an empty queue, and for a message that does not say when it was sent."""
    if message is None:
        return 0.0
    try:
        sent = json.loads(message)["headers"][SENT_HEADER]
    except (ValueError, KeyError, TypeError):
        return 0.0
    return max(0.0, (now_ms - sent) / 1000) if isinstance(sent, int) else 0.0


class QueueCollector(Collector):
    """Queues as gauges. `look` gives the newest look."""

    def __init__(self, look: Callable[[], Queues]) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        queues = self._look()
        yield GaugeMetricFamily("archmax_broker_up", "1 while the broker answers.", value=float(queues.up))
        depth = GaugeMetricFamily("archmax_queue_depth", "Messages waiting.", labels=["queue"])
        age = GaugeMetricFamily(
            "archmax_queue_age_seconds", "Seconds the oldest message has waited.", labels=["queue"]
        )
        for name, count in queues.depth.items():
            depth.add_metric([name], count)
            age.add_metric([name], queues.age_seconds[name])
        yield depth
        yield age
        offset = GaugeMetricFamily(
            "archmax_clock_offset_seconds", "Seconds this host's clock is ahead of Redis'.", labels=()
        )
        if queues.up:
            offset.add_metric([], queues.clock_offset_seconds)
        yield offset


class StoreWatch:
    """Whether the store answers. A task of its own asks, so that a store that hangs delays nothing else."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answered_at: float | None = None

    async def run(self, store: ObjectStore) -> None:
        """Until cancelled."""
        while True:
            await self.look(store)
            await asyncio.sleep(STORE_SECONDS)

    async def look(self, store: ObjectStore) -> None:
        """Never raises."""
        try:
            await store.get("_ready")
        except (ArchmaxError, OSError):
            self._answered_at = None
        else:
            self._answered_at = self._clock()

    def up(self) -> bool:
        return self._answered_at is not None and self._clock() - self._answered_at < STORE_STALE_SECONDS


class StoreCollector(Collector):
    def __init__(self, watch: StoreWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        up = float(self._watch.up())
        yield GaugeMetricFamily("archmax_store_up", "1 while the store answers.", value=up)


@dataclass(frozen=True, slots=True)
class Reading:
    """A number that lives elsewhere and is read when asked for; its help stands in `READINGS`."""

    name: str
    read: Callable[[], float]
    counter: bool = False


#: what a worker tells of itself beside its turns; `worker.process` knows where the numbers are
READINGS = {
    "archmax_turns_running": "Turns this process works on now.",
    "archmax_turn_slots": "Turns this process works on at most.",
    "archmax_leases_held": "Sessions this process holds.",
    "archmax_leases_lost": "Leases found in another worker's hands.",
    "archmax_events_dropped": "Live events not published; readers find the recorded ones in the store.",
    "archmax_draining": "1 while this process lets go of its turns.",
}


class ReadingCollector(Collector):
    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = list(readings)

    def collect(self) -> Iterator[Metric]:
        for reading in self._readings:
            family = CounterMetricFamily if reading.counter else GaugeMetricFamily
            yield family(reading.name, READINGS[reading.name], value=reading.read())


class Exporter:
    """Serves a registry over HTTP from a thread of its own until `close`."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Raises: `OSError` when neither `port` nor one of the next is free."""
        self.port, self._server, self._thread = _serve(registry, host, port)
        logger.info("metrics on port %d", self.port, extra={"action": "metrics_ready", "port": self.port})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _serve(registry: CollectorRegistry, host: str, port: int) -> tuple[int, WSGIServer, threading.Thread]:
    last = min(port + PORTS_TRIED, 65_535)
    for candidate in range(port, last):
        with contextlib.suppress(OSError):
            return candidate, *start_http_server(candidate, addr=host, registry=registry)
    return last, *start_http_server(last, addr=host, registry=registry)
