"""The Celery task `archmax.turn.enqueue`: what `POST` does, from any Celery producer (design: Surfaces).

Its kwargs are the body's fields in camelCase, with `workflow` for a start or `sessionId` alone for a message, and
`idempotencyKey`. Without a key the task's own id is one, so a redelivered message enqueues nothing twice.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import ValidationError

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from worker.requests import MessageRequest, StartRequest
from worker.service import Caller, FleetService

#: whoever can write to the broker may enqueue anything
PRODUCER = Caller("celery", "celery")


class EnqueueRefused(ArchmaxError):
    """The task's kwargs are not of the documented shape."""

    code: ClassVar[str] = "enqueue-refused"

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"archmax.turn.enqueue: {self.problem}"


async def enqueue(service: FleetService, task_id: str, kwargs: dict[str, Any]) -> JsonObject:
    """Accept one input. Raises: `EnqueueRefused`, what `FleetService` raises."""
    given = dict(kwargs)
    workflow, key = given.pop("workflow", None), given.pop("idempotencyKey", None) or f"task/{task_id}"
    if not isinstance(key, str) or not (workflow is None or isinstance(workflow, str)):
        raise EnqueueRefused("workflow and idempotencyKey are strings")
    try:
        if workflow is not None:
            accepted = await service.start(workflow, StartRequest.model_validate(given), PRODUCER, key=key)
        else:
            session = given.pop("sessionId", None)
            if not isinstance(session, str):
                raise EnqueueRefused("name a workflow, or a sessionId")
            accepted = await service.send(session, MessageRequest.model_validate(given), PRODUCER, key=key)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise EnqueueRefused(f"{place}: {first['msg']}") from None
    return {"turnId": f"{accepted.session}.{accepted.n}", "sessionId": accepted.session}
