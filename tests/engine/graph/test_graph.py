from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from engine.graph import START, Edge, Graph, Marks, Node, dot, graph_of, mermaid, svg
from engine.graph.layout import BOX_HEIGHT, LABEL_HEIGHT, SMALL_CHARACTER, Layout, layout_of, shortened
from engine.host.artifacts import graph_json, plain_graph_json
from engine.spec.loader import load_workflow, usable_workflow
from engine.spec.tree import DirectoryTree, MemoryTree
from tests.support.command import REPOSITORY
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"

LOAN = """
title: Loans "out" <b>
states:
  screen:
    type: code
    script: scripts/screen.js
    triggers: { manual: , mail: }
    on_error: desk
    transitions: [{ to: assess, description: a }, { to: desk, description: b }]
  assess:
    title: Weigh | it]
    instructions: x
    transitions: [{ to: wording, description: The verdict is recorded. }]
  wording:
    type: grader
    instructions: x
    transitions: [{ to: registrar, description: y }, { to: assess, description: z }]
  registrar:
    type: human
    instructions: x
    transitions:
      - { to: end, type: approve, description: y }
      - { to: assess, type: refine, description: z }
      - { to: registrar, description: Ask a colleague. }
  desk:
    instructions: x
  end:
  lost:
    instructions: nothing leads here
"""


@pytest.fixture
def graph() -> Graph:
    spec = load_workflow(MemoryTree({"workflows/loan/workflow.yaml": LOAN}), "loan").spec
    assert spec is not None
    return graph_of(spec)


def test_a_graph_has_a_node_per_state_and_an_edge_per_way(graph: Graph):
    assert [node.id for node in graph.nodes] == [
        "__start__", "screen", "assess", "wording", "registrar", "desk", "end", "lost",
    ]  # fmt: skip
    assert [(edge.source, edge.target, edge.label) for edge in graph.edges if edge.kind != "move"] == [
        ("__start__", "screen", "manual"),
        ("__start__", "screen", "mail"),
        ("screen", "desk", "on_error"),
    ]
    assert {node.id for node in graph.nodes if node.terminal} == {"desk", "end", "lost"}


def test_mermaid_has_no_word_of_the_author_outside_quotes(graph: Graph):
    text = mermaid(graph)
    assert "Weigh #124; it#93;" in text
    assert not re.search(r"\bend\b", re.sub(r'"[^"]*"', "", text)), "`end` is a word of the language"
    assert text.count("-->") + text.count("-.->") == len(graph.edges)


def test_dot_is_read_by_graphviz_where_it_is_installed_and_quotes_balance(graph: Graph):
    text = dot(graph)
    assert 'digraph "Loans \\"out\\" <b>" {' in text
    assert len(re.findall(r'(?<!\\)"', text)) % 2 == 0
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text, text=True, check=True, capture_output=True)


def test_svg_is_well_formed_and_shows_every_state_and_edge(graph: Graph):
    root = ElementTree.fromstring(svg(graph))
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title") == 'Loans "out" <b>'
    assert len(root.findall(f".//{space}rect")) == len(graph.nodes)
    assert len(root.findall(f"{space}path")) == len(graph.edges)
    assert len(root.findall(f"{space}path[@class='error']")) == 1
    labels = [text.text for text in root.findall(f"{space}text")]
    assert labels == [edge.label for edge in graph.edges if edge.label]


@pytest.mark.parametrize(("suffix", "draw"), [("mmd", mermaid), ("dot", dot), ("svg", svg)])
def test_a_drawing_looks_as_its_golden_file_shows(graph: Graph, suffix: str, draw: Callable[[Graph], str]):
    assert_golden(GOLDEN / f"loan.{suffix}", draw(graph))


