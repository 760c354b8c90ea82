"""What Flower and Celery's remote control show of a task: which turn it is, and nothing that is in it.

A turn's message says session, turn and workflow. The attempt is known once a worker has opened the turn, so the worker
tells `task-started` again with all four; a task that works off several waiting turns of its session shows the newest.
The fields of `archmax.turn.enqueue` are a client's, so of them only names are shown, wherever Celery would print them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Task
from celery.worker.request import Request

from worker.celery_queue import SENDER

NAME_CHARS = 120


def shown_turn(session: str, turn: int, workflow: str | None, attempt: int | None = None) -> str:
    told = f"workflow={workflow or '-'} session={session} turn={turn}"
    return told if attempt is None else f"{told} attempt={attempt}"


def shown_input(kwargs: object) -> str:
    """The names in the fields of an `archmax.turn.enqueue`, whatever they are."""
    given = kwargs if isinstance(kwargs, Mapping) else {}
    names = {"workflow": given.get("workflow"), "session": given.get("sessionId")}
    return " ".join(f"{key}={name[:NAME_CHARS]}" for key, name in names.items() if isinstance(name, str))


class InputRequest(Request):
    """An `archmax.turn.enqueue` as events, logs and `inspect` see it."""

    @property
    def argsrepr(self) -> str:
        return ""

    @property
    def kwargsrepr(self) -> str:
        return shown_input(self.kwargs)

    def info(self, safe: bool = False) -> dict[str, Any]:
        return {**super().info(safe=True), "args": "", "kwargs": self.kwargsrepr}


class InputTask(Task):
    """Celery sends it again while Redis or the store is away, and would print its fields anew."""

    abstract = True
    Request: Any = InputRequest

    def apply_async(self, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        hidden = {"argsrepr": "", "kwargsrepr": shown_input(kwargs)}
        return super().apply_async(args, kwargs, *rest, **{**options, **hidden})


class ShownTasks:
    """Tells the task events which turn a task works on. `consumer` is Celery's, once it is ready."""

    def __init__(self) -> None:
        self.consumer: Any = None

    def opened(self, session: str, turn: int, workflow: str, attempt: int) -> None:
        """Hand the event to the consumer's own loop: its connection is not ours to block on. Never raises."""
        sender, consumer = SENDER.get(), self.consumer
        if sender is None or consumer is None or consumer.hub is None:
            return
        consumer.hub.call_soon(self._send, sender[0], shown_turn(session, turn, workflow, attempt))

    def _send(self, task_id: str, told: str) -> None:
        dispatcher = self.consumer.event_dispatcher
        if dispatcher is not None and dispatcher.enabled:
            dispatcher.send("task-started", uuid=task_id, args=told, kwargs="")
