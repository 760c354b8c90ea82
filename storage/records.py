"""The bodies of the protocol's objects: head, inbox entry, log object, ended turn, segment (docs/protocol.md §2).

Every body is a JSON object with `v`, the format's version, and `w`, the write's own id: random, new for each logical
write, the same for its retries. Equal etags would otherwise not mean the same write. What the engine records
(`record`, `outcome`, `input`, answers) is opaque here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

from typing_extensions import override

from core import jsontext
from core.errors import ArchmaxError
from core.jsontext import JsonObject
from storage.layout import LifeKeys

FORMAT = 1
_DEFLATE_ABOVE = 1024


class NewerFormat(ArchmaxError):
    """A body written by a newer release. This process hands the turn back instead of guessing."""

    code: ClassVar[str] = "newer-format"
    retryable: ClassVar[bool] = True

    def __init__(self, key: str, version: int) -> None:
        super().__init__(key, version)
        self.key, self.version = key, version

    @override
    def __str__(self) -> str:
        return f"{self.key!r} has format {self.version}; this release reads up to {FORMAT}"


class DamagedObject(ArchmaxError):
    """A body that is no object of the protocol."""

    code: ClassVar[str] = "damaged-object"

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(key, problem)
        self.key, self.problem = key, problem

    @override
    def __str__(self) -> str:
        return f"{self.key!r} is damaged: {self.problem}"


def pack(body: JsonObject) -> bytes:
    """JSON text of `body` with the format's version."""
    return jsontext.dumps({"v": FORMAT, **body})


def pack_small(body: JsonObject) -> bytes:
    """As `pack`, deflated above 1 KiB."""
    text = pack(body)
    return zlib.compress(text, 3) if len(text) > _DEFLATE_ABOVE else text


def unpack(key: str, body: bytes) -> JsonObject:
    """Raises: `NewerFormat`, `DamagedObject`."""
    try:
        text = body if body[:1] == b"{" else zlib.decompress(body)
        value = jsontext.loads(text)
    except (ValueError, zlib.error) as problem:
        raise DamagedObject(key, str(problem)) from problem
    if not isinstance(value, dict) or not isinstance(value.get("v"), int):
        raise DamagedObject(key, "not an object with a format version")
    if value["v"] > FORMAT:
        raise NewerFormat(key, value["v"])
    return value


def _rows(tuples: Iterable[tuple[object, ...]]) -> list[list[object]]:
    """Named tuples as the fast JSON writer takes them."""
    return [list(row) for row in tuples]


class Why(StrEnum):
    """Why a fence of a turn came to its end."""

    LOST = "lost"  #: its worker died, or was thought dead
    RELEASED = "released"  #: its worker drained
    JOINED = "joined"  #: the turn was suspended and resumes
    ENDED = "ended"  #: it ended the turn


class Part(NamedTuple):
    """What one fence of a turn left: `records` many, sealed right behind them."""

    fence: int
    records: int
    why: str


class Ref(NamedTuple):
    """Where ended turns are: `end/first/fence` when `fence` is set, else `seg/first-last`."""

    first: int
    last: int
    fence: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def key(self, keys: LifeKeys) -> str:
        return keys.end(self.first, self.fence) if self.fence else keys.merged(self.first, self.last)


class JoinRef(NamedTuple):
    """One suspension within a turn, and how many children it has."""

    fence: int
    position: int
    children: int


