"""One session's durable log: who may write it now, and what it holds (docs/protocol.md §3, §4).

The head names the newest turn, its fencing token and the claim that holds it. A turn is opened (`claim`) and taken over
(`take_over`) only by replacing the head conditionally; what comes back is an `OpenLog`, the right to write that turn.
Fleet, simulator and the library's processes all run this code; leases, queues and inboxes are not known here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from storage.layout import SessionKeys
from storage.limits import MERGE, SEAL_MS
from storage.logstore import Conflict, Landed, LogStore
from storage.objects import StoreUnavailable
from storage.records import (
    DamagedObject,
    EndedTurn,
    Head,
    InboxEntry,
    JoinRef,
    LogKind,
    LogObject,
    Part,
    Ref,
    Why,
    is_seal,
    seal_body,
    segment_body,
    unpack,
)


class TurnFenced(ArchmaxError):
    """Another holds the turn now, or it is over. Stop: write nothing, tell nobody."""

    code: ClassVar[str] = "turn-fenced"

    def __init__(self, session: str, turn: int, fence: int) -> None:
        super().__init__(session, turn, fence)
        self.session, self.turn, self.fence = session, turn, fence

    @override
    def __str__(self) -> str:
        return f"turn {self.session}.{self.turn} is no longer held under fence {self.fence}"


class HeadMoved(ArchmaxError):
    """What the head said is no longer so; read it again. Never leaves `storage` and `worker.protocol`."""

    code: ClassVar[str] = "head-moved"
    retryable: ClassVar[bool] = True


@dataclass(slots=True)
class Chain:
    """A turn's log over all its fences, as read. `sealed`: nothing can be added under the head's fence."""

    objects: list[LogObject] = field(default_factory=list)
    #: records of the head's own fence
    records: int = 0
    sealed: LogKind | None = None

    @property
    def suspension(self) -> LogObject | None:
        """The suspension the turn waits in, if its last record is one."""
        last = self.objects[-1] if self.objects else None
        return last if last is not None and last.kind is LogKind.SUSPEND else None

    @property
    def untold(self) -> LogObject | None:
        """The join that is the last record and holds nothing of the engine's: no record has its answers yet."""
        last = self.objects[-1] if self.objects else None
        return last if last is not None and last.kind is LogKind.JOINED and last.record is None else None


