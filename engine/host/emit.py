"""Writing a session's artifacts, best effort: what cannot be written is told, never raised (05 §16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.jsontext import JsonObject, dumps
from engine.host.artifacts import (
    graph_json,
    metadata_json,
    plain_graph_json,
    trail_json,
    variables_json,
)
from engine.host.session_folder import SessionFolder
from engine.session.state import SessionState
from engine.turn.assembly import Assembly
from storage.layout import SessionKeys


async def emit_artifacts(
    assembly: Assembly,
    folder: SessionFolder,
    session_id: str,
    *,
    trajectory: Mapping[str, Any],
    trail: Sequence[JsonObject] | None,
    usage: JsonObject | None,
    on_problem: Callable[[str], None],
) -> str | None:
    """The folder they lie in, relative to the store's root; None when nothing could be written.

    `usage` is what this process saw spent, used when the log cannot be read. Values are verbatim.
    """
    state: SessionState | None = None
    try:
        state = await folder.load(session_id)
    except Exception as error:
        on_problem(f"session {session_id!r} cannot be read: {error}")
    files = _bodies(assembly, session_id, state, trajectory, trail, usage)
    place = f"{SessionKeys(session_id).root}artifacts"
    written = 0
    for name, body in files.items():
        try:
            content = body.encode("utf-8") if isinstance(body, str) else dumps(body)
            await folder.files.store.put(f"{place}/{name}", content)
            written += 1
        except Exception as error:
            on_problem(f"{name} of session {session_id!r} was not written: {error}")
    return place if written else None


def _bodies(
    assembly: Assembly,
    session_id: str,
    state: SessionState | None,
    trajectory: Mapping[str, Any],
    trail: Sequence[JsonObject] | None,
    usage: JsonObject | None,
) -> dict[str, JsonObject | str]:
    spec, plain = assembly.spec, assembly.plain
    workflow = None if plain else spec.slug
    read = state if state is not None and state.turn > 0 else None
    graph = plain_graph_json() if plain else graph_json(spec)
    metadata = metadata_json(spec, read or SessionState(session_id, spec.slug))
    metadata["workflow"] = workflow
    if plain:
        metadata.pop("specHash", None)
    if usage is not None:
        metadata.setdefault("usage", usage)
    files: dict[str, JsonObject | str] = {
        "graph.json": graph,
        "graph.mmd": graph["mermaid"],
        "trajectory.json": {"sessionId": session_id, "workflow": workflow, **trajectory},
        "metadata.json": metadata,
    }
    if plain:
        return files
    # an empty file would claim that nothing happened: what cannot be read is not written
    if trail is not None:
        files["trail.json"] = {"sessionId": session_id, "workflow": workflow, "steps": list(trail)}
    elif read is not None:
        files["trail.json"] = trail_json(spec, read)
    if read is not None:
        files["variables.json"] = variables_json(spec, read)
    return files
