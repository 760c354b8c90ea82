"""Graphs as SVG: states in layers by their distance from the start, edges as curves.

Forward edges run from the bottom of a box to the top of another; edges that go back or stay run around the right-hand
side. Boxes of a layer are put near the middle of what leads to them (one sweep). Every step is linear or a sort.

A whole document carries its style. For a page it is drawn without one: what a node or edge is stands in its classes, and the
page's style sheet says how that looks, as a strict content policy wants it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from engine.graph.model import START, Edge, Graph, Node

_LINE = 18
_HEIGHT = 44
_GAP_X = 36
_GAP_Y = 64
_MARGIN = 24
_CHARACTER = 7.4
_LONGEST_LABEL = 32
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


class _Box(NamedTuple):
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def svg(graph: Graph, *, marks: Marks | None = None) -> str:
    """A whole SVG document; with `marks`, one for a page: without a style of its own."""
    shown = marks or Marks()
    boxes = _layout(graph)
    right = max(box.x + box.width for box in boxes.values())
    drawn: list[str] = []
    lane = right
    beside: Counter[tuple[str, str]] = Counter()
    for edge in graph.edges:
        source, target = boxes[edge.source], boxes[edge.target]
        # edges side by side have one curve; their labels stand below one another
        down = 13.0 * beside[edge.source, edge.target]
        beside[edge.source, edge.target] += 1
        if target.y <= source.y:
            lane += 14
            drawn.append(_back(edge, source, target, lane, shown, down))
        else:
            drawn.append(_forward(edge, source, target, shown, down))
    drawn += [_node(node, boxes[node.id], shown) for node in graph.nodes]
    longest = max((len(_short(edge.label)) for edge in graph.edges), default=0)
    width = lane + _MARGIN + longest * _CHARACTER
    height = max(box.y for box in boxes.values()) + _HEIGHT + _MARGIN
    style = f"<style>{_STYLE}</style>\n" if marks is None else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}" role="img">\n'
        f"<title>{_text(graph.title)}</title>\n{style}"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
        ' markerUnits="userSpaceOnUse" orient="auto">'
        '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _layout(graph: Graph) -> dict[str, _Box]:
    layers = _layers(graph)
    incoming: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        incoming[edge.target].append(edge.source)
    rows: dict[int, list[Node]] = {}
    for node in graph.nodes:
        rows.setdefault(layers[node.id], []).append(node)
    widths = {node.id: max(90.0, len(_short(node.label)) * _CHARACTER + 28) for node in graph.nodes}
    spans = {layer: sum(widths[n.id] for n in row) + _GAP_X * (len(row) - 1) for layer, row in rows.items()}
    widest = max(spans.values())
    boxes: dict[str, _Box] = {}
    for layer in sorted(rows):
        row = sorted(rows[layer], key=lambda node: _pull(incoming[node.id], boxes))
        x = _MARGIN + (widest - spans[layer]) / 2
        for node in row:
            boxes[node.id] = _Box(x, _MARGIN + layer * (_HEIGHT + _GAP_Y), widths[node.id])
            x += widths[node.id] + _GAP_X
    return boxes


def _layers(graph: Graph) -> dict[str, int]:
    """Steps from the start, by breadth; what no edge reaches stands below everything else."""
    outgoing: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        outgoing[edge.source].append(edge.target)
    layers = {START: 0}
    waiting = deque([START])
    while waiting:
        at = waiting.popleft()
        for target in outgoing[at]:
            if target not in layers:
                layers[target] = layers[at] + 1
                waiting.append(target)
    last = max(layers.values()) + 1
    return {node.id: layers.get(node.id, last) for node in graph.nodes}


def _pull(sources: list[str], boxes: Mapping[str, _Box]) -> float:
    """Where a box wants to stand: the mean of the boxes above that lead to it."""
    placed = [boxes[source].middle for source in sources if source in boxes]
    return sum(placed) / len(placed) if placed else 0.0


def _forward(edge: Edge, source: _Box, target: _Box, marks: Marks, down: float) -> str:
    x1, y1, x2, y2 = source.middle, source.y + _HEIGHT, target.middle, target.y
    bend = (y2 - y1) / 2
    path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"
    return _edge(edge, path, (x1 + x2) / 2 + 4, (y1 + y2) / 2 + down, marks)


def _back(edge: Edge, source: _Box, target: _Box, lane: float, marks: Marks, down: float) -> str:
    x1, y1 = source.x + source.width, source.y + _HEIGHT / 2 + 6
    x2, y2 = target.x + target.width, target.y + _HEIGHT / 2 - 6
    path = f"M{x1:.0f} {y1:.0f}C{lane:.0f} {y1:.0f} {lane:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    return _edge(edge, path, (x1 + x2) / 8 + lane * 3 / 4 + 4, (y1 + y2) / 2 + down, marks)


def _edge(edge: Edge, path: str, x: float, y: float, marks: Marks) -> str:
    classes = (("error" if edge.kind == "error" else "") + marks.of_edge(edge)).strip()
    kind = f' class="{classes}"' if classes else ""
    drawn = f'<path{kind} d="{path}" marker-end="url(#tip)"/>'
    if edge.label:
        drawn += f'<text class="small" x="{x:.0f}" y="{y:.0f}">{_text(_short(edge.label))}</text>'
    return drawn


def _node(node: Node, box: _Box, marks: Marks) -> str:
    radius = _HEIGHT / 2 if node.kind == "start" else 6
    weight = ' stroke-width="2.5"' if node.terminal else ""
    drawn = (
        f'<g class="{node.kind}{marks.of_node(node.id)}"><title>{_text(node.label)}</title><rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}"'
        f' height="{_HEIGHT}" rx="{radius:.0f}" fill="{_FILL[node.kind]}"{weight}/>'
    )
    plain = node.kind in ("start", "agent")
    y = box.y + _HEIGHT / 2 + (5 if plain else -2)
    drawn += f'<text x="{box.middle:.0f}" y="{y:.0f}" text-anchor="middle">{_text(_short(node.label))}</text>'
    if not plain:
        drawn += f'<text class="small" x="{box.middle:.0f}" y="{y + _LINE:.0f}" text-anchor="middle">{node.kind}</text>'
    return drawn + "</g>"


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"


def _text(text: str) -> str:
    """Text of an XML 1.0 document: escaped, and without the characters it may not hold."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text))
