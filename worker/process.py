"""One worker process: an event loop on a thread of its own, where every turn, lease, sweep and event lives.

Celery's pool threads only hand their message to this loop and wait. The loop's clients live and die with it. Draining
sets one flag: turns stop at their next commit and their messages go to another worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from redis.exceptions import RedisError

from engine.spec.loader import list_workflows
from sandbox import Sandbox
from storage.objects import StoreConfigurationError, StoreUnavailable
from worker.celery_app import queues_of, queues_taken
from worker.client import FleetClient
from worker.health import ConsumerPulse, Heartbeat
from worker.host import HostContext, load_host, session_store, wire_fleet
from worker.metrics import (
    Exporter,
    FleetMetrics,
    QueueCollector,
    Queues,
    Reading,
    ReadingCollector,
    StoreCollector,
    StoreWatch,
    look_at_queues,
)
from worker.ports import BrokerUnavailable
from worker.protocol.deliveries import sweep_timers
from worker.protocol.sweep import sweep_inbox, sweep_keys, sweep_watch
from worker.protocol.visit import attend
from worker.runner import Assemblies, EngineRunner
from worker.service import FleetService
from worker.settings import FleetSettings, ModelEnvironment
from worker.shown_tasks import ShownTasks
from worker.stopping import stop_tasks

logger = logging.getLogger(__name__)
T = TypeVar("T")

SWEEP_SECONDS = 0.5
TIMER_SECONDS = 1.0
KEYS_SECONDS = 3600.0
#: how often the queues are looked at for the metrics
QUEUES_SECONDS = 5.0


class Runtime(FleetClient):
    """Everything a worker process's loop holds. Built and closed on that loop."""

    service_name = "archmax-worker"

    def __init__(self, settings: FleetSettings, environment: ModelEnvironment) -> None:
        super().__init__(settings)
        self.environment = environment
        self._tasks: list[asyncio.Task[None]] = []
        self._exporter: Exporter | None = None
        self._queues, self._store_watch = Queues(), StoreWatch()
        self.pulse = ConsumerPulse()
        self.shown = ShownTasks()

    async def start(self) -> None:
        """Raises: `HostError`, assembly and configuration errors, by name, before any turn is taken."""
        settings = self.settings
        await self.open()
        await self._check_store()
        self.metrics = FleetMetrics()
        self.sandbox = Sandbox(on_killed=self.metrics.sandbox_killed)
        host = await load_host(settings.host, HostContext(settings.root, None, "worker"))
        session_store(settings, host, "worker")
        wiring = await wire_fleet(settings, self.environment, host, self.sandbox)
        self.assemblies = Assemblies(wiring)
        self.runner = EngineRunner(
            self.assemblies,
            self.store,
            self.publisher,
            turn_deadline_seconds=settings.turn_deadline_seconds,
            recursion_limit=host.get("recursion_limit", settings.recursion_limit),
            clock=self.clock,
            retention_days=settings.retention_days,
            metrics=self.metrics,
            tracing=self.tracing,
            shown=self.shown,
        )
        self._serve_metrics()
        self.service = FleetService(settings, self)
        await self.service.open()

    async def _check_store(self) -> None:
        """A worker that cannot write would take turns and break them off, one after the other.

        Raises: `StoreConfigurationError` for what trying again will not mend. A worker may start before its store.
        """
        if self.settings.store_url.startswith("s3://"):
            store: Any = self.store
            try:
                await store.check()
            except StoreConfigurationError as error:
                if not isinstance(error.__cause__, StoreUnavailable):
                    raise
                logger.warning("%s", error, extra={"action": "store_away"})

    def run_background(self) -> None:
        """Renewal, events, cleaning and sweeps, each on its own."""
        for name, work in (
            ("renew", self.leases.run()),
            ("events", self.publisher.run()),
            ("clean", self._repeat(SWEEP_SECONDS, self.fleet.cleaner.run_once)),
            ("watch", self._repeat(SWEEP_SECONDS, self._sweep_watch)),
            ("list", self._list_store()),
            ("timers", self._repeat(TIMER_SECONDS, self._sweep_timers)),
            ("keys", self._repeat(KEYS_SECONDS, self._sweep_keys)),
        ):
            self._tasks.append(asyncio.create_task(work, name=f"archmax-{name}"))
        if self._exporter is not None:
            for name, look in (
                ("queues", self._look_at_queues()),
                ("store", self._store_watch.run(self.store)),
            ):
                self._tasks.append(asyncio.create_task(look, name=f"archmax-{name}"))

    def show_alive(self) -> None:
        """Begin the heartbeat. On the loop, before the broker is connected: one that is away restarts nothing."""
        file = self.settings.heartbeat_file
        if file is not None:
            heartbeat = Heartbeat(file, self.pulse, self.queue.alive)
            self._tasks.append(asyncio.create_task(heartbeat.run(), name="archmax-heartbeat"))

    @property
    def workflows(self) -> list[str]:
        return list_workflows(self.assemblies.wiring.library.tree)

    def _serve_metrics(self) -> None:
        """Raises: `OSError` when no port is free."""
        if not self.settings.metrics_port:
            return
        registry = self.metrics.registry
        self.metrics.expect(self.workflows)  # before the first scrape
        registry.register(QueueCollector(lambda: self._queues))
        registry.register(StoreCollector(self._store_watch))
        registry.register(ReadingCollector(self._readings()))
        self._exporter = Exporter(registry, self.settings.metrics_host, self.settings.metrics_port)

    def _readings(self) -> list[Reading]:
        return [
            Reading("archmax_turns_running", lambda: self.runner.running),
            Reading("archmax_turn_slots", lambda: self.settings.concurrency),
            Reading("archmax_leases_held", lambda: self.leases.held),
            Reading("archmax_leases_lost", lambda: self.leases.lost_count, counter=True),
            Reading("archmax_events_dropped", lambda: self.publisher.dropped, counter=True),
            Reading("archmax_draining", lambda: self.draining),
        ]

    async def _look_at_queues(self) -> None:
        while True:
            workflows = await asyncio.to_thread(lambda: self.workflows)
            self.metrics.expect(workflows)
            self._queues = await look_at_queues(self.redis, queues_of(workflows))
            await asyncio.sleep(QUEUES_SECONDS)

    async def attend(self, session: str, n: int) -> None:
        await attend(self.fleet, self.runner, session, n)

    async def close(self) -> None:
        await self.publisher.flush()
        await stop_tasks(self._tasks)
        await self.service.close()
        await self.sandbox.close()
        if self._exporter is not None:
            await asyncio.to_thread(self._exporter.close)
        await super().close()

    # -- background ----------------------------------------------------------------------------------------------

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[Any]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except (BrokerUnavailable, StoreUnavailable, StoreConfigurationError) as error:
                logger.warning("%s", error, extra={"action": "background_retry"})
            except Exception:
                logger.exception("background work failed", extra={"action": "background_failed"})

    async def _sweep_watch(self) -> None:
        if not self.draining:
            await sweep_watch(self.fleet)

    async def _list_store(self) -> None:
        """At start, each minute, and at once when Redis has forgotten it: rebuild what Redis held from the store."""
        fresh = True
        while True:
            try:
                if fresh or not await self.leases.listed():
                    if await self.leases.begin_listing():
                        await sweep_inbox(self.fleet)
                        await self.leases.end_listing()
                    fresh = False
            except (BrokerUnavailable, StoreUnavailable, StoreConfigurationError, RedisError) as error:
                logger.warning("%s", error, extra={"action": "sweep_retry"})
            except Exception:
                logger.exception("the inbox sweep failed", extra={"action": "sweep_failed"})
            await asyncio.sleep(SWEEP_SECONDS)

    async def _sweep_timers(self) -> None:
        await sweep_timers(self.fleet)

    async def _sweep_keys(self) -> None:
        await sweep_keys(self.fleet)


class WorkerProcess:
    """The loop thread and its runtime, as Celery's signals and tasks use it."""

    def __init__(self, settings: FleetSettings, environment: ModelEnvironment) -> None:
        self.runtime = Runtime(settings, environment)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="archmax-loop", daemon=True)

    def start(self) -> None:
        """Raises: what `Runtime.start` raises."""
        self._thread.start()
        self.call(self._start())

    async def _start(self) -> None:
        await self.runtime.start()
        # What is here now stays for good: looking through it again and again cost a twentieth of the process's time.
        gc.collect()
        gc.freeze()
        # Two hundred turns hold much that is young and will die with them: looking each thousand objects took a tenth.
        gc.set_threshold(20_000, 20, 50)
        with contextlib.suppress(BrokerUnavailable):  # a worker may start before its broker
            await self.runtime.leases.begin()
        self.runtime.run_background()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop, wait here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def show_alive(self) -> None:
        self._loop.call_soon_threadsafe(self.runtime.show_alive)

    def drain(self) -> None:
        self.runtime.draining = True

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self.call(self.runtime.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()

    @property
    def queues(self) -> list[str]:
        """The queues this worker takes messages from, by the workspace as it is now."""
        return queues_taken(self.runtime.settings.workflows, self.runtime.workflows)