@dataclass(frozen=True, slots=True)
class Head:
    """The one object that says which turn is open, under which fence and by whom.

    `by` is `fleet` or `local` (a library's or command's process). `w` is the claim itself. `merged` are the references
    the claim of this turn replaced: garbage once the head was written.
    """

    w: str
    session: str
    life: str
    workflow: str
    turn: int
    fence: int
    by: str
    entry: str
    parts: tuple[Part, ...] = ()
    segs: tuple[Ref, ...] = ()
    merged: tuple[Ref, ...] = ()
    deleted: bool = False
    etag: str = ""
    modified_ms: int = 0

    def body(self) -> bytes:
        shown: JsonObject = {
            "w": self.w,
            "session": self.session,
            "life": self.life,
            "workflow": self.workflow,
            "turn": self.turn,
            "fence": self.fence,
            "by": self.by,
            "entry": self.entry,
            "parts": _rows(self.parts),
            "segs": _rows(self.segs),
        }
        if self.merged:
            shown["merged"] = _rows(self.merged)
        if self.deleted:
            shown["deleted"] = True
        return pack(shown)

    @classmethod
    def read(cls, key: str, body: bytes, etag: str, modified_ms: int) -> Head:
        o = unpack(key, body)
        return cls(
            w=o["w"],
            session=o["session"],
            life=o["life"],
            workflow=o["workflow"],
            turn=o["turn"],
            fence=o["fence"],
            by=o["by"],
            entry=o["entry"],
            parts=tuple(Part(*p) for p in o["parts"]),
            segs=tuple(Ref(*r) for r in o["segs"]),
            merged=tuple(Ref(*r) for r in o.get("merged", ())),
            deleted=o.get("deleted", False),
            etag=etag,
            modified_ms=modified_ms,
        )


@dataclass(frozen=True, slots=True)
class Parent:
    """Which call of which suspension a child's turn answers: child `index` of `of`, `width` at a time."""

    session: str
    workflow: str
    life: str
    turn: int
    fence: int
    position: int
    index: int
    of: int
    width: int

    def body(self) -> JsonObject:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """One accepted input: the turn `session.n`, from acceptance until it owes nothing.

    `id` is the input's identity; it stays when `cancel` (a reason) or `paid` is set. `kind` is the engine's word, but for
    `delete` and `local`. `expires_ms`: epoch milliseconds after which it is not begun any more.
    """

    session: str
    n: int
    id: str
    kind: str
    workflow: str
    input: JsonObject
    at_ms: int
    w: str = ""
    parent: Parent | None = None
    cancel: str | None = None
    expires_ms: int | None = None
    paid: bool = False
    etag: str = ""
    modified_ms: int = 0

    def body(self) -> bytes:
        shown: JsonObject = {
            "w": self.w,
            "session": self.session,
            "n": self.n,
            "id": self.id,
            "kind": self.kind,
            "workflow": self.workflow,
            "input": self.input,
            "at": self.at_ms,
        }
        if self.parent is not None:
            shown["parent"] = self.parent.body()
        if self.cancel is not None:
            shown["cancel"] = self.cancel
        if self.expires_ms is not None:
            shown["expires"] = self.expires_ms
        if self.paid:
            shown["paid"] = True
        return pack(shown)

    @classmethod
    def read(cls, key: str, body: bytes, etag: str, modified_ms: int) -> InboxEntry:
        o = unpack(key, body)
        return cls(
            session=o["session"],
            n=o["n"],
            id=o["id"],
            kind=o["kind"],
            workflow=o["workflow"],
            input=o["input"],
            at_ms=o["at"],
            w=o["w"],
            parent=Parent(**o["parent"]) if "parent" in o else None,
            cancel=o.get("cancel"),
            expires_ms=o.get("expires"),
            paid=o.get("paid", False),
            etag=etag,
            modified_ms=modified_ms,
        )


class LogKind(StrEnum):
    """What an object of the log is."""

    STEP = "step"  #: the engine's record of one step
    SUSPEND = "suspend"  #: the turn waits for its children; the last record of its fence
    JOINED = "joined"  #: every child's answer, and what the engine made of them
    SEAL = "seal"  #: nothing can be written here any more
    RELEASED = "released"  #: the same, left by a worker that drained

    @property
    def closes(self) -> bool:
        return self in (LogKind.SEAL, LogKind.RELEASED)


