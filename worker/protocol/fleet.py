"""What every move of the protocol is given: the store, the ports, and this process's cleaner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from storage.limits import MAX_ATTEMPTS
from storage.logstore import LogStore, Recent
from storage.sessionlog import SessionLog
from worker.ports import Clock, Leases, Notices, Queue, Webhooks
from worker.protocol.cleaner import Cleaner

#: some thousand of them, of `sys.getsizeof(True)` each
_WOKEN_BYTES = 64 * 1024


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Fleet:
    """One per process. `draining`: whether this process should take nothing more and let go of what it has."""

    files: LogStore
    clock: Clock
    queue: Queue
    leases: Leases
    notices: Notices
    webhooks: Webhooks
    draining: Callable[[], bool] = _never
    #: runs of one step without any progress before its turn ends `worker-lost`
    max_attempts: int = MAX_ATTEMPTS
    cleaner: Cleaner = field(init=False)
    #: suspensions whose parent this process has sent, all answers being there
    woken: Recent[bool] = field(default_factory=lambda: Recent(_WOKEN_BYTES))

    def __post_init__(self) -> None:
        object.__setattr__(self, "cleaner", Cleaner(self.files))

    def log(self, session: str) -> SessionLog:
        return SessionLog(self.files, session)