class SessionLog:
    """Reads and claims one session. Cheap to make; keeps nothing but the shared cache."""

    def __init__(self, files: LogStore, session: str) -> None:
        self.files = files
        self.session = session
        self.keys = SessionKeys(session)

    async def head(self) -> Head | None:
        """Raises: `StoreUnavailable`, `NewerFormat`."""
        found = await self.files.read(self.keys.head)
        return Head.read(self.keys.head, found.body, found.etag, found.modified_ms) if found else None

    async def entry(self, n: int) -> InboxEntry | None:
        key = self.keys.inbox(n)
        found = await self.files.read(key)
        return InboxEntry.read(key, found.body, found.etag, found.modified_ms) if found else None

    async def over(self, head: Head) -> EndedTurn | None:
        """The end of the head's turn; None while it is open (no end, or a seal)."""
        return await self._single(head, head.turn, head.fence)

    async def ended(self, head: Head, turn: int) -> EndedTurn | None:
        """Turn `turn`, at most the head's; None while it is open. Raises: `HeadMoved`."""
        if turn == head.turn:
            return await self.over(head)
        for ref in head.segs:
            if ref.first <= turn <= ref.last:
                ends = await self._ends(head, ref)
                return ends[turn - ref.first]
        raise DamagedObject(self.keys.head, f"names no segment for turn {turn}")

    async def history(self, head: Head) -> list[JsonObject]:
        """All records of the turns before the head's, in order. Raises: `HeadMoved`."""
        ends = await self._all_ends(head, head.segs)
        return [record for end in ends for record in end.records]

    async def read_chain(self, head: Head) -> Chain:
        """The records of the head's turn, over all fences. Raises: `HeadMoved` when they are gone."""
        life = self.keys.life(head.life)
        known = [(part.fence, position) for part in head.parts for position in range(1, part.records + 1)]
        objects = await self.files.gather([partial(self._log_object, head, f, k) for f, k in known])
        chain = Chain()
        for (fence, position), found in zip(known, objects, strict=True):
            if found is None or found.kind.closes:
                raise HeadMoved(life.log(head.turn, fence, position))
            chain.objects.append(found)
        await self._follow(head, chain)
        return chain

    async def claim(self, head: Head | None, entry: InboxEntry, *, by: str) -> OpenLog | None:
        """Open turn `entry.n`, the one after the head's; the head's is known to be over.

        Nothing of the turn may start before this returns. None: another was faster; look again.
        """
        if head is None:
            life, segs, merged = self.files.new_id(), (), ()
        else:
            life = head.life
            old = (*head.segs, Ref(head.turn, head.turn, head.fence))
            segs = await self._merge(head, old)
            merged = tuple(ref for ref in old if ref not in segs)
        opened = Head(
            w=self.files.new_id(),
            session=self.session,
            life=life,
            workflow=(head.workflow if head else "") or entry.workflow,  # a session is one workflow's
            turn=entry.n,
            fence=1,
            by=by,
            entry=entry.id,
            segs=segs,
            merged=merged,
        )
        written = await self._put_head(opened, head)
        if isinstance(written, Conflict):
            return None
        opened = replace(opened, etag=written.etag)
        garbage = [ref.key(self.keys.life(life)) for ref in merged]
        if merged:
            garbage += await self._old_seals(opened, segs[-1], entry.modified_ms)
        return OpenLog(self, opened, entry, Chain(), garbage)

    async def take_over(self, head: Head, entry: InboxEntry, chain: Chain, *, by: str) -> OpenLog | None:
        """Go on with the head's open turn under the next fence (§4, steps 3 to 5).

        Seals the two keys its predecessor could write next, so that it is stopped whenever it wakes. None: the head
        moved, the turn is over, or it has just been suspended; look again.
        """
        waits_in = chain.suspension
        life = self.keys.life(head.life)
        end_key = life.end(head.turn, head.fence)
        w = self.files.new_id()
        written = await self.files.create(end_key, seal_body(w), w)
        if isinstance(written, Conflict) and not (
            written.found and is_seal(unpack(end_key, written.found.body))
        ):
            return None
        while chain.sealed is None:
            seal = LogObject(LogKind.SEAL, head.fence, chain.records + 1, self.files.new_id())
            key = life.log(head.turn, head.fence, seal.position)
            if isinstance(await self.files.create(key, seal.body(), seal.w), Landed):
                chain.sealed = LogKind.SEAL
            else:
                await self._follow(head, chain)
        # The answers at hand are those of the suspension that was read: its holder may have joined it and be in the next.
        if chain.suspension is not waits_in:
            return None
        if chain.sealed is LogKind.RELEASED:
            why = Why.RELEASED
        elif waits_in is not None and chain.records:
            why = Why.JOINED
        else:
            why = Why.LOST
        taken = replace(
            head,
            w=self.files.new_id(),
            fence=head.fence + 1,
            by=by,
            parts=(*head.parts, Part(head.fence, chain.records, why)),
        )
        put = await self._put_head(taken, head)
        if isinstance(put, Conflict):
            return None
        return OpenLog(self, replace(taken, etag=put.etag), entry, chain, [])

    async def mark_deleted(self, head: Head) -> Head | None:
        """Turn the head into a tombstone. None: it moved; look again."""
        tomb = replace(head, w=self.files.new_id(), deleted=True, segs=(), parts=(), merged=())
        put = await self._put_head(tomb, head)
        return None if isinstance(put, Conflict) else replace(tomb, etag=put.etag)

    async def _put_head(self, new: Head, old: Head | None) -> Landed | Conflict:
        if old is None:
            return await self.files.create(self.keys.head, new.body(), new.w)
        return await self.files.replace(self.keys.head, new.body(), new.w, old.etag)

    async def _log_object(self, head: Head, fence: int, position: int) -> LogObject | None:
        key = self.keys.life(head.life).log(head.turn, fence, position)
        found = await self.files.read(key)
        return LogObject.read(key, found.body, fence, position) if found else None

    async def _follow(self, head: Head, chain: Chain) -> None:
        """Read on under the head's fence until a hole or a seal."""
        while chain.sealed is None:
            found = await self._log_object(head, head.fence, chain.records + 1)
            if found is None:
                return
            if found.kind.closes:
                chain.sealed = found.kind
                return
            chain.objects.append(found)
            chain.records += 1

    async def _single(self, head: Head, turn: int, fence: int) -> EndedTurn | None:
        key = self.keys.life(head.life).end(turn, fence)
        cached = self.files.ends.get(key)
        if cached is not None:
            return cached[0]
        found = await self.files.read(key)
        if found is None:
            return None
        o = unpack(key, found.body)
        if is_seal(o):
            return None
        end = EndedTurn.of(o)
        self.files.ends.put(key, (end,))
        return end

    async def _ends(self, head: Head, ref: Ref) -> tuple[EndedTurn, ...]:
        if ref.fence:
            end = await self._single(head, ref.first, ref.fence)
            if end is None:
                raise HeadMoved(ref.key(self.keys.life(head.life)))
            return (end,)
        key = ref.key(self.keys.life(head.life))
        cached = self.files.ends.get(key)
        if cached is not None:
            return cached
        found = await self.files.read(key)
        if found is None:
            raise HeadMoved(key)
        ends = tuple(EndedTurn.of(o) for o in unpack(key, found.body)["ends"])
        self.files.ends.put(key, ends)
        return ends

    async def _all_ends(self, head: Head, refs: Sequence[Ref]) -> list[EndedTurn]:
        groups = await self.files.gather([partial(self._ends, head, ref) for ref in refs])
        return [end for group in groups for end in group]

    async def _merge(self, head: Head, refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        """`refs` with the newest ones merged wherever enough of one size have come together."""
        merged = list(refs)
        tail: list[Ref] = []
        while len(merged) >= MERGE and all(ref.size == merged[-1].size for ref in merged[-MERGE:]):
            tail = [Ref(merged[-MERGE].first, merged[-1].last, 0)]
            merged[-MERGE:] = tail
        if not tail:
            return refs
        whole = tail[0]
        ends = await self._all_ends(head, [ref for ref in refs if ref.first >= whole.first])
        life = self.keys.life(head.life)
        key, w = whole.key(life), self.files.new_id()
        body = segment_body(w, ends)
        # Whoever writes it writes the same content, so a conflict is as good.
        await self.files.create(key, body, w)
        # Under its own key instead of its parts': nobody reads those again, and what they take is known.
        sizes = [self.files.ends.drop(ref.key(life)) for ref in refs if ref.first >= whole.first]
        self.files.ends.put(key, tuple(ends), sum(sizes) if all(sizes) else 0)
        return tuple(merged)

    async def _old_seals(self, head: Head, ref: Ref, now_ms: int) -> list[str]:
        """Seals of the turns in `ref` that are older than `SEAL_MS` at the store's time `now_ms`."""
        life = self.keys.life(head.life)
        ends = await self._ends(head, ref)
        keys = [key for end in ends for key in end.seals(life)]
        found = await self.files.gather([partial(self.files.read, key) for key in keys])
        return [
            key
            for key, seal in zip(keys, found, strict=True)
            if seal is not None and now_ms - seal.modified_ms > SEAL_MS
        ]


class OpenLog:
    """The right to write one turn under one fence. Ends with the first refusal, loss of proof, or closing write."""

    def __init__(
        self, log: SessionLog, head: Head, entry: InboxEntry, chain: Chain, garbage: list[str]
    ) -> None:
        self.log = log
        self.head = head
        self.entry = entry
        #: everything committed so far, over all fences
        self.objects = list(chain.objects)
        #: keys the claim made superfluous; for the cleaner
        self.garbage = garbage
        self._files = log.files
        self._life = log.keys.life(head.life)
        self._position = 0
        self._open = True
        self._proven_ms = self._files.clock.monotonic_ms()
        self._began_ms = self._proven_ms - (self.objects[-1].spent_ms if self.objects else 0)

    @property
    def session(self) -> str:
        return self.head.session

    @property
    def turn(self) -> int:
        return self.head.turn

    @property
    def fence(self) -> int:
        return self.head.fence

    @property
    def position(self) -> int:
        """Objects committed under this fence."""
        return self._position

    @property
    def proven_ms(self) -> int:
        """When, by this process's clock, a reply last proved that the turn is held under this fence."""
        return self._proven_ms

    @property
    def spent_ms(self) -> int:
        """The turn's active time: what earlier fences had spent at their last commit, and this one's until now.

        Time in which it waits for children or a worker is not active, and what a worker spent on a step it did not live to
        commit is not known.
        """
        return self._files.clock.monotonic_ms() - self._began_ms

    @property
    def records(self) -> list[JsonObject]:
        """The engine's records of this turn, in order."""
        return [o.record for o in self.objects if o.record is not None]

    @property
    def attempts(self) -> int:
        """How many workers, this one included, have tried the next step."""
        attempts = 1
        for part in reversed(self.head.parts):
            if part.why == Why.LOST:
                attempts += 1
            elif part.why != Why.RELEASED:
                break
            if part.records:  # it got this far; what it died in after that is the step we are at
                break
        return attempts

    async def history(self) -> list[JsonObject]:
        """Records of the session's earlier turns. Raises: `TurnFenced` when the log moved on."""
        try:
            return await self.log.history(self.head)
        except HeadMoved as moved:
            raise self._fenced() from moved

    async def commit(self, record: JsonObject) -> LogObject:
        """Durable when it returns. Raises: `TurnFenced`; `StoreUnavailable` closes the log, too."""
        return await self._append(
            LogObject(
                LogKind.STEP,
                self.fence,
                self._position + 1,
                self._files.new_id(),
                record,
                spent_ms=self.spent_ms,
            )
        )

    async def join(self, record: JsonObject | None, answers: Sequence[JsonObject]) -> LogObject:
        """The resume's first object: every child's answer, in call order."""
        return await self._append(
            LogObject(
                LogKind.JOINED,
                self.fence,
                self._position + 1,
                self._files.new_id(),
                record,
                answers=tuple(answers),
                spent_ms=self.spent_ms,
            )
        )

    async def suspend(self, record: JsonObject, calls: Sequence[JsonObject], width: int) -> LogObject:
        """Name the children and let go of the turn. It resumes under the next fence."""
        suspended = await self._append(
            LogObject(
                LogKind.SUSPEND,
                self.fence,
                self._position + 1,
                self._files.new_id(),
                record,
                calls=tuple(calls),
                width=width,
                spent_ms=self.spent_ms,
            )
        )
        self._open = False
        return suspended

    async def release(self) -> None:
        """Hand the turn back alive: seals the next position without counting a death."""
        await self._append(LogObject(LogKind.RELEASED, self.fence, self._position + 1, self._files.new_id()))
        self._open = False

    async def end(
        self, record: JsonObject | None, outcome: JsonObject, dues: Sequence[JsonObject] = ()
    ) -> EndedTurn:
        """The turn's outcome exists from here. Raises: as `commit`."""
        records = self.records if record is None else [*self.records, record]
        end = EndedTurn(
            turn=self.turn,
            fence=self.fence,
            entry=self.head.entry,
            workflow=self.head.workflow,
            outcome=outcome,
            records=tuple(records),
            dues=tuple(dues),
            parts=(*self.head.parts, Part(self.fence, self._position, Why.ENDED)),
            joins=tuple(
                JoinRef(o.fence, o.position, len(o.calls)) for o in self.objects if o.kind is LogKind.SUSPEND
            ),
            merged=self.head.merged,
            w=self._files.new_id(),
        )
        key, body = self._life.end(self.turn, self.fence), end.body()
        await self._write(key, body, end.w)
        self._open = False
        self._files.ends.put(key, (end,))
        return end

    async def put_blob(self, body: bytes) -> str:
        """Store a large value before the record that refers to it; returns its SHA-256 in hexadecimal."""
        digest = hashlib.sha256(body).hexdigest()
        # The name says the content, so any object found there is the right one.
        await self._files.create(self._life.blob(digest), body, digest, mine=lambda _: True)
        return digest

    async def get_blob(self, digest: str) -> bytes | None:
        found = await self._files.read(self._life.blob(digest))
        return found.body if found else None

    async def _append(self, o: LogObject) -> LogObject:
        await self._write(self._life.log(self.turn, self.fence, o.position), o.body(), o.w)
        self._position = o.position
        if not o.kind.closes:
            self.objects.append(o)
        return o

    async def _write(self, key: str, body: bytes, w: str) -> None:
        # A process that was frozen for a good part of the seals' life must not write: they may be gone.
        asked_ms = self._files.clock.monotonic_ms()
        if not self._open or asked_ms - self._proven_ms > SEAL_MS // 2:
            raise self._fenced()
        try:
            written = await self._files.create(key, body, w)
            if isinstance(written, Conflict):
                raise self._fenced()
            if written.lost and not await self._still_mine():
                # The write may have been adopted by a successor who closed the turn and cleaned the log.
                raise self._fenced()
        except StoreUnavailable:
            self._open = False
            raise
        # As of the asking: the process may have been frozen before it read the answer.
        self._proven_ms = asked_ms

    async def _still_mine(self) -> bool:
        head = await self.log.head()
        return head is not None and head.w == self.head.w

    def _fenced(self) -> TurnFenced:
        self._open = False
        return TurnFenced(self.session, self.turn, self.fence)
