"""Where the parts of a drawing stand: a layered layout in four named steps, each linear or a sort.

1. `_layers`: every way that closes a circle is turned round; then a state stands below all that lead to it.
2. `_thread`: between two layers of boxes lies a rank for labels. A way that passes a rank has a point of its own there,
   so it never runs through a box or a label. Ways of one kind to one state share their points: they join.
3. `_order`: what belongs to one rank is put in the order of its neighbours, down and up again (barycentres).
4. `_place`: everything moves as near to its neighbours as order and width allow (least squares, pooled).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from engine.graph.model import START, Edge, Graph

BOX_HEIGHT = 44.0
LABEL_HEIGHT = 16.0
#: width of one character of a state's name, and of a label
CHARACTER, SMALL_CHARACTER = 7.6, 6.4
LONGEST = 32
MARGIN = 24.0
LOOP = 26.0
_GAP_X = 36.0
_GAP_LINES = 14.0
_GAP_Y = 26.0
_SWEEPS = 6

#: a box by its state's slug; a point of a way by what shares it
Key: TypeAlias = Hashable


class Box(NamedTuple):
    """The upper left corner and the width; the height is `BOX_HEIGHT`."""

    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


class Stop(NamedTuple):
    """A way stands upright at `x` from `top` to `bottom`."""

    x: float
    top: float
    bottom: float


class Route(NamedTuple):
    """The stops of a way in its own direction; `label` is where its text begins. A loop has no stops."""

    stops: tuple[Stop, ...]
    label: tuple[float, float] | None
    up: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """`routes` are in the order of the graph's edges."""

    boxes: dict[str, Box]
    routes: tuple[Route, ...]
    width: float
    height: float


def shortened(label: str) -> str:
    return label if len(label) <= LONGEST else label[: LONGEST - 1] + "…"


def layout_of(graph: Graph) -> Layout:
    threads = _thread(graph, _layers(graph))
    ranks = _order(threads)
    x = _place(threads, ranks)
    return _drawn(graph, threads, x)


def _layers(graph: Graph) -> dict[str, int]:
    """The start is 0; any other state is at least 1."""
    outgoing: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        outgoing[edge.source].append(edge.target)
    done: dict[str, None] = {}
    closing: set[tuple[str, str]] = set()
    for root in (START, *outgoing):
        path = [(root, iter(outgoing[root]))] if root not in done else []
        on_path = {root}
        while path:
            at, following = path[-1]
            step = next((target for target in following if target not in done), None)
            if step is None:
                path.pop()
                on_path.discard(at)
                done[at] = None
            elif step in on_path:
                closing.add((at, step))
            else:
                on_path.add(step)
                path.append((step, iter(outgoing[step])))
    layers = {node.id: min(1, node.id != START) for node in graph.nodes}
    for at in reversed(done):  # the order in which nothing comes before what leads to it
        for target in outgoing[at]:
            if (at, target) not in closing:
                layers[target] = max(layers[target], layers[at] + 1)
    return layers


@dataclass(slots=True)
class _Threads:
    """`chains` are each edge's keys from above to below; empty for a loop. Extents are left and right of a key's x."""

    rank: dict[Key, int] = field(default_factory=dict)
    left: dict[Key, float] = field(default_factory=dict)
    right: dict[Key, float] = field(default_factory=dict)
    above: dict[Key, dict[Key, None]] = field(default_factory=dict)
    below: dict[Key, dict[Key, None]] = field(default_factory=dict)
    chains: list[tuple[Key, ...]] = field(default_factory=list)

    def add(self, key: Key, rank: int, left: float, right: float) -> Key:
        if key not in self.rank:
            self.rank[key], self.left[key], self.right[key] = rank, left, right
            self.above[key], self.below[key] = {}, {}
        return key

    def beside(self, key: Key) -> list[Key]:
        return [*self.above[key], *self.below[key]]


def _label_width(label: str) -> float:
    return len(shortened(label)) * SMALL_CHARACTER


def _thread(graph: Graph, layers: dict[str, int]) -> _Threads:
    threads = _Threads()
    loops: dict[str, float] = {}
    for edge in graph.edges:
        if edge.source == edge.target:
            loops[edge.source] = max(loops.get(edge.source, 0.0), _label_width(edge.label))
    for node in graph.nodes:
        half = max(90.0, len(shortened(node.label)) * CHARACTER + 28) / 2
        beside = LOOP + loops[node.id] if node.id in loops else 0.0
        threads.add(node.id, 2 * layers[node.id], half, half + beside)
    for number, edge in enumerate(graph.edges):
        if edge.source == edge.target:
            threads.chains.append(())
            continue
        down = layers[edge.source] < layers[edge.target]
        upper, lower = (edge.source, edge.target) if down else (edge.target, edge.source)
        chain = [
            _point(
                threads, edge, number, rank, down=down, first=2 * layers[edge.source] + (1 if down else -1)
            )
            for rank in range(2 * layers[upper] + 1, 2 * layers[lower])
        ]
        threads.chains.append((upper, *chain, lower))
        for high, low in pairwise(threads.chains[-1]):
            threads.below[high][low] = None
            threads.above[low][high] = None
    return threads


