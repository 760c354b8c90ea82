"""What is drawn: a start for the triggers, a node per state, and every way from one to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from engine.spec.model import Spec

NodeKind: TypeAlias = Literal["start", "agent", "human", "grader", "code"]
EdgeKind: TypeAlias = Literal["trigger", "move", "error"]
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
    source: str
    target: str
    label: str
    kind: EdgeKind


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
            edges.append(Edge(state.slug, transition.to, label, "move"))
        if state.on_error is not None:
            edges.append(Edge(state.slug, state.on_error, "on_error", "error"))
    known = {node.id for node in nodes}
    return Graph(spec.title or spec.slug, tuple(nodes), tuple(edge for edge in edges if edge.target in known))
