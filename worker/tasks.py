"""The tasks and signals of a worker process: what Celery calls."""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Any

import celery.apps.worker
from celery import Celery
from celery.signals import worker_ready, worker_shutting_down

from storage.objects import StoreUnavailable
from worker.celery_app import ENQUEUE_TASK, IDLE_QUEUE, TURN_TASK, create_app
from worker.celery_queue import SENDER
from worker.enqueue import enqueue
from worker.ports import BrokerUnavailable
from worker.process import WorkerProcess
from worker.settings import FleetSettings, ModelEnvironment
from worker.shown_tasks import InputTask
from worker.task_events import GatherEvents

logger = logging.getLogger(__name__)

#: how often a worker looks for workflows whose queues it does not consume yet
QUEUES_SECONDS = 5.0


def build_worker(settings: FleetSettings, environment: ModelEnvironment) -> tuple[Celery, WorkerProcess]:
    """The Celery app of a worker, its tasks bound to one process's loop."""
    app = create_app(settings)
    process = WorkerProcess(settings, environment)

    @app.task(name=TURN_TASK, bind=True, ignore_result=True)
    def turn(task: Any, session: str, n: int) -> None:
        asked = task.request
        # the loop's task takes over the context of the thread that starts it
        SENDER.set((str(asked.id), str(asked.root_id or asked.id)))
        process.call(process.runtime.attend(session, n))

    @app.task(
        name=ENQUEUE_TASK,
        base=InputTask,
        bind=True,
        ignore_result=True,
        autoretry_for=(BrokerUnavailable, StoreUnavailable),
        retry_backoff=True,
        max_retries=20,
    )
    def enqueue_turn(task: Any, **asked: Any) -> None:
        process.call(enqueue(process.runtime.service, str(task.request.id), asked))

    return app, process


def run_worker(settings: FleetSettings, environment: ModelEnvironment) -> int:
    """Run until TERM or INT; returns the exit code. Raises: configuration errors before connecting."""
    app, process = build_worker(settings, environment)
    process.start()
    consumed = set(process.queues)
    process.show_alive()
    if not process.runtime.workflows:
        logger.warning(
            "no workflow under %s: nothing is taken", settings.root, extra={"action": "workspace_empty"}
        )
    steps: Any = app.steps
    steps["consumer"].update((process.runtime.pulse.step(), GatherEvents))
    app.conf.task_queues = None
    stopping = threading.Event()

    def shutting_down(**_: Any) -> None:
        stopping.set()
        process.drain()

    def ready(sender: Any, **_: Any) -> None:
        process.runtime.shown.consumer = sender
        threading.Thread(
            target=_follow_queues, args=(sender, process, consumed, stopping), daemon=True
        ).start()
        logger.info("worker ready", extra={"action": "worker_ready"})

    if settings.log_format == "json":
        # its signal handlers write a line for people past all logging
        celerys: Any = celery.apps.worker
        celerys.safe_say = _say_nothing
    worker_shutting_down.connect(shutting_down, weak=False)
    worker_ready.connect(ready, weak=False)
    worker = app.Worker(
        pool="threads",
        concurrency=settings.concurrency,
        queues=",".join(sorted(consumed) or [IDLE_QUEUE]),
        loglevel=settings.log_level.upper(),
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=False,
        task_events=True,
        optimization="fair",
        # several workers of one machine must not share a name: commands and the dashboard go by it
        hostname=f"archmax-{os.getpid()}@{socket.gethostname()}",
        # the banner is for people; JSON lines are read by a program
        quiet=settings.log_format == "json",
    )
    try:
        worker.start()
    finally:
        stopping.set()
        process.stop()
    return int(worker.exitcode or 0)


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _follow_queues(
    consumer: Any, process: WorkerProcess, consumed: set[str], stopping: threading.Event
) -> None:
    """Consume the queues of workflows that appear later."""
    while not stopping.wait(QUEUES_SECONDS):
        try:
            for name in process.queues:
                if name not in consumed:
                    consumed.add(name)
                    consumer.app.control.add_consumer(name, destination=[consumer.hostname])
        except Exception:
            logger.exception("queues could not be looked up", extra={"action": "queues_failed"})
