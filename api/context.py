"""What a request's handlers share, kept on the application."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from api.keys import KeyStore
from api.settings import ApiSettings
from worker.service import FleetService
from worker.status import WorkerRoll

if TYPE_CHECKING:
    from api.auth import Buckets


@dataclass
class Api:
    """One API process. `streams` counts the event streams and waits that are open."""

    settings: ApiSettings
    service: FleetService
    keys: KeyStore
    buckets: Buckets
    streams: int = field(default=0)
    roll: WorkerRoll = field(init=False)

    def __post_init__(self) -> None:
        self.roll = WorkerRoll(self.service.client)


def api_of(request: Request) -> Api:
    api = request.app.state.api
    assert isinstance(api, Api)
    return api