def _point(threads: _Threads, edge: Edge, number: int, rank: int, *, down: bool, first: int) -> Key:
    """A way's label stands in the rank beside its source; everywhere else it shares its point."""
    if edge.label and rank == first:
        return threads.add(number, rank, 4.0, 8.0 + _label_width(edge.label))
    return threads.add((edge.target, edge.kind, down, rank), rank, 4.0, 4.0)


def _order(threads: _Threads) -> list[list[Key]]:
    ranks: list[list[Key]] = [[] for _ in range(max(threads.rank.values()) + 1)]
    for key, rank in threads.rank.items():
        ranks[rank].append(key)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = threads.above if down else threads.below
        seat = {key: float(at) for rank in ranks for at, key in enumerate(rank)}
        for rank in ranks if down else reversed(ranks):
            wish = {key: _mean([seat[other] for other in neighbours[key]], seat[key]) for key in rank}
            rank.sort(key=wish.__getitem__)
            seat.update((key, float(at)) for at, key in enumerate(rank))
    return ranks


def _place(threads: _Threads, ranks: Sequence[Sequence[Key]]) -> dict[Key, float]:
    """The x of every key; the leftmost extent is at the margin."""
    x: dict[Key, float] = {}
    for rank in ranks:
        x.update(zip(rank, _apart(threads, rank, [0.0] * len(rank)), strict=True))
    for sweep in range(2 * _SWEEPS):
        for rank in ranks if sweep % 2 == 0 else reversed(ranks):
            wishes = [_mean([x[other] for other in threads.beside(key)], x[key]) for key in rank]
            x.update(zip(rank, _apart(threads, rank, wishes), strict=True))
    start = min(at - threads.left[key] for key, at in x.items()) - MARGIN
    return {key: at - start for key, at in x.items()}


def _apart(threads: _Threads, rank: Sequence[Key], wishes: Sequence[float]) -> list[float]:
    """The positions nearest to the wishes (least squares) that keep order and distance: neighbours too close are pooled."""
    offsets = [0.0]
    for one, other in pairwise(rank):
        boxes = isinstance(one, str) and isinstance(other, str)
        offsets.append(
            offsets[-1] + threads.right[one] + threads.left[other] + (_GAP_X if boxes else _GAP_LINES)
        )
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wishes, offsets, strict=False):
        total, count = wish - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            more, others = pools.pop()
            total, count = total + more, count + others
        pools.append((total, count))
    levels = [total / count for total, count in pools for _ in range(count)]
    return [level + offset for level, offset in zip(levels, offsets, strict=False)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _drawn(graph: Graph, threads: _Threads, x: dict[Key, float]) -> Layout:
    pitch = BOX_HEIGHT + LABEL_HEIGHT + 2 * _GAP_Y

    def top(key: Key) -> float:
        layer, label = divmod(threads.rank[key], 2)
        return MARGIN + layer * pitch + label * (BOX_HEIGHT + _GAP_Y)

    def stop(key: Key) -> Stop:
        height = LABEL_HEIGHT if threads.rank[key] % 2 else BOX_HEIGHT
        return Stop(x[key], top(key), top(key) + height)

    #: a box's ways are spread over each of its sides in the order in which they arrive
    seats = {
        (node.id, at): {other: share for share, other in enumerate(sorted(side, key=x.__getitem__), 1)}
        for node in graph.nodes
        for at, side in (("top", threads.above[node.id]), ("bottom", threads.below[node.id]))
    }

    def port(box: str, side: str, other: Key) -> Stop:
        shares = seats[box, side]
        at = x[box] + threads.left[box] * (2 * shares[other] / (len(shares) + 1) - 1)
        y = top(box) + (BOX_HEIGHT if side == "bottom" else 0)
        return Stop(at, y, y)

    boxes = {
        node.id: Box(x[node.id] - threads.left[node.id], top(node.id), 2 * threads.left[node.id])
        for node in graph.nodes
    }
    routes: list[Route] = []
    loops: Counter[str] = Counter()
    for number, (edge, chain) in enumerate(zip(graph.edges, threads.chains, strict=True)):
        if not chain:
            box = boxes[edge.source]
            label = (box.x + box.width + LOOP, box.y + 17 + LABEL_HEIGHT * loops[edge.source])
            loops[edge.source] += bool(edge.label)
            routes.append(Route((), label if edge.label else None))
            continue
        upper, *points, lower = chain
        assert isinstance(upper, str)  # a chain begins and ends in boxes
        assert isinstance(lower, str)
        stops = [
            port(upper, "bottom", points[0]),
            *map(stop, points),
            port(lower, "top", points[-1]),
        ]
        up = edge.target == upper
        if up:
            stops = [Stop(at.x, at.bottom, at.top) for at in reversed(stops)]
        label = (x[number] + 5, top(number) + LABEL_HEIGHT - 4) if edge.label else None
        routes.append(Route(tuple(stops), label, up))
    layers = max(threads.rank[node.id] for node in graph.nodes) // 2
    return Layout(
        boxes,
        tuple(routes),
        max(at + threads.right[key] for key, at in x.items()) + MARGIN,
        MARGIN + layers * pitch + BOX_HEIGHT + MARGIN,
    )
