"""The fleet's operations: start, send, decide, read, follow, cancel, delete. No HTTP here.

The API, the Celery task `archmax.turn.enqueue` and beat all come in by this door, so an input is judged and numbered the
same way wherever it comes from.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from core.jsontext import JsonObject, clean, dumps
from core.paths import canonical
from engine.governance.zones import INTERNAL_AREAS
from engine.spec.model import Spec
from engine.turn.inputs import MANUAL
from engine.workspace.session_files import FileRef
from engine.workspace.session_id import normal_session_id
from storage.layout import SessionKeys
from storage.records import Head
from storage.sessionlog import SessionLog
from worker.artifacts import TRAJECTORY, artifact
from worker.client import FleetClient
from worker.following import EventId, Follower, Told
from worker.intake import Intake
from worker.protocol.accept import Accepted, Check, Draft, IdempotencyKey, OnBusy, accept, delete_session
from worker.protocol.cancel import cancel
from worker.protocol.errors import SessionGone, TurnUnknown
from worker.reading import Reader, SessionView, TurnView, split_turn_id
from worker.refusals import SessionUnknown, WebhookRefused, WorkflowUnknown
from worker.requests import (
    DecisionRequest,
    DeliveryRequest,
    MessageRequest,
    ReplyRequest,
    StartRequest,
    Webhook,
)
from worker.session_index import Filters, Page, SessionIndex
from worker.settings import FleetSettings
from worker.tracing import accepting
from worker.waiting import LOOK_SECONDS, Waiters
from worker.webhooks import url_problem

#: workflows remembered by session: immutable within a life, checked at every accept
_REMEMBERED = 50_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `scope` keeps callers' idempotency keys apart; `workflows` None: all of them."""

    scope: str
    name: str
    workflows: frozenset[str] | None = None

    def may(self, workflow: str) -> bool:
        return self.workflows is None or workflow in self.workflows


INTERNAL = Caller("fleet", "fleet")


