"""A session's artifacts (05 §16): its graph, trail, variables, trajectory and metadata, each derived from what the log holds.

A plain agent has no spec: its graph is the loop itself, and it has neither trail nor variables to show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from core.jsontext import JsonObject, dumps
from engine.session.state import SessionState
from engine.spec.model import RuntimeContract, Spec

START: Final = "__start__"
_SHAPES: Final = {"agent": ("[", "]"), "human": ("{{", "}}"), "grader": ("{", "}"), "code": ("[[", "]]")}
TEST_FORMAT: Final = "archmax-test@3"


def graph_json(spec: Spec) -> JsonObject:
    """`{nodes, edges, entry?, finals, mermaid}`: no criteria, no script."""
    nodes: list[JsonObject] = [{"id": START, "type": "start"}]
    edges: list[JsonObject] = []
    for state in spec.states.values():
        node: JsonObject = {"id": state.slug, "type": state.type}
        if state.title:
            node["title"] = state.title
        nodes.append(node)
        edges += [
            {"source": START, "target": state.slug, "conditional": True, "label": trigger}
            for trigger in state.triggers
        ]
    for state in spec.states.values():
        for transition in state.transitions:
            edge: JsonObject = {"source": state.slug, "target": transition.to, "conditional": False}
            if transition.description:
                edge["label"] = transition.description
            edges.append(edge)
        if state.on_error is not None:
            edges.append(
                {"source": state.slug, "target": state.on_error, "conditional": True, "label": "on_error"}
            )
    known = {node["id"] for node in nodes}
    edges = [edge for edge in edges if edge["target"] in known]
    body: JsonObject = {
        "nodes": nodes,
        "edges": edges,
        "finals": [state.slug for state in spec.states.values() if state.terminal],
    }
    entry = spec.entry_state("manual") or next(
        (slug for slug, state in spec.states.items() if state.triggers), None
    )
    if entry is not None:
        body["entry"] = entry
    return {**body, "mermaid": mermaid(body)}


def mermaid(graph: JsonObject) -> str:
    """A flowchart; states by number, because a slug such as `end` is a word of the language."""
    ids = {node["id"]: f"s{number}" for number, node in enumerate(graph["nodes"])}
    finals = set(graph["finals"])
    lines = ["flowchart TD"]
    for node in graph["nodes"]:
        kind = node["type"]
        opening, closing = ("((", "))") if kind == "start" else _SHAPES[kind]
        if node["id"] in finals:
            opening, closing = "([", "])"
        caption = node.get("title") or ("start" if kind == "start" else node["id"])
        if kind in ("human", "grader", "code"):
            caption = f"{caption} ({kind})"
        lines.append(f'  {ids[node["id"]]}{opening}"{_quoted(caption)}"{closing}')
    for edge in graph["edges"]:
        arrow = "-.->" if edge["conditional"] else "-->"
        label = f'|"{_quoted(edge["label"])}"|' if edge.get("label") else ""
        lines.append(f"  {ids[edge['source']]} {arrow}{label} {ids[edge['target']]}")
    return "\n".join(lines) + "\n"


def _quoted(caption: str) -> str:
    return "".join(char if char.isalnum() or char in " -_.,:/()" else f"#{ord(char)};" for char in caption)


def plain_graph_json() -> JsonObject:
    """An agent no workflow governs: a model that calls tools until it is done."""
    nodes: list[JsonObject] = [
        {"id": START, "type": "start"},
        {"id": "model", "type": "agent"},
        {"id": "tools", "type": "code"},
    ]
    edges: list[JsonObject] = [
        {"source": START, "target": "model", "conditional": False},
        {"source": "model", "target": "tools", "conditional": True},
        {"source": "tools", "target": "model", "conditional": False},
    ]
    body: JsonObject = {"nodes": nodes, "edges": edges, "finals": ["model"], "entry": "model"}
    return {**body, "mermaid": mermaid(body)}


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
        "packageVersion": _package_version(),
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


def _package_version() -> str:
    try:
        return version("archmax-fleet")
    except PackageNotFoundError:
        return "0"


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
