"""Drawing a workflow's state machine: Mermaid, DOT, and SVG by a small layered layout of our own."""

from __future__ import annotations

from engine.graph.model import Edge, Graph, Node, graph_of
from engine.graph.svg import Marks, svg
from engine.graph.text import dot, mermaid

__all__ = ["Edge", "Graph", "Marks", "Node", "dot", "graph_of", "mermaid", "svg"]
