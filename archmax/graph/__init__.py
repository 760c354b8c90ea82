"""Drawing a workflow's state machine: Mermaid, DOT, and SVG by a small layered layout of our own."""

from __future__ import annotations

from archmax.graph.model import Edge, Graph, Node, graph_of
from archmax.graph.svg import svg
from archmax.graph.text import dot, mermaid

__all__ = ["Edge", "Graph", "Node", "dot", "graph_of", "mermaid", "svg"]
