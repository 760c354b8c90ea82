"""What must hold after every single write (docs/protocol.md §9), judged from outside.

The oracle sees every change of the store as it happens, and what clients were told. It keeps its own account of each
session and compares. It shares the bodies' formats with the code under test, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from core.jsontext import JsonObject
from storage.layout import SessionKeys, inbox_place
from storage.limits import SEAL_MS
from storage.objects import StoredObject
from storage.records import EndedTurn, Head, InboxEntry, LogKind, LogObject, is_seal, unpack
from tests.simulation.scheduler import Task
from tests.simulation.store import EPOCH, Server


class Violation(AssertionError):
    """An invariant broke."""


@dataclass
class Turn:
    """One turn of one life, as it must be."""

    entry: str
    #: committed objects by (fence, position)
    objects: dict[tuple[int, int], LogObject] = field(default_factory=dict)
    sealed_log: set[tuple[int, int]] = field(default_factory=set)
    sealed_end: set[int] = field(default_factory=set)
    #: sealed places that stop a predecessor: (fence, position), position 0 for its end
    protected: set[tuple[int, int]] = field(default_factory=set)
    #: when each plan item was committed, and when each fence last had a proof that it holds the turn
    ops: dict[int, int] = field(default_factory=dict)
    proofs: dict[int, int] = field(default_factory=dict)
    #: when each coroutine last read a record of each fence
    reads: dict[tuple[Task | None, int], int] = field(default_factory=dict)
    suspended: list[LogObject] = field(default_factory=list)
    joined: int = 0
    end: EndedTurn | None = None

    def records(self, fence: int) -> int:
        return sum(1 for f, _ in self.objects if f == fence)


@dataclass(frozen=True)
class Answered:
    """An accept as its client saw it."""

    identity: str
    session: str
    n: int
    begun: int
    answered: int


class Oracle:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.heads: dict[str, Head] = {}
        self.turns: dict[tuple[str, str, int], Turn] = {}
        #: identity → the turn it opened
        self.opened: dict[str, tuple[str, int]] = {}
        self.answered: list[Answered] = []
        self.keys_answered: dict[str, tuple[str, int]] = {}
        self.garbage: set[str] = set()
        #: when something was last written of each session and its descendants
        self.moved: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        server.watch_put = self._put
        server.watch_get = self._get
        server.watch_delete = self._delete

    @property
    def now(self) -> int:
        return self.server.scheduler.now

    def fail(self, text: str) -> None:
        raise Violation(f"at {self.now} ms: {text}")

    # What clients and engines report

    def accepted(self, identity: str, session: str, n: int, begun: int) -> None:
        self.answered.append(Answered(identity, session, n, begun, self.now))

    def accepted_key(self, key: str, session: str, n: int) -> None:
        """Invariant 4: one idempotency key, one number."""
        before = self.keys_answered.setdefault(key, (session, n))
        if before != (session, n):
            self.fail(f"key {key} was answered with {before} and with {(session, n)}")

    def begin_step(self, session: str, life: str, turn: int, fence: int, op: int) -> None:
        """Invariant 2: no committed step starts again, but for one that was in flight."""
        known = self.turns[session, life, turn]
        committed = known.ops.get(op)
        # What it last saw of the log: a write of its own, or its own record read again.
        seen = max(known.proofs[fence], known.reads.get((self.server.scheduler.current, fence), 0))
        if committed is not None and seen >= committed:
            self.fail(f"{session}.{turn}: step {op} starts under fence {fence}, committed at {committed}")

    def check_history(self, session: str, life: str, turn: int, history: list[JsonObject]) -> None:
        expected = [
            record
            for t in range(1, turn)
            if (end := self.turns[session, life, t].end) is not None
            for record in end.records
        ]
        if list(history) != expected:
            self.fail(f"{session}.{turn}: history is {history}, not {expected}")

    def check_joined(self, session: str, life: str, turn: int, answers: list[JsonObject]) -> None:
        """Invariant 6: each child's one outcome, in call order."""
        asked = [(answer["session"], answer["n"]) for answer in answers]
        # Not only the newest suspension: who asks may be stale by now, and will find out at its first write.
        suspensions = self.turns[session, life, turn].suspended
        if not any(asked == [(call["child"], call["n"]) for call in s.calls] for s in suspensions):
            self.fail(f"{session}.{turn}: {answers} answer no suspension")
        for answer in answers:
            child = self.ended(answer["session"], answer["n"])
            if child is None or child.outcome != answer["outcome"]:
                self.fail(f"{session}.{turn}: {answer} is not the outcome of its child")

    def ended(self, session: str, n: int) -> EndedTurn | None:
        head = self.heads.get(session)
        turn = self.turns.get((session, head.life, n)) if head else None
        return turn.end if turn else None

    # What the store sees

    def _get(self, reader: Task | None, key: str) -> None:
        parts = _parts(key)
        if len(parts) == 7 and parts[3] == "log":
            turn = self.turns.get((parts[0], parts[2], int(parts[4])))
            if turn is not None:
                turn.reads[reader, int(parts[5])] = self.now

    def _put(self, key: str, old: StoredObject | None, body: bytes) -> None:
        parts = _parts(key)
        self.counts["writes"] += 1
        self.moved[_root_of(parts[1] if parts[0] == "_inbox" else parts[0])] = self.now
        self.server.scheduler.log(f"put {key} {body[:160]!r}")
        if parts[0] == "_inbox":
            self._put_entry(key, old, body)
        elif parts[0].startswith("_"):
            return
        elif parts[2] == "head":
            self._put_head(Head.read(key, body, "", 0), Head.read(key, old.body, "", 0) if old else None)
        elif parts[3] == "log":
            if old is not None:
                self.fail(f"{key} was replaced")
            self._put_log(parts, LogObject.read(key, body, int(parts[5]), int(parts[6])), key, body)
        elif parts[3] == "end":
            if old is not None:
                self.fail(f"{key} was replaced")
            self._put_end(parts, unpack(key, body), key, body)
        elif parts[3] in ("seg", "join") and old is not None:
            self.fail(f"{key} was replaced")

    def _put_entry(self, key: str, old: StoredObject | None, body: bytes) -> None:
        entry = InboxEntry.read(key, body, "", 0)
        if old is not None and InboxEntry.read(key, old.body, "", 0).id != entry.id:
            self.fail(f"{key} changed its identity")

    def _put_head(self, new: Head, old: Head | None) -> None:
        session = new.session
        self.heads[session] = new
        where = f"head of {session} at {new.turn}/{new.fence}"
        if new.deleted:
            if old is None or old.turn != new.turn or old.life != new.life:
                self.fail(f"{where}: a tombstone changed the turn")
            return
        if old is not None and (old.deleted or old.life != new.life):
            self.fail(f"{where}: follows a tombstone or another life")
        if old is None or new.turn != old.turn:
            self._open(new, old, where)
        else:
            self._take_over(new, old, where)

    def _open(self, new: Head, old: Head | None, where: str) -> None:
        """Invariants 3, 4, 5."""
        self.counts["turns"] += 1
        if new.turn != (old.turn + 1 if old else 1) or new.fence != 1:
            self.fail(f"{where}: opened after {old and old.turn}")
        if old is not None and self.turns[old.session, old.life, old.turn].end is None:
            self.fail(f"{where}: the turn before has not ended")
        before = self.opened.setdefault(new.entry, (new.session, new.turn))
        if before != (new.session, new.turn):
            self.fail(f"{where}: its input opened {before} already")
        if (new.session, new.life, new.turn) in self.turns:
            self.fail(f"{where}: opened twice")
        turn = Turn(new.entry)
        turn.proofs[1] = self.now
        self.turns[new.session, new.life, new.turn] = turn

    def _take_over(self, new: Head, old: Head, where: str) -> None:
        turn = self.turns[new.session, new.life, new.turn]
        self.counts["takeovers"] += 1
        part = new.parts[-1]
        if new.fence != old.fence + 1 or new.parts[:-1] != old.parts or part.fence != old.fence:
            self.fail(f"{where}: does not follow fence {old.fence}")
        if turn.end is not None:
            self.fail(f"{where}: the turn has ended")
        if part.records != turn.records(old.fence):
            self.fail(f"{where}: counts {part.records} records of {turn.records(old.fence)}")
        if (old.fence, part.records + 1) not in turn.sealed_log or old.fence not in turn.sealed_end:
            self.fail(f"{where}: fence {old.fence} is not sealed")
        turn.proofs[new.fence] = self.now
        # What stops the predecessor must stay. A stale taker's seal in a cleaned slot stops nobody.
        turn.protected |= {(old.fence, part.records + 1), (old.fence, 0)}

    def _names(self, session: str, life: str, turn: int, fence: int) -> bool:
        head = self.heads.get(session)
        return (
            head is not None
            and not head.deleted
            and (head.life, head.turn, head.fence) == (life, turn, fence)
            and self.turns[session, life, turn].end is None
        )

    def _put_log(self, parts: list[str], o: LogObject, key: str, body: bytes) -> None:
        session, life, number = parts[0], parts[2], int(parts[4])
        turn = self.turns[session, life, number]
        if o.kind.closes:
            turn.sealed_log.add((o.fence, o.position))
            return
        # A retry into a cleaned slot proves nothing, but its sender might think so.
        turn.proofs[o.fence] = self.now
        if not self._names(session, life, number, o.fence) or (o.fence, o.position) in turn.objects:
            self._exception(key, body)
            return
        if o.position != turn.records(o.fence) + 1:
            self.fail(f"{key}: skips a position")
        waits = turn.suspended and turn.joined < len(turn.suspended)
        if o.kind is LogKind.JOINED:
            if not waits or len(o.answers) != len(turn.suspended[-1].calls):
                self.fail(f"{key}: a join without its suspension")
            turn.joined += 1
        elif waits:
            self.fail(f"{key}: written while suspended")
        if o.kind is LogKind.SUSPEND:
            turn.suspended.append(o)
        turn.objects[o.fence, o.position] = o
        self._note_op(turn, o.record)

    def _note_op(self, turn: Turn, record: JsonObject | None) -> None:
        if record is None or "op" not in record:
            return
        if record["op"] in turn.ops:
            self.fail(f"step {record['op']} was committed twice")
        if record["op"] != len(turn.ops):
            self.fail(f"step {record['op']} was committed out of order")
        turn.ops[record["op"]] = self.now
        self.counts["steps"] += 1

    def _put_end(self, parts: list[str], o: JsonObject, key: str, body: bytes) -> None:
        session, life, number, fence = parts[0], parts[2], int(parts[4]), int(parts[5])
        turn = self.turns[session, life, number]
        if is_seal(o):
            turn.sealed_end.add(fence)
            return
        if not self._names(session, life, number, fence):
            self._exception(key, body)
            return
        end = EndedTurn.of(o)
        if turn.joined < len(turn.suspended):
            self.fail(f"{key}: ended before its join")
        records = [r.record for _, r in sorted(turn.objects.items()) if r.record is not None]
        if list(end.records)[: len(records)] != records or len(end.records) > len(records) + 1:
            self.fail(f"{key}: its records are not the log's")
        if len(end.records) > len(records):
            self._note_op(turn, end.records[-1])
        turn.end = end
        self.counts["ended"] += 1

    def _exception(self, key: str, body: bytes) -> None:
        """Invariant 1: only the retry of a write whose fate was unknown may miss its head."""
        if body not in self.server.unclear:
            self.fail(f"{key}: written without the head's leave")
        self.garbage.add(key)

    def _delete(self, key: str, old: StoredObject) -> None:
        parts = _parts(key)
        self.server.scheduler.log(f"delete {key}")
        if parts[0] == "_inbox":
            self._delete_entry(key, old)
            return
        if parts[0].startswith("_"):
            return
        head = self.heads.get(parts[0])
        if parts[2] == "head":
            if head is None or not head.deleted:
                self.fail(f"{key}: the head of a living session was removed")
            self.heads.pop(parts[0], None)
            return
        if parts[3] not in ("log", "end", "join"):
            return
        turn = self.turns[parts[0], parts[2], int(parts[4])]
        if parts[3] != "join" and EPOCH + self.now - old.modified_ms < SEAL_MS:
            place = (int(parts[5]), int(parts[6]) if parts[3] == "log" else 0)
            if place in turn.protected:
                self.fail(f"{key}: a seal was removed")
        if head is not None and head.deleted:
            return
        if parts[3] != "end" and turn.end is None:
            self.fail(f"{key}: removed while its turn is open")
        if parts[3] == "end" and head is not None and head.turn == int(parts[4]):
            self.fail(f"{key}: the newest end was removed")

    def _delete_entry(self, key: str, old: StoredObject) -> None:
        place = inbox_place(key)
        entry = InboxEntry.read(key, old.body, "", 0)
        head = self.heads.get(entry.session)
        if place is None or head is None or head.deleted:
            return
        if head.turn < entry.n:
            self.fail(f"{key}: removed before its turn was opened")
        turn = self.turns[entry.session, head.life, entry.n]
        if turn.entry == entry.id and turn.end is None:
            self.fail(f"{key}: removed before its turn has ended")

    # While nothing goes wrong any more

    def standing(self) -> set[str]:
        """Sessions with an accepted turn that has not ended, theirs or a descendant's, in a fleet's hands."""
        found: set[str] = set()
        for key in self.server.below("_inbox/"):
            entry = InboxEntry.read(key, self.server.objects[key].body, "", 0)
            head = self.heads.get(entry.session)
            over = head is not None and (
                head.deleted
                or (entry.n <= head.turn and self.turns[entry.session, head.life, entry.n].end is not None)
            )
            if not over:
                found.add(_root_of(entry.session))
        return found

    # At rest

    def check_rest(self, unfinished: Callable[[str], bool]) -> None:
        """Invariants 4, 5, 7, 8 once nothing moves any more. `unfinished`: sessions the library left open."""
        for key in self.server.keys:
            place = inbox_place(key)
            if place is not None and not unfinished(place[0]):
                self.fail(f"{key} is left at rest")
        for (session, life, number), turn in self.turns.items():
            head = self.heads.get(session)
            if head is None or head.deleted or head.life != life:
                continue
            if turn.end is None and not unfinished(session):
                self.fail(f"{session}.{number} never ended")
        by_session: dict[str, list[Answered]] = {}
        for answered in self.answered:
            by_session.setdefault(answered.session, []).append(answered)
            opened = self.opened.get(answered.identity)
            head = self.heads.get(answered.session)
            if opened is None:
                if head is None or not head.deleted:
                    self.fail(f"{answered} never ran")
            elif opened != (answered.session, answered.n):
                self.fail(f"{answered} ran as {opened}")
        for several in by_session.values():
            for first in several:
                for second in several:
                    if first.answered < second.begun and first.n >= second.n:
                        self.fail(f"{first} was answered before {second} began")
        self._check_garbage()

    def _check_garbage(self) -> None:
        expected: set[str] = set()
        for session, head in self.heads.items():
            keys = SessionKeys(session)
            life = keys.life(head.life)
            expected.add(keys.head)
            expected.update(ref.key(life) for ref in head.segs)
            if not head.deleted:
                expected.add(life.end(head.turn, head.fence))
        extra = 0
        for key in self.server.keys:
            parts = _parts(key)
            if parts[0].startswith("_") or key in expected:
                continue
            body = self.server.objects[key].body
            if parts[3] in ("log", "end"):
                o = unpack(key, body)
                if is_seal(o) or o.get("kind") in ("seal", "released"):
                    continue
            extra += 1
            if not self.server.unclear and not self.counts["crashes"] and not self.counts["freezes"]:
                self.fail(f"{key} is garbage")
        faults = len(self.server.unclear) + self.counts["crashes"] * 12 + self.counts["freezes"] * 4
        if extra > faults:
            self.fail(f"{extra} objects of garbage after {faults} faults")


def _parts(key: str) -> list[str]:
    """`S/checkpoints/<life>/log.t.f.k` as seven parts; any other key by its slashes."""
    *folders, name = key.split("/")
    return [*folders, *name.split(".")] if len(folders) == 3 else [*folders, name]


def _root_of(session: str) -> str:
    return session.partition("~")[0]
