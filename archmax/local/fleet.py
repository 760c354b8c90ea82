"""The parts of a fleet on this machine: what `archmax up` starts, in which order, with which settings.

The Redis URL holds a password, so it travels in the environment and never in an argument, which any user can list.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from archmax.local.supervisor import Part

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFleet:
    """`bind` is the API's address; Flower listens on the loopback only."""

    root: Path
    redis_url: str
    workers: int = 1
    bind: str = LOOPBACK
    port: int = 8000
    flower_port: int = 5555

    def parts(self) -> list[Part]:
        """Workers first, so that the API accepts nothing before someone can run it; beat and Flower beside it."""
        own = [sys.executable, "-m", "archmax"]
        at = ["--root", str(self.root)]
        environment: Mapping[str, str] = {"ARCHMAX_REDIS_URL": self.redis_url, "ARCHMAX_ROOT": str(self.root)}
        workers = [
            Part(
                name="worker" if self.workers == 1 else f"worker-{number}",
                command=[*own, "worker", *at],
                environment=environment,
                stage=1,
                listens="takes turns from the queue",
            )
            for number in range(1, self.workers + 1)
        ]
        reachable = LOOPBACK if self.bind in ("0.0.0.0", "::") else self.bind  # noqa: S104 - compared, not bound
        shown = f"[{reachable}]" if ":" in reachable else reachable
        return [
            *workers,
            Part(
                name="beat",
                command=[*own, "beat", *at],
                environment=environment,
                stage=2,
                listens="fires schedules",
            ),
            Part(
                name="api",
                command=[*own, "api", *at, "--bind", self.bind, "--port", str(self.port)],
                environment=environment,
                stage=2,
                host=reachable,
                port=self.port,
                listens=f"http://{shown}:{self.port}",
            ),
            flower_part(self.redis_url, self.flower_port),
        ]


def flower_part(redis_url: str, port: int) -> Part:
    """Flower, told where its broker is by the environment; it keeps no data."""
    return Part(
        name="flower",
        command=[sys.executable, "-m", "celery", "flower", f"--address={LOOPBACK}", f"--port={port}"],
        environment={"BROKER_URL": redis_url},
        stage=2,
        port=port,
        listens=f"http://{LOOPBACK}:{port}",
        grace_seconds=5,
    )
