"""One attempt at an evaluation, whichever interpreter makes it: what it repeats, records, prints and may still take.

A call made again must be the journal's call, and an answer is stamped and recorded before the script has it. Neither
replay nor recording takes of the script's time (ruling 7).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from core.jsontext import JsonObject
from sandbox.evaluation import Evaluation, Fault, ScriptError, arguments_text
from sandbox.journal import CallRecord, HostAnswer, Journal

#: a replay may take this many times the limit: it repeats at most the time counted, on a machine perhaps busier
REPLAY_FACTOR: Final = 2


class Failed(Exception):
    """The evaluation is over, whatever its script would still do; its state is lost."""

    def __init__(self, error: ScriptError) -> None:
        super().__init__(error)
        self.error = error


class Attempt:
    """Replays until `end_replay`; the script's time runs from there on."""

    def __init__(self, request: Evaluation) -> None:
        journal = request.journal or Journal.begin()
        self._request = request
        self.header = replace(journal, calls=())
        #: number → what earlier attempts know of the call
        self.journalled = {record.seq: record for record in journal.calls}
        #: number → what is known of a call this attempt has made
        self.made: dict[int, CallRecord] = {}
        self.logs: list[str] = []
        self._silent_lines = journal.shown_lines
        self._clock_ms = max([journal.started_ms, *(record.at_ms for record in journal.calls)])
        self._orders = max([0, *(record.order or 0 for record in journal.calls)])
        self._active = _ActiveTime(journal.spent_ms)
        self._replay_limit_at: float | None = time.monotonic() + REPLAY_FACTOR * request.timeout_ms / 1000

    @property
    def first(self) -> bool:
        """Whether no earlier attempt came anywhere: there is nothing to replay."""
        return not (self.journalled or self._active.spent_ms or self._silent_lines)

    @property
    def replaying(self) -> bool:
        return self._replay_limit_at is not None

    def end_replay(self) -> None:
        """May be repeated."""
        self._replay_limit_at = None
        self._active.run()

    # --- calls --------------------------------------------------------------------------------------------------------

    def check_limit(self, seq: int) -> None:
        """Raises: `Failed` when call `seq` is one too many."""
        limit = self._request.max_calls
        if limit is not None and seq > limit:
            message = f"more than {limit} tool calls in one evaluation (settings.maxPtcCalls)"
            raise Failed(ScriptError(Fault.CALLS, "SandboxLimitError", message))

    def make(self, seq: int, tool: str, args: JsonObject) -> CallRecord:
        """Enter a call as it is made. Returns: its record, with the answer if an earlier attempt had one.

        Raises: `Failed` when the journal holds another call of that number.
        """
        record = self.journalled.get(seq)
        if record is None:
            record = CallRecord(seq, tool, args)
        elif (record.tool, arguments_text(record.args)) != (tool, arguments_text(args)):
            raise diverged(f"call {seq} was {record.tool}, now {tool} or its arguments differ")
        self.made[seq] = record
        return record

    def check_all_made(self) -> None:
        """Raises: `Failed` when a call of the journal has not been made again."""
        for seq, record in self.journalled.items():
            if seq not in self.made:
                raise diverged(f"call {seq} ({record.tool}) of the earlier run was not made")

    async def record(self, answers: Iterable[tuple[int, HostAnswer]]) -> list[CallRecord]:
        """Stamp the answers about to be delivered, in this order, and have them recorded. Returns: their records."""
        self._clock_ms = max(self._clock_ms, int(time.time() * 1000))
        batch: list[CallRecord] = []
        for seq, answer in answers:
            self._orders += 1
            batch.append(
                replace(
                    self.made[seq],
                    answer=answer,
                    order=self._orders,
                    at_ms=self._clock_ms,
                    active_ms=round(self._active.spent_ms),
                    lines=len(self.logs),
                )
            )
        self.made.update({record.seq: record for record in batch})
        self._active.pause()
        try:
            await self._request.record(batch)
        finally:
            self._active.run()
        return batch

    # --- lines, time and what is left -----------------------------------------------------------------------------

    def print(self, line: str) -> None:
        """Keep a console line; those an earlier attempt printed are not told again."""
        self.logs.append(line)
        if len(self.logs) > self._silent_lines and self._request.on_console is not None:
            self._request.on_console(line)

    def remaining_seconds(self) -> float:
        if self._replay_limit_at is not None:
            return max(0.0, self._replay_limit_at - time.monotonic())
        return max(0.0, (self._request.timeout_ms - self._active.spent_ms) / 1000)

    def timed_out(self) -> ScriptError:
        limit = self._request.timeout_ms
        message = f"the script took longer than {limit} ms (settings.timeoutMs)"
        if self.replaying:
            message = f"the script's replay took longer than {REPLAY_FACTOR * limit} ms"
        return ScriptError(Fault.TIMEOUT, "TimeoutError", message)

    def journal(self) -> Journal:
        """What the next attempt goes on from."""
        records = self.journalled | self.made
        return replace(
            self.header,
            calls=tuple(records[seq] for seq in sorted(records)),
            active_ms=round(self._active.spent_ms),
            lines=max(len(self.logs), self._silent_lines),
        )


class _ActiveTime:
    """Milliseconds an evaluation has used of its limit."""

    def __init__(self, spent_ms: int) -> None:
        self._spent = float(spent_ms)
        self._since: float | None = None

    def run(self) -> None:
        if self._since is None:
            self._since = time.monotonic()

    def pause(self) -> None:
        self._spent, self._since = self.spent_ms, None

    @property
    def spent_ms(self) -> float:
        return self._spent + (0.0 if self._since is None else (time.monotonic() - self._since) * 1000)


def diverged(what: str) -> Failed:
    message = f"the script did not repeat its earlier run, so it cannot go on: {what}"
    return Failed(ScriptError(Fault.DIVERGED, "ReplayDivergedError", message))
