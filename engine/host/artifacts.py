"""A session's artifacts (05 §16): its graph, trail, variables, trajectory and metadata, each derived from what the log holds.

A plain agent has no spec: its graph is the loop itself, and it has neither trail nor variables to show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from core.jsontext import JsonObject, dumps
from core.version import package_version
from engine.graph import Graph, graph_of, mermaid, plain_graph
from engine.session.state import SessionState
from engine.spec.model import RuntimeContract, Spec

TEST_FORMAT: Final = "archmax-test@3"


def graph_json(spec: Spec) -> JsonObject:
    """`{nodes, edges, entry?, finals, mermaid}`: no criteria, no script."""
    entry = spec.entry_state("manual") or next(
        (slug for slug, state in spec.states.items() if state.triggers), None
    )
    return _graph_json(graph_of(spec), entry)


def plain_graph_json() -> JsonObject:
    return _graph_json(plain_graph(), "model")


def _graph_json(graph: Graph, entry: str | None) -> JsonObject:
    """`conditional` is whatever no state of the machine moves by: triggers, error routes."""
    nodes: list[JsonObject] = []
    for node in graph.nodes:
        shown: JsonObject = {"id": node.id, "type": node.kind}
        if node.kind != "start" and node.label != node.id:
            shown["title"] = node.label
        nodes.append(shown)
    edges: list[JsonObject] = []
    for edge in graph.edges:
        drawn: JsonObject = {
            "source": edge.source,
            "target": edge.target,
            "conditional": edge.kind != "move",
        }
        label = edge.description if edge.kind == "move" else edge.label
        if label:
            drawn["label"] = label
        edges.append(drawn)
    body: JsonObject = {
        "nodes": nodes,
        "edges": edges,
        "finals": [node.id for node in graph.nodes if node.terminal],
    }
    if entry is not None:
        body["entry"] = entry
    return {**body, "mermaid": mermaid(graph)}


def runtime_contract(runtime: RuntimeContract) -> JsonObject:
    return {
        "engine": runtime.engine,
        "version": runtime.version,
        "source": runtime.source,
        "sandbox": "quickjs-ng",
        "testFormat": TEST_FORMAT,
    }


def metadata_json(spec: Spec, state: SessionState) -> JsonObject:
    body: JsonObject = {
        "sessionId": state.session_id,
        "workflow": spec.slug,
        "runtimeContract": runtime_contract(spec.runtime),
        "packageVersion": package_version(),
    }
    if state.spec_hash:
        body["specHash"] = state.spec_hash
    if state.usage:
        body["usage"] = dict(state.usage)
    return body


def trail_json(spec: Spec, state: SessionState) -> JsonObject:
    return {"sessionId": state.session_id, "workflow": spec.slug, "steps": state.trail}


def variables_json(spec: Spec, state: SessionState) -> JsonObject:
    held = {name: variable.to_json() for name, variable in state.variables.items()}
    return {"sessionId": state.session_id, "workflow": spec.slug, "variables": held}


def trajectory_json(spec: Spec, state: SessionState, records: Sequence[Mapping[str, Any]]) -> JsonObject:
    """What was said and called in each state, by folding the records once more."""
    folded = SessionState(state.session_id, state.workflow)
    segments: list[JsonObject] = []
    calls: dict[str, JsonObject] = {}
    prompt: str | None = None
    answer = ""
    for record in records:
        at = record.get("at")
        for change in record.get("changes", ()):
            before = folded.position
            folded.apply(change)
            if folded.position is not None and (folded.position != before or not segments):
                if segments:
                    segments[-1]["exitedState"] = at
                segments.append({"state": folded.position, "enteredState": at, "items": []})
            if not segments:
                continue
            items: list[JsonObject] = segments[-1]["items"]
            if change["t"] == "message":
                message = change["m"]
                if message["text"].strip():
                    items.append({"kind": "message", "role": message["role"], "content": message["text"]})
                if message["role"] == "user" and prompt is None and not message.get("note"):
                    prompt = message["text"]
                if message["role"] == "assistant" and message["text"].strip():
                    answer = message["text"]
                for call in message.get("calls") or ():
                    shown: JsonObject = {
                        "kind": "tool_call",
                        "name": call["name"],
                        "args": call.get("args", call.get("raw")),
                        "result": None,
                    }
                    calls[call["id"]] = shown
                    items.append(shown)
            elif change["t"] == "result" and change["id"] in calls:
                calls[change["id"]]["result"] = change["text"]
    body: JsonObject = {"sessionId": state.session_id, "workflow": spec.slug}
    if prompt is not None:
        body["prompt"] = prompt
    return {**body, "finalAnswer": answer, "segments": segments}


#: the artifacts that need no records, by name
_PLAIN: Final[Mapping[str, Callable[[Spec, SessionState], JsonObject]]] = {
    "metadata.json": metadata_json,
    "trail.json": trail_json,
    "variables.json": variables_json,
}
NAMES: Final = ("graph.json", "graph.mmd", "metadata.json", "trail.json", "trajectory.json", "variables.json")
TRAJECTORY: Final = "trajectory.json"


def artifact(
    name: str, spec: Spec, state: SessionState, records: Sequence[Mapping[str, Any]]
) -> tuple[bytes, str] | None:
    """Content and media type. `records` are needed for the trajectory alone. None: no such artifact."""
    if name == "graph.mmd":
        return graph_json(spec)["mermaid"].encode(), "text/plain"
    if name == "graph.json":
        return dumps(graph_json(spec)), "application/json"
    if name == TRAJECTORY:
        return dumps(trajectory_json(spec, state, records)), "application/json"
    make = _PLAIN.get(name)
    return None if make is None else (dumps(make(spec, state)), "application/json")