class FleetService:
    """Build, `open` and `close` on one event loop. Over an open `client` it opens and closes none of its own."""

    def __init__(self, settings: FleetSettings, client: FleetClient | None = None) -> None:
        self.settings = settings
        self._own = client is None
        self.client = client or FleetClient(settings)

    async def open(self) -> None:
        if self._own:
            await self.client.open()
        self.reader = Reader(self.client)
        self.intake = Intake(self.settings, self.reader)
        self.index = SessionIndex(self.client)
        self.follower = Follower(self.client, self.reader)
        self._waiters = Waiters(self.client)
        self._workflows: OrderedDict[str, str] = OrderedDict()

    async def close(self) -> None:
        await self._waiters.close()
        await self.index.close()
        await self.follower.close()
        if self._own:
            await self.client.close()

    # -- accepting -----------------------------------------------------------------------------------------------

    async def start(
        self, workflow: str, request: StartRequest, caller: Caller, *, key: str | None = None
    ) -> Accepted:
        """Raises: what `Intake` and `accept` raise; nothing was accepted then."""
        spec = await self.spec(workflow, caller)
        variables = _clean(request.variables)
        placed = self.intake.place(spec, request.session_id, request.trigger or MANUAL, variables or {})
        body = self._message(request, variables)
        if request.labels:
            body["labels"] = clean(dict(request.labels))

        async def check(log: SessionLog, head: Head | None) -> None:
            await self.intake.check(log, head, workflow, body, start=True, minted=placed.minted)

        asked = _request_digest("start", workflow, request)
        return await self._accept(
            Draft(placed.session, workflow, "message", _stored(body), minted=placed.minted),
            check,
            caller,
            key,
            asked,
            OnBusy(request.on_busy),
        )

    async def send(
        self, session: str, request: MessageRequest, caller: Caller, *, key: str | None = None
    ) -> Accepted:
        body = self._message(request, _clean(request.variables))
        return await self._to_session(session, body, request, caller, key, OnBusy(request.on_busy))

    async def decide(
        self, session: str, request: DecisionRequest, caller: Caller, *, key: str | None = None
    ) -> Accepted:
        body: JsonObject = {"kind": "decision", "to": clean(request.to), "by": caller.name}
        if request.comment is not None:
            body["comment"] = clean(request.comment)
        return await self._to_session(session, self._told(body, request.webhook), request, caller, key)

    async def reply(
        self, session: str, request: ReplyRequest, caller: Caller, *, key: str | None = None
    ) -> Accepted:
        body: JsonObject = {"kind": "reply", "message": clean(request.message)}
        return await self._to_session(session, self._told(body, request.webhook), request, caller, key)

    async def deliver(
        self, session: str, request: DeliveryRequest, caller: Caller, *, key: str | None = None
    ) -> Accepted:
        body: JsonObject = {"kind": "delivery", "trigger": clean(request.trigger)}
        if request.variables is not None:
            body["variables"] = _clean(request.variables)
        if request.message is not None:
            body["message"] = clean(request.message)
        return await self._to_session(session, self._told(body, request.webhook), request, caller, key)

    async def cancel(self, turn_id: str, caller: Caller) -> TurnView:
        """Raises: `TurnOver`, `TurnUnknown`, `SessionGone`."""
        view = await self.turn(turn_id, caller)
        await cancel(self.client.fleet, view.session, view.n)
        return await self.turn(turn_id, caller)

    async def delete(self, session: str, caller: Caller, *, key: str | None = None) -> Accepted:
        """Raises: `SessionUnknown`, `SessionGone`, `BrokerUnavailable`, `ChildSession`."""
        await self.workflow_of(session, caller)
        asked = _request_digest("delete", session, None)
        return await delete_session(self.client.fleet, session, key=_key(caller, key, asked))

    # -- reading -------------------------------------------------------------------------------------------------

    async def spec(self, workflow: str, caller: Caller) -> Spec:
        """Raises: `WorkflowUnknown`, `WorkflowLoadError`, `UnsupportedRuntimeContractError`."""
        if not caller.may(workflow):
            raise WorkflowUnknown(workflow)
        return await self.intake.spec(workflow)

    async def workflows(self, caller: Caller) -> list[str]:
        return [slug for slug in await self.intake.slugs() if caller.may(slug)]

    async def turn(self, turn_id: str, caller: Caller) -> TurnView:
        """Raises: `TurnUnknown`, `SessionGone`."""
        session, n = split_turn_id(turn_id)
        view = await self.reader.turn(session, n)
        if not caller.may(view.workflow) and view.kind != "delete":
            raise TurnUnknown(session, n)
        return view

    async def wait(self, turn_id: str, seconds: float, caller: Caller) -> TurnView:
        """The turn once it is over, or as it is after `seconds`."""
        session, _ = split_turn_id(turn_id)
        deadline = time.monotonic() + seconds
        with self._waiters.waiting(session) as woken:
            while True:
                woken.clear()
                view = await self.turn(turn_id, caller)
                left = deadline - time.monotonic()
                if view.status.over or left <= 0:
                    return view
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, LOOK_SECONDS)):
                        await woken.wait()

    async def session(self, session: str, caller: Caller) -> SessionView:
        """Raises: `SessionUnknown`, `SessionGone`."""
        view = await self.reader.session(normal_session_id(session))
        if not caller.may(view.head.workflow):
            raise SessionUnknown(session)
        return view

    async def sessions(
        self, filters: Filters, caller: Caller, *, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """Raises: `CursorInvalid`, `IndexUnavailable`."""
        return await self.index.page(_within(filters, caller), cursor, limit)

    async def events(
        self, session: str, after: EventId, caller: Caller, *, turn: int | None = None, live: bool = True
    ) -> AsyncIterator[Told | None]:
        """Raises at once: `SessionUnknown`, `SessionGone`. The iterator ends when the turn has settled."""
        await self.workflow_of(session, caller)
        return self.follower.follow(session, after, turn=turn, live=live)

    async def files(self, session: str, caller: Caller) -> dict[str, FileRef]:
        """The session's files by path; never the runtime's own."""
        return _files(await self.session(session, caller))

    async def file(self, session: str, path: str, caller: Caller) -> bytes | None:
        """A file's content, None when there is none. Raises: `SessionUnknown`, `SessionGone`, `StoreUnavailable`."""
        view = await self.session(session, caller)
        ref = _files(view).get(canonical(path).text)
        if ref is None:
            return None
        if ref.text is not None:
            return ref.text.encode("utf-8", "replace")
        if ref.data is not None:
            return ref.data
        life = SessionKeys(view.head.session).life(view.head.life)
        found = await self.client.files.read(life.blob(ref.blob or ""))
        return None if found is None else found.body

    async def dead_webhooks(self, caller: Caller) -> list[JsonObject]:
        """Webhooks that were given up, of sessions the caller may see. Raises: `StoreUnavailable`."""
        letters = await self.client.webhooks.dead()
        if caller.workflows is None:
            return letters
        seen: list[JsonObject] = []
        for letter in letters:
            with contextlib.suppress(SessionUnknown, SessionGone):  # whose workflow nothing tells is hidden
                await self.workflow_of(split_turn_id(letter["turnId"])[0], caller)
                seen.append(letter)
        return seen

    async def artifact(self, session: str, name: str, caller: Caller) -> tuple[bytes, str] | None:
        """Content and media type of one artifact (05 §16). Raises: `WorkflowLoadError` when the workflow is broken."""
        view = await self.session(session, caller)
        spec = await self.intake.spec(view.head.workflow)
        records = await self.reader.records(session) if name == TRAJECTORY else []
        return artifact(name, spec, view.state, records)

    async def workflow_of(self, session: str, caller: Caller) -> str:
        """Raises: `SessionUnknown`, `SessionGone`."""
        head = await self.reader.head(session)
        workflow = head.workflow if head is not None else None
        if workflow is None:
            entry = await self.client.fleet.log(session).entry(1)
            workflow = entry.workflow if entry is not None else None
        if workflow is None or not caller.may(workflow):
            raise SessionUnknown(session)
        self._remember(session, workflow)
        return workflow

    # -- parts ---------------------------------------------------------------------------------------------------

    async def _to_session(
        self,
        session: str,
        body: JsonObject,
        request: BaseModel,
        caller: Caller,
        key: str | None,
        on_busy: OnBusy = OnBusy.QUEUE,
    ) -> Accepted:
        session = normal_session_id(session)
        workflow = self._workflows.get(session)
        if workflow is None or not caller.may(workflow):
            workflow = await self.workflow_of(session, caller)
        known = workflow

        async def check(log: SessionLog, head: Head | None) -> None:
            if head is not None and head.workflow != known:
                self._workflows.pop(session, None)  # another life of the id: a retry reads it anew
            await self.intake.check(log, head, known, body, start=False)

        asked = _request_digest(str(body["kind"]), session, request)
        draft = Draft(session, workflow, str(body["kind"]), _stored(body))
        return await self._accept(draft, check, caller, key, asked, on_busy)

    async def _accept(
        self, draft: Draft, check: Check, caller: Caller, key: str | None, asked: str, on_busy: OnBusy
    ) -> Accepted:
        expiry = self.settings.queue_expiry_seconds
        expires = None if expiry is None else await self.client.clock.now_ms() + round(expiry * 1000)
        with accepting(self.client.tracing, draft.workflow, draft.session, draft.kind, draft.input) as traced:
            drafted = replace(draft, input=traced, expires_ms=expires)
            accepted = await accept(
                self.client.fleet, drafted, on_busy=on_busy, key=_key(caller, key, asked), check=check
            )
        self._remember(accepted.session, draft.workflow)
        return accepted

    def _message(self, request: StartRequest | MessageRequest, variables: JsonObject | None) -> JsonObject:
        body: JsonObject = {"kind": "message"}
        if request.message is not None:
            body["message"] = clean(request.message)
        if request.trigger is not None:
            body["trigger"] = clean(request.trigger)
        if variables is not None:
            body["variables"] = variables
        return self._told(body, request.webhook)

    def _told(self, body: JsonObject, webhook: Webhook | None) -> JsonObject:
        """Raises: `WebhookRefused`."""
        if webhook is None:
            return body
        if self.settings.webhook_secret is None:
            raise WebhookRefused("the fleet has no ARCHMAX_WEBHOOK_SECRET to sign it with")
        problem = url_problem(webhook.url, allow_private=self.settings.webhook_allow_private)
        if problem is not None:
            raise WebhookRefused(problem)
        return {**body, "webhook": {"url": webhook.url}}

    def _remember(self, session: str, workflow: str) -> None:
        self._workflows[session] = workflow
        self._workflows.move_to_end(session)
        while len(self._workflows) > _REMEMBERED:
            self._workflows.popitem(last=False)


def _files(view: SessionView) -> dict[str, FileRef]:
    found: dict[str, FileRef] = {}
    for path, body in sorted(view.state.files.items()):
        if path.partition("/")[0] in INTERNAL_AREAS:
            continue
        with contextlib.suppress(ValueError):
            found[path] = FileRef.from_json(body)
    return found


def _key(caller: Caller, key: str | None, asked: str) -> IdempotencyKey | None:
    return None if key is None else IdempotencyKey(caller.scope, key, asked)


def _request_digest(operation: str, target: str, request: BaseModel | None) -> str:
    given = None if request is None else request.model_dump(mode="json", exclude_none=True)
    return hashlib.sha256(dumps(clean([operation, target, _sorted(given)]))).hexdigest()


def _sorted(value: Any) -> Any:
    """Key order is no part of what was asked."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value


def _stored(body: JsonObject) -> JsonObject:
    return {name: value for name, value in body.items() if name != "kind"}


def _clean(variables: dict[str, Any] | None) -> JsonObject | None:
    return None if variables is None else clean(variables)


def _within(filters: Filters, caller: Caller) -> Filters:
    if caller.workflows is None:
        return filters
    asked: Collection[str] = filters.workflows if filters.workflows is not None else caller.workflows
    return Filters(
        filters.status,
        frozenset(asked) & caller.workflows,
        filters.labels,
        filters.updated_after,
        filters.updated_before,
        filters.parent,
        filters.children,
    )
