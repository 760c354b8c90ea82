"""Running one case: its start conditions, its steps, and what they come to (06 §3, §6, §7, §11).

A case dies of what a host would get as an error; a turn that ends badly is an outcome to assert. Whatever happens, the
records made before it survive, and every assertion that was not reached is `not-executed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, assert_never

from core.errors import ArchmaxError
from core.jsontext import Json
from engine.cases.assertions import evaluate
from engine.cases.clock import clock_ms
from engine.cases.discovery import DiscoveredCase
from engine.cases.document import (
    STRUCTURAL,
    Action,
    CaseDocument,
    Decide,
    Deliver,
    FixtureRef,
    Grade,
    Mock,
    Send,
    Step,
)
from engine.cases.errors import CaseStartError
from engine.cases.judge import grade_without_judge
from engine.cases.mocks import find_mock
from engine.cases.verdict import (
    CaseResult,
    Record,
    not_executed,
    reduce_verdict,
    skipped_result,
    unparseable_result,
)
from engine.cases.view import CaseView, view_of
from engine.cases.workspace import fixture_path
from engine.errors import UnknownTriggerError
from engine.host.agent import Agent
from engine.models.scope import ScriptPlay
from engine.models.script import ModelScript
from engine.session.outcome import Outcome
from engine.spec.tree import AuthoringTree
from engine.turn.context import MockResult, ToolMock
from engine.turn.inputs import MANUAL, check_seeds

#: grades one step over the view; see `engine.cases.judge.CaseJudge`
CaseGrader: TypeAlias = Callable[[Grade, CaseView, int], Awaitable[Record]]
#: the mocks of the case that runs in this context, for targets that are no governed agents of ours
current_mocks: ContextVar[Sequence[Mock]] = ContextVar("archmax_case_mocks", default=())


async def run_case(
    discovered: DiscoveredCase,
    *,
    agent: Agent,
    authoring: AuthoringTree,
    tests_dir: str,
    session_id: str,
    grade: CaseGrader | None = None,
    case_timeout_ms: int | None = None,
    script: ModelScript | None = None,
    play: ScriptPlay | None = None,
) -> CaseResult:
    """One case on a fresh session of `agent`. Never raises for the case's own failure.

    `script` is the case's own model script, whose answers must all be used; `play` says which are, and is shared with
    the judge. `case_timeout_ms` defaults to the workflow's `tests.caseTimeoutMs`.
    """
    doc = discovered.doc
    if doc is None:
        return unparseable_result(discovered.id, discovered.parse_error or discovered.file)
    if doc.skip is not None:
        return skipped_result(discovered.id, doc.title, doc.description, doc.skip)
    play = play or ScriptPlay()
    run = _Run(doc, agent, session_id, grade, play)
    limit_ms = case_timeout_ms or agent.assembly.spec.tests.case_timeout_ms
    died: str | None = None
    token = current_mocks.set(doc.mocks)
    bound = asyncio.timeout(limit_ms / 1000)
    try:
        async with bound:
            await run.begin(authoring, tests_dir)
            await run.work()
    except TimeoutError as error:
        died = (
            f"case {discovered.id!r} ran longer than its {limit_ms} ms (tests.caseTimeoutMs)"
            if bound.expired()
            else _said(error)
        )
    except Exception as error:
        died = _said(error)
    finally:
        current_mocks.reset(token)
    whole = died is None and not run.halted
    failures = [died] if died is not None else []
    failures += _script_failures(play, script if whole else None)
    records = [*run.records, *not_executed(doc.steps, run.reached)]
    return CaseResult(
        id=discovered.id,
        verdict=reduce_verdict(records, errors=failures),
        title=doc.title,
        description=doc.description,
        session_id=session_id,
        records=tuple(records),
        error=died,
    )


def died_result(discovered: DiscoveredCase, problem: str) -> CaseResult:
    """A case that could not even get its agent."""
    doc = discovered.doc
    if doc is None:
        return unparseable_result(discovered.id, discovered.parse_error or discovered.file)
    records = not_executed(doc.steps, 0)
    return CaseResult(
        discovered.id,
        reduce_verdict(records, errors=[problem]),
        doc.title,
        doc.description,
        records=tuple(records),
        error=problem,
    )


def _said(error: Exception) -> str:
    message = str(error)
    if isinstance(error, ArchmaxError) and message:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def turn_mocks(mocks: Sequence[Mock]) -> ToolMock | None:
    """What a turn asks for the answer of a call it may make. None when the case declares no mocks."""
    if not mocks:
        return None

    def answer(tool: str, args: Mapping[str, Any]) -> MockResult | None:
        found = find_mock(mocks, tool, args)
        return None if found is None else MockResult(found.result)

    return answer


def _script_failures(play: ScriptPlay, script: ModelScript | None) -> list[str]:
    """What the case's script makes of it (09 §2). A case cut short leaves answers unused that are not at fault."""
    found = list(dict.fromkeys(play.exhausted))
    if script is not None:
        found += [
            f"{script.file}:{answer.line}: answer {answer.index} was not used (mark it optional if it may stay so)"
            for answer in script.unused(play.used)
        ]
    return found


