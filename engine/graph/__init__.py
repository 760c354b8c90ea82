"""Drawing a workflow's state machine: Mermaid, DOT, and SVG by a layered layout of our own."""

from __future__ import annotations

from engine.graph.model import START, Edge, Graph, Node, graph_of, plain_graph
from engine.graph.svg import Marks, svg
from engine.graph.text import dot, mermaid

__all__ = ["START", "Edge", "Graph", "Marks", "Node", "dot", "graph_of", "mermaid", "plain_graph", "svg"]
