"""Frames: one script evaluation or grader run of a turn, with what it takes to go on with it.

A script's frame holds its journal: the calls it made and the order their answers came, so that a run cut off by a
suspension or a crash starts again and nothing is executed twice. A grader's frame holds its own short transcript.
Frames live as long as their turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from core.jsontext import JsonObject

FrameKind: TypeAlias = Literal["script", "code", "grader"]


@dataclass(slots=True)
class Frame:
    """`journal` is the sandbox's header (seed, start, active time, lines); `calls` its records by number."""

    id: str
    kind: FrameKind
    state: str
    source: str | None = None
    args: Any = None
    journal: JsonObject = field(default_factory=dict)
    calls: dict[int, JsonObject] = field(default_factory=dict)
    messages: list[JsonObject] = field(default_factory=list)
    #: messages and trail steps there were when the run began: all its `archmax_get_history` shows
    seen: tuple[int, int] = (0, 0)
    done: bool = False
    #: it was killed and left nothing in its REPL, so that a rebuild passes over it (decision 0030)
    lost: bool = False
    #: the accepted advance or raise of an automated state; takes effect when the run finishes cleanly
    decision: JsonObject | None = None

    def merge_calls(self, records: list[JsonObject]) -> None:
        for record in records:
            self.calls[int(record["seq"])] = record

    def answer(self, seq: int, answer: Mapping[str, Any]) -> None:
        record = self.calls.get(seq)
        if record is not None and "answer" not in record:
            self.calls[seq] = {**record, "answer": dict(answer)}

    def journal_json(self) -> JsonObject:
        """The sandbox journal's own form."""
        return {**self.journal, "calls": [self.calls[seq] for seq in sorted(self.calls)]}
