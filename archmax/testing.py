"""Running a workflow's cases from Python: what `archmax test` does, without its output (06 §13).

    from archmax.testing import run_tests

    suite = await run_tests("refund", root="examples/refund")
    assert suite.exit_code == 0

`ARCHMAX_*` variables and `ARCHMAX_HOST` are read as the command reads them; `.env` files are the command's own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from archmax.settings import read_settings
from core.jsontext import JsonObject
from engine.cases.discovery import DiscoveredCase, discover
from engine.cases.document import (
    CASE_DESCRIPTION_MAX_LENGTH,
    CASE_TITLE_MAX_LENGTH,
    CaseDocument,
    CaseSchemaError,
)
from engine.cases.errors import CaseTargetError, SuiteRefusedError
from engine.cases.matching import partial_match
from engine.cases.parse import parse_case_document
from engine.cases.runner import CaseGrader, run_case
from engine.cases.serialize import serialize_case_document
from engine.cases.suite import Suite, assert_workflow_governed_target
from engine.cases.verdict import (
    CaseResult,
    Record,
    SuiteResult,
    Verdict,
    exit_code_for_verdict,
    reduce_verdict,
)
from engine.host.agent import Agent
from engine.host.driver import TurnOptions
from engine.host.session_folder import SessionFolder
from engine.models.factory import HostModelFactory, ModelFactory
from engine.models.script import ModelScript
from engine.spec.tree import AuthoringTree, DirectoryTree
from engine.turn.assembly import assemble
from engine.turn.recorder import EventSink, EventStream
from sandbox import Sandbox
from storage.memory import MemoryStore
from worker.host import HostContext, load_host, wire_fleet
from worker.settings import FleetSettings, ModelEnvironment

if TYPE_CHECKING:
    from engine.cases.mock_middleware import ToolMockMiddleware

__all__ = [
    "CASE_DESCRIPTION_MAX_LENGTH",
    "CASE_TITLE_MAX_LENGTH",
    "CaseDocument",
    "CaseGrader",
    "CaseResult",
    "CaseSchemaError",
    "CaseTargetError",
    "DiscoveredCase",
    "Record",
    "SuiteRefusedError",
    "SuiteResult",
    "Verdict",
    "assert_workflow_governed_target",
    "create_case_target",
    "create_tool_mock_middleware",
    "discover_cases",
    "exit_code_for_verdict",
    "parse_case_document",
    "partial_match",
    "reduce_verdict",
    "run_case",
    "run_tests",
    "serialize_case_document",
]

#: a built agent, or a factory that is given `workflow`, `root` and `on_event`
CaseTarget: TypeAlias = Agent | Callable[..., Agent | Awaitable[Agent]]


async def run_tests(
    workflow: str,
    *,
    root: str | PathLike[str] | None = None,
    authoring: AuthoringTree | None = None,
    filter: str | None = None,
    on_event: EventSink | None = None,
    on_selection: Callable[[int], None] | None = None,
    on_case_start: Callable[[str, str], None] | None = None,
    on_case_result: Callable[[CaseResult], None] | None = None,
    model_factory: HostModelFactory | None = None,
    create_target: CaseTarget | None = None,
    session_id_for_case: Callable[[str], str] | None = None,
    live: bool = False,
) -> SuiteResult:
    """Discover and run a workflow's cases; prints nothing.

    `root` is the workspace (default: the current directory); `authoring` replaces it as the source of specs, cases and
    fixtures. `on_selection` is told how many cases will run. `live` ignores the model scripts beside the cases; so do `model_factory` and `create_target`.
    Raises: the workflow's load error, `SuiteRefusedError`, `CaseTargetError`, and what the host's wiring raises.
    """
    at = await asyncio.to_thread(lambda: Path(root or ".").resolve())
    tree = authoring or DirectoryTree(at)
    events = EventStream(on_event)
    held: list[Agent] = []

    async def prepare() -> None:
        if create_target is not None:
            held.append(await _given_target(create_target, workflow, at, on_event))
            assert_workflow_governed_target(held[0], workflow)

    async with Sandbox() as sandbox:

        async def build(script: ModelScript | None) -> Agent:
            if held:
                return held[0]
            agent = await create_case_target(
                workflow,
                root=at,
                authoring=authoring,
                events=events,
                model_factory=model_factory,
                script=script,
                sandbox=sandbox,
            )
            assert_workflow_governed_target(agent, workflow)
            return agent

        suite = Suite(
            workflow=workflow,
            tree=tree,
            build=build,
            events=events,
            wanted=filter,
            scripts=not live and model_factory is None and create_target is None,
            on_selection=on_selection,
            on_case_start=on_case_start,
            on_case_result=on_case_result,
            session_id_for_case=session_id_for_case,
        )
        return await suite.run(prepare)


async def _given_target(target: CaseTarget, workflow: str, root: Path, on_event: EventSink | None) -> Agent:
    if not callable(target):
        return target
    built = target(workflow=workflow, root=root, on_event=on_event)
    return await built if inspect.isawaitable(built) else built


async def create_case_target(
    workflow: str,
    *,
    root: str | PathLike[str] | None = None,
    authoring: AuthoringTree | None = None,
    on_event: EventSink | None = None,
    events: EventStream | None = None,
    model_factory: HostModelFactory | None = None,
    script: ModelScript | None = None,
    sandbox: Sandbox | None = None,
) -> Agent:
    """The agent a case runs on by default: the workspace's own wiring, and sessions in memory that nobody else sees.

    `ARCHMAX_HOST` is called with the purpose `test`. `script` beats every other model. `events` is a stream shared with
    other targets; `sandbox` one to share. With neither that nor the host's it has its own, which its `close` ends: use it
    as `async with await create_case_target(…) as agent`.
    Raises: the assembly errors, `HostError`.
    """
    at = await asyncio.to_thread(lambda: Path(root or ".").resolve())
    settings = read_settings(FleetSettings).model_copy(update={"root": at})
    environment = read_settings(ModelEnvironment)
    host = await load_host(settings.host, HostContext(at, workflow, "test"))
    own = Sandbox()  # starts nothing until it is used
    given = {**host, "authoring": authoring} if authoring is not None else host
    wiring = await wire_fleet(settings, environment, given, sandbox or own)
    models = ModelFactory(
        environment.model_settings(),
        instance=None if model_factory is not None else host.get("model"),
        host=model_factory or host.get("model_factory"),
        script=script,
        root=at,
    )
    assembly = await asyncio.to_thread(assemble, replace(wiring, models=models), workflow)
    return Agent(
        assembly,
        SessionFolder(MemoryStore()),
        events or EventStream(on_event),
        session_path=host.get("session_path"),
        options=TurnOptions(recursion_limit=host.get("recursion_limit", settings.recursion_limit)),
        owns=own,
    )


def create_tool_mock_middleware() -> ToolMockMiddleware:
    """The middleware that lets cases mock the tools of an agent a host built with LangChain itself."""
    from engine.cases.mock_middleware import ToolMockMiddleware  # LangChain's agents are slow to import

    return ToolMockMiddleware()


async def discover_cases(authoring: AuthoringTree, tests_dir: str) -> list[DiscoveredCase]:
    """Every case below `tests_dir`; one that does not parse says why."""
    return await asyncio.to_thread(discover, authoring, tests_dir)


def suite_json(workflow: str, suite: SuiteResult) -> JsonObject:
    """The document `archmax test --json` prints."""
    return {"workflow": workflow, **suite.to_json()}
