"""Celery's Redis transport, made to outlive a Redis that goes away while messages are being worked on.

When the connection is lost kombu puts unacknowledged messages back, and acknowledges others later, over a channel whose
connection it has closed already. Where Redis refuses connections at that moment both end in an `AttributeError`, which
Celery takes for a fault of the worker: the process ends, and with it every turn it runs. What could not be put back or
acknowledged is redelivered, or sent again by the sweep; either is harmless (docs/protocol.md §3).
"""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError as RedisConnectionError

logger = logging.getLogger(__name__)


class TolerantQoS(kombu_redis.QoS):
    """Messages of one channel that wait for their acknowledgement."""

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Never raises."""
        try:
            super().restore_unacked_once(stderr)
        except Exception as error:
            logger.warning(
                "messages not put back: %s", type(error).__name__, extra={"action": "messages_not_restored"}
            )

    def ack(self, delivery_tag: str) -> None:
        """Raises: a connection error, which Celery expects, also where the channel is closed already."""
        try:
            super().ack(delivery_tag)
        except AttributeError as closed:
            raise RedisConnectionError("the channel is closed") from closed


def outlive_outages() -> None:
    """Have every channel made from now on use `TolerantQoS`. Kombu has no option for it."""
    kombu_redis.Channel.QoS = TolerantQoS
