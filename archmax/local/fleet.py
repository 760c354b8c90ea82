"""The parts of a fleet on this machine: what `archmax up` starts, in which order, with which settings.

The Redis URL holds a password, so it travels in the environment and never in an argument, which any user can list.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from archmax.local.ports import LOOPBACK
from archmax.local.supervisor import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFleet:
    """`bind` is the API's address; Flower listens on the loopback only. `environment` goes to every process.

    `open`: the API asks for no key; it refuses to start so on an address that others reach.
    """

    root: Path
    redis_url: str
    workers: int = 1
    bind: str = LOOPBACK
    port: int = 8000
    flower_port: int = 5555
    flower_prefix: str = ""
    flower_auth: str | None = field(default=None, repr=False)
    open: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def parts(self, only: Collection[str] | None = None) -> list[Part]:
        """Workers first, so that the API accepts nothing before someone can run it; beat and Flower beside it.

        `only` names the parts that are wanted; by default all.
        """
        return [part for part in self._parts() if only is None or part.name in only]

    def _parts(self) -> list[Part]:
        own = [sys.executable, "-m", "archmax"]
        at = ["--root", str(self.root)]
        environment = {
            **self.environment,
            "ARCHMAX_REDIS_URL": self.redis_url,
            "ARCHMAX_ROOT": str(self.root),
        }
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
                environment=environment | ({"ARCHMAX_AUTH_DISABLED": "1"} if self.open else {}),
                stage=2,
                host=reachable,
                port=self.port,
                listens=f"http://{shown}:{self.port}{' (no key needed from this machine)' if self.open else ''}",
            ),
            flower_part(self.redis_url, self.flower_port, prefix=self.flower_prefix, auth=self.flower_auth),
        ]


def flower_part(redis_url: str, port: int, *, prefix: str = "", auth: str | None = None) -> Part:
    """Flower, told where its broker is and who may look by the environment; it keeps no data.

    `prefix` is the path it is served under; `""` and `/` mean none, which Flower itself would answer with `//`. `auth` is
    `user:password`, several separated by commas.
    """
    path = prefix.strip("/")
    environment = {"BROKER_URL": redis_url, "FLOWER_URL_PREFIX": path}
    if auth is not None:
        environment["FLOWER_BASIC_AUTH"] = auth
    return Part(
        name="flower",
        command=[sys.executable, "-m", "celery", "flower", f"--address={LOOPBACK}", f"--port={port}"],
        environment=environment,
        stage=2,
        port=port,
        listens=f"http://{LOOPBACK}:{port}{f'/{path}/' if path else ''}",
        grace_seconds=5,
    )
