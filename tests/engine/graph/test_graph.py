from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from engine.graph import Graph, Marks, dot, graph_of, mermaid, svg
from engine.graph.svg import _layout
from engine.spec.loader import load_workflow
from engine.spec.tree import MemoryTree

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
    transitions: [{ to: end, type: approve, description: y }, { to: assess, type: refine, description: z }]
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


def test_boxes_of_a_layer_do_not_overlap_and_lie_within_the_picture(graph: Graph):
    boxes = list(_layout(graph).values())
    for layer in {box.y for box in boxes}:
        row = sorted(box for box in boxes if box.y == layer)
        assert all(left.x + left.width < right.x for left, right in pairwise(row))
    assert min(box.x for box in boxes) > 0
    width = float(ElementTree.fromstring(svg(graph)).attrib["width"])
    assert max(box.x + box.width for box in boxes) < width


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
