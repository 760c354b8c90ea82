"""The agent behind the session commands: the workspace's sessions, its model from the environment, no fleet needed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from archmax.cli.invocation import Invocation
from archmax.cli.render.flow import StateFlow
from archmax.cli.render.outcomes import report
from archmax.cli.render.parks import DecisionContext, Hints, decision_context
from archmax.cli.render.style import style_for
from archmax.cli.render.usage import UsageMeter, usage_line
from archmax.settings import read_settings
from core.jsontext import JsonObject
from engine.host.agent import Agent
from engine.host.driver import TurnOptions
from engine.host.session_folder import SessionFolder
from engine.session.outcome import Outcome, delegation_of
from engine.spec.model import Spec
from engine.turn.assembly import assemble
from engine.turn.library import WorkflowLibrary
from engine.turn.recorder import EventStream
from sandbox import Sandbox
from storage.directory import DirectoryStore
from worker.host import HostContext, load_host, session_store, wire_fleet
from worker.settings import FleetSettings, ModelEnvironment


@asynccontextmanager
async def local_agent(
    invocation: Invocation, workflow: str, on_event: Callable[[JsonObject], None] | None
) -> AsyncGenerator[Agent]:
    """An agent over the root's sessions. Raises: assembly and configuration errors, one line each."""
    settings = read_settings(FleetSettings).model_copy(update={"root": invocation.root})
    host = await load_host(settings.host, HostContext(invocation.root, workflow, "run"))
    own = session_store(settings, host, "run")
    store = own.objects if own is not None else settings.open_store()
    lock_root = store.root if isinstance(store, DirectoryStore) else None
    async with Sandbox() as sandbox:
        wiring = await wire_fleet(settings, read_settings(ModelEnvironment), host, sandbox)
        assembly = assemble(wiring, workflow)
        limit = host.get("recursion_limit", settings.recursion_limit)
        try:
            yield Agent(
                assembly,
                SessionFolder(store, lock_root=lock_root),
                EventStream(on_event),
                session_path=host.get("session_path"),
                options=TurnOptions(recursion_limit=limit),
                store=own,
            )
        finally:
            await store.close()


class TurnView:
    """What a command that runs a turn shows: the state flow while it runs, its outcome, and what it spent."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._style = style_for(invocation.err)
        self.flow = StateFlow(invocation.err, style=self._style, verbose=invocation.flag("verbose"))
        self._meter = UsageMeter()

    def __call__(self, event: JsonObject) -> None:
        self._meter(event)
        self.flow(event)

    async def finish(self, agent: Agent, outcome: Outcome) -> int:
        """Report and return the exit code."""
        invocation = self._invocation
        hints = Hints(outcome.session_id, invocation.hint_options())
        disposition: Any = outcome.disposition
        code = report(
            outcome.to_json(),
            hints,
            disposition=disposition,
            context=await context_of(
                agent.folder, agent.assembly.library, agent.assembly.spec, outcome.pending, outcome.delegation
            ),
            style=self._style,
        ).write(invocation.out, invocation.err)
        line = usage_line(self._meter.total)
        if line is not None:
            invocation.err.write(line + "\n")
        return code


async def context_of(
    folder: SessionFolder,
    library: WorkflowLibrary,
    spec: Spec | None,
    pending: JsonObject | None,
    delegation: JsonObject | None,
) -> DecisionContext | None:
    """What a person decides on; a child's, at any depth, when a child session holds the decision.

    `spec` is the session's own, `delegation` the child it waits on as an outcome names it.
    """
    if pending is None:
        return None
    workflow: str | None = None
    if delegation is not None:
        workflow = await _asking_workflow(folder, delegation)
        spec = library.usable(workflow)
    declared = spec.states.get(pending["state"]) if spec is not None else None
    return decision_context(pending, declared, workflow=workflow)


async def _asking_workflow(folder: SessionFolder, delegation: JsonObject) -> str:
    """The child's workflow, or that of the child which the child waits on."""
    state = await folder.load(delegation["sessionId"])
    below = delegation_of(state) if state is not None else None
    return delegation["workflow"] if below is None else await _asking_workflow(folder, below)
