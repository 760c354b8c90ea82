"""Graphs as text for other programs: Mermaid and Graphviz DOT. Labels are the author's and are quoted as data."""

from __future__ import annotations

from engine.graph.model import Graph, Node

_MERMAID_SHAPES = {
    "start": ("((", "))"),
    "agent": ("[", "]"),
    "human": ("{{", "}}"),
    "grader": ("{", "}"),
    "code": ("[[", "]]"),
}
_DOT_SHAPES = {
    "start": "circle",
    "agent": "box",
    "human": "hexagon",
    "grader": "diamond",
    "code": "component",
}


def _mermaid_text(text: str) -> str:
    """Mermaid's entities for everything that is not plain inside quotes."""
    return "".join(char if char.isalnum() or char in " -_.,:/()" else f"#{ord(char)};" for char in text)


def mermaid(graph: Graph) -> str:
    """A `flowchart`; states by number, because a slug such as `end` is a word of the language.

    Moves of the machine are drawn through, triggers and error routes dashed.
    """
    ids = {node.id: f"s{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    for node in graph.nodes:
        opening, closing = ("([", "])") if node.terminal else _MERMAID_SHAPES[node.kind]
        lines.append(f'  {ids[node.id]}{opening}"{_mermaid_text(_caption(node))}"{closing}')
    for edge in graph.edges:
        arrow = "-->" if edge.kind == "move" else "-.->"
        said = ": ".join(filter(None, (edge.label, edge.description)))
        label = f'|"{_mermaid_text(said)}"|' if said else ""
        lines.append(f"  {ids[edge.source]} {arrow}{label} {ids[edge.target]}")
    return "\n".join(lines) + "\n"


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def dot(graph: Graph) -> str:
    lines = [f"digraph {_dot_text(graph.title)} {{", "  rankdir=TB;", '  node [fontname="sans-serif"];']
    for node in graph.nodes:
        style = ", peripheries=2" if node.terminal else ""
        lines.append(
            f"  {_dot_text(node.id)} [label={_dot_text(_caption(node))}, shape={_DOT_SHAPES[node.kind]}{style}];"
        )
    for edge in graph.edges:
        attributes = [f"label={_dot_text(edge.label)}"] if edge.label else []
        attributes += ["style=dashed"] if edge.kind == "error" else []
        tail = f" [{', '.join(attributes)}]" if attributes else ""
        lines.append(f"  {_dot_text(edge.source)} -> {_dot_text(edge.target)}{tail};")
    return "\n".join([*lines, "}"]) + "\n"


def _caption(node: Node) -> str:
    return node.label if node.kind in ("start", "agent") else f"{node.label} ({node.kind})"
