"""The record of one evaluation: enough to run it again to the same point without calling anything twice.

A run is determined by its source, the header (seed, start) and the answers in the order and with the times they were
delivered. Records grow in three steps: a call is *issued*, then *answered*, then *delivered* to the script. A replay
delivers what was delivered, in that order, then what was answered only, in call order, and calls again only what has
no answer.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from core.jsontext import Json, JsonObject, clean, well_formed


@dataclass(frozen=True)
class HostAnswer:
    """How a tool call ended: `text` for the script, or the error its promise rejects with."""

    text: str = ""
    #: `None`: the call succeeded. Else the `name` of the script's `Error`, such as `PtcGovernanceError`
    error: str | None = None
    message: str = ""
    #: further properties of the `Error` (`tool`, `ruleId`, `reason`)
    data: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def ok(cls, text: str) -> HostAnswer:
        return cls(text=text)

    @classmethod
    def failed(cls, name: str, message: str, data: Mapping[str, Json] | None = None) -> HostAnswer:
        return cls(error=name, message=message, data=data or {})

    def well_formed(self) -> HostAnswer:
        """The answer as a script can read it: without lone surrogates."""
        return HostAnswer(
            well_formed(self.text), self.error, well_formed(self.message), clean(dict(self.data))
        )

    def to_json(self) -> JsonObject:
        if self.error is None:
            return {"text": self.text}
        return {
            "error": self.error,
            "message": self.message,
            **({"data": dict(self.data)} if self.data else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> HostAnswer:
        if "error" in value:
            return cls.failed(value["error"], value["message"], value.get("data"))
        return cls.ok(value["text"])


class Deferred:
    """The type of `DEFERRED`."""

    def __repr__(self) -> str:
        return "DEFERRED"


#: what a host returns for a call whose answer comes only after the evaluation was suspended
DEFERRED: Final = Deferred()


@dataclass(frozen=True)
class CallRecord:
    """One `tools.*` call."""

    #: from 1, in the order the script made its calls
    seq: int
    tool: str
    args: JsonObject
    answer: HostAnswer | None = None
    #: from 1, in the order answers were delivered; `None` until then, like all below
    order: int | None = None
    #: the script's clock at delivery, epoch milliseconds
    at_ms: int = 0
    #: active time and console lines up to the delivery
    active_ms: int = 0
    lines: int = 0

    def to_json(self) -> JsonObject:
        out: JsonObject = {"seq": self.seq, "tool": self.tool, "args": self.args}
        if self.answer is not None:
            out["answer"] = self.answer.to_json()
        if self.order is not None:
            out |= {"order": self.order, "at": self.at_ms, "activeMs": self.active_ms, "lines": self.lines}
        return out

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> CallRecord:
        answer = value.get("answer")
        return cls(
            seq=value["seq"],
            tool=value["tool"],
            args=value["args"],
            answer=None if answer is None else HostAnswer.from_json(answer),
            order=value.get("order"),
            at_ms=value.get("at", 0),
            active_ms=value.get("activeMs", 0),
            lines=value.get("lines", 0),
        )


@dataclass(frozen=True)
class Journal:
    """The header of an evaluation and its calls so far, in call order."""

    #: 32 hexadecimal digits; what `Math.random` is made of
    seed: str
    #: the script's clock at its start, epoch milliseconds
    started_ms: int
    calls: tuple[CallRecord, ...] = ()
    #: active time spent, and console lines already handed out, when the evaluation was last suspended or ended
    active_ms: int = 0
    lines: int = 0

    @classmethod
    def begin(cls, now_ms: int | None = None) -> Journal:
        """The journal of an evaluation that has not started."""
        return cls(secrets.token_hex(16), int(time.time() * 1000) if now_ms is None else now_ms)

    def with_calls(self, records: Sequence[CallRecord]) -> Journal:
        """A journal in which `records` replace or join those with their numbers."""
        merged = {record.seq: record for record in (*self.calls, *records)}
        return replace(self, calls=tuple(merged[seq] for seq in sorted(merged)))

    def answered(self, answers: Mapping[int, HostAnswer]) -> Journal:
        """A journal in which the calls numbered in `answers` have their answer, to be delivered in call order."""
        by_seq = {record.seq: record for record in self.calls}
        return self.with_calls([replace(by_seq[seq], answer=answer) for seq, answer in answers.items()])

    @property
    def unanswered(self) -> tuple[CallRecord, ...]:
        return tuple(record for record in self.calls if record.answer is None)

    @property
    def spent_ms(self) -> int:
        """Active time used up to the last thing known."""
        return max([self.active_ms, *(record.active_ms for record in self.calls)])

    @property
    def shown_lines(self) -> int:
        """Console lines handed out up to the last thing known."""
        return max([self.lines, *(record.lines for record in self.calls)])

    def to_json(self) -> JsonObject:
        return {
            "seed": self.seed,
            "startedMs": self.started_ms,
            "activeMs": self.active_ms,
            "lines": self.lines,
            "calls": [record.to_json() for record in self.calls],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> Journal:
        return cls(
            seed=value["seed"],
            started_ms=value["startedMs"],
            calls=tuple(CallRecord.from_json(record) for record in value["calls"]),
            active_ms=value["activeMs"],
            lines=value["lines"],
        )
