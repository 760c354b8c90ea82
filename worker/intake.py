"""Intake: whether an input may come into a session, judged before anything is written (03 §2.2, §2.3, §3.2).

Cheap on purpose: the head and its turn's outcome suffice for nearly every input; the session is folded only where what it
holds decides. A turn's own opening judges again, because other turns may lie between.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.jsontext import JsonObject
from engine.errors import WorkflowLoadError
from engine.session.state import SessionState
from engine.spec.loader import list_workflows
from engine.spec.model import Spec
from engine.spec.paths import resolve_path, slug_ok
from engine.spec.signatures import signature_value_issues
from engine.spec.tree import DirectoryTree
from engine.turn.inputs import MANUAL, check_input, check_seeds, seeded
from engine.turn.library import WorkflowLibrary
from engine.workspace.mounts import build_mounts, default_mounts
from engine.workspace.session_id import mint_session_id, require_session_id
from storage.records import Head
from storage.sessionlog import HeadMoved, SessionLog
from worker.reading import Reader, outline_of
from worker.refusals import SessionUnknown, SignatureRefused, WorkflowMismatch, WorkflowUnknown
from worker.settings import FleetSettings


@dataclass(frozen=True, slots=True)
class Placed:
    """The session a start goes to; `minted`: nobody can know its id yet."""

    session: str
    minted: bool


class Intake:
    """Specs of one workspace, and the judgement of inputs against them."""

    def __init__(self, settings: FleetSettings, reader: Reader) -> None:
        self._reader = reader
        self.library = WorkflowLibrary(DirectoryTree(settings.root))
        # a host's own mounts are known to workers only; they judge the id again
        self._mounts = build_mounts(default_mounts(settings.root)).prefixes

    async def slugs(self) -> list[str]:
        return await asyncio.to_thread(list_workflows, self.library.tree)

    async def spec(self, workflow: str) -> Spec:
        """Raises: `WorkflowUnknown`, `WorkflowLoadError`, `UnsupportedRuntimeContractError`."""
        if not slug_ok(workflow):
            raise WorkflowUnknown(workflow)
        try:
            return await asyncio.to_thread(self.library.require, workflow)
        except WorkflowLoadError:
            if self.library.load(workflow).document is None and workflow not in await self.slugs():
                raise WorkflowUnknown(workflow) from None
            raise

    def place(self, spec: Spec, session_id: str | None, trigger: str, variables: Mapping[str, Any]) -> Placed:
        """The given id, the trigger's session path, a minted one (05 §2.1). Raises: `SessionStoreIdError`."""
        if session_id is not None:
            return Placed(require_session_id(session_id, self._mounts, new=True), False)
        declared = spec.trigger(trigger)
        if declared is not None and declared.session is not None:
            found = resolve_path(declared.session, variables)
            if isinstance(found, str) and found.strip():
                return Placed(require_session_id(found, self._mounts, new=True), False)
            if isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found):
                number = str(int(found)) if float(found).is_integer() else repr(found)
                return Placed(require_session_id(number, self._mounts, new=True), False)
        return Placed(mint_session_id(), True)

    async def check(
        self,
        log: SessionLog,
        head: Head | None,
        workflow: str,
        body: JsonObject,
        *,
        start: bool,
        minted: bool = False,
    ) -> None:
        """Raises what refuses the input. `start`: the session may be a new one; `minted`: it is one."""
        spec = await self.spec(workflow)
        if head is not None and head.workflow != workflow:
            raise WorkflowMismatch(log.session, workflow)
        if head is None:
            waiting = None if minted else await log.entry(1)
            if waiting is not None and waiting.workflow != workflow:
                raise WorkflowMismatch(log.session, workflow)
            if waiting is None and not start:
                raise SessionUnknown(log.session)
            state = None if waiting is None else _busy(log.session, workflow, 1, body)
            known: SessionState | None = None
            new = waiting is None
        else:
            state, known = await self._state(log, head, body)
            new = False
        disposition = check_input(spec, state, body, session_id=log.session)
        if disposition == "turn":
            await self._check_signature(spec, log.session, body, new=new, state=known, head=head)
        elif disposition == "deliver":
            check_seeds({name: 0 for name in body.get("variables") or {} if name != "title"})

    async def _state(
        self, log: SessionLog, head: Head, body: JsonObject
    ) -> tuple[SessionState, SessionState | None]:
        """What the input is judged against, and, when it stands still, what the session holds."""
        try:
            end = await log.over(head)
        except HeadMoved:
            end = None
        if end is None:
            return _busy(log.session, head.workflow, head.turn, body), None
        outline = outline_of(log.session, head, end)
        if outline is not None:
            return outline, outline
        view = await self._reader.session(log.session)
        return (
            (_busy(log.session, head.workflow, head.turn, body), None)
            if view.open
            else (
                view.state,
                view.state,
            )
        )

    async def _check_signature(
        self,
        spec: Spec,
        session: str,
        body: JsonObject,
        *,
        new: bool,
        state: SessionState | None,
        head: Head | None,
    ) -> None:
        trigger_id = body.get("trigger") or MANUAL
        trigger = spec.trigger(trigger_id)
        if trigger is None or not trigger.requires:
            return
        values = {**seeded(body.get("variables") or {}), "trigger": trigger_id}
        issues = signature_value_issues(trigger.requires, values)
        if not new and any(issue.kind == "missing" for issue in issues):
            if state is None or head is None:
                # a turn before it is still at work and may yet set them; its own opening judges
                issues = [issue for issue in issues if issue.kind == "invalid"]
            else:
                held = (await self._reader.session(session)).state.values
                issues = signature_value_issues(trigger.requires, {**held, **values})
        if issues:
            raise SignatureRefused(trigger_id, issues)


def _busy(session: str, workflow: str, turn: int, body: JsonObject) -> SessionState:
    """A session with a turn before this one: a message waits behind it, an answer to a park has none to answer."""
    state = SessionState(session, workflow)
    state.turn = turn
    state.status = "completed" if body["kind"] == "message" else "running"
    return state
