"""Graphs as SVG: boxes and curves where `engine.graph.layout` puts them.

A whole document carries its style. For a page it is drawn without one: what a node or edge is stands in its classes, and the
page's style sheet says how that looks, as a strict content policy wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from engine.graph.layout import BOX_HEIGHT, LOOP, Box, Route, Stop, layout_of, shortened
from engine.graph.model import Edge, Graph, Node

_LINE = 18
_FILL = {"start": "#ffffff", "agent": "#e8f0fe", "human": "#fef3d7", "grader": "#eadcf8", "code": "#e2f3e5"}
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}"
    "text.small{font-size:11px;fill:#59636e}"
    "rect{stroke:#59636e}path{fill:none;stroke:#59636e}path.error{stroke-dasharray:5 4;stroke:#b35900}"
    "path.tip{fill:#59636e;stroke:none}"
)


@dataclass(frozen=True, slots=True)
class Marks:
    """What a session made of a graph: the moves it took, the states it was in, where it stands.

    A move is its source, its target, and by what: a trigger's id, `on_error`, or `""`.
    """

    moves: frozenset[tuple[str, str, str]] = frozenset()
    states: frozenset[str] = frozenset()
    at: str | None = None

    def of_node(self, node: str) -> str:
        return (" taken" if node in self.states else "") + (" at" if node == self.at else "")

    def of_edge(self, edge: Edge) -> str:
        by = "" if edge.kind == "move" else edge.label
        return " taken" if (edge.source, edge.target, by) in self.moves else ""


def svg(graph: Graph, *, marks: Marks | None = None) -> str:
    """A whole SVG document; with `marks`, one for a page: without a style of its own."""
    shown = marks or Marks()
    layout = layout_of(graph)
    ways = list(zip(graph.edges, layout.routes, strict=True))
    ways.sort(
        key=lambda way: shown.of_edge(way[0])
    )  # what is drawn last hides nothing of a way that was taken
    drawn = [_edge(edge, route, layout.boxes[edge.source], shown) for edge, route in ways]
    drawn += [_node(node, layout.boxes[node.id], shown) for node in graph.nodes]
    style = f"<style>{_STYLE}</style>\n" if marks is None else ""
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" role="img">\n'
        f"<title>{_text(graph.title)}</title>\n{style}"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
        ' markerUnits="userSpaceOnUse" orient="auto">'
        '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _curve(stops: Sequence[Stop]) -> str:
    """Upright at every stop, so that the curves stay between the ranks."""
    path = [f"M{stops[0].x:.1f} {stops[0].bottom:.0f}"]
    for before, at in pairwise(stops):
        middle = (before.bottom + at.top) / 2
        if before.x != at.x:
            path.append(f"C{before.x:.1f} {middle:.0f} {at.x:.1f} {middle:.0f} {at.x:.1f} {at.top:.0f}")
        if before.x == at.x or at.top != at.bottom:
            path.append(f"V{at.bottom:.0f}")
    return "".join(path)


def _loop(box: Box) -> str:
    """Out of the right-hand side and back into it."""
    x, y = box.x + box.width, box.y + BOX_HEIGHT / 2
    return (
        f"M{x:.1f} {y - 10:.0f}C{x + LOOP:.1f} {y - 16:.0f} {x + LOOP:.1f} {y + 16:.0f} {x:.1f} {y + 10:.0f}"
    )


def _edge(edge: Edge, route: Route, source: Box, marks: Marks) -> str:
    classes = (("error" if edge.kind == "error" else "") + marks.of_edge(edge)).strip()
    kind = f' class="{classes}"' if classes else ""
    path = _curve(route.stops) if route.stops else _loop(source)
    drawn = f'<path{kind} d="{path}" marker-end="url(#tip)"/>'
    if route.label is not None:
        x, y = route.label
        drawn += f'<text class="small" x="{x:.1f}" y="{y:.0f}">{_text(shortened(edge.label))}</text>'
    return drawn


def _node(node: Node, box: Box, marks: Marks) -> str:
    radius = BOX_HEIGHT / 2 if node.kind == "start" else 6
    weight = ' stroke-width="2.5"' if node.terminal else ""
    drawn = (
        f'<g class="{node.kind}{marks.of_node(node.id)}"><title>{_text(node.label)}</title><rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}"'
        f' height="{BOX_HEIGHT:.0f}" rx="{radius:.0f}" fill="{_FILL[node.kind]}"{weight}/>'
    )
    plain = node.kind in ("start", "agent")
    y = box.y + BOX_HEIGHT / 2 + (5 if plain else -2)
    drawn += (
        f'<text x="{box.middle:.0f}" y="{y:.0f}" text-anchor="middle">{_text(shortened(node.label))}</text>'
    )
    if not plain:
        drawn += f'<text class="small" x="{box.middle:.0f}" y="{y + _LINE:.0f}" text-anchor="middle">{node.kind}</text>'
    return drawn + "</g>"


def _text(text: str) -> str:
    """Text of an XML 1.0 document: escaped, and without the characters it may not hold."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text))