@dataclass
class _Run:
    """One case under way. `reached` is the first step that was neither done nor judged."""

    doc: CaseDocument
    agent: Agent
    session_id: str
    grade: CaseGrader | None
    play: ScriptPlay
    records: list[Record] = field(default_factory=list)
    reached: int = 0
    halted: bool = False

    @property
    def trigger(self) -> str:
        return self.doc.trigger or MANUAL

    async def begin(self, authoring: AuthoringTree, tests_dir: str) -> None:
        """The start conditions in their order (06 §7). Raises what kills the case."""
        doc, spec = self.doc, self.agent.assembly.spec
        if doc.mocks and not self.agent.tool_mocks:
            raise CaseStartError(
                "the case declares mocks and its target cannot intercept the agent's calls: "
                "wire create_tool_mock_middleware()"
            )
        if spec.trigger(self.trigger) is None:
            raise UnknownTriggerError(self.trigger, spec.trigger_ids)
        check_seeds(doc.variables)
        options: dict[str, Any] = {"mock": turn_mocks(doc.mocks), "play": self.play}
        if doc.clock is not None:
            now = _instant(doc.clock)
            options["clock"] = lambda: now
        self.agent = self.agent.with_options(**options)
        files = {
            path: _fixture(authoring, tests_dir, content) if isinstance(content, FixtureRef) else content
            for path, content in doc.workspace.items()
        }
        if files:
            await self.agent.sessions.seed(self.session_id, files)

    async def work(self) -> None:
        view: CaseView | None = None
        for at, step in enumerate(self.doc.steps):
            if isinstance(step, Send | Decide | Deliver):
                self.reached = at
                view = view_of(_taken(await self._act(step)))
            else:
                assert view is not None  # an assertion without an action above it does not parse
                found = await self._judge(step, view, at)
                self.records += found
                self.halted = step.key in STRUCTURAL and any(record.status == "failed" for record in found)
            self.reached = at + 1
            if self.halted:
                return

    async def _act(self, action: Action) -> Outcome:
        match action:
            case Send(text):
                return await self.agent.send(
                    self.session_id, message=text, trigger=self.trigger, variables=self.doc.variables
                )
            case Decide(to, comment):
                return await self.agent.decide(self.session_id, to, comment)
            case Deliver(trigger, variables):
                return await self.agent.deliver(self.session_id, trigger, variables)
            case _:
                assert_never(action)

    async def _judge(self, step: Step, view: CaseView, at: int) -> Sequence[Record]:
        if isinstance(step, Grade):
            return [
                await self.grade(step, view, at) if self.grade is not None else grade_without_judge(step, at)
            ]
        assert not isinstance(step, Send | Decide | Deliver)
        return evaluate(step, view, at)


def _taken(outcome: Outcome) -> Outcome:
    """The outcome of an input the session took. One it refused is the error a host would get."""
    if outcome.kind in ("refused", "cancelled"):
        raise CaseStartError(str((outcome.problem or {}).get("message", outcome.kind)))
    return outcome


def _instant(clock: str) -> datetime:
    ms = clock_ms(clock)
    assert ms is not None  # a malformed clock does not parse
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def _fixture(authoring: AuthoringTree, tests_dir: str, ref: FixtureRef) -> Json | bytes:
    path = fixture_path(ref.path, tests_dir)
    if path is None:
        raise CaseStartError(f"workspace: from {ref.path!r} must be a relative path below tests/")
    try:
        body = authoring.read(path)
    except OSError as error:
        raise CaseStartError(
            f"workspace: the fixture {path} cannot be read: {error.strerror or error}"
        ) from error
    if body is None:
        raise CaseStartError(f"workspace: the fixture {path} does not exist")
    return body
