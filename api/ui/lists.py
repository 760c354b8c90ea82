"""Lists of sessions: the inbox of parked decisions, and the search. Both read the session index."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from core.errors import ArchmaxError
from core.jsontext import JsonObject, dumps
from worker.service import Caller, FleetService
from worker.session_index import Filters

STATUSES: Final = (
    "queued",
    "running",
    "awaiting_decision",
    "awaiting_input",
    "completed",
    "failed",
    "rejected",
)
#: lines of one page of the search, at least, when there are as many
PAGE: Final = 50
#: decisions one inbox lists
MAX_WAITING: Final = 500
_STRIDE: Final = 100
#: reads of the index for one page
_READS: Final = 20
_MAX_WORDS: Final = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """The search as its form was filled in."""

    status: str = ""
    workflow: str = ""
    words: str = ""
    children: bool = False
    cursor: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Asked:
        return cls(
            status=query.get("status", "")[:40],
            workflow=query.get("workflow", "")[:200],
            words=query.get("q", "").strip()[:_MAX_WORDS],
            children=query.get("children") == "1",
            cursor=query.get("cursor") or None,
        )

    @property
    def filters(self) -> Filters:
        return Filters(
            status=frozenset({self.status}) if self.status else None,
            workflows=frozenset({self.workflow}) if self.workflow else None,
            children=self.children,
        )

    def holds(self, line: JsonObject) -> bool:
        """Whether every word stands somewhere in the line's id, title, workflow, state or labels."""
        if not self.words:
            return True
        labels = line.get("labels") or {}
        parts = [line.get(name) or "" for name in ("sessionId", "title", "workflow", "state")]
        parts += [f"{name}:{value}" for name, value in labels.items()]
        text = "\n".join(map(str, parts)).casefold()
        return all(word in text for word in self.words.casefold().split())


@dataclass(frozen=True, slots=True)
class Found:
    items: list[JsonObject]
    cursor: str | None
    whole: bool


async def search(service: FleetService, asked: Asked, caller: Caller) -> Found:
    """One page. Raises: `CursorInvalid`, `IndexUnavailable`."""
    items: list[JsonObject] = []
    cursor, whole = asked.cursor, True
    if asked.words and cursor is None:
        items += await _named(service, asked, caller)
    named = {line["sessionId"] for line in items}
    for _ in range(_READS):
        page = await service.sessions(
            asked.filters, caller, cursor=cursor, limit=_STRIDE if asked.words else PAGE
        )
        items += [line for line in page.items if asked.holds(line) and line["sessionId"] not in named]
        cursor, whole = page.cursor, page.whole
        if cursor is None or len(items) >= PAGE:
            break
    return Found(items, cursor, whole)


async def _named(service: FleetService, asked: Asked, caller: Caller) -> list[JsonObject]:
    """The session of exactly that id, a child's or one the index has not met, too."""
    try:
        view = await service.session(asked.words, caller)
    except ArchmaxError:
        return []
    state = view.state
    if (asked.status and asked.status != state.status) or asked.workflow not in ("", view.head.workflow):
        return []
    title = state.variables.get("title")
    return [
        {
            "sessionId": state.session_id,
            "workflow": view.head.workflow,
            "status": "running" if view.open else state.status,
            "state": state.position,
            "title": title.value if title is not None else None,
            "labels": state.labels,
            "updatedAt": state.updated_at,
            "usage": state.usage,
        }
    ]


async def waiting(
    service: FleetService, caller: Caller, limit: int = MAX_WAITING
) -> tuple[list[JsonObject], bool]:
    """Sessions that wait for a decision, the longest wait first, and whether these are all. Raises: `IndexUnavailable`."""
    filters = Filters(status=frozenset({"awaiting_decision"}))
    items: list[JsonObject] = []
    cursor: str | None = None
    for _ in range(_READS):
        page = await service.sessions(filters, caller, cursor=cursor, limit=limit - len(items))
        items += [line for line in page.items if "openTurn" not in line]
        cursor = page.cursor
        if cursor is None or len(items) >= limit:
            break
    return sorted(items, key=lambda line: (line["updatedAt"], line["sessionId"])), cursor is None


async def fingerprint(service: FleetService, asked: Asked, caller: Caller) -> str:
    """Names what a list would show now, so that a page learns when to ask again."""
    page = await service.sessions(asked.filters, caller, limit=_STRIDE)
    return hashlib.sha256(dumps([page.items, page.whole])).hexdigest()
