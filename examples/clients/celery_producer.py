"""Enqueue from any Celery application, by the task's name: nothing of the fleet is imported.

    ARCHMAX_REDIS_URL=redis://… python celery_producer.py SO-4101

Whoever can write to the broker needs no API key. No answer comes back: follow the session by the id you give it.
"""

import os
import sys

from celery import Celery

app = Celery("shop", broker=os.environ.get("ARCHMAX_REDIS_URL", "redis://127.0.0.1:6379/0"))


def enqueue(order: str, customer: str, why: str) -> str:
    """Hand a refund to the fleet; the same order is the same turn. Returns the session's id."""
    session = f"refund-{order}"
    app.send_task(
        "archmax.turn.enqueue",
        queue="archmax.intake",
        kwargs={
            "workflow": "order-desk",
            "sessionId": session,
            "message": f"From: {customer} — {why}",
            "idempotencyKey": f"refund/{order}",
        },
        # what monitors show instead of the arguments: Flower and Celery's events never see the message
        kwargsrepr="",
        ignore_result=True,
    )
    return session


if __name__ == "__main__":
    wanted = f"The bread tins of {sys.argv[1]} are dented, please refund them."
    print(enqueue(sys.argv[1], "orders@harborbakery.example", wanted))
