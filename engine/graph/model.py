"""What is drawn: a start for the triggers, a node per state, and every way from one to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from engine.spec.model import Spec

NodeKind: TypeAlias = Literal["start", "agent", "human", "grader", "code"]
#: "choice" is a plain agent's: taken when the model calls a tool
EdgeKind: TypeAlias = Literal["trigger", "move", "error", "choice"]
START = "__start__"


@dataclass(frozen=True, slots=True)
class Node:
    """`id` is the state's slug, which no start is called; `terminal` states end the session."""

    id: str
    label: str
    kind: NodeKind
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """`label` is short: a trigger's id, `on_error`, or the type of a person's choice. `description` is the author's."""

    source: str
    target: str
    label: str
    kind: EdgeKind
    description: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """In declaration order; edges end in nodes only."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def graph_of(spec: Spec) -> Graph:
    """The state machine of a workflow. Edges to states that do not exist are left out: `validate` reports them."""
    nodes = [Node(START, "start", "start")]
    edges: list[Edge] = []
    for state in spec.states.values():
        nodes.append(Node(state.slug, state.title or state.slug, state.type, terminal=state.terminal))
        edges += [Edge(START, state.slug, trigger, "trigger") for trigger in state.triggers]
    for state in spec.states.values():
        for transition in state.transitions:
            label = "" if transition.type == "none" else transition.type
            edges.append(Edge(state.slug, transition.to, label, "move", transition.description or ""))
        if state.on_error is not None:
            edges.append(Edge(state.slug, state.on_error, "on_error", "error"))
    known = {node.id for node in nodes}
    return Graph(spec.title or spec.slug, tuple(nodes), tuple(edge for edge in edges if edge.target in known))


def plain_graph() -> Graph:
    """An agent no workflow governs: a model that calls tools until it is done."""
    nodes = (
        Node(START, "start", "start"),
        Node("model", "model", "agent", terminal=True),
        Node("tools", "tools", "code"),
    )
    edges = (
        Edge(START, "model", "", "move"),
        Edge("model", "tools", "", "choice"),
        Edge("tools", "model", "", "move"),
    )
    return Graph("agent", nodes, edges)
