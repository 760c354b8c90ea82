"""Sessions of a library's or command's own process: the same objects, without fleet, queue or Redis.

One process at a time holds a session, by a file lock or within the process. A local turn takes its number through the
inbox like every other one, so a fleet on the same store and a command can never both be given it; the head then says
`local`. A local turn found open has no living process, or the lock would be held: the next holder settles it. A turn in a
fleet's hands is refused.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import ClassVar, Protocol

from typing_extensions import override

from core.errors import ArchmaxError
from core.jsontext import JsonObject
from storage.filelock import LockHeld, exclusive
from storage.layout import SessionKeys
from storage.limits import KEEP_MS
from storage.logstore import Conflict, LogStore
from storage.records import EndedTurn, Head, InboxEntry
from storage.sessionlog import HeadMoved, OpenLog, SessionLog

#: the holder named in the head, and the kind of a local turn's inbox entry
LOCAL = "local"


class HeldByFleet(ArchmaxError):
    """A fleet runs a turn of the session, or has accepted one."""

    code: ClassVar[str] = "held-by-fleet"

    def __init__(self, session: str, turn: int) -> None:
        super().__init__(session, turn)
        self.session, self.turn = session, turn

    @override
    def __str__(self) -> str:
        return f"turn {self.session}.{self.turn} is in a fleet's hands"


class HeldLocally(ArchmaxError):
    """Another local process, or another task of this one, holds the session."""

    code: ClassVar[str] = "held-locally"
    retryable: ClassVar[bool] = True

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    @override
    def __str__(self) -> str:
        return f"session {self.session!r} is held by another local turn"


class SessionDeleted(ArchmaxError):
    """The session was deleted; its id is free again a day later."""

    code: ClassVar[str] = "session-deleted"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    @override
    def __str__(self) -> str:
        return f"session {self.session!r} was deleted"


class Holds(Protocol):
    """Who may use a session locally: one at a time."""

    def hold(self, session: str) -> AbstractAsyncContextManager[None]:
        """Raises: `HeldLocally` at once when it is held."""
        ...


class ProcessHolds:
    """Within this process: for stores no other process shares."""

    def __init__(self) -> None:
        self._held: set[str] = set()

    @asynccontextmanager
    async def hold(self, session: str) -> AsyncGenerator[None]:
        if session in self._held:
            raise HeldLocally(session)
        self._held.add(session)
        try:
            yield
        finally:
            self._held.discard(session)


class FileHolds:
    """Among the processes of this machine, by lock files in `folder`, which the kernel frees when a holder dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def hold(self, session: str) -> AsyncGenerator[None]:
        lock = exclusive(self._folder / f"{SessionKeys(session).segment}.lock")
        try:
            await lock.__aenter__()
        except LockHeld as held:
            raise HeldLocally(session) from held
        try:
            yield
        finally:
            await lock.__aexit__(None, None, None)


