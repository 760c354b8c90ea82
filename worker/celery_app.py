"""The Celery application: queue names, transport options, and how tasks look to an operator.

A task carries ids only; what it means is in the store. Messages are acknowledged late with a prefetch of one, so an idle
worker never waits for a busy one's reserve, and a redelivered one finds a lease or nothing to do.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from celery import Celery
from kombu import Queue

from worker.broker import outlive_outages
from worker.settings import FleetSettings

TURN_TASK = "archmax.turn"
#: when a message was sent, in epoch milliseconds: how long a queue makes its oldest wait is read off it
SENT_HEADER = "archmax_sent_ms"
ENQUEUE_TASK = "archmax.turn.enqueue"
#: recoveries and wake-ups whose workflow the sender does not know
SHARED_QUEUE = "archmax.shared"
#: `send_task("archmax.turn.enqueue", …)` from any Celery producer
INTAKE_QUEUE = "archmax.intake"
#: nobody sends here: what a worker takes that has nothing to take yet
IDLE_QUEUE = "archmax.idle"
_VISIBILITY_SECONDS = 3600


def turn_queue(workflow: str) -> str:
    """New turns of a workflow."""
    return f"archmax.turns.{workflow}"


def child_queue(workflow: str) -> str:
    """Its child turns and resumes: neither flood delays the other."""
    return f"archmax.children.{workflow}"


def queue_of(workflow: str | None, *, child: bool) -> str:
    if not workflow:
        return SHARED_QUEUE
    return child_queue(workflow) if child else turn_queue(workflow)


def workflow_of(queue: str) -> tuple[str | None, bool]:
    """The workflow whose messages `queue` holds, and whether they are of child turns: `queue_of` the other way."""
    for child, prefix in ((False, turn_queue("")), (True, child_queue(""))):
        if queue.startswith(prefix):
            return queue.removeprefix(prefix), child
    return None, False


def queues_of(workflows: list[str]) -> list[str]:
    names = [SHARED_QUEUE, INTAKE_QUEUE]
    for workflow in workflows:
        names += [child_queue(workflow), turn_queue(workflow)]
    return names


def queues_taken(chosen: str | None, workflows: list[str]) -> list[str]:
    """The queues of a worker that takes the workflows `chosen`: globs separated by commas, `!` excludes.

    One that names workflows serves them alone. Recoveries and `send_task` inputs, whose workflow is not known before they
    are looked at, go to workers that take all, or all but some.
    """
    globs = [glob.strip() for glob in (chosen or "").split(",") if glob.strip()]
    named = [glob for glob in globs if not glob.startswith("!")]
    excluded = [glob[1:].strip() for glob in globs if glob.startswith("!")]

    def taken(workflow: str) -> bool:
        wanted = not named or any(fnmatchcase(workflow, glob) for glob in named)
        return wanted and not any(fnmatchcase(workflow, glob) for glob in excluded)

    if not workflows:
        # a workspace that is not there (yet): this worker would fail every turn it took over
        return []
    names = queues_of([workflow for workflow in workflows if taken(workflow)])
    return [name for name in names if name not in (SHARED_QUEUE, INTAKE_QUEUE)] if named else names


def create_app(settings: FleetSettings) -> Celery:
    """The app of one fleet. Connects to nothing yet."""
    outlive_outages()
    url = settings.redis_url.get_secret_value()
    app = Celery("archmax", broker=url, set_as_current=False)
    transport: dict[str, Any] = {
        "visibility_timeout": _VISIBILITY_SECONDS,
        "queue_order_strategy": "round_robin",
        "socket_timeout": 30,
        "socket_connect_timeout": settings.redis_timeout_seconds,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "retry_on_timeout": False,
    }
    app.conf.update(
        broker_transport_options=transport,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_limit=4,
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=SHARED_QUEUE,
        task_create_missing_queues=True,
        # a producer's event would carry the input itself; a worker's shows what `worker.shown_tasks` makes of it
        task_send_sent_event=False,
        task_track_started=True,
        worker_send_task_events=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_enable_remote_control=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        result_backend=None,
        timezone="UTC",
    )
    app.conf.task_queues = [Queue(name) for name in (SHARED_QUEUE, INTAKE_QUEUE)]
    return app
