"""Running a workflow's cases one after another, each on its own fresh session (06 §9, §11).

Who builds the agents is told from outside: one for the whole suite, or one per case from a builder that is given the
case's own model script.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from langchain_core.messages import AIMessage

from core.jsontext import JsonObject
from engine.cases.discovery import (
    CONFIG_FILE,
    DiscoveredCase,
    case_script,
    cases_folder,
    discover,
    has_config_file,
)
from engine.cases.errors import CaseTargetError, SuiteRefusedError
from engine.cases.judge import CaseJudge
from engine.cases.runner import CaseGrader, died_result, run_case
from engine.cases.verdict import CaseResult, SuiteResult, skipped_result, unparseable_result
from engine.errors import ModelConfigurationError
from engine.host.agent import Agent
from engine.models.errors import ModelScriptError
from engine.models.scope import ScriptPlay
from engine.models.script import ModelScript
from engine.models.usage import usage_of
from engine.spec.loader import load_workflow, usable
from engine.spec.model import Spec
from engine.spec.tree import AuthoringTree
from engine.turn.recorder import EventStream

#: a target for one case; it is given the case's own model script, if there is one
TargetBuilder: TypeAlias = Callable[[ModelScript | None], Awaitable[Agent]]
_MAX_NAME_CHARS: Final = 60


def assert_workflow_governed_target(agent: Any, workflow: str) -> None:
    """Raises: `CaseTargetError` unless `workflow` governs the agent."""
    governing = getattr(agent, "workflow", None) or None
    governed_by = getattr(governing, "name", governing)
    if governed_by != workflow:
        raise CaseTargetError(workflow, governed_by)


def case_session_id(workflow: str, file: str) -> str:
    """A session id of its own for one run of a case, readable in logs."""
    name = file.removeprefix(f"{cases_folder(workflow)}/").partition(".test.")[0]
    name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:_MAX_NAME_CHARS] or "case"
    return f"case-{name}-{uuid.uuid4().hex[:12]}"


def judge_of(agent: Agent, play: ScriptPlay, on_answer: Callable[[AIMessage], None]) -> CaseGrader | None:
    """What grades in the agent's workflow; None where it declares no judge. No model is built before a grade runs."""
    spec = agent.assembly.spec
    judge = spec.tests.judge
    if judge is None:
        return None
    models = agent.assembly.wiring.models
    return CaseJudge(
        lambda: models.model("judge", judge=judge), workflow=spec.slug, play=play, on_answer=on_answer
    ).grade


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What a suite is run with. The callbacks are synchronous and default to silence.

    `build` gives the target of each case. `scripts`: whether a case's own model script is played.
    """

    workflow: str
    tree: AuthoringTree
    build: TargetBuilder
    events: EventStream
    wanted: str | None = None
    scripts: bool = True
    on_selection: Callable[[int], None] | None = None
    on_case_start: Callable[[str, str], None] | None = None
    on_case_result: Callable[[CaseResult], None] | None = None
    session_id_for_case: Callable[[str], str] | None = None

    async def run(self, prepare: Callable[[], Awaitable[None]] | None = None) -> SuiteResult:
        """Discover, run, and say what came of it. `prepare` is awaited before the first case, if there is any.

        Raises: the workflow's load error; `SuiteRefusedError`; what a host's own wiring raises.
        """
        spec = usable(load_workflow(self.tree, self.workflow))
        if spec.disabled:
            return SuiteResult(skipped="disabled")
        folder = cases_folder(self.workflow)
        if has_config_file(self.tree, self.workflow):
            raise SuiteRefusedError(
                f"{folder}/{CONFIG_FILE} configures nothing any more: delete it, and keep `tests` in workflow.yaml"
            )
        discovered = discover(self.tree, folder)
        selected = [case for case in discovered if case.selected(self.wanted)]
        if selected and prepare is not None:
            await prepare()
        if self.on_selection is not None:
            self.on_selection(len(selected))
        results: list[CaseResult] = []
        for case in selected:
            result = await self._case(spec, folder, case)
            results.append(result)
            if self.on_case_result is not None:
                self.on_case_result(result)
        return SuiteResult(tuple(results), len(discovered))

    async def _case(self, spec: Spec, folder: str, case: DiscoveredCase) -> CaseResult:
        script: ModelScript | None = None
        if case.doc is not None and self.scripts:
            try:
                script = case_script(self.tree, case.file)
            except (ModelScriptError, OSError) as error:
                return unparseable_result(case.id, str(error))
        if case.doc is None:
            return unparseable_result(case.id, case.parse_error or case.file)
        if case.doc.skip is not None:
            return skipped_result(case.id, case.doc.title, case.doc.description, case.doc.skip)
        session_id = (self.session_id_for_case or partial(case_session_id, self.workflow))(case.file)
        if self.on_case_start is not None:
            self.on_case_start(case.file, session_id)
        try:
            agent = await self.build(script)
        except ModelConfigurationError as error:
            return died_result(case, str(error))
        play = ScriptPlay()
        return await run_case(
            case,
            agent=agent,
            authoring=self.tree,
            tests_dir=folder,
            session_id=session_id,
            grade=judge_of(agent, play, partial(self._told, agent, session_id)),
            case_timeout_ms=spec.tests.case_timeout_ms,
            script=script,
            play=play,
        )

    def _told(self, agent: Agent, session_id: str, answer: AIMessage) -> None:
        """What a judge's call cost counts for its case."""
        usage = usage_of(answer)
        if usage is not None:
            event: JsonObject = {"type": "model-usage", "role": "judge"}
            self.events.emit({**event, **usage.fields(agent.assembly.pricing)}, session_id=session_id)
