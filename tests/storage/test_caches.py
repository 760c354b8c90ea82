"""What a process keeps of ended turns stays within the memory it may take, however many turns it sees."""

from __future__ import annotations

import gc
import tracemalloc

from core.jsontext import JsonObject
from storage.logstore import Recent
from storage.records import EndedTurn, unpack


def body(number: int) -> bytes:
    """A turn of five answers and four tool calls, as it is stored."""
    records: list[JsonObject] = [
        {
            "v": 1,
            "at": 1_790_000_000_000 + step,
            "changes": [
                {"t": "step"},
                {
                    "t": "message",
                    "m": {
                        "role": "assistant",
                        "id": f"a-{number:012}{step:08}",
                        "text": "Please look at the quarterly numbers again, and say what to do next.",
                        "calls": [
                            {"id": f"call-{number}-{step}", "name": "echo", "args": {"text": "x" * 40}}
                        ],
                    },
                },
                {"t": "usage", "add": {"inputTokens": 812, "outputTokens": 31, "calls": 1}, "model": "m"},
            ],
        }
        for step in range(9)
    ]
    end = EndedTurn(
        turn=1,
        fence=1,
        entry=f"{number:016}",
        workflow="desk",
        outcome={"kind": "completed", "reply": "done"},
        records=tuple(records),
        dues=(),
        parts=(),
        w=f"{number:016}",
    )
    return end.body()


def test_a_thousand_ended_turns_take_no_more_than_the_cache_may_hold() -> None:
    bound = 4 * 1024 * 1024
    recent: Recent[EndedTurn] = Recent(bound)
    bodies = [body(number) for number in range(1_000)]
    gc.collect()
    tracemalloc.start()
    try:
        for number, stored in enumerate(bodies):
            recent.put(str(number), EndedTurn.of(unpack("k", stored)))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert recent.get("999") is not None and recent.get("0") is None
    assert bound / 8 < held < bound * 1.5