class Area(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def holds(self, x: float, y: float) -> bool:
        """Inside, with a little room for rounding."""
        return self.left + 0.5 < x < self.right - 0.5 and self.top + 0.5 < y < self.bottom - 0.5

    def meets(self, other: Area) -> bool:
        return (
            max(self.left, other.left) + 0.5 < min(self.right, other.right)
            and max(self.top, other.top) + 0.5 < min(self.bottom, other.bottom)
        )  # fmt: skip


def labels_of(graph: Graph, layout: Layout) -> dict[int, Area]:
    areas = {}
    for number, (edge, route) in enumerate(zip(graph.edges, layout.routes, strict=True)):
        if route.label is not None:
            x, y = route.label
            width = len(shortened(edge.label)) * SMALL_CHARACTER
            areas[number] = Area(x, y - LABEL_HEIGHT + 4, x + width, y + 2)
    return areas


def points_of(layout: Layout, number: int) -> Iterator[tuple[float, float]]:
    """The way as `svg` draws it, in small steps."""
    for before, at in pairwise(layout.routes[number].stops):
        middle = (before.bottom + at.top) / 2
        for part in range(21):
            t = part / 20
            a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            yield (a + b) * before.x + (c + d) * at.x, a * before.bottom + (b + c) * middle + d * at.top
        for part in range(11):
            yield at.x, at.top + (at.bottom - at.top) * part / 10


def assert_nothing_is_hidden(graph: Graph) -> None:
    layout = layout_of(graph)
    boxes = {
        slug: Area(box.x, box.y, box.x + box.width, box.y + BOX_HEIGHT) for slug, box in layout.boxes.items()
    }
    labels = labels_of(graph, layout)
    areas = [*boxes.values(), *labels.values()]
    assert not any(one.meets(other) for one, other in combinations(areas, 2))
    picture = Area(0, 0, layout.width, layout.height)
    for number in range(len(graph.edges)):
        others = [*boxes.values(), *(area for at, area in labels.items() if at != number)]
        for x, y in points_of(layout, number):
            assert picture.holds(x, y)
            assert not any(area.holds(x, y) for area in others), (graph.edges[number], x, y)
    assert all(picture.holds(*area[:2]) and picture.holds(*area[2:]) for area in areas)


def some_graph(seed: int) -> Graph:
    chance = random.Random(seed)
    slugs = [f"state-{number}" for number in range(chance.randint(1, 14))]
    edges = [
        Edge(START, chance.choice(slugs), f"trigger-{n}", "trigger") for n in range(chance.randint(0, 3))
    ]
    for slug in slugs:
        edges += [
            Edge(slug, chance.choice(slugs), chance.choice(["", "approve", "refine" * 9]), "move")
            for _ in range(chance.randint(0, 4))
        ]
        if chance.random() < 0.5:
            edges.append(Edge(slug, chance.choice(slugs), "on_error", "error"))
    nodes = [Node(START, "start", "start"), *(Node(s, s * chance.randint(1, 6), "code") for s in slugs)]
    once = {
        (edge.source, edge.target, edge.kind, edge.kind == "trigger" and edge.label): edge for edge in edges
    }
    return Graph("some", tuple(nodes), tuple(once.values()))


def test_no_box_label_or_way_hides_another(graph: Graph):
    """Ways run beside boxes and labels, never through them, however tangled the machine is."""
    assert_nothing_is_hidden(graph)
    for root, slug in (("order-desk", "order-desk"), ("refund", "refund")):
        assert_nothing_is_hidden(
            graph_of(usable_workflow(DirectoryTree(REPOSITORY / "examples" / root), slug))
        )
    for seed in range(40):
        assert_nothing_is_hidden(some_graph(seed))


def test_a_state_stands_below_all_that_lead_to_it_but_for_ways_back(graph: Graph):
    layout = layout_of(graph)
    up = {
        (edge.source, edge.target) for edge, route in zip(graph.edges, layout.routes, strict=True) if route.up
    }
    assert up == {("wording", "assess"), ("registrar", "assess")}
    assert all(
        layout.boxes[edge.source].y < layout.boxes[edge.target].y
        for edge in graph.edges
        if edge.source != edge.target and (edge.source, edge.target) not in up
    )


def test_the_artifact_shows_the_same_graph():
    """05 §16: one picture, whoever asks for it."""
    spec = usable_workflow(DirectoryTree(REPOSITORY / "examples" / "refund"), "refund")
    assert graph_json(spec)["mermaid"] == mermaid(graph_of(spec))
    plain = plain_graph_json()
    assert [(e["source"], e["target"], e["conditional"]) for e in plain["edges"]] == [
        ("__start__", "model", False),
        ("model", "tools", True),
        ("tools", "model", False),
    ]


def test_a_session_s_path_is_marked_by_classes_and_a_page_s_drawing_has_no_style_of_its_own(graph: Graph):
    marks = Marks(
        frozenset({("__start__", "screen", "mail"), ("screen", "desk", "on_error")}),
        frozenset({"__start__", "screen", "desk"}),
        "desk",
    )
    text = svg(graph, marks=marks)
    assert "style" not in text
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    groups = {g.findtext(f"{space}title"): g.attrib["class"] for g in root.findall(f"{space}g")}
    assert groups["screen"] == "code taken" and groups["desk"] == "agent taken at"
    assert groups["end"] == "agent"
    paths = [path.attrib.get("class") for path in root.findall(f"{space}path")]
    assert paths.count("taken") == 1 and paths.count("error taken") == 1
    assert "style" in svg(graph)
