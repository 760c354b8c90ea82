"""`archmax sessions` (07 §9): the listing, or one session in full. No model is configured or asked."""

from __future__ import annotations

import json

from archmax.cli.invocation import Invocation
from archmax.cli.local_agent import context_of
from archmax.cli.render.parks import DecisionContext
from archmax.cli.render.sessions import session_detail, sessions_listing
from archmax.settings import read_settings
from core.jsontext import JsonObject
from engine.host.session_folder import SessionFolder
from engine.session.outcome import delegation_of, summary_of
from engine.session.state import SessionState
from engine.spec.tree import DirectoryTree
from engine.turn.library import WorkflowLibrary
from worker.settings import FleetSettings


async def run(invocation: Invocation) -> int:
    settings = read_settings(FleetSettings).model_copy(update={"root": invocation.root})
    store = settings.open_store()
    try:
        folder = SessionFolder(store)
        library = WorkflowLibrary(DirectoryTree(invocation.root))
        wanted = invocation.arguments.get("session")
        if wanted is not None:
            return await _one(invocation, folder, library, wanted)
        return await _all(invocation, folder, library)
    finally:
        await store.close()


async def _one(
    invocation: Invocation, folder: SessionFolder, library: WorkflowLibrary, session_id: str
) -> int:
    state = await folder.load(session_id)
    if state is None or state.turn == 0:
        invocation.err.write(f"Error: no session {session_id!r} here; archmax sessions lists them\n")
        return 1
    summary = summary_of(state)
    if invocation.flag("json"):
        _print(invocation, summary)
    else:
        invocation.out.write(session_detail(summary, await _context(folder, library, state)) + "\n")
    return 0


async def _all(invocation: Invocation, folder: SessionFolder, library: WorkflowLibrary) -> int:
    summaries: list[JsonObject] = []
    contexts: dict[str, DecisionContext] = {}
    async for session_id in folder.session_ids():
        try:
            state = await folder.load(session_id)
        except Exception as error:
            invocation.err.write(f"⚠ session {session_id!r} cannot be read: {error}\n")
            continue
        if state is None or state.turn == 0:
            continue
        summaries.append(summary_of(state))
        context = await _context(folder, library, state)
        if context is not None:
            contexts[session_id] = context
    if invocation.flag("json"):
        _print(invocation, summaries)
    else:
        invocation.out.write(sessions_listing(summaries, contexts) + "\n")
    return 0


async def _context(
    folder: SessionFolder, library: WorkflowLibrary, state: SessionState
) -> DecisionContext | None:
    if state.status != "awaiting_decision":
        return None
    spec = library.usable(state.workflow)
    return await context_of(folder, library, spec, state.pending_decision, delegation_of(state))


def _print(invocation: Invocation, value: object) -> None:
    invocation.out.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