@dataclass(frozen=True, slots=True)
class LogObject:
    """One object of a turn's log. `calls`: `{child, n, workflow, kind, input}` each.

    `spent_ms`: the turn's active time up to this object, over all fences; each by its own process's clock.
    """

    kind: LogKind
    fence: int
    position: int
    w: str
    record: JsonObject | None = None
    calls: tuple[JsonObject, ...] = ()
    width: int = 0
    answers: tuple[JsonObject, ...] = ()
    spent_ms: int = 0

    def body(self) -> bytes:
        shown: JsonObject = {"w": self.w, "kind": self.kind.value}
        if self.spent_ms:
            shown["spent"] = self.spent_ms
        if self.record is not None:
            shown["record"] = self.record
        if self.kind is LogKind.SUSPEND:
            shown["calls"], shown["width"] = self.calls, self.width
        if self.kind is LogKind.JOINED:
            shown["answers"] = self.answers
        return pack(shown)

    @classmethod
    def read(cls, key: str, body: bytes, fence: int, position: int) -> LogObject:
        o = unpack(key, body)
        return cls(
            kind=LogKind(o["kind"]),
            fence=fence,
            position=position,
            w=o["w"],
            record=o.get("record"),
            calls=tuple(o.get("calls", ())),
            width=o.get("width", 0),
            answers=tuple(o.get("answers", ())),
            spent_ms=o.get("spent", 0),
        )


@dataclass(frozen=True, slots=True)
class EndedTurn:
    """A turn that is over: its outcome, all its records, what it owes, and which objects it leaves behind."""

    turn: int
    fence: int
    entry: str
    workflow: str
    outcome: JsonObject
    records: tuple[JsonObject, ...]
    dues: tuple[JsonObject, ...]
    parts: tuple[Part, ...]
    joins: tuple[JoinRef, ...] = ()
    merged: tuple[Ref, ...] = ()
    w: str = ""

    def shown(self) -> JsonObject:
        shown: JsonObject = {
            "w": self.w,
            "turn": self.turn,
            "fence": self.fence,
            "entry": self.entry,
            "workflow": self.workflow,
            "outcome": self.outcome,
            "records": self.records,
            "parts": _rows(self.parts),
        }
        if self.dues:
            shown["dues"] = self.dues
        if self.joins:
            shown["joins"] = _rows(self.joins)
        if self.merged:
            shown["merged"] = _rows(self.merged)
        return shown

    def body(self) -> bytes:
        return pack_small(self.shown())

    @classmethod
    def of(cls, o: JsonObject) -> EndedTurn:
        return cls(
            turn=o["turn"],
            fence=o["fence"],
            entry=o["entry"],
            workflow=o["workflow"],
            outcome=o["outcome"],
            records=tuple(o["records"]),
            dues=tuple(o.get("dues", ())),
            parts=tuple(Part(*p) for p in o["parts"]),
            joins=tuple(JoinRef(*j) for j in o.get("joins", ())),
            merged=tuple(Ref(*r) for r in o.get("merged", ())),
            w=o["w"],
        )

    def litter(self, keys: LifeKeys) -> Iterator[str]:
        """Keys that mean nothing once the turn is over. Never a seal."""
        for part in self.parts:
            for position in range(1, part.records + 1):
                yield keys.log(self.turn, part.fence, position)
        for join in self.joins:
            for index in range(join.children):
                yield keys.join(self.turn, join.fence, join.position, index)
        for ref in self.merged:
            yield ref.key(keys)

    def seals(self, keys: LifeKeys) -> Iterator[str]:
        """Keys that earlier fences of the turn left sealed."""
        for part in self.parts:
            if part.why != Why.ENDED:
                yield keys.log(self.turn, part.fence, part.records + 1)
                yield keys.end(self.turn, part.fence)


def is_seal(o: JsonObject) -> bool:
    """Whether an `end/` body is a seal instead of an end."""
    return o.get("seal") is True


def seal_body(w: str) -> bytes:
    """A seal under `end/`. Under `log/` a seal is a `LogObject`."""
    return pack({"w": w, "seal": True})


def segment_body(w: str, ends: Sequence[EndedTurn]) -> bytes:
    return pack_small({"w": w, "ends": [end.shown() for end in ends]})
