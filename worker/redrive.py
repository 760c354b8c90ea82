"""What a turn was given, so that it can be sent again after the fleet gave it up (design: dead letters).

While the input still lies in the inbox, that is it. Afterwards a turn lost with its workers tells it in its last record,
where it is kept because such a turn may have committed nothing else; any other turn tells it by what its opening recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.jsontext import JsonObject
from storage.records import InboxEntry
from storage.sessionlog import HeadMoved
from worker.client import FleetClient

#: exits of turns that failed for the fleet's reasons, not for their workflow's
GIVEN_UP: Final = frozenset({"worker-lost", "turn-deadline"})
_LOOKS: Final = 5


def keep_input(record: JsonObject, body: JsonObject) -> None:
    """Put a lost turn's input into the record that ends it. The fold does not read it."""
    for change in record["changes"]:
        if change["t"] == "fail":
            change["input"] = body


async def input_of(client: FleetClient, session: str, n: int) -> JsonObject | None:
    """The input of an ended turn, `kind` included; None when nothing tells it. Raises: `StoreUnavailable`."""
    log = client.fleet.log(session)
    for _ in range(_LOOKS):
        entry = await log.entry(n)
        if entry is not None:
            return _given(entry)
        head = await log.head()
        if head is None or head.deleted or n > head.turn:
            return None
        try:
            end = await log.ended(head, n)
        except HeadMoved:
            continue
        return None if end is None else told_input(end.records)
    return None


def told_input(records: Sequence[JsonObject]) -> JsonObject | None:
    """The input that a turn's records tell: the kept one, else what its opening made of it."""
    for change in records[-1].get("changes", ()) if records else ():
        if change.get("t") == "fail" and "input" in change:
            kept: JsonObject = change["input"]
            return kept
    for record in records:
        changes = record.get("changes", ())
        if any(change.get("t") == "open" and not change.get("origin") for change in changes):
            return _opened(changes)
    return None


def _opened(changes: Sequence[JsonObject]) -> JsonObject:
    """From the changes of an opening: the trigger, the seeds, the person's own words."""
    given: JsonObject = {"kind": "message"}
    for change in changes:
        kind = change.get("t")
        if kind == "open":
            given["trigger"] = change["trigger"]
            if change.get("labels"):
                given["labels"] = change["labels"]
        elif kind == "vars" and change.get("host") and "variables" not in given:
            given["variables"] = {name: value for name, value in change["set"].items() if name != "trigger"}
        elif kind == "message":
            message = change["m"]
            if message["role"] == "user" and not message.get("note"):
                given["message"] = message["text"]
            break
    return given


def _given(entry: InboxEntry) -> JsonObject:
    return {"kind": entry.kind, **entry.input}