class LocalSession:
    """A session held by this process. Made by `held`; every method needs the hold."""

    def __init__(self, files: LogStore, session: str, *, found: tuple[Head | None] | tuple[()] = ()) -> None:
        """`found`: the head as it was read just now, before the hold, its turn over. `open` notices if it moved since."""
        self.log = SessionLog(files, session)
        self._files = files
        #: the head as last read, its turn over; empty when it was not, or a turn was opened since
        self._found = found
        #: the next number was not free: who has it is to be read
        self._taken = False

    @property
    def session(self) -> str:
        return self.log.session

    async def head(self) -> Head | None:
        """Raises: `SessionDeleted`."""
        head = await self.log.head()
        if head is not None and head.deleted:
            raise SessionDeleted(self.session)
        return head

    @property
    def at_rest(self) -> bool:
        """Whether the head was read, its turn over, and nothing has been heard of another turn."""
        return bool(self._found)

    @property
    def history_key(self) -> tuple[str, str, int] | None:
        """What names the history of the next turn; None before `dead_turn` found none, and for a new session."""
        head = self._found[0] if self._found else None
        return None if head is None else (self.session, head.life, head.turn + 1)

    async def history(self) -> list[JsonObject]:
        """All records of the session's ended turns, the newest included. Raises: `SessionDeleted`."""
        head = self._found[0] if self._found else await self.head()
        if head is None:
            return []
        records = await self.log.history(head)
        end = await self.log.over(head)
        return [*records, *end.records] if end is not None else records

    async def dead_turn(self) -> OpenLog | None:
        """Take over the turn that a dead local process left open; whoever gets it ends it (`turn-error`).

        None: there is none, as far as the head tells. A turn that has its number and no head yet costs a read to see: it
        is looked for once `open` has met it. Raises: `HeldByFleet` when such a turn, or the open one, is a fleet's.
        """
        while True:
            head = await self.head()
            if head is not None and await self.log.over(head) is None:
                entry = await self.log.entry(head.turn)
                if head.by != LOCAL or entry is None:
                    raise HeldByFleet(self.session, head.turn)
                taken = await self.log.take_over(head, entry, await self.log.read_chain(head), by=LOCAL)
            else:
                number = head.turn + 1 if head else 1
                entry = await self.log.entry(number) if self._taken else None
                if entry is None:
                    self._found, self._taken = (head,), False
                    return None
                if entry.kind != LOCAL:
                    raise HeldByFleet(self.session, number)
                taken = await self.log.claim(head, entry, by=LOCAL)
            if taken is not None:
                return taken

    async def open(self, workflow: str, at_ms: int) -> OpenLog | None:
        """Open the session's next turn; its first record holds the input. `dead_turn` came before.

        None: its number is taken, by a fleet's turn or by a local one that died before its claim, or the head has moved;
        `dead_turn` now looks at both. Raises: `HeldByFleet` when a fleet took the very turn, `SessionDeleted`.
        """
        head = self._found[0] if self._found else await self.head()
        if not self._found and head is not None and await self.log.over(head) is None:
            raise HeldByFleet(self.session, head.turn)
        self._found = ()
        number = head.turn + 1 if head else 1
        entry = InboxEntry(
            session=self.session,
            n=number,
            id=self._files.new_id(),
            kind=LOCAL,
            workflow=workflow,
            input={},
            at_ms=at_ms,
            w=self._files.new_id(),
        )
        key = self.log.keys.inbox(number)
        if isinstance(await self._files.create(key, entry.body(), entry.w), Conflict):
            self._taken = True
            return None
        try:
            opened = await self.log.claim(head, entry, by=LOCAL)
        except HeadMoved:
            opened = None
        if opened is None:
            self._taken = True
            await self._give_back(entry)
        return opened

    async def _give_back(self, entry: InboxEntry) -> None:
        """Remove our entry: the head was not the newest, so its number is of no use. Raises: `HeldByFleet`, `SessionDeleted`."""
        head = await self.head()
        if head is not None and head.entry == entry.id:
            raise HeldByFleet(self.session, entry.n)
        await self._files.delete([self.log.keys.inbox(entry.n)])

    async def close(self, opened: OpenLog, end: EndedTurn) -> None:
        """Remove what the ended turn leaves, and the entries of local turns that ended long enough ago.

        The turn's own entry stays for two minutes: a fleet's accept that is under way would else be given its number
        again. The next local turn, or the fleet's sweep, removes it.
        """
        litter = [*opened.garbage, *end.litter(self.log.keys.life(opened.head.life))]
        if end.turn > 1:
            litter += await self._old_entries(end.turn)
        await self._files.delete(litter)

    async def _old_entries(self, turn: int) -> list[str]:
        """Entries of local turns before `turn`, each over for `KEEP_MS` by the store's own dates: the turn after it is local,
        too, and was accepted so long before this one."""
        prefix = self.log.keys.inbox_prefix
        listed = await self._files.listing(prefix, until=self.log.keys.inbox(turn + 1))
        numbers = [int(item.key.removeprefix(prefix)) for item in listed]
        old: list[str] = []
        for number, item, after in zip(numbers, listed, listed[1:], strict=False):
            if listed[-1].modified_ms - after.modified_ms <= KEEP_MS:
                break
            kinds = [await self.log.entry(n) for n in (number, number + 1)]
            if all(entry is not None and entry.kind == LOCAL for entry in kinds):
                old.append(item.key)
        return old


@asynccontextmanager
async def held(files: LogStore, holds: Holds, session: str) -> AsyncGenerator[LocalSession]:
    """Hold `session` in this process. Raises: `HeldLocally`."""
    async with holds.hold(session):
        yield LocalSession(files, session)
