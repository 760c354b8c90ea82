"""One run of a turn as operators see it: metrics, its trace, and the ids on its log lines, fed in one place.

`worker.runner` tells a `TurnWatch` what has just become durable; nothing else in the fleet counts or traces a turn.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from langchain_core.runnables import RunnableConfig

from core.jsontext import JsonObject
from storage.records import Why
from worker.metrics import FleetMetrics
from worker.protocol.open_turn import OpenTurn
from worker.tracing import CARRIER, Tracing, TurnTrace


class TurnWatch:
    """From a turn's opening in this process until its end, its suspension or its handing on. Times are this host's."""

    def __init__(self, turn: OpenTurn, metrics: FleetMetrics, tracing: Tracing | None) -> None:
        self._turn, self._metrics = turn, metrics
        self._workflow = turn.workflow
        self._since = time.monotonic()
        self._trace: TurnTrace | None = None
        self._opened()
        if tracing is not None:
            self._trace = tracing.turn(
                turn.entry.input.get(CARRIER),
                {
                    "archmax.workflow": turn.workflow,
                    "archmax.session": turn.session_id,
                    "archmax.turn": turn.turn,
                    "archmax.attempt": turn.attempts,
                    "archmax.fence": turn.fence,
                },
            )

    @property
    def config(self) -> RunnableConfig:
        """What LangChain's models and tools run under."""
        return (
            RunnableConfig(callbacks=[self._trace.callbacks]) if self._trace is not None else RunnableConfig()
        )

    def _opened(self) -> None:
        parts = self._turn.head.parts
        if not parts:
            self._metrics.wait_seconds.labels(self._workflow).observe(self._age_seconds())
        elif parts[-1].why == Why.LOST:
            self._metrics.recoveries.labels(self._workflow).inc()
        elif parts[-1].why in (Why.RELEASED, Why.JOINED):
            self._metrics.resumed.labels(self._workflow, parts[-1].why).inc()

    def committed(self, record: JsonObject, events: Sequence[JsonObject]) -> None:
        now = time.monotonic()
        self._metrics.committed(self._workflow, record, now - self._since)
        self._since = now
        if self._trace is not None:
            self._trace.committed(events)

    def carried(self, calls: Sequence[JsonObject]) -> Sequence[JsonObject]:
        """A suspension's calls, with this trace's context when there is one."""
        return calls if self._trace is None else self._trace.carried(calls)

    def suspended(self, record: JsonObject, events: Sequence[JsonObject], width: int) -> None:
        self.committed(record, events)
        self._metrics.fan_out.labels(self._workflow).observe(width)
        self.finish("suspended")

    def ended(self, record: JsonObject, events: Sequence[JsonObject], outcome: JsonObject) -> None:
        self.committed(record, events)
        self._metrics.ended(self._workflow, outcome, self._age_seconds())
        self.finish(str(outcome.get("kind")))

    def finish(self, how: str, error: BaseException | None = None) -> None:
        """The run is over. The first word counts."""
        if self._trace is not None:
            with suppress(Exception):  # what is told of a turn must not fail it
                self._trace.callbacks.close()
                self._trace.finish(how, error)

    def _age_seconds(self) -> float:
        """Since the turn was accepted; an input that does not say when counts from now."""
        accepted_ms = self._turn.entry.at_ms
        return max(0.0, time.time() - accepted_ms / 1000) if accepted_ms else 0.0
